"""Gradient accumulation that reduces once per window and counts every token once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from meshwright.errors import InputError
from meshwright.gradsync.group import Group, gathered, global_rank, world_size
from meshwright.messages import N_, Text

T = TypeVar("T")
Normalizer = Literal["global", "rank", "micro_batch"]


@contextmanager
def _fsdp_no_sync(module: Any) -> Iterator[None]:
    module.set_requires_gradient_sync(False)
    try:
        yield
    finally:
        module.set_requires_gradient_sync(True)


def no_sync(module: nn.Module) -> AbstractContextManager[None]:
    """Backward passes inside leave their gradients on the rank: for DDP, FSDP2 and plain modules alike.

    The forward pass belongs inside too: DDP decides there whether it will reduce.
    """
    if isinstance(module, DistributedDataParallel):
        return module.no_sync()
    if hasattr(module, "set_requires_gradient_sync"):
        return _fsdp_no_sync(module)
    return nullcontext()


@dataclass(frozen=True, slots=True)
class MicroBatch(Generic[T]):
    """One micro-batch of a window, and what its summed loss has to be multiplied with."""

    data: T
    index: int
    last: bool
    scale: float

    def scaled(self, loss_sum: torch.Tensor) -> torch.Tensor:
        """The loss to call `backward` on."""
        return loss_sum * self.scale


def accumulate(
    module: nn.Module,
    window: Sequence[T],
    counts: Sequence[float],
    *,
    normalizer: Normalizer = "global",
    n_global: float | None = None,
    group: Group = None,
) -> Iterator[MicroBatch[T]]:
    """Walk through the micro-batches of one optimizer step; only the last one reduces.

        for micro in accumulate(ddp, batches, [token_count(b.labels) for b in batches]):
            micro.scaled(loss_sum(ddp(micro.data))).backward()
        optimizer.step()

    `counts` says how many tokens (or samples) of each micro-batch count, `n_global` their sum over ranks where it is
    known already. `global` is the gradient of the mean over all of them. The other two repeat what trainers did
    before 2025: `rank` divides by the tokens of the rank's own window, `micro_batch` takes the mean of means.
    Windows may differ in length between ranks, but none may be empty: DDP needs a backward pass on every rank.
    """
    ranks = world_size(group)
    if n_global is None:
        table = gathered([len(window), sum(counts)], group)
        _refuse_empty(table, group)
        n_global = sum(row[1] for row in table)
    of_rank = sum(counts)
    for index, (data, count) in enumerate(zip(window, counts, strict=True)):
        scale = {
            "global": ranks / max(n_global, 1),
            "rank": 1 / max(of_rank, 1),
            "micro_batch": 1 / max(count, 1) / len(window),
        }[normalizer]
        scale = scale if count else 0.0  # a stand-in that only keeps step, or wholly masked
        last = index == len(window) - 1
        with nullcontext() if last else no_sync(module):
            yield MicroBatch(data, index, last, scale)


def _refuse_empty(table: Sequence[Sequence[float]], group: Group) -> None:
    empty = [str(global_rank(place, group)) for place, row in enumerate(table) if not row[0]]
    if empty:
        raise InputError(
            Text(N_("no micro-batch in this window on rank {ranks}"), ranks=", ".join(empty)),
            where="accumulate",
            fix=Text(
                N_("deal every rank one, or take the windows from `uneven_windows`, which repeats one with weight 0")
            ),
        )
