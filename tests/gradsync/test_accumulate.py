"""Accumulation reduces once per window, and what it reduces is what reducing every time would give."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.gradsync
torch = pytest.importorskip("torch", reason="torch is not installed (extra `torch`)")
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from meshwright import gradsync  # noqa: E402
from meshwright.errors import InputError  # noqa: E402

STEPS = 3


def net() -> Any:
    torch.manual_seed(2)
    # The first bucket of DDP holds a megabyte whatever the cap: the middle layer is larger.
    return nn.Sequential(nn.Linear(5, 600), nn.Tanh(), nn.Linear(600, 600), nn.Tanh(), nn.Linear(600, 4))


def batch(rank: int, step: int) -> Any:
    return torch.randn(4, 5, generator=torch.Generator().manual_seed(100 * rank + step))


def counting_ddp(calls: list[int]) -> Any:
    """DDP in several buckets; each reduction of one is noted."""
    ddp = DistributedDataParallel(net(), bucket_cap_mb=1e-3)

    def counting(state, bucket):  # type: ignore[no-untyped-def]
        calls.append(bucket.index())
        return allreduce_hook(state, bucket)

    ddp.register_comm_hook(None, counting)
    ddp(batch(0, 0)).sum().backward()  # all in one bucket at first; laid out by the cap before the next step
    ddp.zero_grad()
    calls.clear()
    return ddp


def once_and_every_time() -> tuple[float, int, int]:
    """Distance of the two ways; reductions of the window; buckets, as a window of one micro-batch reduces them."""
    size, rank = dist.get_world_size(), dist.get_rank()
    window = [batch(rank, s) for s in range(STEPS)]
    calls: list[int] = []
    once = counting_ddp(calls)
    for micro in gradsync.accumulate(once, window, [4] * STEPS):
        micro.scaled(once(micro.data).square().sum()).backward()

    buckets: list[int] = []
    single = counting_ddp(buckets)
    single(window[0]).square().sum().backward()

    always = counting_ddp([])
    sums = [torch.zeros_like(p) for p in always.parameters()]
    for x in window:
        always.zero_grad()
        gradsync.scale_loss(always(x).square().sum(), 4 * STEPS * size, size).backward()
        for total, p in zip(sums, always.parameters(), strict=True):
            total += p.grad
    far = max(float((p.grad - s).abs().max() / s.abs().max()) for p, s in zip(once.parameters(), sums, strict=True))
    return far, len(calls), len(buckets)


@pytest.mark.parametrize("size", [2, 3])
def test_one_reduction_per_window_gives_the_sum_of_all(ranks: Any, size: int) -> None:
    for far, reductions, buckets in ranks(size).run(once_and_every_time):
        assert far < 1e-6
        assert reductions == buckets > 1


def on_shards() -> float:
    """FSDP2 against one process that sees everything."""
    rank, size = dist.get_rank(), dist.get_world_size()
    sharded = net()
    for layer in sharded:
        if list(layer.parameters()):
            fully_shard(layer)
    fully_shard(sharded)
    window = [batch(rank, s) for s in range(STEPS)]
    for micro in gradsync.accumulate(sharded, window, [4] * STEPS):
        micro.scaled(sharded(micro.data).square().sum()).backward()
    whole = net()
    everything = [batch(r, s) for r in range(size) for s in range(STEPS)]
    (sum(whole(x).square().sum() for x in everything) / (4 * STEPS * size)).backward()
    pairs = zip(sharded.parameters(), whole.parameters(), strict=True)
    return max(float((a.grad.full_tensor() - b.grad).norm() / b.grad.norm()) for a, b in pairs)


def test_shards_accumulate_alike(ranks: Any) -> None:
    assert max(ranks(2).run(on_shards)) < 1e-6


def interrupted() -> bool:
    ddp = DistributedDataParallel(net())
    try:
        for _ in gradsync.accumulate(ddp, [1, 2, 3], [1, 1, 1]):
            raise RuntimeError("user code")
    except RuntimeError:
        pass
    return bool(ddp.require_backward_grad_sync)


def test_a_window_that_is_left_early_leaves_ddp_reducing(ranks: Any) -> None:
    assert all(ranks(2).run(interrupted))


def empty() -> str:
    rank = dist.get_rank()
    try:
        list(gradsync.accumulate(net(), [] if rank == 1 else [1], [] if rank == 1 else [1]))
    except InputError as error:
        return str(error)
    return ""


def test_an_empty_window_is_refused_on_every_rank_and_named(ranks: Any) -> None:
    assert ranks(2).run(empty) == ["no micro-batch in this window on rank 1"] * 2
