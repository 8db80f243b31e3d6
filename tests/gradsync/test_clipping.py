"""The norm is that of the whole gradient however it is cut, and clipping follows the reduction."""

from __future__ import annotations

import math
from typing import Any

import pytest

pytestmark = pytest.mark.gradsync
torch = pytest.importorskip("torch", reason="torch is not installed (extra `torch`)")
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.distributed.tensor import DTensor, Partial, Shard, distribute_tensor  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from meshwright import gradsync  # noqa: E402
from meshwright.errors import InputError  # noqa: E402

NORMS = [1.0, 2.0, math.inf]


def net() -> Any:
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))


def batch(rank: int) -> Any:
    return torch.randn(4, 5, generator=torch.Generator().manual_seed(rank)) * 3


def dense_gradient(size: int) -> list[Any]:
    whole = net()
    (sum(whole(batch(r)).square().sum() for r in range(size)) / size).backward()
    return list(whole.parameters())


def fsdp(norm_type: float, replicas: int) -> tuple[float, float, float, float]:
    """Ours, the dense norm by torch, ours after clipping to a tenth, and how far clipped gradients are off."""
    size = dist.get_world_size()
    shape, names = ((size,), ("shard",)) if replicas == 1 else ((replicas, size // replicas), ("replicate", "shard"))
    module = net()
    fully_shard(module, mesh=init_device_mesh("cpu", shape, mesh_dim_names=names))
    module(batch(dist.get_rank())).square().sum().backward()
    dense = dense_gradient(size)
    expected = torch.nn.utils.get_total_norm([p.grad for p in dense], norm_type)
    limit = float(expected) / 10
    ours = gradsync.clip_grad_norm_(module, limit, norm_type)
    torch.nn.utils.clip_grad_norm_(dense, limit, norm_type)
    after = gradsync.total_norm(module, norm_type)
    pairs = zip(module.parameters(), dense, strict=True)
    off = max(float((a.grad.full_tensor() - b.grad).norm() / b.grad.norm()) for a, b in pairs)
    assert not isinstance(ours, DTensor)
    return float(ours), float(expected), float(after) * 10, off


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("norm_type", NORMS)
def test_the_norm_of_shards_is_the_dense_norm_on_every_rank(ranks: Any, size: int, norm_type: float) -> None:
    for replicas in (1, 2) if size == 4 else (1,):
        for ours, expected, after, off in ranks(size).run(fsdp, norm_type, replicas):
            assert ours == pytest.approx(expected, rel=1e-6)
            assert after == pytest.approx(expected, rel=1e-5)
            assert off < 1e-5


def pieces(norm_type: float) -> tuple[float, float]:
    """Each rank holds its own piece of a flat gradient, as ZeRO does; one rank's piece is empty."""
    everything = torch.randn(100, generator=torch.Generator().manual_seed(0))
    cut = [0, 60, 60, 100]
    mine = nn.Parameter(torch.zeros(cut[dist.get_rank() + 1] - cut[dist.get_rank()]))
    mine.grad = everything[cut[dist.get_rank()] : cut[dist.get_rank() + 1]].clone()
    ours = gradsync.total_norm([mine], norm_type, shard_group=dist.group.WORLD)
    return float(ours), float(torch.linalg.vector_norm(everything, norm_type))


@pytest.mark.parametrize("norm_type", NORMS)
def test_pieces_of_a_flat_gradient(ranks: Any, norm_type: float) -> None:
    for ours, expected in ranks(3).run(pieces, norm_type):
        assert ours == pytest.approx(expected, rel=1e-6)


def compressed(per_bucket: bool) -> tuple[float, float]:
    """Clipping after a compressing hook: the norm that is logged, and the norm of what the optimizer gets."""
    ddp = DistributedDataParallel(net(), bucket_cap_mb=1e-4)

    def clipped_too_early(state, bucket):  # type: ignore[no-untyped-def]
        for gradient in bucket.gradients():
            gradient.mul_(min(1.0, 0.5 / float(gradient.norm())))
        return fp16_compress_hook(state, bucket)

    ddp.register_comm_hook(None, clipped_too_early if per_bucket else fp16_compress_hook)
    ddp(batch(dist.get_rank())).square().sum().backward()
    before = gradsync.clip_grad_norm_(ddp, 0.5)
    return float(before), float(torch.nn.utils.get_total_norm([p.grad for p in ddp.parameters()]))


def test_compressed_gradients_are_clipped_after_decompression(ranks: Any) -> None:
    dense = float(torch.nn.utils.get_total_norm([p.grad for p in dense_gradient(3)]))
    for before, after in ranks(3).run(compressed, False):
        assert before == pytest.approx(dense, rel=1e-3)  # fp16 keeps eleven bits
        assert after == pytest.approx(0.5, rel=1e-4)
    assert ranks(3).run(compressed, True)[0][0] < dense / 2, "the guard: clipping per bucket must differ"


def test_the_loss_scale_is_undone_before_the_norm_is_taken() -> None:
    plain, scaled = dense_gradient(2), dense_gradient(2)
    for p in scaled:
        p.grad *= 1024
    expected = torch.nn.utils.clip_grad_norm_(plain, 0.7)
    assert gradsync.clip_grad_norm_(scaled, 0.7, inverse_scale=1 / 1024) == pytest.approx(float(expected), rel=1e-6)
    for a, b in zip(plain, scaled, strict=True):
        torch.testing.assert_close(a.grad, b.grad)


def test_a_generator_of_parameters_serves_twice() -> None:
    dense = dense_gradient(1)
    gradsync.clip_grad_norm_((p for p in dense), 0.1)
    assert float(torch.nn.utils.get_total_norm([p.grad for p in dense])) == pytest.approx(0.1, rel=1e-4)


def unreduced() -> str:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    parameter = nn.Parameter(distribute_tensor(torch.ones(4), mesh, [Shard(0)]))
    parameter.grad = DTensor.from_local(torch.ones(4), mesh, [Partial()])
    try:
        gradsync.total_norm([("layer.weight", parameter)])
    except InputError as error:
        return str(error)
    return ""


def test_a_gradient_not_yet_reduced_is_refused_by_name(ranks: Any) -> None:
    expected = [f"rank {rank}: the gradient of layer.weight is not reduced yet" for rank in range(2)]
    assert ranks(2).run(unreduced) == expected


def not_finite() -> tuple[str, int | None, str | None]:
    module = net()
    fully_shard(module)
    module(batch(dist.get_rank())).square().sum().backward()
    if dist.get_rank() == 1:
        module[2].weight.grad.to_local().fill_(math.inf)
    try:
        gradsync.clip_grad_norm_(module, 1.0, error_if_nonfinite=True)
    except gradsync.NonFiniteGradientError as error:
        return str(error), error.rank, error.parameter
    return "", None, None


def test_an_infinite_norm_names_rank_and_parameter(ranks: Any) -> None:
    assert ranks(2).run(not_finite) == [("rank 1: the gradient of 2.weight holds inf or NaN", 1, "2.weight")] * 2
