"""Hooks on real DDP: equal to no hook, buckets, half precision, warnings, names, composition, plain modules."""
# No postponed annotations here: DDP compares those of a hook with its own types.

import warnings
from typing import Any

import pytest

pytestmark = pytest.mark.gradsync
torch = pytest.importorskip("torch", reason="torch is not installed (extra `torch`)")
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from meshwright import gradsync  # noqa: E402
from meshwright.errors import InputError  # noqa: E402
from meshwright.gradsync.hooks import HOOKS  # noqa: E402


def net(dtype: Any = None) -> Any:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(16, 48), nn.Tanh(), nn.Linear(48, 32), nn.Tanh(), nn.Linear(32, 4))
    return model.to(dtype or torch.float32)


def batch(rank: int, step: int, dtype: Any = None) -> Any:
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(8, 16, generator=generator).to(dtype or torch.float32)


def gradients(hook: Any, make_state: Any, *, steps: int = 1, cap: float = 25.0, model: Any = None) -> list[Any]:
    """Gradients of the last of `steps` backward passes (no optimizer) through DDP with the hook."""
    ddp = DistributedDataParallel(model if model is not None else net(), bucket_cap_mb=cap)
    if hook is not None:
        gradsync.register_comm_hook(ddp, make_state(), hook)
    for step in range(steps):
        ddp.zero_grad()
        ddp(batch(dist.get_rank(), step)).square().sum().backward()
    return [p.grad.clone() for p in ddp.parameters()]


# --- oracle 2: the all-reduce hook is no hook ------------------------------------------------------------------


def against_no_hook() -> bool:
    plain = gradients(None, None, steps=2)
    ours = gradients(gradsync.allreduce_hook, gradsync.CommHookState, steps=2)
    return all(torch.equal(a, b) for a, b in zip(ours, plain, strict=True))


@pytest.mark.parametrize("size", [2, 3, 4])
def test_the_allreduce_hook_equals_no_hook_bit_for_bit(ranks: Any, size: int) -> None:
    assert all(ranks(size).run(against_no_hook))


def close_to_no_hook() -> None:
    plain = gradients(None, None)
    for name in gradsync.allreduce.ALGORITHMS:
        ours = gradients(gradsync.allreduce_hook, lambda name=name: gradsync.CommHookState(algorithm=name, local=1))
        for a, b in zip(ours, plain, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("size", [2, 3])
def test_every_algorithm_serves_as_a_hook(ranks: Any, size: int) -> None:
    ranks(size).run(close_to_no_hook)


def hierarchical() -> None:
    plain = gradients(None, None)
    ours = gradients(gradsync.hierarchical_allreduce_hook, lambda: gradsync.CommHookState(local=2))
    for a, b in zip(ours, plain, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_the_hierarchical_hook_over_two_nodes_of_two(ranks: Any) -> None:
    ranks(4).run(hierarchical)


# --- oracle 1 with hooks: W processes are one big batch --------------------------------------------------------


def against_one_process(algorithm: str) -> float:
    ranks, double = dist.get_world_size(), torch.float64
    one, many = net(double), DistributedDataParallel(net(double))
    gradsync.register_comm_hook(many, gradsync.CommHookState(algorithm=algorithm, local=1), gradsync.allreduce_hook)
    many(batch(dist.get_rank(), 0, double)).square().mean().backward()
    one(torch.cat([batch(r, 0, double) for r in range(ranks)])).square().mean().backward()
    return max(float((a.grad - b.grad).norm() / b.grad.norm()) for a, b in
               zip(many.parameters(), one.parameters(), strict=True))  # fmt: skip


@pytest.mark.parametrize("size", [2, 3, 4])
def test_the_step_is_that_of_one_process_with_the_whole_batch(ranks: Any, size: int) -> None:
    for algorithm in ("backend", "direct", "ring"):
        assert max(ranks(size).run(against_one_process, algorithm)) < 1e-12


# --- oracle 13: buckets do not matter --------------------------------------------------------------------------


def bits_by_bucket(cap: float) -> list[bytes]:
    found = gradients(gradsync.allreduce_hook, lambda: gradsync.CommHookState(algorithm="direct"), steps=2, cap=cap)
    return [g.numpy().tobytes() for g in found]


@pytest.mark.parametrize("size", [2, 3, 4])
def test_in_rank_order_the_result_does_not_depend_on_the_buckets(ranks: Any, size: int) -> None:
    one = ranks(size).run(bits_by_bucket, 1e-3)
    assert one == ranks(size).run(bits_by_bucket, 1.0) == ranks(size).run(bits_by_bucket, 25.0)


# --- half precision: torch's answers, and oracle 16 ------------------------------------------------------------


def as_torch(name: str) -> None:
    ours_hook = HOOKS[name][0]
    torch_hook = {"fp16": default_hooks.fp16_compress_hook, "bf16": default_hooks.bf16_compress_hook}[name]

    def theirs_hook(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        return torch_hook(state, bucket)  # under another name, because DDP refuses the name bf16_compress_hook on gloo

    ours = gradients(ours_hook, gradsync.CommHookState, steps=2)
    theirs = DistributedDataParallel(net())
    theirs.register_comm_hook(None, theirs_hook)
    for step in range(2):
        theirs.zero_grad()
        theirs(batch(dist.get_rank(), step)).square().sum().backward()
    for a, b in zip(ours, theirs.parameters(), strict=True):
        assert torch.equal(a, b.grad)


@pytest.mark.parametrize("name", ["fp16", "bf16"])
def test_half_precision_gives_the_bits_of_torch(ranks: Any, name: str) -> None:
    ranks(2).run(as_torch, name)
    ranks(4).run(as_torch, name)


class OneBucket:
    """A gradient bucket made by hand."""

    def __init__(self, flat: Any) -> None:
        self.flat, self.parameter = flat, nn.Parameter(torch.zeros_like(flat))

    def buffer(self) -> Any:
        return self.flat

    def set_buffer(self, flat: Any) -> None:
        self.flat = flat

    def parameters(self) -> list[Any]:
        return [self.parameter]

    def is_last(self) -> bool:
        return True


def large_gradients() -> None:
    bucket = OneBucket(torch.full((8,), 6e4))
    mean = gradsync.fp16_compress_hook(gradsync.CommHookState(), bucket).wait()
    assert torch.isfinite(mean).all()
    assert torch.allclose(mean, torch.full((8,), 6e4), rtol=1e-3)
    wrong = torch.full((8,), 6e4).half()  # sum first, divide after: the guard of this test
    dist.all_reduce(wrong)
    assert torch.isinf(wrong / 4).all()


def test_fp16_divides_before_the_sum_and_does_not_overflow(ranks: Any) -> None:
    ranks(4).run(large_gradients)


# --- oracle 10: what costs more than dense says so -------------------------------------------------------------


def costly(hook: str, options: dict[str, Any]) -> list[str]:
    function, state_type = HOOKS[hook]
    bucket = OneBucket(torch.randn(10_240))
    state = state_type(parameters=[("w", bucket.parameter)], **options)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function(state, bucket).wait()
        function(state, bucket).wait()
    return [str(w.message) for w in caught if issubclass(w.category, gradsync.CostlierThanDense)]


def test_int8_by_all_gather_warns_from_eight_ranks_on_and_two_shots_do_not(ranks: Any) -> None:
    said = ranks(8).run(costly, "int8", {"exchange": "all_gather"})
    assert all(len(s) == 1 and "72,800" in s[0] and "71,680" in s[0] and "8 ranks" in s[0] for s in said), said
    assert ranks(8).run(costly, "int8", {}) == [[]] * 8
    assert ranks(4).run(costly, "int8", {"exchange": "all_gather"}) == [[]] * 4


def test_topk_warns_when_it_keeps_too_much(ranks: Any) -> None:
    assert all(len(s) == 1 for s in ranks(4).run(costly, "topk", {"ratio": 0.3}))
    assert ranks(4).run(costly, "topk", {"ratio": 0.1}) == [[]] * 4


# --- names, no-op, composition, plain modules ------------------------------------------------------------------


def nameless() -> None:
    with pytest.raises(InputError, match="names"):
        gradsync.topk_hook(gradsync.TopKState(), OneBucket(torch.ones(4)))


def test_state_without_names_is_refused(ranks: Any) -> None:
    ranks(2).run(nameless)


def local_gradients() -> None:
    alone = net()
    alone(batch(dist.get_rank(), 0)).square().sum().backward()
    found = gradients(gradsync.noop_hook, gradsync.CommHookState)
    assert all(torch.equal(a, p.grad) for a, p in zip(found, alone.parameters(), strict=True))


def test_the_noop_hook_leaves_local_gradients(ranks: Any) -> None:
    ranks(2).run(local_gradients)


def narrower() -> tuple[float, float]:
    exact = gradients(None, None)
    state = gradsync.PowerSGDState(rank=4, start_iter=0)
    plain = gradsync.PowerSGDState(rank=4, start_iter=0)
    both = gradsync.compose(torch.bfloat16, gradsync.powersgd_hook)
    assert both.__name__ == "bfloat16_powersgd_hook"
    narrow = gradients(both, lambda: state)
    wide = gradients(gradsync.powersgd_hook, lambda: plain)
    assert all(g.dtype == torch.float32 for g in narrow)
    for n, w, e in zip(narrow, wide, exact, strict=True):
        assert (n - w).norm() <= 0.03 * e.norm()
    torch_hook = gradsync.compose(torch.bfloat16, powerSGD_hook.powerSGD_hook)  # torch's own inside ours
    theirs = DistributedDataParallel(net())
    theirs.register_comm_hook(
        powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=4, start_powerSGD_iter=2), torch_hook
    )
    for step in range(4):
        theirs(batch(dist.get_rank(), step)).square().sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in theirs.parameters())
    return state.wire_stats()["bytes_sent"], plain.wire_stats()["bytes_sent"]


def test_bf16_around_powersgd_halves_its_wire(ranks: Any) -> None:
    for narrow, wide in ranks(2).run(narrower):
        assert narrow == wide / 2


def without_ddp() -> None:
    wrapped = gradients(gradsync.allreduce_hook, lambda: gradsync.CommHookState(algorithm="direct"))
    module = net()
    handle = gradsync.register_comm_hook(module, gradsync.CommHookState(algorithm="direct"), gradsync.allreduce_hook)
    module(batch(dist.get_rank(), 0)).square().sum().backward()
    handle.synchronize()
    assert all(torch.equal(p.grad, g) for p, g in zip(module.parameters(), wrapped, strict=True))


def test_a_plain_module_gets_the_gradients_of_ddp(ranks: Any) -> None:
    ranks(3).run(without_ddp)


def replicas_agree(name: str) -> list[bytes]:
    function, state_type = HOOKS[name]
    ddp = DistributedDataParallel(net(), bucket_cap_mb=0.004)
    options = {"local": 1} if name == "hierarchical" else {}
    gradsync.register_comm_hook(ddp, state_type(start_iter=1, **options), function)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    for step in range(8):
        optimizer.zero_grad()
        ddp(batch(dist.get_rank(), step)).square().mean().backward()
        optimizer.step()
    return [p.detach().numpy().tobytes() for p in ddp.parameters()]


@pytest.mark.parametrize("name", [n for n in HOOKS if n != "noop"])
def test_replicas_hold_the_same_bits_after_training_with_every_hook(ranks: Any, name: str) -> None:
    for size in (2, 3):
        found = ranks(size).run(replicas_agree, name)
        assert all(f == found[0] for f in found)
