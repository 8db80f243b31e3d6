"""Plans against brute force: the same space enumerated here, each strategy estimated alone."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from meshwright.catalog.hardware import cluster
from meshwright.catalog.models import model
from meshwright.engine.activations import groups_of_model, recompute_groups
from meshwright.engine.evaluate import evaluate
from meshwright.engine.memory import stated_error
from meshwright.engine.search.plan import Columns, Pool, plan, search
from meshwright.engine.search.rank import SAME
from meshwright.engine.search.space import Constraints
from meshwright.spec.estimate import Estimate
from meshwright.spec.job import Job
from meshwright.spec.plan import Plan, Problem
from meshwright.spec.strategy import Strategy

# framework, model, cluster, sequence, batch, shardings, micro-batches
SPACES = {
    "megatron dense": ("megatron", "llama-3.2-3b", "h100-sxm:8", 8192, 16, ("none", "zero1"), (1, 2)),
    "megatron experts": ("megatron", "olmoe-1b-7b", "dgx-a100-80gb:16", 4096, 32, ("zero1",), (1, 4)),
    "megatron latent": ("megatron", "deepseek-v2-lite", "h100-sxm:16", 4096, 16, ("zero1",), (1,)),
    "fsdp": ("fsdp", "llama-3.1-8b", "h100-sxm:16", 4096, 32, ("zero2", "zero3"), (1, 2)),
    "deepspeed": ("deepspeed", "qwen2.5-7b", "dgx-a100-80gb:32", 4096, 128, ("zero1", "zero2", "zero3"), (1, 2, 4)),
    "jax": ("jax", "llama-3.1-8b", "tpu-v5p:64", 8192, 64, ("zero3",), (1,)),
    "too small": ("megatron", "llama-3.1-70b", "a100-sxm-40gb:8", 4096, 16, ("zero1",), (1, 2)),
}
MODES = ("none", "full")


def problem_of(name: str) -> Problem:
    _, what, where, seq, batch, _, _ = SPACES[name]
    return Problem(model=model(what), cluster=cluster(where), job=Job(seq_len=seq, global_batch=batch))


def constraints_of(name: str) -> Constraints:
    framework, _, _, _, _, shardings, micro_batches = SPACES[name]
    return Constraints(
        frameworks=(framework,),
        sharding=shardings,
        micro_batch=micro_batches,
        recompute=MODES,
        shard=(0,),
        offload=("none",),
    )


@lru_cache(maxsize=len(SPACES))
def searched(name: str) -> tuple[Columns, Pool]:
    return search(problem_of(name), constraints_of(name))


@lru_cache(maxsize=len(SPACES))
def planned(name: str) -> Plan:
    return plan(problem_of(name), constraints=constraints_of(name), top=50)


@lru_cache(maxsize=len(SPACES))
def brute_force(name: str) -> dict[Strategy, Estimate]:
    """Every legal strategy of the space: all degrees by nested loops, each asked alone."""
    framework, _, _, seq, _, shardings, micro_batches = SPACES[name]
    p = problem_of(name)
    n, m = p.cluster.devices, p.model
    heads = next(b.mixer.heads for b in m.blocks if b.mixer is not None and hasattr(b.mixer, "heads"))
    experts = m.moe.experts if m.moe else 1
    one = (1,)
    tensors = (
        one if framework == "deepspeed" else [t for t in range(1, min(p.cluster.domain_size, 64) + 1) if heads % t == 0]
    )
    contexts = one if framework in ("deepspeed", "jax") else [c for c in (1, 2, 4, 8) if c == 1 or seq // c >= 2048]
    pipelines = one if framework in ("deepspeed", "jax") else range(1, m.layers + 1)
    found: dict[Strategy, Estimate] = {}
    for t, c, pp in itertools.product(tensors, contexts, pipelines):
        if n % (t * c * pp):
            continue
        d = n // (t * c * pp)
        chunks = [v for v in range(1, m.layers // pp + 1) if v == 1 or m.layers % (pp * v) == 0 or v <= 4]
        meshes = [
            (v, e, et)
            for v in (chunks if pp > 1 else one)
            for e in (range(1, experts + 1) if framework != "deepspeed" else one)
            if experts % e == 0
            for et in ({t} if e == 1 else {1, t} if framework == "megatron" else {1})
            if e == 1 or d * c * t % (e * et) == 0
        ]
        for (v, e, et), b, sharding, mode in itertools.product(meshes, micro_batches, shardings, MODES):
            strategy = Strategy(
                framework=framework, data=d, tensor=t, pipeline=pp, virtual=v, context=c, expert=e, expert_tensor=et,
                sharding=sharding, micro_batch=b, recompute=mode, schedule="interleaved" if v > 1 else "1f1b",
                recompute_ops=("core_attn",), sequence_parallel=t > 1,
                overlap_expert=framework == "megatron" and e > 1,
                graphs="partial" if framework == "megatron" and m.is_moe else "none",
            )  # fmt: skip
            answer = evaluate(p, strategy)
            if isinstance(answer, Estimate):
                found[strategy] = answer
    return found


def fits(p: Problem, e: Estimate, *, safely: bool = True) -> bool:
    margin = 1 + stated_error(e.strategy) if safely else 1.0
    return e.peak_bytes * margin <= p.cluster.accelerator.memory_usable_bytes


def best_fitting(name: str) -> dict[Strategy, Estimate]:
    """What fits with the stated error, or without it where nothing does."""
    p, everything = problem_of(name), brute_force(name)
    safe = {s: e for s, e in everything.items() if fits(p, e)}
    return safe or {s: e for s, e in everything.items() if fits(p, e, safely=False)}


FITTING = [name for name in SPACES if name != "too small"]


# --------------------------------------------------------------------------------------------------- the same answers


@pytest.mark.parametrize("name", SPACES)
def test_the_search_visits_exactly_the_legal_strategies(name: str) -> None:
    columns, _ = searched(name)
    mine = {columns.strategy(i): i for i in range(len(columns.peak))}
    everything = brute_force(name)
    assert set(mine) == set(everything)
    for strategy, row in mine.items():
        assert columns.seconds[row] == pytest.approx(everything[strategy].step_seconds, rel=1e-9)
        assert columns.peak[row] == pytest.approx(everything[strategy].peak_bytes, rel=1e-9)


@pytest.mark.parametrize("name", FITTING)
def test_the_winner_is_the_fastest_that_fits(name: str) -> None:
    """Among strategies within the stated tie, one with the fewest kinds of parallelism."""
    fitting, winner = best_fitting(name), planned(name).best
    assert winner is not None and winner.strategy in fitting
    quickest = min(e.step_seconds for e in fitting.values())
    assert winner.estimate.step_seconds <= quickest * (1 + SAME) * (1 + 1e-9)

    def kinds(s: Strategy) -> int:
        return sum(getattr(s, d) > 1 for d in ("tensor", "pipeline", "context", "expert", "virtual"))

    tied = [s for s, e in fitting.items() if e.step_seconds <= quickest * (1 + SAME) * (1 - 1e-9)]
    assert kinds(winner.strategy) <= min(map(kinds, tied))


@pytest.mark.parametrize("name", FITTING)
def test_the_smallest_wins_when_memory_is_the_goal(name: str) -> None:
    result = plan(problem_of(name), constraints=constraints_of(name), goal="memory", top=3)
    assert result.best is not None
    smallest = min(e.peak_bytes for e in best_fitting(name).values())
    assert result.best.estimate.peak_bytes == pytest.approx(smallest, rel=1e-9)


@pytest.mark.parametrize("name", FITTING)
def test_ranking_is_in_order_and_by_mesh(name: str) -> None:
    ranked = planned(name).ranked
    assert [r.rank for r in ranked] == list(range(1, len(ranked) + 1))
    seconds = [r.estimate.step_seconds for r in ranked]
    quickest = min(seconds)
    tail = [s for s in seconds if s > quickest * (1 + SAME)]
    assert tail == sorted(tail) and seconds[-len(tail) :] == tail if tail else True
    meshes = [
        (r.strategy.tensor, r.strategy.context, r.strategy.pipeline, r.strategy.expert, r.strategy.expert_tensor)
        for r in ranked
    ]
    assert len(set(meshes)) == len(meshes)
    fitting = best_fitting(name)
    for r in ranked:
        assert r.estimate.step_seconds == pytest.approx(fitting[r.strategy].step_seconds, rel=1e-9)
        assert r.reason is not None and str(r.reason)


@pytest.mark.parametrize("name", FITTING)
def test_every_mesh_is_represented_by_its_best(name: str) -> None:
    """Up to the tie, no strategy of a listed mesh is faster than the one that stands for it."""
    best: dict[tuple[int, ...], float] = {}
    for s, e in best_fitting(name).items():
        key = (s.tensor, s.context, s.pipeline, s.expert, s.expert_tensor)
        best[key] = min(best.get(key, np.inf), e.step_seconds)
    for r in planned(name).ranked:
        s = r.strategy
        fastest = best[(s.tensor, s.context, s.pipeline, s.expert, s.expert_tensor)]
        assert r.estimate.step_seconds <= fastest * (1 + SAME) * (1 + 1e-9)


# --------------------------------------------------------------------------------------------------- Pareto and funnel


@pytest.mark.parametrize("name", FITTING)
def test_pareto_front_by_comparing_all_pairs(name: str) -> None:
    """No point of the front is beaten in both time and memory; every mesh with an unbeaten point is there."""
    fitting = best_fitting(name)
    points = np.array([(e.step_seconds, e.peak_bytes) for e in fitting.values()])
    keys = list(fitting)
    unbeaten = set()
    for i, (t, b) in enumerate(points):
        better = (points[:, 0] <= t * (1 - 1e-9)) & (points[:, 1] <= b * (1 + 1e-9))
        better |= (points[:, 0] <= t * (1 + 1e-9)) & (points[:, 1] <= b * (1 - 1e-9))
        if not better.any():
            unbeaten.add(keys[i])
    front = plan(problem_of(name), constraints=constraints_of(name), top=10_000).pareto
    assert front and {r.strategy for r in front} <= unbeaten
    mesh = lambda s: (s.tensor, s.context, s.pipeline, s.expert, s.expert_tensor)  # noqa: E731
    shown = {(r.estimate.step_seconds, r.estimate.peak_bytes) for r in front}
    missing = {mesh(s) for s in unbeaten} - {mesh(r.strategy) for r in front}
    for s in unbeaten:
        if mesh(s) in missing:  # allowed only where another mesh gives the very same point
            e = fitting[s]
            assert any(
                e.step_seconds == pytest.approx(t, rel=1e-8) and e.peak_bytes == pytest.approx(b, rel=1e-8)
                for t, b in shown
            )
    assert all(r.pareto for r in front)


@pytest.mark.parametrize("name", SPACES)
def test_funnel_adds_up(name: str) -> None:
    result, (columns, pool) = planned(name), searched(name)
    assert result.candidates == pool.candidates and result.legal == len(columns.peak) == len(brute_force(name))
    remaining = result.candidates
    for step in result.funnel:
        remaining -= step.rejected
        assert step.remaining == remaining >= 0 and step.rejected >= 0 and str(step.title)
    assert remaining == result.fitting == len(best_fitting(name))
    rules = [s for s in result.funnel if s.code != "memory"]
    assert result.candidates - sum(s.rejected for s in rules) == result.legal
    assert result.funnel[-1].code == "memory" and result.funnel[-1].rejected == result.legal - result.fitting


def test_default_space_adds_up_too() -> None:
    p = Problem(model=model("mixtral-8x7b"), cluster=cluster("h100-sxm:16"), job=Job(seq_len=4096, global_batch=32))
    result = plan(p)
    assert result.funnel[-1].remaining == result.fitting > 0
    assert result.candidates - sum(s.rejected for s in result.funnel) == result.fitting
    assert {r.strategy.framework for r in result.ranked} <= {"megatron", "fsdp", "deepspeed"}


# -------------------------------------------------------------------------------------------------------- near misses

_FIXES: dict[str, Any] = {
    "selective recompute": lambda s, v: replace(s, recompute="selective"),
    "full recompute": lambda s, v: replace(s, recompute="full"),
    "micro-batch {size}": lambda s, v: replace(s, micro_batch=v["size"]),
    "micro-batch 1 with full recompute": lambda s, v: replace(s, micro_batch=1, recompute="full"),
    "a sharded optimizer (zero1)": lambda s, v: replace(s, sharding="zero1"),
}
TIGHT = [
    ("llama-3.1-8b", "h100-sxm:8", 8192, 32, Constraints()),
    ("llama-3.1-70b", "h100-sxm:32", 8192, 32, Constraints(frameworks=("megatron",), micro_batch=(1, 2, 4))),
    ("mixtral-8x7b", "h100-sxm:16", 8192, 32, Constraints(micro_batch=(1, 2))),
    ("qwen2.5-7b", "a100-sxm-40gb:8", 8192, 32, Constraints()),
    ("llama-3.1-8b", "h100-sxm:16", 4096, 32, Constraints(max_memory_fraction=0.4, micro_batch=(1, 2, 4))),
]


@pytest.mark.parametrize(("what", "where", "seq", "batch", "constraints"), TIGHT)
def test_near_misses_are_misses_and_their_fix_fits(
    what: str, where: str, seq: int, batch: int, constraints: Constraints
) -> None:
    p = Problem(model=model(what), cluster=cluster(where), job=Job(seq_len=seq, global_batch=batch))
    result = plan(p, constraints=constraints)
    capacity = p.cluster.accelerator.memory_usable_bytes * constraints.max_memory_fraction
    assert result.best is not None and result.near_misses
    for miss in result.near_misses:
        answer = evaluate(p, miss.strategy)
        assert isinstance(answer, Estimate)
        assert miss.step_seconds == pytest.approx(answer.step_seconds, rel=1e-9)
        assert miss.step_seconds < result.best.estimate.step_seconds  # worth telling
        assert miss.over_bytes == pytest.approx(answer.peak_bytes - capacity, rel=1e-6, abs=1)
        assert answer.peak_bytes * (1 + stated_error(miss.strategy)) > capacity  # over, or within the stated error
        assert miss.fix is not None
        if miss.over_bytes > 0 and "change" in miss.fix.values:
            change = miss.fix.values["change"]
            changed = evaluate(p, _FIXES[change.template](miss.strategy, change.values))
            assert isinstance(changed, Estimate)
            assert changed.peak_bytes <= capacity, str(miss.fix)
            assert f"{changed.peak_bytes / 2**30:.1f} GiB" in str(miss.fix)


def test_a_model_that_fits_nowhere() -> None:
    """405B on eight 40 GB devices: an empty ranking, the smallest strategies, and how much would be needed."""
    p = Problem(
        model=model("llama-3.1-405b"), cluster=cluster("a100-sxm-40gb:8"), job=Job(seq_len=4096, global_batch=16)
    )
    result = plan(p)
    assert result.ranked == () and result.pareto == () and result.best is None and result.fitting == 0 < result.legal
    columns, _ = search(p, Constraints())
    capacity, host = p.cluster.accelerator.memory_usable_bytes, p.cluster.host_memory_bytes
    assert host is not None
    for miss in result.near_misses:  # over on the device, or on the host that offload fills
        answer = evaluate(p, miss.strategy)
        assert isinstance(answer, Estimate) and answer.verdict == "OVER"
        assert miss.over_bytes > 0 or answer.host_bytes > host
    assert result.near_misses[0].over_bytes == pytest.approx(columns.peak.min() - capacity)
    assert len(result.next_steps) >= 2 and all(str(t) for t in result.next_steps)
    enough = next(t.values["devices"] for t in result.next_steps if "devices" in t.values)
    smallest = min(m.over_bytes for m in result.near_misses if m.over_bytes > 0) + capacity
    assert enough > 8 * smallest / capacity > 16  # 405B parameters at 16 bytes need 20 times eight such devices


def test_brute_force_agrees_that_nothing_fits() -> None:
    assert best_fitting("too small") == {} and planned("too small").ranked == ()


# ------------------------------------------------------------------------------------------------------- limits, goals


def test_less_memory_never_helps() -> None:
    p = problem_of("fsdp")
    seconds, count = [], []
    for fraction in (1.0, 0.8, 0.6, 0.4):
        c = replace(constraints_of("fsdp"), max_memory_fraction=fraction)
        result = plan(p, constraints=c)
        assert result.best is not None
        limit = fraction * p.cluster.accelerator.memory_usable_bytes
        assert all(r.estimate.peak_bytes <= limit for r in result.ranked)
        seconds.append(result.best.estimate.step_seconds)
        count.append(result.fitting)
    assert count == sorted(count, reverse=True)
    assert all(b >= a / (1 + SAME) for a, b in itertools.pairwise(seconds))


def test_progress_ends_at_one() -> None:
    seen: list[float] = []
    plan(problem_of("jax"), constraints=constraints_of("jax"), progress=lambda share, text: seen.append(share))
    assert seen == sorted(seen) and seen[0] == 0 and seen[-1] == 1


def test_a_plan_can_be_repeated() -> None:
    first, second = (plan(problem_of("deepspeed"), constraints=constraints_of("deepspeed")) for _ in range(2))
    assert [r.strategy for r in first.ranked] == [r.strategy for r in second.ranked]
    assert first.funnel == second.funnel and first.near_misses == second.near_misses


def test_cost_of_a_plan_does_not_grow_with_the_devices() -> None:
    """Candidates follow the divisors of the device count: 131,072 devices have not a hundred times those of 1,024."""
    counts = []
    for devices, batch in ((1024, 2048), (16384, 16384), (131072, 131072)):
        p = Problem(
            model=model("gpt-3-175b"), cluster=cluster(f"h100-sxm:{devices}"), job=Job(seq_len=2048, global_batch=batch)
        )
        c = Constraints(frameworks=("megatron",), micro_batch=(1, 2))
        counts.append(search(p, c)[1].candidates)
    assert counts[2] <= 3 * counts[0]


@pytest.mark.parametrize(
    ("what", "where", "batch"),
    [
        ("llama-3.1-70b", "h100-sxm:512", 512), ("deepseek-v3", "h100-sxm:2048", 512),
        ("llama-3.1-70b", "tpu-v5p:256", 512),
    ],
)  # fmt: skip
def test_a_plan_recomputes_only_what_the_model_and_the_framework_have(what: str, where: str, batch: int) -> None:
    p = Problem(model=model(what), cluster=cluster(where), job=Job(seq_len=8192, global_batch=batch))
    for ranked in plan(p, constraints=Constraints(recompute=("selective",))).ranked:
        s = ranked.strategy
        assert set(recompute_groups(s)) <= groups_of_model(p.model)
        assert s.framework != "megatron" or "mlp_act" not in s.recompute_ops  # no such module
        assert isinstance(evaluate(p, s), Estimate)


def test_reasons_name_what_is_lost_and_what_is_gained_and_the_framework_that_has_a_choice() -> None:
    p = Problem(model=model("llama-3.1-70b"), cluster=cluster("h100-sxm:512"), job=Job(seq_len=8192, global_batch=512))
    result = plan(p)
    winner = {t.name: t.value for t in result.ranked[0].estimate.time.children}
    for ranked in result.ranked[1:]:
        mine = {t.name: t.value for t in ranked.estimate.time.children}
        more = {name: mine.get(name, 0.0) - winner.get(name, 0.0) for name in {*mine, *winner}}
        if min(more.values()) <= -0.5 * max(more.values()):
            assert f"{-min(more.values()):.2f} s less" in str(ranked.reason)
    said = " | ".join(str(reason) for reason in result.reasons)
    assert "zero3 (fsdp)" in said and "recomputation" in said


def test_a_plan_does_not_advise_what_it_has_weighed() -> None:
    p = Problem(model=model("deepseek-v3"), cluster=cluster("h100-sxm:2048"), job=Job(seq_len=8192, global_batch=512))
    finding = {f.code: f for f in plan(p).findings}["MW-P103"]
    assert "weighed" in str(finding.fix) and finding.data["legal"]
    asked = {f.code: f for f in plan(p, constraints=Constraints(expert=(128,))).findings}["MW-P103"]
    assert str(asked.fix) == "expert = 8"


def test_a_strategy_that_only_the_host_cannot_hold_says_so() -> None:
    p = Problem(model=model("llama-3.1-8b"), cluster=cluster("a10:2"), job=Job(seq_len=8192, global_batch=512))
    miss = next(m for m in plan(p).near_misses if m.over_bytes <= 0)
    assert "each host" in str(miss.fix)
