"""Named constants with a physical meaning: kernel efficiencies by architecture, habits of a software stack.

One TOML file per thing under data/kernels and data/software; every constant carries value, unit, basis, source.
`inherits` names a file of the same folder whose constants hold where this one is silent. What was fitted to measured
runs lies apart, in data/calibration, and replaces the value of that file; a calibration in progress lays its own
values over both (`overlaid`).
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from meshwright.errors import UnknownNameError

DATA = Path(__file__).parent / "data"
F = TypeVar("F", bound=Callable[..., Any])

_trial: dict[str, float] = {}  # "kernels.hopper.launch" → value, while a calibration tries it
_caches: list[Any] = []


def remembers_constants(maxsize: int) -> Callable[[F], F]:
    """`lru_cache` for what depends on constants: forgotten when other values are laid over them."""

    def decorate(function: F) -> F:
        cached = lru_cache(maxsize=maxsize)(function)
        _caches.append(cached)
        return cached  # type: ignore[return-value]

    return decorate


@contextmanager
def overlaid(values: Mapping[str, float]) -> Iterator[None]:
    """Constants with other values, by "kind.name.constant", inside the block."""
    before = dict(_trial)
    _trial.update(values)
    _forget()
    try:
        yield
    finally:
        _trial.clear()
        _trial.update(before)
        _forget()


def _forget() -> None:
    for cached in _caches:
        cached.cache_clear()


@lru_cache(maxsize=1)
def fitted() -> Mapping[str, float]:
    """Values fitted to measured runs, by "kind.name.constant"; empty where there is no fit."""
    path = DATA / "calibration" / "step-time.toml"
    if not path.is_file():
        return {}
    document = tomllib.loads(path.read_text("utf-8"))
    return {key: entry["value"] for key, entry in document["constants"].items()}


@remembers_constants(maxsize=64)
def constants(kind: str, name: str, fits: bool = True) -> Mapping[str, Any]:
    """Values of file `data/<kind>/<name>.toml`, inherited ones included; `fits`: and as fitted to measured runs.

    Raises `UnknownNameError` when there is no such file.
    """
    path = DATA / kind / f"{name}.toml"
    if not path.is_file():
        raise UnknownNameError(kind, name, names(kind))
    document = tomllib.loads(path.read_text("utf-8"))
    values: dict[str, Any] = {}
    if parent := document.get("inherits"):
        values.update(constants(kind, parent, fits))
    values.update({key: entry["value"] for key, entry in document.get("constants", {}).items()})
    prefix = f"{kind}.{name}."
    for known in (fitted(), _trial) if fits else ():
        values.update({key.removeprefix(prefix): value for key, value in known.items() if key.startswith(prefix)})
    return MappingProxyType(values)


@lru_cache(maxsize=8)
def names(kind: str) -> tuple[str, ...]:
    """All names of a kind."""
    return tuple(sorted(p.stem for p in (DATA / kind).glob("*.toml")))
