"""Ranks with 5, 7 and 3 batches: no deadlock, and the same training as one process on the union."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.gradsync
torch = pytest.importorskip("torch", reason="torch is not installed (extra `torch`)")
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from meshwright import gradsync  # noqa: E402
from meshwright.errors import InputError  # noqa: E402

BATCHES = (5, 7, 3)
SIZES = (4, 2, 6)  # samples of a batch, by rank


def net() -> Any:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 1)).double()


def batches(rank: int) -> list[Any]:
    generator = torch.Generator().manual_seed(rank)
    return [torch.randn(SIZES[rank], 5, generator=generator, dtype=torch.float64) for _ in range(BATCHES[rank])]


def weighted(size: int) -> tuple[float, int, list[int]]:
    """Train on windows of `size`; distance of the parameters to one process that sees the union of each window."""
    ddp = DistributedDataParallel(net())
    hooked = [0]

    def hook(state, bucket):  # type: ignore[no-untyped-def]
        hooked[0] += 1
        return allreduce_hook(state, bucket)

    ddp.register_comm_hook(None, hook)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
    active = []
    for window in gradsync.uneven_windows(batches(dist.get_rank()), len, size=size):
        optimizer.zero_grad()
        for micro in gradsync.accumulate(ddp, window.data, window.counts, n_global=window.n_global):
            micro.scaled(ddp(micro.data).square().sum()).backward()
        optimizer.step()
        active.append(window.active)
    whole = net()
    reference = torch.optim.SGD(whole.parameters(), lr=0.1, momentum=0.9)
    for step in range(-(-max(BATCHES) // size)):
        union = [x for rank in range(3) for x in batches(rank)[step * size : (step + 1) * size]]
        reference.zero_grad()
        (sum(whole(x).square().sum() for x in union) / sum(len(x) for x in union)).backward()
        reference.step()
    pairs = zip(ddp.parameters(), whole.parameters(), strict=True)
    return max(float((a - b).detach().abs().max()) for a, b in pairs), hooked[0], active


def test_each_sample_counts_once_and_no_rank_is_left_waiting(ranks: Any) -> None:
    for far, hooked, active in ranks(3).run(weighted, 1):
        assert far < 1e-12
        assert hooked >= 7
        assert active == [3, 3, 3, 2, 2, 1, 1]


def test_with_accumulation(ranks: Any) -> None:
    for far, _, active in ranks(3).run(weighted, 2):
        assert far < 1e-12
        assert active == [3, 3, 2, 1]


def shadowed(divide_by: str, accumulate: bool) -> list[float]:
    """torch's Join with a hook, with and without no_sync; the gradient of each step."""
    ddp = DistributedDataParallel(nn.Linear(1, 1, bias=False))
    with torch.no_grad():
        ddp.module.weight.fill_(1.0)
    ddp.register_comm_hook(None, allreduce_hook) if accumulate else None
    seen = []
    with gradsync.shadow_join([ddp], divide_by=divide_by):
        for step in range(BATCHES[dist.get_rank()]):
            with gradsync.no_sync(ddp) if accumulate and step % 2 == 0 else gradsync.no_sync(nn.Identity()):
                ddp(torch.ones(1, 1)).sum().backward()
            seen.append(float(ddp.module.weight.grad))
            if not (accumulate and step % 2 == 0):
                ddp.zero_grad()
    return seen


def test_shadow_join_divides_as_asked(ranks: Any) -> None:
    longest = ranks(3).run(shadowed, "initial", False)[1]
    assert longest == pytest.approx([1, 1, 1, 2 / 3, 2 / 3, 1 / 3, 1 / 3])
    assert ranks(3).run(shadowed, "active", False)[1] == pytest.approx([1] * 7)


def test_shadow_join_with_a_hook_and_no_sync_ends(ranks: Any) -> None:
    assert [len(seen) for seen in ranks(3).run(shadowed, "initial", True)] == list(BATCHES)


def nothing_to_repeat() -> str:
    mine = [] if dist.get_rank() == 2 else [torch.ones(1)]
    try:
        list(gradsync.uneven_windows(mine, len))
    except InputError as error:
        return str(error)
    return ""


def test_a_rank_without_any_data_is_named(ranks: Any) -> None:
    assert ranks(3).run(nothing_to_repeat) == ["rank 2 has no data at all, so it has nothing to repeat"] * 3
