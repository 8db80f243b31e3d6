"""Error feedback, the compressors one by one, and their state on disk and on another number of ranks."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest

pytestmark = pytest.mark.gradsync
torch = pytest.importorskip("torch", reason="torch is not installed (extra `torch`)")
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from meshwright import gradsync  # noqa: E402
from meshwright.errors import InputError  # noqa: E402
from meshwright.gradsync.hooks import HOOKS  # noqa: E402
from meshwright.gradsync.hooks.int8 import dequantise, quantise  # noqa: E402
from meshwright.gradsync.hooks.onebit import from_signs, sign_rows  # noqa: E402
from meshwright.gradsync.hooks.randomk import drawn  # noqa: E402
from meshwright.gradsync.hooks.topk import kept_values, largest_places  # noqa: E402
from meshwright.gradsync.registration import PlainBucket  # noqa: E402

LOSSY: dict[str, dict[str, Any]] = {
    "topk": {"ratio": 0.05}, "randomk": {"ratio": 0.2}, "onebit": {"start_iter": 0}, "int8": {"exchange": "all_gather"},
    "powersgd": {"rank": 2, "start_iter": 0},
}  # fmt: skip


class Setup:
    """A hook on two parameters by hand: a matrix and a bias."""

    def __init__(self, name: str, **options: Any) -> None:
        self.hook, state_type = HOOKS[name]
        self.parameters = [nn.Parameter(torch.zeros(24, 20)), nn.Parameter(torch.zeros(7))]
        self.state = state_type(parameters=list(zip(("w", "b"), self.parameters, strict=True)), **options)

    def reduce(self, flat: Any) -> Any:
        return self.hook(self.state, PlainBucket(flat.clone(), self.parameters, True)).wait()

    def error(self) -> Any:
        kept = self.state.errors.state_dict()
        return torch.cat([kept[n].reshape(-1) for n in ("w", "b")])


LENGTH = 24 * 20 + 7


def gradient(step: int, rank: int | None = None) -> Any:
    rank = dist.get_rank() if rank is None else rank
    return torch.randn(LENGTH, generator=torch.Generator().manual_seed(977 * step + rank))


# --- oracle 6: what was sent and what is kept is what was given ------------------------------------------------


def telescopes(name: str, feedback: bool) -> float:
    """Relative distance of sum(mean of the ranks' c) + mean of e from the mean of the gradients, after 20 steps."""
    ranks = dist.get_world_size()
    hook = Setup(name, error_feedback=feedback, **LOSSY[name])
    sent, given = torch.zeros(LENGTH, dtype=torch.float64), torch.zeros(LENGTH, dtype=torch.float64)
    for step in range(20):
        sent += hook.reduce(gradient(step)).double()
        given += torch.stack([gradient(step, r) for r in range(ranks)]).double().mean(0)
    kept = torch.zeros(LENGTH, dtype=torch.float64)
    if feedback:
        kept = hook.error().double()
        dist.all_reduce(kept)
        kept /= ranks
    return float((sent + kept - given).norm() / given.norm())


@pytest.mark.parametrize("name", [*LOSSY, "int8 two-shot"])
@pytest.mark.parametrize("size", [2, 3])
def test_errors_telescope(ranks: Any, size: int, name: str) -> None:
    if name == "int8 two-shot":
        assert max(ranks(size).run(telescopes_two_shot)) < 1e-5
        return
    assert max(ranks(size).run(telescopes, name, True)) < 1e-5


def telescopes_two_shot() -> float:
    LOSSY["int8 two-shot"] = {"exchange": "two_shot"}
    HOOKS["int8 two-shot"] = HOOKS["int8"]
    return telescopes("int8 two-shot", True)


@pytest.mark.parametrize("name", ["topk", "onebit", "randomk", "powersgd"])
def test_without_feedback_they_do_not(ranks: Any, name: str) -> None:
    assert min(ranks(2).run(telescopes, name, False)) > 0.1


def own_part(name: str) -> float:
    """One rank alone with its own c: with one rank's gradient zero, the mean is half of the other's c."""
    hook = Setup(name, **LOSSY[name])
    mine = gradient(0) if dist.get_rank() == 0 else torch.zeros(LENGTH)
    mean = hook.reduce(mine)
    if dist.get_rank() == 0:
        return float((mean * 2 + hook.error() - mine).norm() / mine.norm())
    return 0.0


@pytest.mark.parametrize("name", ["topk", "randomk", "int8"])
def test_a_rank_keeps_what_it_did_not_send(ranks: Any, name: str) -> None:
    assert max(ranks(2).run(own_part, name)) < 1e-6


# --- oracle 7: contraction, no bias ----------------------------------------------------------------------------


def test_topk_contracts_at_least_as_its_share() -> None:
    for seed in range(20):
        x = torch.randn(1000, generator=torch.Generator().manual_seed(seed)) ** 3
        kept = kept_values(1000, 0.07)
        places = largest_places(x, [1000], 0.07)
        assert places.numel() == kept == 70
        rest = x.clone()
        rest[places] = 0
        assert rest.square().sum() <= (1 - kept / 1000) * x.square().sum()


def test_randomk_draws_each_place_once_and_about_equally_often() -> None:
    counts = torch.zeros(103)
    for seed in range(4000):
        places = drawn(103, 10, seed)
        assert places.unique().numel() == 10
        counts[places] += 1
    expected = 4000 * 10 / 103
    assert (counts - expected).abs().max() < 6 * expected**0.5
    assert torch.equal(drawn(103, 10, 5), drawn(103, 10, 5))


def test_signs_contract_by_the_ratio_of_the_norms() -> None:
    x = torch.randn(1000, generator=torch.Generator().manual_seed(3))
    back = from_signs(*sign_rows(x.view(1, 1000), torch.ones(1, 1000, dtype=torch.bool))).view(-1)
    lost = (x - back).square().sum()
    assert torch.allclose(lost, x.square().sum() - x.abs().sum() ** 2 / 1000, rtol=1e-4)


def test_int8_is_within_half_a_level_and_without_bias_when_rounded_at_random() -> None:
    x = torch.randn(3, 256, generator=torch.Generator().manual_seed(1)) * 10
    values, scales = quantise(x)
    assert values.dtype == torch.int8 and scales.numel() == 3
    assert ((dequantise(values, scales) - x).abs() <= 0.5001 * scales[:, None]).all()
    generator = torch.Generator().manual_seed(2)
    point, draws = torch.tensor([[1.0, 0.3371, -0.7713, 0.0]]), 10_000
    stacked = torch.stack([dequantise(*quantise(point, generator)) for _ in range(draws)]).double()
    off = (stacked.mean(0) - point).abs()
    assert (off <= 3 * stacked.std(0) / draws**0.5 + 1e-6).all()
    nearest = dequantise(*quantise(point)).double()
    assert (nearest - point).abs().max() > 1e-4  # the guard: rounding to the nearest is off for these


# --- oracle 8: PowerSGD ----------------------------------------------------------------------------------------


def low_rank_is_exact() -> tuple[float, float]:
    generator = torch.Generator().manual_seed(0)
    left, right = torch.randn(40, 3, generator=generator), torch.randn(3, 30, generator=generator)
    w = nn.Parameter(torch.zeros(40, 30))
    found = []
    for rank in (3, 2):
        state = gradsync.PowerSGDState(rank=rank, start_iter=0, parameters=[("w", w)])
        mine = (left @ right) * (1 + dist.get_rank())
        mean = gradsync.powersgd_hook(state, PlainBucket(mine.reshape(-1).clone(), [w], True)).wait()
        want = (left @ right) * (1 + dist.get_world_size()) / 2
        found.append(float((mean.view(40, 30) - want).norm() / want.norm()))
    return found[0], found[1]


def test_powersgd_is_exact_on_a_matrix_of_its_rank(ranks: Any) -> None:
    for enough, too_few in ranks(3).run(low_rank_is_exact):
        assert enough < 1e-5 < 1e-2 < too_few


def first_steps() -> list[list[bytes]]:
    hook = Setup("powersgd", rank=2, start_iter=2, algorithm="backend")
    dense = Setup("allreduce")
    equal, bits = [], []
    for step in range(4):
        ours, theirs = hook.reduce(gradient(step)), dense.reduce(gradient(step))
        equal.append(torch.allclose(ours, theirs, rtol=1e-6, atol=1e-7))
        bits.append(ours.numpy().tobytes())
    assert equal == [True, True, False, False], equal
    factors = hook.state.shared_by_name()["factors"]["w"]
    return [bits, [factors.numpy().tobytes()]]


def test_powersgd_begins_dense_and_all_ranks_hold_the_same_bits(ranks: Any) -> None:
    for size in (2, 3):
        found = ranks(size).run(first_steps)
        assert all(f == found[0] for f in found)
        assert found == ranks(size).run(first_steps), "the same seed gives the same factors"


def test_powersgd_skips_by_the_inequality_of_torch() -> None:
    from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import _should_compress

    from meshwright.formulas.compression import low_rank_pays

    for rows in (1, 4, 16, 33, 128):
        for columns in (1, 8, 31, 200):
            for rank in (1, 2, 4):
                assert bool(low_rank_pays(rows, columns, rank, 2)) == _should_compress(rows, columns, rank, 2)[0]


def against_torch() -> float:
    """The same trajectory as torch's hook when both start from the same right factor: the error after five steps."""
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as theirs

    hook = Setup("powersgd", rank=2, start_iter=0)
    state = theirs.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2, random_seed=1)
    worst = 0.0
    bucket = PlainBucket(gradient(0), hook.parameters, True)
    bucket.index = lambda: 0  # type: ignore[attr-defined]
    bucket.gradients = lambda: [bucket.buffer()[:480].view(24, 20), bucket.buffer()[480:]]  # type: ignore[attr-defined]
    state.iter = 2
    theirs.powerSGD_hook(state, bucket).wait()
    hook.state.factors["w"] = state.q_memory_dict[0].view(20, 2).clone()
    errors = state.error_dict[0].clone()
    hook.state.errors.load({"w": errors[:480], "b": errors[480:]})
    for step in range(1, 5):
        bucket.set_buffer(gradient(step))
        want = theirs.powerSGD_hook(state, bucket).wait()
        got = hook.reduce(gradient(step))
        worst = max(worst, float((got - want).norm() / want.norm()))
    return worst


def test_powersgd_follows_torch_step_by_step(ranks: Any) -> None:
    assert max(ranks(2).run(against_torch)) < 1e-4


# --- 1-bit: exact zeros ----------------------------------------------------------------------------------------


def zeros_stay(start_iter: int) -> tuple[float, float]:
    hook = Setup("onebit", start_iter=start_iter)
    dead = torch.zeros(LENGTH, dtype=torch.bool)
    dead[100:200] = True
    for step in range(6):
        mean = hook.reduce(gradient(step).masked_fill(dead, 0.0))
    return float(mean[dead].abs().max()), float(mean[~dead].abs().min())


def test_places_that_never_have_a_gradient_stay_exactly_zero(ranks: Any) -> None:
    for dead, live in ranks(2).run(zeros_stay, 1):
        assert dead == 0.0
        assert live >= 0.0
    assert min(found[0] for found in ranks(2).run(zeros_stay, 0)) > 0.0, "without the mask they do not"


# --- rule 12: infinities ---------------------------------------------------------------------------------------


def infinity(name: str) -> tuple[bool, bool, bool]:
    hook = Setup(name, **LOSSY[name])
    hook.reduce(gradient(0))
    before = hook.error()
    bad = gradient(1)
    if dist.get_rank() == 1:
        bad[5] = float("inf")
    mean = hook.reduce(bad)
    same = torch.equal(before, hook.error())
    after = hook.reduce(gradient(2))
    return bool(torch.isfinite(mean).all()), same, bool(torch.isfinite(after).all())


@pytest.mark.parametrize("name", list(LOSSY))
def test_an_infinite_gradient_is_seen_by_all_ranks_and_not_absorbed(ranks: Any, name: str) -> None:
    for finite, same, recovered in ranks(2).run(infinity, name):
        assert not finite, "a rank would step where another skips"
        assert same, "the error feedback took the infinity in"
        assert recovered


# --- oracle 12: round trips, another number of ranks -----------------------------------------------------------


def model() -> Any:
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(12, 40), nn.Tanh(), nn.Linear(40, 6))


def train(ddp: Any, optimizer: Any, first: int, last: int) -> None:
    for step in range(first, last):
        optimizer.zero_grad()
        x = torch.randn(4, 12, generator=torch.Generator().manual_seed(50 * step + dist.get_rank()))
        ddp(x).square().mean().backward()
        optimizer.step()


def resumed(name: str, cap: float) -> bool:
    options = {**LOSSY[name], "start_iter": 1}
    hook, state_type = HOOKS[name]
    ddp = DistributedDataParallel(model(), bucket_cap_mb=0.001)
    state = state_type(**options)
    gradsync.register_comm_hook(ddp, state, hook)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    train(ddp, optimizer, 0, 5)
    stream = io.BytesIO()
    torch.save({"hook": state.state_dict(), "model": copy.deepcopy(ddp.module.state_dict())}, stream)
    train(ddp, optimizer, 5, 7)

    stream.seek(0)
    saved = torch.load(stream, weights_only=True)
    again = model()
    again.load_state_dict(saved["model"])
    other = DistributedDataParallel(again, bucket_cap_mb=cap)
    fresh = state_type(**options)
    gradsync.register_comm_hook(other, fresh, hook)
    fresh.load_state_dict(saved["hook"])
    assert fresh.step == 5
    train(other, torch.optim.SGD(other.parameters(), lr=0.1), 5, 7)
    return all(torch.equal(a, b) for a, b in zip(ddp.parameters(), other.parameters(), strict=True))


@pytest.mark.parametrize("name", list(LOSSY))
def test_a_resumed_run_goes_on_bit_for_bit_also_in_other_buckets(ranks: Any, name: str) -> None:
    assert all(ranks(2).run(resumed, name, 0.001))
    assert all(ranks(2).run(resumed, name, 25.0))


def resumed_two_shot() -> bool:
    LOSSY["int8"] = {"exchange": "two_shot", "block": 8}
    return resumed("int8", 25.0)


def test_so_does_int8_in_two_shots_on_three_ranks(ranks: Any) -> None:
    assert all(ranks(3).run(resumed_two_shot))


def saved_errors() -> dict[str, Any]:
    hook = Setup("topk", ratio=0.05)
    hook.reduce(gradient(0))
    return hook.state.state_dict()


def resharded(states: list[dict[str, Any]], how: str) -> tuple[Any, Any]:
    hook = Setup("topk", ratio=0.05)
    with pytest.raises(InputError, match="saved by rank"):
        hook.state.load_state_dict(states[0])
    with pytest.raises(InputError, match="all 4 ranks"):
        hook.state.load_state_dict(states[:3], reshard="average")
    hook.state.load_state_dict(states, reshard=how)
    kept = hook.state.errors.of(("w", "b"), (480, 7), torch.device("cpu"))
    mean = kept.clone()
    dist.all_reduce(mean)
    return kept.numpy().copy(), (mean / dist.get_world_size()).numpy().copy()


def test_from_four_ranks_to_two_what_the_mean_gradient_lacks_is_kept(ranks: Any) -> None:
    states = ranks(4).run(saved_errors)
    own = [torch.cat([s["errors"][n] for n in ("w", "b")]) for s in states]
    assert not torch.equal(own[0], own[1]), "every rank has errors of its own"
    lacking = torch.stack(own).mean(0)
    for _, mean in ranks(2).run(resharded, states, "average"):
        torch.testing.assert_close(torch.from_numpy(mean), lacking)
    for kept, _ in ranks(2).run(resharded, states, "zero"):
        assert not kept.any()


def strict() -> None:
    hook = Setup("topk")
    hook.reduce(gradient(0))
    state = hook.state.state_dict()
    del state["errors"]["b"]
    with pytest.raises(InputError, match="no saved error feedback for b"):
        hook.state.load_state_dict(state)
    hook.state.load_state_dict(state, strict=False)


def test_a_missing_parameter_is_named(ranks: Any) -> None:
    ranks(2).run(strict)


def rebuilt() -> bool:
    """The same errors whether the parameters share a bucket or not, as when DDP rebuilds its buckets."""
    hook = Setup("int8", exchange="all_gather", block=8)
    flat = gradient(0)
    hook.reduce(flat)
    w, b = hook.parameters
    for part, parameter, last in ((flat[:480], w, False), (flat[480:], b, True)):
        hook.hook(hook.state, PlainBucket(torch.zeros_like(part), [parameter], last)).wait()
    after = hook.error()  # a zero gradient: e' = e - Q(e)
    again = Setup("int8", exchange="all_gather", block=8)
    again.reduce(flat)
    again.reduce(torch.zeros(LENGTH))
    return torch.equal(after, again.error())


def test_errors_survive_other_buckets(ranks: Any) -> None:
    assert all(ranks(2).run(rebuilt))
