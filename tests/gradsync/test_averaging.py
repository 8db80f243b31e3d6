"""Averages by hand: against DDP, against one process, with unused parameters, and the errors that name them."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.gradsync
torch = pytest.importorskip("torch", reason="torch is not installed (extra `torch`)")
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from meshwright import gradsync  # noqa: E402
from meshwright.errors import InputError  # noqa: E402


def net(dtype: Any = None) -> Any:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(7, 33), nn.Tanh(), nn.Linear(33, 5)).to(dtype or torch.float32)


def inputs(rank: int) -> Any:
    return torch.randn(6, 7, generator=torch.Generator().manual_seed(rank))


def against_ddp(bucket_cap_mb: float, ordered: bool) -> float:
    ours, theirs = net(), DistributedDataParallel(net())
    x = inputs(dist.get_rank())
    ours(x).square().sum().backward()
    theirs(x).square().sum().backward()
    gradsync.average_gradients(ours, bucket_cap_mb=bucket_cap_mb, ordered=ordered, async_op=not ordered).wait()
    pairs = zip(ours.parameters(), theirs.parameters(), strict=True)
    return max(float((a.grad - b.grad).abs().max() / b.grad.abs().max()) for a, b in pairs)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_the_mean_is_that_of_ddp(ranks: Any, size: int) -> None:
    for cap in (1e-3, 1.0, 25.0):
        for ordered in (False, True):
            worst = max(ranks(size).run(against_ddp, cap, ordered))
            assert worst == 0 if size == 2 else worst < 1e-6


def ordered_bits(bucket_cap_mb: float) -> list[Any]:
    module = net()
    module(inputs(dist.get_rank())).square().sum().backward()
    gradsync.average_gradients(module, bucket_cap_mb=bucket_cap_mb, ordered=True)
    return [p.grad.numpy().tobytes() for p in module.parameters()]


@pytest.mark.parametrize("size", [3, 4])
def test_in_rank_order_the_bits_do_not_depend_on_the_buckets(ranks: Any, size: int) -> None:
    one, other = ranks(size).run(ordered_bits, 1e-4), ranks(size).run(ordered_bits, 25.0)
    assert one == other
    assert all(r == one[0] for r in one), "ranks hold other bits"


def ddp_bits(ordered: bool, cap: float) -> list[list[bytes]]:
    """Gradients of the first two steps; DDP rebuilds its buckets between them."""
    ddp = DistributedDataParallel(net(), bucket_cap_mb=cap)
    if ordered:
        ddp.register_comm_hook(None, gradsync.rank_ordered_hook)
    out = []
    for _ in range(2):
        ddp.zero_grad()
        ddp(inputs(dist.get_rank())).square().sum().backward()
        out.append([p.grad.numpy().tobytes() for p in ddp.parameters()])
    return out


def test_the_rank_ordered_hook_outlives_a_rebuild_of_the_buckets(ranks: Any) -> None:
    first = ranks(3).run(ddp_bits, True, 25.0)[0]
    assert first[0] == first[1]
    assert ranks(3).run(ddp_bits, True, 1e-4)[0] == first
    plain = ranks(3).run(ddp_bits, False, 25.0)[0]
    assert plain[0] != plain[1], "the guard: without the hook a rebuild must change bits"


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "int64"])
def test_rank_order_sums_every_dtype_and_size(ranks: Any, dtype: str) -> None:
    for size in (2, 3):
        for n in (0, 1, 2, 7, 1000):
            for found, expected in ranks(size).run(rank_order_sum, dtype, n):
                assert found == expected


def rank_order_sum(dtype: str, n: int) -> tuple[list[float], list[float]]:
    kind = getattr(torch, dtype)
    rows = [torch.arange(n).add(r + 1).to(kind) for r in range(dist.get_world_size())]
    wide = sum(row.to(torch.float32 if kind in (torch.float16, torch.bfloat16) else kind) for row in rows)
    return gradsync.sum_in_rank_order(rows[dist.get_rank()].clone()).tolist(), wide.to(kind).tolist()


class Branches(nn.Module):
    """Uses one branch per rank; a third is never used."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = (nn.Linear(2, 2, bias=False) for _ in range(3))


def unused() -> tuple[bool, Any, Any]:
    module = Branches()
    branch = module.a if dist.get_rank() == 0 else module.b
    branch(torch.ones(1, 2)).sum().backward()
    gradsync.average_gradients(module)
    return module.c.weight.grad is None, module.a.weight.grad.tolist(), module.b.weight.grad.tolist()


def test_a_parameter_that_some_ranks_did_not_use_counts_as_zero_there(ranks: Any) -> None:
    for untouched, a, b in ranks(3).run(unused):
        assert untouched
        torch.testing.assert_close(torch.tensor(a), torch.full((2, 2), 1 / 3))
        torch.testing.assert_close(torch.tensor(b), torch.full((2, 2), 2 / 3))


def overflow(post: bool) -> bool:
    parameter = nn.Parameter(torch.zeros(4, dtype=torch.float16))
    parameter.grad = torch.full((4,), 6e4, dtype=torch.float16)
    gradsync.average_gradients([parameter], op="sum" if post else "mean")
    return bool(torch.isfinite(parameter.grad).all())


def test_half_precision_is_divided_before_it_is_summed(ranks: Any) -> None:
    assert all(ranks(4).run(overflow, False))
    assert not any(ranks(4).run(overflow, True)), "the guard: summing first must overflow"


def weighted_parameters() -> float:
    parameter = nn.Parameter(torch.full((3,), float(dist.get_rank())))
    gradsync.average_parameters([parameter], weight=[1, 0, 5][dist.get_rank()])
    return float(parameter[0])


def test_parameters_are_averaged_with_weights(ranks: Any) -> None:
    assert ranks(3).run(weighted_parameters) == pytest.approx([10 / 6] * 3)


def complaint(what: str) -> str:
    rank = dist.get_rank()
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 3 if what == "shape" and rank == 1 else 2))
    if what == "sparse":
        module = nn.Sequential(nn.Embedding(3, 2, sparse=True))
        module(torch.tensor([1])).sum().backward()
    else:
        module(torch.ones(1, 2)).sum().backward()
    if what == "nan" and rank == 1:
        module[1].bias.grad[0] = float("nan")
    try:
        if what == "nan":
            gradsync.check_finite(module)
        else:
            gradsync.average_gradients(module, weight=-1 if what == "weight" else None)
    except (InputError, gradsync.NonFiniteGradientError) as error:
        return str(error)
    return ""


def test_errors_name_rank_and_parameter(ranks: Any) -> None:
    assert (
        ranks(3).run(complaint, "shape")
        == ["rank 1 has parameter 1.weight (3, 2) where rank 0 has 1.weight (2, 2)"] * 3
    )
    assert ranks(3).run(complaint, "nan") == ["rank 1: the gradient of 1.bias holds inf or NaN"] * 3
    assert ranks(3).run(complaint, "sparse") == [f"rank {r}: the gradient of 0.weight is sparse" for r in range(3)]
    assert ranks(3).run(complaint, "weight") == [f"rank {r}: the weight of its mean is -1" for r in range(3)]


def disagreement() -> bool:
    parameter = nn.Parameter(torch.zeros(2))
    parameter.grad = torch.tensor([float("inf") if dist.get_rank() == 1 else 0.0, 1.0])
    return gradsync.all_finite([parameter])


def test_all_ranks_skip_a_step_or_none(ranks: Any) -> None:
    assert ranks(3).run(disagreement) == [False] * 3


def test_a_world_of_one_needs_no_group() -> None:
    module = net()
    module(inputs(0)).square().sum().backward()
    before = [p.grad.clone() for p in module.parameters()]
    gradsync.average_gradients(module, weight=7)
    assert all(torch.equal(a, p.grad) for a, p in zip(before, module.parameters(), strict=True))
