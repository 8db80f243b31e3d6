"""Micro-batches dealt to however many ranks there are: the global batch stays what it is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Turn:
    """One micro-batch that a rank computes; one that does not count only keeps the rank in step with the others."""

    micro_batch: int
    counts: bool = True


def deal(micro_batches: int, world: int, rank: int) -> tuple[Turn, ...]:
    """The turns of a rank: as many for each rank, every micro-batch counted once over all of them.

    Where the ranks do not divide the micro-batches, some repeat one without weight. That costs no time, since they
    would wait for the others, and lets sharded modules gather their parameters together.

    >>> [[t.micro_batch for t in deal(8, 3, rank) if t.counts] for rank in range(3)]
    [[0, 1], [2, 3, 4], [5, 6, 7]]
    """
    begin, end = rank * micro_batches // world, (rank + 1) * micro_batches // world
    turns = [Turn(m) for m in range(begin, end)]
    idle = -(-micro_batches // world) - len(turns)
    spare = turns[-1].micro_batch if turns else 0
    return (*turns, *[Turn(spare, counts=False)] * idle)
