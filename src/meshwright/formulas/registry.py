"""`@formula(id, source)`: registers a formula and, only under a recorder, notes what it was given and gave.

`explain`, the page of all formulas and the citation list are read from this registry; idle cost is one context lookup.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Formula:
    """One registered formula: its id, citation, and the function itself."""

    id: str
    source: str
    equation: str
    function: Callable[..., Any]

    @property
    def summary(self) -> str:
        """First line of the docstring."""
        return (inspect.getdoc(self.function) or "").split("\n", 1)[0]


@dataclass(frozen=True, slots=True)
class Call:
    """One recorded evaluation of a formula."""

    id: str
    inputs: dict[str, Any]
    output: Any


REGISTRY: dict[str, Formula] = {}
_recorder: ContextVar[list[Call] | None] = ContextVar("recorder", default=None)
_recorders = 0  # open recordings of all contexts: the idle path looks at nothing else


def formula(id: str, *, source: str, equation: str = "") -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Register a function as the formula `id` with its citation and (plain-text) equation."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
            if not _recorders or (calls := _recorder.get()) is None:
                return function(*args, **kwargs)
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            result = function(*args, **kwargs)
            calls.append(Call(id, dict(bound.arguments), result))
            return result

        if id in REGISTRY:
            raise ValueError(f"formula {id} registered twice")
        REGISTRY[id] = Formula(id, source, equation, wrapper)
        return wrapper

    return decorate


@contextmanager
def recording() -> Iterator[list[Call]]:
    """Collect every formula call made inside the block."""
    global _recorders
    calls: list[Call] = []
    token = _recorder.set(calls)
    _recorders += 1
    try:
        yield calls
    finally:
        _recorders -= 1
        _recorder.reset(token)
