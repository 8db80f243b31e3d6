"""Replicas: equal after real training, and one flipped bit on one rank is found and named."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.gradsync
torch = pytest.importorskip("torch", reason="torch is not installed (extra `torch`)")
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from meshwright import gradsync  # noqa: E402
from meshwright.gradsync.checksum import checksum  # noqa: E402


def trained() -> Any:
    torch.manual_seed(6)
    ddp = DistributedDataParallel(nn.Sequential(nn.Linear(4, 9), nn.BatchNorm1d(9), nn.Linear(9, 2)))
    optimizer = torch.optim.AdamW(ddp.parameters(), 1e-2)
    for step in range(50):
        generator = torch.Generator().manual_seed(100 * dist.get_rank() + step)
        optimizer.zero_grad()
        ddp(torch.randn(6, 4, generator=generator)).square().sum().backward()
        optimizer.step()
    return ddp


def flip(tensor: Any, bit: int) -> None:
    raw = tensor.detach().view(torch.uint8).reshape(-1)
    raw[bit // 8] ^= 1 << bit % 8


def healthy_then_flipped(bit: int) -> tuple[int, str, list[tuple[int, str, int, Any]]]:
    ddp = trained()
    before = len(gradsync.find_drift(ddp)) + len(gradsync.find_drift(ddp, what="gradients"))
    if dist.get_rank() == 2:
        flip(ddp.module[2].weight, bit)
    try:
        gradsync.check_replicas(ddp, differences=True)
    except gradsync.ReplicaDriftError as error:
        return before, str(error), [(d.rank, d.parameter, d.reference, d.largest) for d in error.drifts]
    return before, "", []


@pytest.mark.parametrize("bit", [0, 22, 301])
def test_one_flipped_bit_is_found_and_named_on_every_rank(ranks: Any, bit: int) -> None:
    for before, message, drifts in ranks(3).run(healthy_then_flipped, bit):
        assert before == 0, "fifty steps of DDP leave replicas equal"
        assert [d[:3] for d in drifts] == [(2, "2.weight", 0)]
        assert drifts[0][3] > 0
        assert message.startswith("rank 2 is up to ")
        assert "rank 0 in 2.weight" in message


def flipped_on_first() -> tuple[Any, ...]:
    module = nn.Linear(3, 3)
    with torch.no_grad():
        module.weight.zero_()
        module.bias.zero_()
    if dist.get_rank() == 0:
        flip(module.bias, 31)  # minus zero: equal as a number, other bits
    drift = gradsync.find_drift(module)
    return tuple((d.rank, d.parameter, d.reference) for d in drift)


def test_the_odd_one_out_is_the_minority_and_minus_zero_counts(ranks: Any) -> None:
    assert ranks(3).run(flipped_on_first) == [((0, "bias", 1),)] * 3
    assert ranks(2).run(flipped_on_first) == [((1, "bias", 0),)] * 2, "of two, the lower rank is the reference"


def local_statistics() -> tuple[int, list[str]]:
    """BatchNorm without SyncBatchNorm keeps local statistics when buffers are not broadcast: real drift."""
    torch.manual_seed(0)
    ddp = DistributedDataParallel(nn.Sequential(nn.BatchNorm1d(4)), broadcast_buffers=False)
    generator = torch.Generator().manual_seed(dist.get_rank())
    ddp(torch.randn(8, 4, generator=generator)).sum().backward()
    found = gradsync.find_drift(ddp, what="buffers")
    return len(gradsync.find_drift(ddp)), sorted({d.parameter for d in found})


def test_local_batch_norm_statistics_are_found_among_buffers(ranks: Any) -> None:
    assert ranks(2).run(local_statistics) == [(0, ["0.running_mean", "0.running_var"])] * 2


@given(
    raw=st.binary(min_size=1, max_size=200),
    place=st.integers(0, 10**6),
    offset=st.integers(0, 7),
)
def test_any_flipped_bit_changes_the_checksum(raw: bytes, place: int, offset: int) -> None:
    tensor = torch.frombuffer(bytearray(bytes(offset) + raw), dtype=torch.uint8)[offset:]
    other = tensor.clone()
    flip(other, place % (8 * len(raw)))
    assert checksum(tensor) == checksum(tensor.clone()), "the place in memory must not matter"
    assert checksum(tensor) != checksum(other)


def test_order_length_and_dtype_matter() -> None:
    assert checksum(torch.tensor([1.0, 2.0, 3.0, 4.0])) != checksum(torch.tensor([3.0, 4.0, 1.0, 2.0]))
    assert checksum(torch.zeros(3)) != checksum(torch.zeros(4))
    big = torch.arange(2**21 + 5, dtype=torch.int64)
    swapped = big.clone()
    swapped[0], swapped[2**20 + 1] = big[2**20 + 1], big[0]
    assert checksum(big) != checksum(swapped)
    for dtype in (torch.bfloat16, torch.bool, torch.int8, torch.complex64):
        assert isinstance(checksum(torch.ones(5).to(dtype)), int)
