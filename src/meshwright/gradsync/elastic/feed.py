"""What a step trains on: global batch, micro-batches and seed, the same at every world size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from meshwright.errors import InputError
from meshwright.gradsync.elastic.deal import deal
from meshwright.gradsync.elastic.order import samples_at
from meshwright.messages import N_, Text

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed(Generic[T]):
    """`fetch` turns sample indices into a micro-batch; `count` says how many tokens (or samples) of it count."""

    size: int  # samples in the data set
    global_batch: int  # samples of one optimizer step, over all ranks
    micro_batches: int  # into which a step is cut, over all ranks: this, not the world size, fixes the shapes
    seed: int
    fetch: Callable[[Sequence[int]], T]
    count: Callable[[T], float]

    def __post_init__(self) -> None:
        if self.size < 1:
            raise InputError(Text(N_("the data set is empty")), where="size", fix=Text(N_("check the path")))
        if self.micro_batches < 1 or self.global_batch < 1 or self.global_batch % self.micro_batches:
            raise InputError(
                Text(
                    N_("{batch} samples cannot be cut into {n} equal micro-batches"),
                    batch=self.global_batch,
                    n=self.micro_batches,
                ),
                where="micro_batches",
                fix=Text(N_("choose one of {names}"), names=", ".join(map(str, _divisors(self.global_batch)))),
            )

    @property
    def facts(self) -> dict[str, int]:
        """What decides which samples a step sees; a run resumes only where these are the same."""
        return {name: getattr(self, name) for name in ("size", "global_batch", "micro_batches", "seed")}

    def indices(self, step: int, micro_batch: int) -> list[int]:
        """Samples of one micro-batch."""
        each = self.global_batch // self.micro_batches
        first = step * self.global_batch + micro_batch * each
        return list(map(int, samples_at(range(first, first + each), self.size, self.seed)))

    def window(self, step: int, rank: int, world: int) -> tuple[list[tuple[int, T]], list[float]]:
        """Micro-batches that a rank computes in a step, each with its number, and what of each counts."""
        turns = deal(self.micro_batches, world, rank)
        fetched: dict[int, Any] = {}
        for turn in turns:
            if turn.micro_batch not in fetched:
                fetched[turn.micro_batch] = self.fetch(self.indices(step, turn.micro_batch))
        data = [(turn.micro_batch, fetched[turn.micro_batch]) for turn in turns]
        return data, [float(self.count(d)) if t.counts else 0.0 for t, (_, d) in zip(turns, data, strict=True)]


def _divisors(n: int) -> list[int]:
    return [d for d in range(1, min(n, 4096) + 1) if n % d == 0][:12] or [1]
