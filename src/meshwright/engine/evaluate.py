"""One strategy → an `Estimate`: memory by stage, time by term, and what follows from them. Or a `Refusal`."""

from __future__ import annotations

from typing import Any

from meshwright.engine.flops import model_flops_per_token
from meshwright.engine.kernels import LOW_PRECISION, PLAIN_DTYPE, dense_peak
from meshwright.engine.memory import stage_memory, stage_tree, stated_error, verdict
from meshwright.engine.placement import place
from meshwright.engine.stages import StageClass
from meshwright.engine.step import Step
from meshwright.engine.timetree import time_tree
from meshwright.engine.timing import Blocks, Setting, blocks_once, layout_of, send_time, setting, stages_of, step_of
from meshwright.engine.uncertainty import step_interval
from meshwright.rules.base import RuleContext
from meshwright.rules.check import check
from meshwright.spec.estimate import Estimate, Refusal, StageMemory, Term
from meshwright.spec.finding import Finding
from meshwright.spec.plan import Problem
from meshwright.spec.strategy import Strategy

SECONDS_PER_HOUR = 3600.0
SECONDS_PER_DAY = 86400.0


def evaluate(problem: Problem, strategy: Strategy) -> Estimate | Refusal:
    """Memory and time of `strategy`, or why no framework would run it."""
    context = RuleContext(problem.model, problem.cluster, problem.job, strategy)
    findings = check(context)
    if any(f.severity == "error" for f in findings):
        return Refusal(strategy=strategy, findings=findings)
    return estimate_legal(problem, strategy, findings)


def estimate_legal(problem: Problem, strategy: Strategy, findings: tuple[Finding, ...] = ()) -> Estimate:
    """Memory and time of a strategy known to be legal."""
    model, cluster, job = problem.model, problem.cluster, problem.job
    s = setting(model, cluster, job, strategy.framework, strategy.precision)
    groups = place(cluster, strategy)
    blocks = blocks_once(s, strategy, groups)
    stages = stages_of(model, strategy)
    micro_batches = job.global_batch // (strategy.data * strategy.micro_batch)
    memories = _memories(s, strategy, stages, blocks)
    time, critical = _time(s, strategy, stages, blocks, groups, micro_batches)
    worst = max(memories, key=lambda m: m.device.value)
    capacity = cluster.accelerator.memory_usable_bytes
    host = max(m.host.value for m in memories)
    device_verdict = verdict(worst.device.value, capacity, stated_error(strategy))
    if cluster.host_memory_bytes is not None and host > cluster.host_memory_bytes and strategy.offload != "none":
        device_verdict = "OVER"
    return Estimate(
        strategy=strategy,
        verdict=device_verdict,
        capacity_bytes=capacity,
        peak_bytes=worst.device.value,
        peak_stage=worst.stage,
        peak_phase=worst.phase,
        memory=worst.device,
        stages=_every_stage(problem, strategy, memories, stages),
        host_bytes=host,
        host_capacity_bytes=cluster.host_memory_bytes,
        time=time,
        findings=findings,
        assumptions=problem.assumptions + cluster.assumptions,
        micro_batches=micro_batches,
        bound_by=bound_by(time),
        **_derived(s, strategy, time, blocks, critical),
    )


def _memories(s: Setting, strategy: Strategy, stages: tuple[StageClass, ...], blocks: Blocks) -> list[StageMemory]:
    out = []
    for stage in stages:
        memory = stage_memory(s.model, s.cluster, s.job, strategy, stage, blocks.activations, s.software)
        out.append(stage_tree(memory, stage, s.cluster))
    return out


def _every_stage(
    problem: Problem, strategy: Strategy, memories: list[StageMemory], classes: tuple[StageClass, ...]
) -> tuple[StageMemory, ...]:
    """Memory of the distinct stages; identical later stages hold fewer micro-batches, never more."""
    return tuple(memories)


def step_seconds(problem: Problem, strategy: Strategy) -> float:
    """Seconds of one step of a legal strategy, without memory, findings and terms: what a calibration asks for."""
    s = setting(problem.model, problem.cluster, problem.job, strategy.framework, strategy.precision)
    groups = place(problem.cluster, strategy)
    blocks = blocks_once(s, strategy, groups)
    micro_batches = problem.job.global_batch // (strategy.data * strategy.micro_batch)
    return float(_step(s, strategy, stages_of(problem.model, strategy), blocks, groups, micro_batches).total)


def _step(
    s: Setting, strategy: Strategy, stages: tuple[StageClass, ...], blocks: Blocks, groups: dict[str, Any], m: int
) -> Step:
    kinds = [(c.forward, c.backward, c.host_forward, c.host_backward) for c in blocks.kinds]
    head = (blocks.head.forward, blocks.head.backward)
    embedding = (blocks.embedding.forward, blocks.embedding.backward)
    layouts = [layout_of(s, strategy, stage, groups) for stage in stages]
    return step_of(s, strategy, m, kinds, head, embedding, layouts, send_time(s, strategy, groups))


def _time(
    s: Setting, strategy: Strategy, stages: tuple[StageClass, ...], blocks: Blocks, groups: dict[str, Any], m: int
) -> tuple[Term, StageClass]:
    step = _step(s, strategy, stages, blocks, groups, m)
    kinds = [(c.forward, c.backward, c.host_forward, c.host_backward) for c in blocks.kinds]
    head = (blocks.head.forward, blocks.head.backward)
    embedding = (blocks.embedding.forward, blocks.embedding.backward)
    mtp_kind = s.model.pattern[-1]
    critical = max(stages, key=lambda x: _stage_seconds(x, kinds, head, embedding, mtp_kind))
    ends = (blocks.head, blocks.embedding)
    torus = bool(s.cluster.torus)
    tree = time_tree(step, m, critical, blocks.kinds, *ends, mtp_kind, strategy.schedule, torus)
    return tree, critical


def _stage_seconds(stage: StageClass, kinds: list[Any], head: Any, embedding: Any, mtp_kind: int) -> float:
    seconds = sum(n * sum(k) for n, k in zip(stage.counts, kinds, strict=True))
    seconds += sum(embedding) if stage.embedding else 0.0
    seconds += sum(head) if stage.head else 0.0
    return float(seconds + (kinds[mtp_kind][0] + kinds[mtp_kind][1] + sum(head) if stage.mtp else 0.0))


def peak_dtype(precision: str) -> str:
    """The number format whose dense peak MFU is measured against."""
    return LOW_PRECISION.get(precision) or PLAIN_DTYPE.get(precision, "bf16")


def _derived(s: Setting, strategy: Strategy, time: Term, blocks: Blocks, critical: StageClass) -> dict[str, Any]:
    """Throughput, utilisation, cost, energy and duration."""
    job, cluster = s.job, s.cluster
    step = float(time.value)
    devices = cluster.devices
    per_token = model_flops_per_token(s.model, job.seq_len)
    model_flops = per_token.training * job.tokens_per_step
    counts = [s.model.count(kind) for kind in range(len(s.model.blocks))]
    forward = sum(n * c.flops for n, c in zip(counts, blocks.kinds, strict=True)) + blocks.head.flops
    share = sum(n * c.recompute_flops for n, c in zip(counts, blocks.kinds, strict=True)) / forward
    hardware_flops = model_flops + share * per_token.forward * job.tokens_per_step
    dtype = peak_dtype(strategy.precision)
    peak = dense_peak(cluster.accelerator, dtype) * devices
    low, high, reason = step_interval(s, strategy, step)
    price, power = cluster.price_per_device_hour, cluster.accelerator.power_watts
    return {
        "step_seconds": step,
        "step_interval": (low, high),
        "interval_reason": reason,
        "tokens_per_second": job.tokens_per_step / step,
        "tokens_per_second_per_device": job.tokens_per_step / step / devices,
        "model_flops": model_flops,
        "hardware_flops": hardware_flops,
        "mfu": model_flops / (step * peak),
        "hfu": hardware_flops / (step * peak),
        "peak_dtype": dtype,
        "dollars_per_step": None if price is None else price * devices * step / SECONDS_PER_HOUR,
        "joules_per_step": None if power is None else power * devices * step,
        "days": None if job.tokens is None else job.tokens / job.tokens_per_step * step / SECONDS_PER_DAY,
    }


def bound_by(time: Term) -> str:
    """Name of the largest term of a step."""
    return max((t for t in time.children), key=lambda t: t.value).name
