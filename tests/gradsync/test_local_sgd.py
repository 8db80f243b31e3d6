"""Local SGD and DiLoCo: what they reduce to, what they send, and that they train."""

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


def net() -> Any:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 1)).double()


def data(rank: int, step: int) -> tuple[Any, Any]:
    x = torch.randn(8, 6, generator=torch.Generator().manual_seed(1000 * rank + step), dtype=torch.float64)
    return x, torch.tanh(x.sum(1, keepdim=True) / 2)


def loss(module: Any, rank: int, step: int) -> Any:
    x, y = data(rank, step)
    return (module(x) - y).square().mean()


def gap(a: Any, b: Any) -> float:
    return max(float((p - q).detach().abs().max()) for p, q in zip(a.parameters(), b.parameters(), strict=True))


class Sent:
    """Bytes that the process hands to all_reduce, counted at the boundary."""

    def __enter__(self) -> Sent:
        self.nbytes, self.original = 0, dist.all_reduce

        def counting(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            self.nbytes += tensor.numel() * tensor.element_size()
            return self.original(tensor, *args, **kwargs)

        dist.all_reduce = counting
        return self

    def __exit__(self, *_: Any) -> None:
        dist.all_reduce = self.original


def diloco_is_averaging() -> float:
    """H = 1, outer SGD with rate 1 and no momentum, against averaging the parameters every step."""
    ours, plain = net(), net()
    outer = gradsync.DiLoCo(ours, period=1, outer_lr=1.0, outer_momentum=0.0)
    optimizers = [torch.optim.Adam(m.parameters(), 1e-2) for m in (ours, plain)]
    for step in range(10):
        for module, optimizer in zip((ours, plain), optimizers, strict=True):
            optimizer.zero_grad()
            loss(module, dist.get_rank(), step).backward()
            optimizer.step()
        outer.after_step()
        gradsync.average_parameters(plain)
    return gap(ours, plain)


def test_diloco_with_a_plain_outer_step_is_parameter_averaging(ranks: Any) -> None:
    for size in (2, 3):
        assert max(ranks(size).run(diloco_is_averaging)) < 1e-14


def sent(kind: str, period: int, steps: int) -> tuple[float, int, int]:
    """Bytes at the boundary over those of a dense gradient each step; what the object counted; largest burst."""
    module = net()
    dense = steps * sum(p.numel() * p.element_size() for p in module.parameters())
    fragments = 2 if kind == "fragments" else 1
    sync: Any = (
        gradsync.LocalSGD(module, period=period)
        if kind == "local"
        else gradsync.DiLoCo(
            module, period=period, fragments=fragments, dtype=torch.float32 if kind == "half" else None
        )
    )
    burst = 0
    with Sent() as total:
        for _ in range(steps):
            before = total.nbytes
            sync.after_step()
            burst = max(burst, total.nbytes - before)
    assert sync.bytes_sent == total.nbytes
    return total.nbytes / dense, total.nbytes, burst


def test_bytes_are_those_of_a_dense_step_over_the_period(ranks: Any) -> None:
    for kind, expected in (("local", 1 / 4), ("diloco", 1 / 4), ("fragments", 1 / 4), ("half", 1 / 8)):
        for share, nbytes, burst in ranks(2).run(sent, kind, 4, 16):
            assert share == expected, kind
            assert burst == nbytes / 4 if kind != "fragments" else burst < nbytes / 4


def post_local(period: int, start: int) -> tuple[float, float, float]:
    """Distance to DDP after the warm-up, spread between ranks before an average, and after it."""
    ddp, module = DistributedDataParallel(net()), net()
    sync = gradsync.LocalSGD(module, period=period, start=start)
    optimizers = [torch.optim.SGD(m.parameters(), 0.1, momentum=0.9) for m in (ddp, module)]
    for step in range(start):
        for m, optimizer in zip((ddp, module), optimizers, strict=True):
            optimizer.zero_grad()
            loss(m, dist.get_rank(), step).backward()
            if m is module:
                sync.before_step()
            optimizer.step()
        assert sync.after_step()
    far = gap(ddp, module)
    spread = []
    for step in range(start, start + period):
        optimizers[1].zero_grad()
        loss(module, dist.get_rank(), step).backward()
        sync.before_step()
        optimizers[1].step()
        if step == start + period - 1:
            spread.append(len(gradsync.find_drift(module)))
        assert sync.after_step() == (step == start + period - 1)
    return far, spread[0], len(gradsync.find_drift(module))


def test_post_local_sgd_is_ddp_at_first_and_drifts_between_averages(ranks: Any) -> None:
    for far, before, after in ranks(3).run(post_local, 4, 5):
        assert far < 1e-15
        assert before > 0
        assert after == 0


def halves(rank: int, step: int) -> tuple[Any, Any]:
    """Each rank sees one half of the input space only, so that training alone cannot do well on both; noisy targets."""
    generator = torch.Generator().manual_seed(1000 * rank + step)
    x = torch.randn(16, 6, generator=generator, dtype=torch.float64)
    x[:, 0] = x[:, 0].abs() * (1 if rank % 2 else -1)
    noise = 0.5 * torch.randn(16, 1, generator=generator, dtype=torch.float64)
    return x, torch.tanh(x[:, :1] + x[:, 1:2] * x[:, :1]) + noise


def trained(kind: str, steps: int = 600) -> float:
    """Loss of a replica on fresh data of both halves."""
    module, rank = net(), dist.get_rank()
    inner = torch.optim.AdamW(module.parameters(), 1e-2)
    sync: Any = None
    if kind == "local":
        sync = gradsync.LocalSGD(module, period=5, start=50)
    elif kind == "diloco":
        sync = gradsync.DiLoCo(module, period=10)
    for step in range(steps):
        inner.zero_grad()
        x, y = halves(rank, step)
        (module(x) - y).square().mean().backward()
        if kind == "dense":
            gradsync.average_gradients(module)
        elif kind == "local":
            sync.before_step()
        inner.step()
        if sync is not None:
            sync.after_step()
    with torch.no_grad():
        fresh = [halves(i, 10**6 + i) for i in range(100)]
        return sum(float((module(x) - y).square().mean()) for x, y in fresh) / len(fresh)


def test_they_train_as_well_as_dense_and_alone_does_not(ranks: Any) -> None:
    dense, local, diloco, alone = (ranks(2).run(trained, kind)[0] for kind in ("dense", "local", "diloco", "alone"))
    assert local < 1.05 * dense
    assert diloco < 1.05 * dense
    assert alone > 1.5 * dense, "the guard: without synchronisation it must be worse"


def resumed(kind: str) -> float:
    """Save half way, load into a fresh object, go on: against the run that never stopped."""
    ends = []
    for stop in (False, True):
        module = net()
        make = (lambda m: gradsync.LocalSGD(m, period=3, start=2)) if kind == "local" else (
            lambda m: gradsync.DiLoCo(m, period=3))  # fmt: skip
        sync: Any = make(module)
        for step in range(12):
            if stop and step == 7:
                state, weights = sync.state_dict(), {k: v.clone() for k, v in module.state_dict().items()}
                module = net()
                module.load_state_dict(weights)
                sync = make(module)
                sync.load_state_dict(state)
            module.zero_grad()
            loss(module, dist.get_rank(), step).backward()
            if kind == "local":
                sync.before_step()
            with torch.no_grad():
                for p in module.parameters():
                    p -= 0.05 * p.grad
            sync.after_step()
        ends.append(module)
    return gap(*ends)


@pytest.mark.parametrize("kind", ["local", "diloco"])
def test_state_goes_to_disk_and_back(ranks: Any, kind: str) -> None:
    assert ranks(2).run(resumed, kind) == [0.0, 0.0]


def test_impossible_periods_are_refused() -> None:
    with pytest.raises(InputError, match="a period of 0 steps"):
        gradsync.LocalSGD(net(), period=0)
    with pytest.raises(InputError, match="5 fragments cannot take turns in 3 steps"):
        gradsync.DiLoCo(net(), period=3, fragments=5)
