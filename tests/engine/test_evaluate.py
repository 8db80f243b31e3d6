"""Whole estimates: trees that sum, figures that follow, properties over random legal strategies of the catalogue."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.catalog.hardware import cluster
from meshwright.catalog.models import model
from meshwright.engine.evaluate import estimate_legal, evaluate
from meshwright.engine.search.plan import search
from meshwright.engine.search.space import Constraints
from meshwright.spec.cluster import Cluster
from meshwright.spec.estimate import Estimate, Refusal, Term
from meshwright.spec.job import Job
from meshwright.spec.plan import Problem
from meshwright.spec.strategy import Strategy

PROBLEMS = [  # model, cluster, sequence, batch, precision, optimizer
    ("llama-3.1-8b", "h100-sxm:8", 8192, 64, "bf16", "adamw"),
    ("mixtral-8x7b", "h100-sxm:16", 4096, 64, "fp8", "adamw"),
    ("deepseek-v2-lite", "h100-sxm:32", 4096, 128, "bf16", "adamw-bf16"),
    ("llama-3.1-70b", "dgx-a100-80gb:64", 8192, 128, "bf16", "adamw"),
    ("mamba2-2.7b", "rtx-4090:4", 2048, 64, "bf16", "adamw-8bit"),
    ("llama-3.1-8b", "tpu-v5e:64", 8192, 64, "bf16", "adafactor"),
    ("jamba-v0.1", "mi300x:16", 4096, 32, "bf16", "muon"),
    ("gpt-oss-20b", "gb200-nvl72:72", 8192, 144, "nvfp4", "adamw"),
    ("t5-3b", "v100-sxm-32gb:16", 512, 64, "fp16", "adafactor"),
    ("vit-22b", "h100-sxm:16", 256, 512, "bf16", "lion"),
    ("gemma-3-27b", "b200-sxm:24", 32768, 48, "mxfp8", "sgd-momentum"),
]
SMALL = Constraints(micro_batch=(1, 2, 4))
EXACT = 1e-9


@lru_cache(maxsize=16)
def legal(index: int) -> tuple[Problem, tuple[Strategy, ...]]:
    """A problem and a few hundred legal strategies spread over its whole space."""
    name, where, seq, batch, precision, optimizer = PROBLEMS[index]
    job = Job(seq_len=seq, global_batch=batch, precision=precision, optimizer=optimizer, tokens=1e12)  # type: ignore[arg-type]
    problem = Problem(model=model(name), cluster=cluster(where), job=job)
    columns, _ = search(problem, SMALL)
    count = len(columns.peak)
    assert count, f"no legal strategy for {PROBLEMS[index]}"
    return problem, tuple(columns.strategy(i) for i in range(0, count, max(count // 300, 1)))


class Case:
    """A problem and one of its legal strategies; prints short where hypothesis shows it."""

    def __init__(self, problem: Problem, strategy: Strategy) -> None:
        self.problem, self.strategy = problem, strategy

    def __iter__(self) -> Iterator[Any]:
        return iter((self.problem, self.strategy))

    def __repr__(self) -> str:
        s = self.strategy
        words = (s.framework, s.sharding, s.shard, s.short, s.schedule, s.recompute, s.recompute_ops, s.offload)
        return f"{self.problem.model.name} on {self.problem.cluster.id}: {words}"


@st.composite
def cases(draw: st.DrawFn) -> Case:
    problem, strategies = legal(draw(st.integers(0, len(PROBLEMS) - 1)))
    return Case(problem, strategies[draw(st.integers(0, len(strategies) - 1))])


def estimate(problem: Problem, strategy: Strategy) -> Estimate:
    answer = evaluate(problem, strategy)
    assert isinstance(answer, Estimate), [str(f.message) for f in answer.findings]
    return answer


def wrong_totals(tree: Term) -> Iterator[str]:
    """Nodes whose value is not the sum (or the maximum) of their children's."""
    for path, node in tree.walk():
        if node.children:
            values = [c.value for c in node.children]
            expected = sum(values) if node.combine == "sum" else max(values)
            if not math.isclose(node.value, expected, rel_tol=EXACT, abs_tol=1e-12):
                yield f"{path}: {node.value} is not {expected}"


def numbers(value: Any) -> Iterator[float]:
    """Every number anywhere in an estimate."""
    if isinstance(value, bool) or value is None:
        return
    if isinstance(value, int | float):
        yield value
    elif isinstance(value, Term):
        yield from (node.value for _, node in value.walk())
    elif isinstance(value, tuple):
        for item in value:
            yield from numbers(item)
    elif isinstance(value, dict):
        yield from numbers(tuple(value.values()))
    elif hasattr(value, "__dataclass_fields__") and not isinstance(value, Strategy):
        for name in value.__dataclass_fields__:
            yield from numbers(getattr(value, name))


# ---------------------------------------------------------------------------------------------------- trees and sums


@given(cases())
def test_trees_sum_to_the_answer(case: Case) -> None:
    e = estimate(*case)
    assert list(wrong_totals(e.time)) == []
    assert e.time.value == pytest.approx(e.step_seconds, rel=EXACT)
    for stage in e.stages:
        assert list(wrong_totals(stage.device)) == [] and list(wrong_totals(stage.host)) == []
        around = sum(c.value for c in stage.device.children if c.name in ("reserve", "context"))
        assert stage.device.value == pytest.approx(max(stage.phases.values()) + around, rel=EXACT)
        assert stage.phases[stage.phase] == max(stage.phases.values())
    peak = max(e.stages, key=lambda s: s.device.value)
    assert (e.peak_bytes, e.peak_stage, e.peak_phase) == (peak.device.value, peak.stage, peak.phase)
    assert e.memory == peak.device
    assert e.host_bytes == max(s.host.value for s in e.stages)


@given(cases())
def test_everything_is_finite_and_positive(case: Case) -> None:
    e = estimate(*case)
    values = list(numbers(e))
    assert len(values) > 40
    assert all(math.isfinite(v) for v in values)
    assert all(node.value >= 0 for _, node in e.time.walk())
    assert all(node.value >= 0 for stage in e.stages for _, node in stage.device.walk())
    assert e.step_seconds > 0 and e.peak_bytes > 0
    assert 0 < e.mfu < 1 and e.mfu <= e.hfu < 1
    assert 0 < e.step_interval[0] < e.step_interval[1]


@given(cases())
def test_figures_follow_from_each_other(case: Case) -> None:
    problem, strategy = case
    e, job, where = estimate(problem, strategy), problem.job, problem.cluster
    assert strategy.devices == where.devices
    assert e.micro_batches * strategy.data * strategy.micro_batch == job.global_batch
    assert e.tokens_per_second == pytest.approx(job.seq_len * job.global_batch / e.step_seconds)
    assert e.tokens_per_second_per_device == pytest.approx(e.tokens_per_second / where.devices)
    assert e.days == pytest.approx(1e12 / e.tokens_per_second / 86400)
    assert (e.dollars_per_step is None) == (where.price_per_device_hour is None)
    if where.price_per_device_hour is not None:
        assert e.dollars_per_step == pytest.approx(where.price_per_device_hour * where.devices * e.step_seconds / 3600)
    largest = max(e.time.children, key=lambda t: t.value)
    assert e.bound_by == largest.name
    assert (e.verdict == "OVER") == (e.peak_bytes > e.capacity_bytes) or strategy.offload != "none"


# --------------------------------------------------------------------------------------------------------- monotony


def faster(where: Cluster, what: str) -> Cluster:
    """The cluster with one kind of speed doubled."""
    a = where.accelerator
    if what == "memory":
        return replace(where, id="x", accelerator=replace(a, id="x", memory_bandwidth=2 * a.memory_bandwidth))
    if what == "compute":
        peaks = {k: 2 * v for k, v in a.peak_flops.items()}
        return replace(where, id="x", accelerator=replace(a, id="x", peak_flops=peaks))
    if what == "scale-out":
        return replace(where, id="x", nic_bandwidth=2 * where.nic_bandwidth)
    device = replace(
        a, id="x", link_bandwidth=2 * a.link_bandwidth, link_pair_bandwidth=2 * a.link_pair_bandwidth,
        torus=a.torus and replace(a.torus, link_bandwidth=2 * a.torus.link_bandwidth),
    )  # fmt: skip
    return replace(where, id="x", link_bandwidth=2 * where.link_bandwidth, accelerator=device)


@given(cases(), st.sampled_from(["memory", "compute", "scale-up", "scale-out"]))
def test_faster_hardware_is_never_slower(case: Case, what: str) -> None:
    """Twice a bandwidth or the peak: between the same and half the time.

    With `compute` alone less is hidden behind it, so only the sum is compared.
    """
    problem, strategy = case
    before = estimate(problem, strategy).step_seconds
    after = estimate_legal(replace(problem, cluster=faster(problem.cluster, what)), strategy).step_seconds
    assert before / 2 * (1 - EXACT) <= after <= before * (1 + EXACT)


@given(cases())
def test_a_larger_batch_of_the_same_micro_batches_amortises(case: Case) -> None:
    """Twice the micro-batches per step: bubble, optimizer and gradient exchange are paid once for more tokens."""
    problem, strategy = case
    doubled = replace(problem, job=replace(problem.job, global_batch=2 * problem.job.global_batch))
    small, large = estimate(problem, strategy), estimate_legal(doubled, strategy)
    assert large.tokens_per_second >= small.tokens_per_second * (1 - EXACT)
    assert large.step_seconds > small.step_seconds


@given(cases())
def test_recompute_trades_time_for_memory(case: Case) -> None:
    problem, strategy = case
    by_mode = [estimate_legal(problem, replace(strategy, recompute=mode)) for mode in ("none", "selective", "full")]
    seconds = [e.step_seconds for e in by_mode]
    assert seconds[0] <= seconds[1] * (1 + EXACT) and seconds[1] <= seconds[2] * (1 + EXACT)
    assert by_mode[0].mfu >= by_mode[2].mfu
    assert by_mode[0].model_flops == by_mode[2].model_flops < by_mode[2].hardware_flops


@given(cases(), st.floats(0.01, 10))
def test_data_loading_is_added(case: Case, wait: float) -> None:
    problem, strategy = case
    waiting = replace(problem, job=replace(problem.job, data_time=wait))
    assert estimate(waiting, strategy).step_seconds == pytest.approx(estimate(problem, strategy).step_seconds + wait)


@given(cases())
def test_an_answer_does_not_depend_on_what_was_asked_before(case: Case) -> None:
    """Remembered blocks must be told apart by all they depend on."""
    problem, strategy = case
    first = estimate(problem, strategy)
    for change in ({"seq_len": problem.job.seq_len * 2}, {"dropout": True}, {"expert_imbalance": 1.5}):
        estimate_legal(replace(problem, job=replace(problem.job, **change)), strategy)
    estimate_legal(replace(problem, cluster=faster(problem.cluster, "memory")), strategy)
    estimate_legal(problem, replace(strategy, overlap_tensor=True))
    again = estimate(problem, strategy)
    assert (again.step_seconds, again.peak_bytes) == (first.step_seconds, first.peak_bytes)


# ------------------------------------------------------------------------------------------------- what is refused


def test_illegal_strategies_are_answered_not_raised() -> None:
    problem = Problem(
        model=model("llama-3.1-8b"), cluster=cluster("h100-sxm:8"), job=Job(seq_len=8192, global_batch=64)
    )
    for changes in (
        {"tensor": 3, "data": 1},
        {"tensor": 8, "data": 2},
        {"data": 8, "micro_batch": 7},
        {"data": 0, "tensor": 8},
    ):
        answer = evaluate(problem, Strategy(**changes))
        assert isinstance(answer, Refusal)
        assert answer.findings[0].severity == "error" and str(answer.findings[0].message)


def test_findings_that_do_not_forbid_are_kept() -> None:
    problem = Problem(
        model=model("llama-3.1-8b"), cluster=cluster("h100-sxm:64"), job=Job(seq_len=8192, global_batch=64)
    )
    across = evaluate(problem, Strategy(tensor=32, data=2))  # tensor parallelism over four nodes, KV heads copied
    assert isinstance(across, Estimate) and {f.severity for f in across.findings} <= {"warning", "advice", "info"}
    assert across.findings


def test_nothing_is_exposed_on_one_device() -> None:
    problem = Problem(model=model("qwen2.5-0.5b"), cluster=cluster("rtx-4090:1"), job=Job(seq_len=2048, global_batch=8))
    names = {t.name for t in estimate(problem, Strategy(sharding="none")).time.children}
    assert names == {"compute", "optimizer", "host_overhead"}


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "zb-h1", "zbv", "dualpipe"])
@pytest.mark.parametrize("pipeline", [1, 2, 4, 8])
def test_every_schedule_gives_an_answer(schedule: str, pipeline: int) -> None:
    """A refusal with a reason, or an estimate with 1F1B's work and a bubble that is no larger."""
    problem = Problem(
        model=model("llama-3.1-8b"), cluster=cluster("h100-sxm:8"), job=Job(seq_len=4096, global_batch=64)
    )
    strategy = Strategy(pipeline=pipeline, data=8 // pipeline, schedule=schedule)
    answer = evaluate(problem, strategy)
    if isinstance(answer, Refusal):
        assert any(f.severity == "error" for f in answer.findings)
        return
    assert all(node.value >= 0 for _, node in answer.time.walk())
    plain = estimate(problem, replace(strategy, schedule="1f1b"))
    bubble, most = (e.time.find("bubble") for e in (answer, plain))
    assert (bubble.value if bubble else 0.0) <= (most.value if most else 0.0) * (1 + EXACT)
    work, least = (e.time.find("compute") for e in (answer, plain))
    assert work and least
    assert work.value == pytest.approx(least.value, rel=0.3)  # ends lie on other ranks; never twice the work
