"""How one strategy survives: failures, checkpoint plan, spares, goodput, and what forbids it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from meshwright.catalog import failures as known
from meshwright.formulas import goodput as g
from meshwright.formulas.checkpoint import bandwidth_for_loss
from meshwright.messages import N_, Text
from meshwright.resilience import goodput
from meshwright.resilience.failures import NORMAL_90
from meshwright.resilience.policies import Setting, every, policy
from meshwright.resilience.settings import framework_settings
from meshwright.resilience.simulate import simulate
from meshwright.resilience.situation import Options, Situation, hardware, situation
from meshwright.spec.estimate import Estimate
from meshwright.spec.finding import Finding
from meshwright.spec.plan import Problem
from meshwright.spec.resilience import (
    CheckpointPlan,
    FailureModel,
    Goodput,
    Mode,
    Policy,
    ResiliencePlan,
    RunLength,
    Spares,
    Storage,
)
from meshwright.spec.strategy import Strategy
from meshwright.units import show_bandwidth, show_bytes, show_seconds

SECONDS_PER_DAY, HOURS_PER_DAY = 86400.0, 24.0
LOSS = 0.05  # the share at which the bandwidth that storage should have is stated
LARGE_LOSS = 0.25  # beyond it first-order formulas stray
PLAYED_DAYS = 90.0
BETTER = 0.001  # a tenth of a point: less is not worth another mechanism
HOPELESS = 0.01  # useful shares below say only that the run never ends
MOST_FAILURES = 3000  # of one run: beyond it chance averages out, and the closed form is used


def plan(problem: Problem, strategy: Strategy, estimate: Estimate, options: Options | None = None) -> ResiliencePlan:
    """How `strategy`, whose step takes what `estimate` says, survives on the problem's cluster."""
    o = options or Options()
    step, here = estimate.step_seconds, hardware(problem, o)
    now = situation(here, strategy, step, o)
    failures, storage, held, x = here.failures, here.storage, here.spares, now.setting
    mode: Mode = o.mode or "async"
    wanted = o.interval if o.steps is None else o.steps * step
    chosen = policy(mode, x, None if wanted is None else x.steps(wanted))
    checkpoint = _checkpoint(strategy, chosen, now, o.kept)
    return ResiliencePlan(
        problem=problem,
        strategy=strategy,
        step_seconds=step,
        failures=failures,
        storage=storage,
        policy=chosen,
        checkpoint=checkpoint,
        spares=held,
        goodput=goodput_of(problem, estimate, chosen, failures, held, o),
        measured=o.measured,
        findings=tuple(_findings(problem, estimate, chosen, checkpoint, failures, storage, x, o.slowdown)),
        assumptions=(*here.assumptions, *_assumed(x, held, o)),
    )


# ---------------------------------------------------------------------------------------------- checkpoint


def _checkpoint(strategy: Strategy, chosen: Policy, now: Situation, kept: int) -> CheckpointPlan:
    of, took, x, mtti = now.sizes, now.times, now.setting, now.hardware.failures.mtti
    cost = chosen.segments * chosen.stall + chosen.storage_stall
    each = took.stall + took.write if chosen.mode == "blocking" else took.stall
    steps = max(1, round(chosen.period / x.step))
    quick = max(1, round(chosen.interval / x.step)) if chosen.mode in ("two-tier", "peer") else None
    timeout = max(known.common()["group_timeout"], 2 * (took.stall + took.write))
    return CheckpointPlan(
        mode=chosen.mode,
        bytes_per_parameter=of.per_parameter,
        total_bytes=of.total,
        weights_bytes=of.weights,
        rank_bytes=of.rank,
        host_bytes=of.host * (2 if chosen.mode == "peer" else 1),
        copy_seconds=took.copy,
        write_seconds=took.write,
        read_seconds=took.read,
        limited_by=took.limited_by,
        interval=chosen.period,
        steps=steps,
        quick_steps=quick,
        stall=cost,
        young=g.young(each, mtti),
        daly=g.daly(each, mtti),
        exact=g.exact_interval(each, mtti),
        bandwidth_needed=of.total / chosen.period,
        bandwidth_for_loss=bandwidth_for_loss(of.total, mtti, LOSS),
        kept=kept,
        kept_bytes=(kept + 1) * of.total,  # one more while it is being written
        settings=framework_settings(strategy.framework, chosen, steps, quick, kept=kept, timeout=timeout),
    )


# ---------------------------------------------------------------------------------------------- goodput


def goodput_of(problem: Problem, estimate: Estimate, chosen: Policy, failures: FailureModel, held: Spares,
               o: Options) -> Goodput:  # fmt: skip
    """Closed form, a simulation beside it, the range that the failure rate leaves, and the length of the run."""
    parts = goodput.shares(chosen, failures.mtti, o.slowdown)
    low, high = (float(goodput.useful(chosen, m, o.slowdown)) for m in (failures.mtti_low, failures.mtti_high))
    days = min(PLAYED_DAYS, MOST_FAILURES * failures.mtti / SECONDS_PER_DAY)
    runs = simulate(chosen, failures.mtti, horizon=days * SECONDS_PER_DAY, trials=o.trials, slowdown=o.slowdown,
                    seed=o.seed)  # fmt: skip
    share = float(parts["productive"])
    return Goodput(
        useful=share,
        low=low,
        high=high,
        breakdown=goodput.breakdown(parts),
        simulated=float(runs.useful.mean()),
        simulated_error=float(runs.useful.std(ddof=1) / math.sqrt(o.trials)) if o.trials > 1 else 0.0,
        trials=o.trials,
        tokens_per_second=estimate.tokens_per_second * share,
        run=_length(problem, estimate, chosen, failures, held, share, o),
    )


def sampled_mtti(failures: FailureModel, count: int, seed: int) -> Any:
    """Mean times to interrupt drawn from the believed range: 5 % below its low end, 5 % above its high one."""
    z = np.random.default_rng(seed).standard_normal(count)
    up, down = math.log(failures.mtti_high / failures.mtti), math.log(failures.mtti / failures.mtti_low)
    return failures.mtti * np.exp(np.where(z > 0, up, down) * z / NORMAL_90)


def _length(
    problem: Problem, estimate: Estimate, chosen: Policy, failures: FailureModel, held: Spares, share: float, o: Options
) -> RunLength | None:
    if estimate.days is None or share < HOPELESS:
        return None
    ideal = estimate.days
    means = sampled_mtti(failures, o.trials, o.seed)
    worst = float(goodput.useful(chosen, failures.mtti_low, o.slowdown))
    if ideal * SECONDS_PER_DAY / (max(worst, 1e-6) * failures.mtti_low) <= MOST_FAILURES:
        # Slow ranks stretch the work itself, so that the simulated work is longer by as much.
        work = ideal * SECONDS_PER_DAY * (1 + o.slowdown)
        wall = simulate(chosen, np.maximum(means, chosen.full.total / 3), work=work, trials=o.trials, seed=o.seed).wall
        days = wall / SECONDS_PER_DAY
    else:
        days = ideal / np.maximum(goodput.useful(chosen, means, o.slowdown), 1e-6)
    middle, late = (float(np.quantile(days, q)) for q in (0.5, 0.9))
    price = problem.cluster.price_per_device_hour
    devices = problem.cluster.devices + held.nodes * problem.cluster.node_size
    daily = None if price is None else price * devices * HOURS_PER_DAY
    dollars = [None if daily is None else d * daily for d in (ideal / share, middle, late)]
    return RunLength(ideal_days=ideal, days=ideal / share, p50_days=middle, p90_days=late, dollars=dollars[0],
                     p50_dollars=dollars[1], p90_dollars=dollars[2])  # fmt: skip


# ---------------------------------------------------------------------------------------------- findings


def _findings(
    problem: Problem, estimate: Estimate, chosen: Policy, c: CheckpointPlan, failures: FailureModel, storage: Storage,
    x: Setting, slowdown: float,
) -> Iterator[Finding]:  # fmt: skip
    saves = chosen.mode != "replicas"
    if estimate.verdict == "OVER":
        yield Finding(
            code="MW-G009", severity="warning", where="",
            message=Text(N_("the strategy does not fit into the memory of the devices")),
            fix=Text(N_("see what `meshwright estimate` says of it")),
        )  # fmt: skip
    yield from _too_often(chosen, c, storage, x)
    yield from _too_slow(chosen, c, failures, storage)
    if chosen.mode == "blocking":
        yield from _timeout(c)
    if chosen.mode != "blocking":
        yield from _host(problem, estimate, c)
    if not saves:
        yield from _whole_groups(problem, estimate, x)
    if storage.capacity is not None and c.kept_bytes > storage.capacity:
        text = N_("{kept} checkpoints and one being written take {size}, and the storage holds {capacity}")
        yield Finding(
            code="MW-G005", severity="error", where="--keep",
            message=Text(text, kept=c.kept, size=show_bytes(c.kept_bytes), capacity=show_bytes(storage.capacity)),
            fix=Text(N_("keep at most {value}"), value=max(0, int(storage.capacity / c.total_bytes) - 1)),
        )  # fmt: skip
    if c.kept < 2:
        yield Finding(
            code="MW-G006", severity="warning", where="--keep",
            message=Text(N_("a failure while the only checkpoint is replaced leaves none that is complete")),
            fix=Text(N_("keep two, write to a temporary name, and rename when all ranks are done")),
        )  # fmt: skip
    yield from _better(chosen, x, slowdown)
    strain = (chosen.full.total + chosen.period / 2) / failures.mtti
    if saves and strain > LARGE_LOSS:
        text = N_(
            "each failure costs {cost}, and they come every {mtti}: first-order formulas do not hold here, the exact"
            " ones and the simulation do"
        )
        cost = show_seconds(chosen.full.total + chosen.period / 2)
        yield Finding(
            code="MW-G007", severity="warning", where="",
            message=Text(text, cost=cost, mtti=show_seconds(failures.mtti)),
            fix=Text(N_("shorten detection and restart, or save more often")),
        )  # fmt: skip


def _better(chosen: Policy, x: Setting, slowdown: float) -> Iterator[Finding]:
    """Another policy that would keep at least a tenth of a point more."""
    mtti = x.failures.mtti
    without = ("replicas",) if x.groups < 2 or chosen.mode != "replicas" else ()
    shares = {name: float(goodput.useful(p, mtti, slowdown)) for name, p in every(x, without).items()}
    name = max(shares, key=lambda each: shares[each])
    gain = shares[name] - float(goodput.useful(chosen, mtti, slowdown))
    if gain < BETTER:
        return
    option = "--spares hot" if name == "hot-spares" else f"--policy {name}"
    text = N_("{option} would keep {gain} points more of the time")
    yield Finding(
        code="MW-G011", severity="advice", where="--policy",
        message=Text(text, option=option, gain=f"{100 * gain:.1f}"),
        fix=Text(N_("see `meshwright resilience compare` for all of them")), data={"policy": name, "gain": gain},
    )  # fmt: skip


def _too_often(chosen: Policy, c: CheckpointPlan, storage: Storage, x: Setting) -> Iterator[Finding]:
    """One snapshot is on its way at a time: the next one may not start before it is safe."""
    around = chosen.period + chosen.segments * chosen.stall
    if chosen.persist <= around * (1 + 1e-9):
        return
    steps = math.ceil(chosen.persist / x.step)
    needed = c.total_bytes / chosen.period
    text = N_(
        "a checkpoint every {interval} ({steps} steps), but storage takes {persist} to write {size}: {limit} is the"
        " limit, {needed} would be needed"
    )
    limit = Text(N_("storage at {rate}"), rate=show_bandwidth(storage.write))
    if c.limited_by == "nodes":
        limit = Text(N_("what nodes can send, {rate} each"), rate=show_bandwidth(storage.node_write))
    yield Finding(
        code="MW-G001", severity="error", where="--interval",
        message=Text(text, interval=show_seconds(chosen.period), steps=c.steps, persist=show_seconds(chosen.persist),
                     size=show_bytes(c.total_bytes), limit=limit, needed=show_bandwidth(needed)),
        fix=Text(N_("save every {steps} steps or more, or give storage {needed}"), steps=steps,
                 needed=show_bandwidth(needed)),
        data={"legal": [steps], "bandwidth_needed": needed},
    )  # fmt: skip


def _too_slow(chosen: Policy, c: CheckpointPlan, failures: FailureModel, storage: Storage) -> Iterator[Finding]:
    """A save that lasts longer than the run does between failures hardly ever ends."""
    hard = failures.mtti / max(chosen.hard, 1e-9)
    if c.write_seconds < hard:
        return
    text = N_(
        "storage is too slow for this plan: a checkpoint of {size} takes {write}, and failures that need it come every"
        " {mtti}"
    )
    yield Finding(
        code="MW-G002", severity="error", where="--storage",
        message=Text(text, size=show_bytes(c.total_bytes), write=show_seconds(c.write_seconds),
                     mtti=show_seconds(hard)),
        fix=Text(N_("blocking saves would lose {loss} with {rate}; it has {have}"), loss=f"{LOSS:.0%}",
                 rate=show_bandwidth(c.bandwidth_for_loss), have=show_bandwidth(storage.write)),
        data={"bandwidth_needed": c.bandwidth_for_loss},
    )  # fmt: skip


def _timeout(c: CheckpointPlan) -> Iterator[Finding]:
    limit = known.common()["group_timeout"]
    save = c.copy_seconds + c.write_seconds
    if save <= limit:
        return
    text = N_("a blocking save takes {save}, and process groups give up after {limit} unless told otherwise")
    yield Finding(
        code="MW-G003", severity="warning", where="--policy",
        message=Text(text, save=show_seconds(save), limit=show_seconds(limit)),
        fix=Text(N_("set the timeout above {double}, or save asynchronously"), double=show_seconds(2 * save)),
    )  # fmt: skip


def _host(problem: Problem, estimate: Estimate, c: CheckpointPlan) -> Iterator[Finding]:
    memory = problem.cluster.host_memory_bytes
    need = c.host_bytes * known.common()["staging_copies"]
    offloaded = estimate.host_bytes if estimate.strategy.offload != "none" else 0.0
    if memory is None or need + offloaded <= memory:
        return
    text = N_("a snapshot takes {need} of host memory beside {used} in use, and a host has {have}")
    yield Finding(
        code="MW-G004", severity="error", where="--policy",
        message=Text(text, need=show_bytes(need), used=show_bytes(offloaded), have=show_bytes(memory)),
        fix=Text(N_("save blockingly (--policy blocking), or use more nodes")),
    )  # fmt: skip


def _whole_groups(problem: Problem, estimate: Estimate, x: Setting) -> Iterator[Finding]:
    """A group can leave only if the others hold all states without it."""
    s = estimate.strategy
    copies = s.data * s.context
    if s.sharding == "none" or (s.shard and s.shard < copies):
        return
    ranks = max(1, copies // x.groups)
    text = N_(
        "{sharding} divides states over all {copies} replicas, so that none can leave without taking some with it"
    )
    fix = N_("shard within groups of {ranks} (--hsdp {ranks}), {groups} groups in all; this answer counts on that")
    if x.groups < 2:
        fix = N_("one copy of the states fills the cluster: use --policy peer")
    yield Finding(
        code="MW-G008", severity="warning" if x.groups > 1 else "error", where="--policy",
        message=Text(text, sharding=s.sharding, copies=copies), fix=Text(fix, ranks=ranks, groups=x.groups),
    )  # fmt: skip


def _assumed(x: Setting, held: Spares, o: Options) -> Iterator[Text]:
    text = N_("{kind} recovery: {detect} to notice, {reschedule} for a node, {initialise} to start, beside loading")
    back = x.back(0.0)
    yield Text(text, kind=Text(_RECOVERY[o.recovery]), detect=show_seconds(back.detect),
               reschedule=show_seconds(back.reschedule), initialise=show_seconds(back.initialise))  # fmt: skip
    if o.spare_nodes is None:
        text = N_("{nodes} spare nodes, enough in {share} of cases when a repair takes {repair}")
        yield Text(text, nodes=held.nodes, share=f"{held.quantile:.1%}", repair=show_seconds(held.repair))
    yield Text(N_("failures come independently of each other and of the age of parts"))


_RECOVERY = {"automatic": N_("automatic"), "manual": N_("manual")}
