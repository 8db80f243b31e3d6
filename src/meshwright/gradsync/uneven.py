"""Ranks whose data end at different steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from torch.distributed.algorithms.join import Join, Joinable

from meshwright.errors import InputError
from meshwright.gradsync.group import Group, gathered, global_rank
from meshwright.messages import N_, Text

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Window(Generic[T]):
    """The micro-batches of one optimizer step on one rank; a count of 0 marks one that only keeps step."""

    data: tuple[T, ...]
    counts: tuple[float, ...]
    n_global: float
    active: int  # ranks that still had data


def uneven_windows(
    batches: Iterable[T],
    count: Callable[[T], float],
    *,
    size: int = 1,
    stand_in: T | None = None,
    group: Group = None,
) -> Iterator[Window[T]]:
    """Windows of `size` micro-batches until the data of every rank are used up, each sample counted once.

    A rank that has run out repeats its last micro-batch (or `stand_in`) with weight 0. It would have waited anyway;
    so it keeps taking part in every collective, whatever hook, sharding or accumulation is used, and its optimizer
    keeps step with the others. Feed the window to `accumulate`.
    """
    source = iter(batches)
    latest = stand_in
    while True:
        data: list[T] = []
        for _, batch in zip(range(size), source, strict=False):
            data.append(batch)
        counts = [float(count(batch)) for batch in data]
        latest = data[-1] if data else latest
        table = gathered([sum(counts), len(data), latest is not None], group)
        active = sum(row[1] > 0 for row in table)
        if not active:
            return
        _refuse_ranks_without_any(table, group)
        missing = size - len(data)
        yield Window(
            (*data, *[latest] * missing),  # type: ignore[arg-type]
            (*counts, *[0.0] * missing),
            sum(row[0] for row in table),
            active,
        )


def _refuse_ranks_without_any(table: list[list[float]], group: Group) -> None:
    never = [str(global_rank(place, group)) for place, row in enumerate(table) if not row[2]]
    if never:
        raise InputError(
            Text(N_("rank {ranks} has no data at all, so it has nothing to repeat"), ranks=", ".join(never)),
            where="uneven_windows",
            fix=Text(N_("pass stand_in= a micro-batch of the usual shape")),
        )


def shadow_join(modules: list[Joinable], *, divide_by: str = "initial") -> Join:
    """torch's own `Join`: ranks that ran out answer collectives with zeros; nothing is weighted by samples.

    `initial` divides the sum by the ranks that started, so late steps are smaller; `active` by those still there.
    A rank that has joined takes no optimizer steps: it receives the parameters, not the optimizer state, at the end.
    """
    options: dict[str, Any] = {"divide_by_initial_world_size": divide_by == "initial"}
    return Join(modules, **options)
