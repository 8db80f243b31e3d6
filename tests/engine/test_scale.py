"""What more devices buy, against published scaling runs; the knee by its definition; and what cannot be scaled."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.catalog.hardware import cluster, resize
from meshwright.catalog.models import model
from meshwright.engine.points import MEMORY, best_at, feasible_counts, grown_batch, rungs
from meshwright.engine.scale import LEVERS, WORTH, default_counts, scale
from meshwright.engine.search.legal import BATCH
from meshwright.engine.search.plan import plan
from meshwright.engine.search.reasons import TERM_NAMES
from meshwright.engine.search.space import Constraints, table
from meshwright.spec.job import Job
from meshwright.spec.plan import Problem, Scaling

MEGATRON = {"frameworks": ("megatron",), "context": (1,), "micro_batch": (1,)}


def problem(name: str, where: str, seq_len: int, batch: int, **job: object) -> Problem:
    return Problem(
        model=model(name),
        cluster=cluster(where),
        job=Job(seq_len=seq_len, global_batch=batch, **job),  # type: ignore[arg-type]
    )


def rates(scaling: Scaling) -> list[float]:
    """Tokens/s per device of every point."""
    return [p.estimate.tokens_per_second_per_device for p in scaling.points if p.estimate]


@pytest.fixture(scope="module")
def small_batch() -> Scaling:
    return scale(problem("llama-3.1-8b", "h100-sxm:64", 8192, 16), [8, 16, 32, 64, 128, 256, 512])


# ------------------------------------------------------------------------------------------ published runs


def test_strong_scaling_of_nemotron_4_340b_on_gb200() -> None:
    """NVIDIA DGX Cloud benchmarks: GBS 512, TP8 PP4 VP12, accumulation 128/64/32: 32.66, 16.58, 8.468 s in BF16."""
    limits = Constraints(tensor=(8,), pipeline=(4,), virtual=(12,), **MEGATRON)
    s = scale(problem("nemotron-4-340b", "gb200-nvl72:128", 4096, 512), [128, 256, 512], constraints=limits)
    steps = [p.estimate.step_seconds for p in s.points if p.estimate]
    assert [p.estimate.micro_batches for p in s.points if p.estimate] == [128, 64, 32]
    assert steps[0] / steps[1] == pytest.approx(32.66 / 16.58, rel=0.03)
    assert steps[1] / steps[2] == pytest.approx(16.58 / 8.468, rel=0.03)
    assert s.knee is None


def test_weak_scaling_of_gpt_3_loses_a_few_per_cent() -> None:
    """NeMo 25.02, GPT-3 175B BF16 TP4 PP8 VP6, 128 → 2048 H100 with the batch: 8.309 → 8.49 s (2.2 % more)."""
    limits = Constraints(tensor=(4,), pipeline=(8,), virtual=(6,), recompute=("none",), sharding=("zero1",), **MEGATRON)
    base = problem("gpt-3-175b", "h100-sxm:128", 2048, 256)
    s = scale(base, [128, 2048], mode="growing-batch", constraints=limits)
    assert [p.global_batch for p in s.points] == [256, 4096]
    first, last = (p.estimate.step_seconds for p in s.points if p.estimate)
    assert 1.0 < last / first < 1.05
    assert first == pytest.approx(8.309, rel=0.15)


def test_llama_3_405b_loses_seven_per_cent_from_8k_to_16k() -> None:
    """Llama 3 paper, table 4: 16M tokens a step, FSDP TP8 PP16, 8,192 → 16,384 H100: 430 → 400 TFLOP/s per GPU."""
    limits = Constraints(tensor=(8,), pipeline=(16,), **{**MEGATRON, "frameworks": ("fsdp",)})
    s = scale(problem("llama-3.1-405b", "h100-sxm:16384", 8192, 2048), [8192, 16384], constraints=limits)
    before, after = rates(s)
    assert after / before == pytest.approx(400 / 430, abs=0.05)


def test_small_batch_on_many_devices_falls_like_mlperf(small_batch: Scaling) -> None:
    """MLPerf 5.1, Llama-3.1-8B: 8 → 512 GPUs at batches 16 … 64: 47.4k → 12.0k tokens/s per GPU (a quarter)."""
    few, many = rates(small_batch)[0], rates(small_batch)[-1]
    assert many / few < 0.4
    assert small_batch.knee is not None and small_batch.knee < 512


# ------------------------------------------------------------------------------------------ the knee


def test_the_knee_holds_by_its_definition(small_batch: Scaling) -> None:
    """Beyond the knee every doubling buys less than half of what it adds; before it some larger count buys more."""
    speed = {p.devices: p.estimate.tokens_per_second for p in small_batch.points if p.estimate}
    knee = small_batch.knee
    assert knee is not None

    def doubling(a: int, b: int) -> float:
        return float((speed[b] / speed[a]) ** (1 / math.log2(b / a)))

    assert all(doubling(knee, n) < WORTH for n in speed if n > knee)
    for below in (n for n in speed if n < knee):
        assert any(doubling(below, n) >= WORTH for n in speed if n > below)


def test_the_summary_says_that_more_devices_are_not_the_answer(small_batch: Scaling) -> None:
    text = str(small_batch.summary)
    assert text.startswith(f"beyond {small_batch.knee:,} devices")
    assert "More devices are not the answer" in text
    assert TERM_NAMES[small_batch.binds] in text and LEVERS[small_batch.binds] in text


def test_every_term_of_a_step_has_a_lever() -> None:
    assert LEVERS.keys() == TERM_NAMES.keys()


def test_what_binds_is_the_term_that_exceeds_perfect_scaling_most(small_batch: Scaling) -> None:
    at = {p.devices: p.estimate for p in small_batch.points}
    knee = small_batch.knee or 0
    a, b = at[knee], at[2 * knee]
    assert a and b
    old = {t.name: t.value for t in a.time.children}
    excess = {t.name: t.value - old.get(t.name, 0.0) / 2 for t in b.time.children}
    assert max(excess, key=excess.__getitem__) == small_batch.binds


def test_the_batch_is_the_limit_where_it_cannot_be_split() -> None:
    """Pure data parallelism over more ranks than sequences is impossible."""
    limits = Constraints(frameworks=("fsdp",), tensor=(1,), pipeline=(1,), context=(1,))
    s = scale(problem("llama-3.1-8b", "h100-sxm:64", 4096, 32), [8, 16, 32, 64], constraints=limits)
    assert (s.knee, s.binds) == (32, BATCH)
    assert s.points[-1].estimate is None
    assert "32 sequences cannot be split over 64 devices" in str(s.points[-1].reason)
    assert "More devices are not the answer; use a larger global batch" in str(s.summary)


# ------------------------------------------------------------------------------------------ points


def test_points_agree_with_each_other(small_batch: Scaling) -> None:
    r = rates(small_batch)
    best = max(r)
    assert max(p.efficiency or 0 for p in small_batch.points) == 1
    for before, p in zip(small_batch.points, small_batch.points[1:], strict=False):
        assert p.estimate and before.estimate
        assert p.efficiency == pytest.approx(p.estimate.tokens_per_second_per_device / best)
        more = p.estimate.tokens_per_second - before.estimate.tokens_per_second
        assert p.marginal == pytest.approx(more / (p.devices - before.devices) / best)
        assert 0 <= (p.exposed_communication or 0) + (p.bubble or 0) < 1
        price = small_batch.problem.cluster.price_per_device_hour
        assert price is not None and p.dollars_per_token is not None
        assert p.dollars_per_token == pytest.approx(price / 3600 / p.estimate.tokens_per_second_per_device)


def test_a_point_is_the_winner_of_the_plan() -> None:
    base = problem("llama-3.1-8b", "h100-sxm:32", 8192, 64)
    winner = plan(base, top=1).best
    found = best_at(base, 32, 64, Constraints())
    assert winner and found.estimate == winner.estimate


def test_costs_are_left_out_without_a_price() -> None:
    base = problem("llama-3.1-8b", "h100-sxm:16", 8192, 16)
    base = replace(base, cluster=replace(base.cluster, price_per_device_hour=None))
    assert all(p.dollars_per_token is None for p in scale(base, [8, 16]).points)


def test_too_small_a_cluster_says_what_the_weights_take() -> None:
    """405.9 G parameters in bf16 are 756 GiB."""
    s = scale(problem("llama-3.1-405b", "h100-sxm:8", 4096, 8), [8])
    assert (s.knee, s.binds) == (None, MEMORY)
    assert s.points[0].estimate is None and "weights alone take 756 GiB" in str(s.points[0].reason)
    assert str(s.summary).startswith("nothing fits")


def test_where_weights_fit_but_training_does_not_the_smallest_strategy_is_named() -> None:
    s = scale(problem("llama-3.1-70b", "h100-sxm:8", 4096, 8), [4], constraints=Constraints(frameworks=("megatron",)))
    assert "the smallest of" in str(s.points[0].reason)


def test_progress_rises_to_one() -> None:
    seen: list[float] = []
    scale(problem("gpt-2", "h100-sxm:8", 1024, 8), [1, 2, 4], progress=lambda f, _: seen.append(f))
    assert seen == sorted(seen) and seen[0] == 0 and seen[-1] == 1


def test_growing_mode_warns_about_convergence() -> None:
    s = scale(problem("gpt-2", "h100-sxm:8", 1024, 8), [8, 16], mode="growing-batch")
    assert "critical batch" in str(s.problem.assumptions[-1])


# ------------------------------------------------------------------------------------------ counts


def test_default_ladder_reaches_sixteen_times_the_cluster_and_drops_what_is_hopeless() -> None:
    base = problem("llama-3.1-70b", "h100-sxm:64", 4096, 1024)
    assert default_counts(base, "fixed-batch", Constraints()) == [8, 16, 32, 64, 128, 256, 512, 1024]
    growing = default_counts(base, "growing-batch", Constraints())
    assert growing == [8, 16, 32, 64, 128, 256, 512, 1024]
    points = scale(base, constraints=Constraints(frameworks=("megatron",))).points
    assert points[0].estimate is None and all(p.estimate for p in points[1:])
    assert points[-1].devices == 1024


def test_feasible_counts_are_those_with_a_mesh_that_splits_the_batch() -> None:
    """Against the tables of the search itself, count by count."""
    base = problem("llama-3.1-8b", "h100-sxm:256", 8192, 48)
    limits = Constraints(frameworks=("megatron",))
    ways = feasible_counts(base, limits, 256)
    for n in range(8, 257, 8):
        t = table(base.model, resize(base.cluster, n), base.job, "megatron", limits, False)
        assert (n in ways) == bool((48 % t.data == 0).any()), n


def test_slices_of_a_torus_come_in_its_shapes_only() -> None:
    counts = feasible_counts(problem("llama-3.1-8b", "tpu-v5p:64", 4096, 512), Constraints(), 512)
    assert counts and all(resize(cluster("tpu-v5p:64"), n).devices == n for n in counts)
    assert 72 not in counts


def test_rungs_prefer_powers_of_two() -> None:
    assert rungs({8: 3, 16: 2, 24: 9, 32: 1, 40: 5, 56: 7}, 8) == [8, 16, 32]
    assert rungs({24: 2, 40: 5, 56: 7}, 8) == [24, 56]
    assert rungs({}, 8) == []


@settings(max_examples=200)
@given(st.integers(1, 4096), st.integers(1, 512), st.integers(1, 4096))
def test_grown_batch_keeps_the_sequences_per_device(batch: int, base: int, devices: int) -> None:
    grown = grown_batch(batch, base, devices)
    exact = batch * devices / base
    assert grown >= 1
    assert abs(grown - exact) <= max(0.06 * exact, 2)
    if batch * devices % base == 0:
        assert grown == batch * devices // base
