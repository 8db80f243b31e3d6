"""Many tensors as few messages: buckets of one dtype and device, reduced flat and copied back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from meshwright.gradsync.group import Group, world_size
from meshwright.gradsync.ordered import sum_in_rank_order

MB = 2**20  # as DDP's bucket_cap_mb counts


def buckets(tensors: Sequence[torch.Tensor], cap_bytes: float) -> Iterator[list[torch.Tensor]]:
    """Tensors of equal dtype and device, in their order, at most `cap_bytes` together; a larger one goes alone."""
    kinds: dict[tuple[torch.dtype, torch.device], list[torch.Tensor]] = {}
    for tensor in tensors:
        kinds.setdefault((tensor.dtype, tensor.device), []).append(tensor)
    for same in kinds.values():
        bucket: list[torch.Tensor] = []
        filled = 0
        for tensor in same:
            size = tensor.numel() * tensor.element_size()
            if bucket and filled + size > cap_bytes:
                yield bucket
                bucket, filled = [], 0
            bucket.append(tensor)
            filled += size
        if bucket:
            yield bucket


@dataclass(slots=True)
class Reduction:
    """Messages under way; `wait` copies what arrived into the tensors, once."""

    nbytes: int = 0  # payload of this rank
    under_way: list[tuple[Any, Callable[[], None]]] = field(default_factory=list)

    def wait(self) -> None:
        """Block until every bucket has been reduced and copied back."""
        while self.under_way:
            work, copy_back = self.under_way.pop(0)
            if work is not None:
                work.wait()
            copy_back()


def all_reduce_coalesced_flat(
    tensors: Sequence[torch.Tensor],
    group: Group = None,
    *,
    factor: float = 1.0,
    bucket_cap_mb: float = 25,
    dtype: torch.dtype | None = None,
    ordered: bool = False,
    async_op: bool = False,
) -> Reduction:
    """Sum `factor` times each tensor over the ranks, in place, in buckets.

    `factor` is applied before the sum, so that half precision does not overflow. `dtype` is the type on the wire.
    `ordered` sums in rank order (see `ordered`): the same bits whatever the buckets, at the price of no overlap.
    """
    reduction = Reduction()
    for bucket in buckets(tensors, bucket_cap_mb * MB):
        flat = torch.cat([t.detach().reshape(-1).to(dtype or t.dtype) for t in bucket])
        if factor != 1.0:
            flat.mul_(factor)
        work = None
        if world_size(group) > 1:
            reduction.nbytes += flat.numel() * flat.element_size()
            if ordered:
                sum_in_rank_order(flat, group)
            else:
                work = dist.all_reduce(flat, group=group, async_op=True)
        reduction.under_way.append((work, _copier(flat, bucket)))
    if not async_op:
        reduction.wait()
    return reduction


def _copier(flat: torch.Tensor, bucket: Sequence[torch.Tensor]) -> Callable[[], None]:
    def copy_back() -> None:
        with torch.no_grad():
            for tensor, part in zip(bucket, flat.split([t.numel() for t in bucket]), strict=True):
                tensor.copy_(part.view_as(tensor))

    return copy_back
