"""The noise scale of gradients whose true signal and noise are known."""

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

DIMENSIONS, SAMPLES = 64, 8
SPREAD = 2.0  # standard deviation of a sample's gradient in every dimension
TRUE = DIMENSIONS * SPREAD**2 / DIMENSIONS  # tr(S) / |G|² with G = ones


def synthetic(steps: int) -> float | None:
    """g ~ N(G, S/b) on each rank; what the estimator makes of it, with nearly equal weights for all steps."""
    noise = gradsync.GradientNoiseScale(decay=1 - 1 / steps)
    generator = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(steps):
        local = 1 + SPREAD / SAMPLES**0.5 * torch.randn(DIMENSIONS, generator=generator, dtype=torch.float64)
        mean = local.clone()
        dist.all_reduce(mean)
        mean /= dist.get_world_size()
        size = dist.get_world_size()
        noise.update(float(local.square().sum()), float(mean.square().sum()), SAMPLES, size * SAMPLES)
    return noise.critical_batch


@pytest.mark.parametrize(("size", "steps"), [(2, 2000), (4, 600)])
def test_the_noise_scale_is_recovered_within_ten_percent(ranks: Any, size: int, steps: int) -> None:
    found = ranks(size).run(synthetic, steps)
    assert found == [pytest.approx(TRUE, rel=0.1)] * size
    assert len(set(found)) == 1


class Linear(nn.Module):
    """Loss w·x: the gradient of a sample is the sample."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(DIMENSIONS, dtype=torch.float64))

    def forward(self, x: Any) -> Any:
        return (x @ self.weight).mean()


def watched(steps: int) -> float | None:
    """The same, measured by a wrapped hook while DDP reduces."""
    noise = gradsync.GradientNoiseScale(decay=1 - 1 / steps)
    ddp = DistributedDataParallel(Linear())
    ddp.register_comm_hook(None, noise.watch(allreduce_hook))
    generator = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(steps):
        ddp.zero_grad()
        ddp(1 + SPREAD * torch.randn(SAMPLES, DIMENSIONS, generator=generator, dtype=torch.float64)).backward()
        noise.update_watched(SAMPLES, SAMPLES * dist.get_world_size())
    restored = gradsync.GradientNoiseScale()
    restored.load_state_dict(noise.state_dict())
    assert restored.critical_batch == noise.critical_batch
    return noise.critical_batch


def test_a_wrapped_hook_measures_it(ranks: Any) -> None:
    assert ranks(2).run(watched, 1000) == [pytest.approx(TRUE, rel=0.15)] * 2


def test_one_batch_size_is_not_enough_and_no_signal_is_no_number() -> None:
    noise = gradsync.GradientNoiseScale()
    assert noise.critical_batch is None
    with pytest.raises(InputError, match="two batch sizes are needed, not 8 and 8"):
        noise.update(1.0, 1.0, 8, 8)
    noise.update(10.0, 1.0, 8, 16)  # |G|² estimated below zero
    assert noise.critical_batch is None
