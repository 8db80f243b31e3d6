"""FSDP2 with our reduce-scatters: the gradients of its own; DDP's hooks are refused with what to use."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.gradsync
torch = pytest.importorskip("torch", reason="torch is not installed (extra `torch`)")
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402

from meshwright import gradsync  # noqa: E402
from meshwright.errors import InputError  # noqa: E402
from meshwright.gradsync.fsdp import reduce_by  # noqa: E402


def sharded() -> Any:
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(16, 33), nn.Tanh(), nn.Linear(33, 7))
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def gradients(model: Any, steps: int = 1) -> list[Any]:
    summed: list[Any] = []
    for step in range(steps):
        model.zero_grad()
        x = torch.randn(8, 16, generator=torch.Generator().manual_seed(10 * step + dist.get_rank()))
        model(x).square().mean().backward()
        now = [p.grad.full_tensor().clone() for p in model.parameters()]
        summed = [a + b for a, b in zip(summed, now, strict=True)] if summed else now
    return summed


def alike(algorithm: str) -> float:
    plain, ours = sharded(), sharded()
    reduce_by(ours, algorithm)
    pairs = zip(gradients(ours, 20), gradients(plain, 20), strict=True)
    return max(float((a - b).norm() / b.norm()) for a, b in pairs)


@pytest.mark.parametrize("size", [2, 3])
def test_ring_and_direct_give_the_gradients_of_fsdp(ranks: Any, size: int) -> None:
    for algorithm in ("ring", "direct"):
        assert max(ranks(size).run(alike, algorithm)) < 1e-6


def int8() -> tuple[float, float, float]:
    plain, kept, lost = sharded(), sharded(), sharded()
    reducers = reduce_by(kept, "int8", block=32)
    reduce_by(lost, "int8", block=32, error_feedback=False)
    want, with_memory, without = gradients(plain, 50), gradients(kept, 50), gradients(lost, 50)

    def off(found: list[Any]) -> float:
        return max(float((a - b).norm() / b.norm()) for a, b in zip(found, want, strict=True))

    stats = reducers["0"].count.as_dict()
    again = sharded()
    other = reduce_by(again, "int8", block=32)
    other["0"].load_state_dict(reducers["0"].state_dict())
    assert torch.equal(other["0"].error, reducers["0"].error)
    return off(with_memory), off(without), stats["ratio"]


def test_int8_shards_with_error_feedback_lose_less_and_send_a_quarter(ranks: Any) -> None:
    for with_memory, without, _ in ranks(2).run(int8):
        assert with_memory < 2e-3
        assert with_memory < without / 2


def refused() -> None:
    model = sharded()
    with pytest.raises(InputError, match="FSDP2 reduces shards"):
        gradsync.register_comm_hook(model, gradsync.CommHookState(), gradsync.allreduce_hook)
    with pytest.raises(InputError, match="no unit of FSDP2"):
        reduce_by(nn.Linear(2, 2), "ring")


def test_a_ddp_hook_on_fsdp_is_refused(ranks: Any) -> None:
    ranks(2).run(refused)
