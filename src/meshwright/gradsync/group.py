"""The process group of a data-parallel run: who I am, and small facts that all ranks must share.

Without an initialised group everything here answers for a world of one, so that a script runs unchanged on its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

Group = Any  # dist.ProcessGroup, or None for the default group
# One flat tensor of all ranks' pieces; torch 2.13 renamed it and warns at the old name.
all_gather_flat = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


def world_size(group: Group = None) -> int:
    """Ranks of the group."""
    return dist.get_world_size(group) if dist.is_initialized() else 1


def rank_in(group: Group = None) -> int:
    """My place in the group."""
    return dist.get_rank(group) if dist.is_initialized() else 0


def global_rank(place: int, group: Group = None) -> int:
    """The rank by which the launcher knows the member at `place` of the group: what a message names."""
    return dist.get_global_rank(group, place) if group is not None else place


def my_rank() -> int:
    """My rank as the launcher knows it."""
    return dist.get_rank() if dist.is_initialized() else 0


def exchange_device(group: Group = None) -> torch.device:
    """Where small tensors have to lie for the backend of the group."""
    if dist.is_initialized() and dist.get_backend(group) == "nccl":
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def summed(values: Sequence[float], group: Group = None) -> list[float]:
    """Each value summed over the ranks, in one small all-reduce; exact for whole numbers below 2**53."""
    table = gathered(values, group)
    return [sum(row[i] for row in table) for i in range(len(values))]


def gathered(values: Sequence[float], group: Group = None) -> list[list[float]]:
    """The values of every rank, in rank order; sums made of them are the same bits on all ranks."""
    return gathered_rows(torch.tensor(values, dtype=torch.float64), group).tolist()


def gathered_rows(mine: torch.Tensor, group: Group = None) -> torch.Tensor:
    """The flat tensors of all ranks as the rows of one."""
    mine = mine.to(exchange_device(group))
    if world_size(group) == 1:
        return mine.reshape(1, -1)
    everyone = mine.new_empty(world_size(group) * mine.numel())
    all_gather_flat(everyone, mine, group=group)
    return everyone.view(world_size(group), -1)


def gathered_objects(value: Any, group: Group = None) -> list[Any]:
    """One small object of every rank, in rank order."""
    if world_size(group) == 1:
        return [value]
    everyone: list[Any] = [None] * world_size(group)
    dist.all_gather_object(everyone, value, group=group)
    return everyone
