"""Where wall time goes under failures, in closed form: shares that add up to one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from meshwright.formulas import goodput as g
from meshwright.formulas.numeric import exp, maximum
from meshwright.spec.estimate import Term
from meshwright.spec.resilience import BUCKETS, Policy, Recovery

SECONDS_PER_DAY = 86400.0
_FORMULAS = {
    "productive": "goodput.efficiency", "slow_nodes": "goodput.slow_node", "checkpoint": "goodput.efficiency",
    "lost_work": "goodput.efficiency", "detection": "goodput.downtime", "waiting": "goodput.downtime",
    "restart": "goodput.downtime", "degraded": "goodput.efficiency.replicas",
    "overhead": "goodput.efficiency.replicas",
}  # fmt: skip


def shares(policy: Policy, mtti: Any, slowdown: float = 0.0) -> dict[str, Any]:
    """Share of wall time of every bucket; `mtti` may be a column.

    `slowdown` is the extra time of the slowest rank over the others.
    """
    out = _replicas(policy, mtti) if policy.mode == "replicas" else _saved(policy, mtti)
    slow = out["productive"] * g.slow_node(slowdown)
    out |= {"productive": out["productive"] - slow, "slow_nodes": slow}
    return {name: out.get(name, 0.0) for name in BUCKETS}


def useful(policy: Policy, mtti: Any, slowdown: float = 0.0) -> Any:
    """The productive share alone."""
    whole = _replicas(policy, mtti)["productive"] if policy.mode == "replicas" else _efficiency(policy, mtti)
    return whole * (1 - g.slow_node(slowdown))


def _efficiency(policy: Policy, mtti: Any) -> Any:
    """Share of work that lasts."""
    if policy.segments == 1 and policy.hard >= 1:
        stall = policy.stall + policy.storage_stall
        return g.efficiency_asynchronous(policy.interval, stall, policy.persist, mtti, policy.full.total)
    return g.efficiency_two_tier(
        policy.interval, policy.stall, policy.segments, policy.storage_stall, mtti, policy.hard, policy.quick.total,
        policy.full.total, policy.quick_persist, policy.persist,
    )  # fmt: skip


def _saved(policy: Policy, mtti: Any) -> dict[str, Any]:
    work = _efficiency(policy, mtti)
    stalls = policy.segments * policy.stall + policy.storage_stall
    saving = work * stalls / policy.period
    up, quick, full = _states(policy, mtti)
    # Rounding may leave a trace below nothing where nothing is lost.
    lost = maximum(up - work - saving, 0.0 * up)
    stages = [_stages(policy.quick, mtti, quick), _stages(policy.full, mtti, full)]
    down = {name: stages[0][name] + stages[1][name] for name in stages[0]}
    return {"productive": work, "checkpoint": saving, "lost_work": lost, **down}


def _states(policy: Policy, mtti: Any) -> tuple[Any, Any, Any]:
    """Share of time at work, and in restarts from the quick tier and from storage.

    A failure during a restart begins another one, from storage if either failure needs it.
    """
    soft, hard = 1 - policy.hard, policy.hard
    after_soft = soft * g.downtime(policy.quick.total, mtti)
    after_hard = g.downtime(policy.full.total, mtti)
    quick_per_up = after_soft / (1 - after_soft)
    # Of the time outside restarts from storage, each moment begins one with the chance of a hard failure.
    full_per_other = exp(policy.full.total / mtti) - 1 if hard else 0.0 * after_hard
    full = hard * full_per_other * (1 + quick_per_up)
    up = 1 / (1 + quick_per_up + full)
    return up, up * quick_per_up, up * full


def _stages(recovery: Recovery, mtti: Any, whole: Any) -> dict[str, Any]:
    """The time in restarts by stage: later stages are reached less often."""
    bounds, at = [], 0.0
    for length in (recovery.detect, recovery.wait, recovery.reschedule + recovery.load + recovery.initialise):
        bounds.append((at, at + length))
        at += length
    reached = [g.downtime(end, mtti) - g.downtime(start, mtti) for start, end in bounds]
    total = sum(reached)
    return {
        name: whole * part / total if recovery.total else 0.0 * whole
        for name, part in zip(("detection", "waiting", "restart"), reached, strict=True)
    }


def _replicas(policy: Policy, mtti: Any) -> dict[str, Any]:
    """A failure of a group stops all for a new quorum, then the group is missing until it has healed.

    Failures that strike all groups (`hard`) are those of a run that saves asynchronously; both kinds are rare enough
    to be taken as independent.
    """
    of_groups = mtti / max(1 - policy.hard, 1e-9)
    running = 1 - g.downtime(policy.stop, of_groups)
    work = g.efficiency_replicas(policy.replicas, of_groups, policy.heal, policy.stop)
    alone = replace(policy, mode="async", hard=1.0, segments=1)
    of_all = _saved(alone, mtti / policy.hard) if policy.hard > 0 else {"productive": 1.0}
    up = sum(of_all.get(name, 0.0) for name in ("productive", "checkpoint", "lost_work"))
    return {
        "productive": of_all["productive"] * work * (1 - policy.overhead),
        "overhead": of_all["productive"] * work * policy.overhead,
        "checkpoint": of_all.get("checkpoint", 0.0) * work,
        "lost_work": of_all.get("lost_work", 0.0) * work,
        "degraded": up * (running - work),
        "detection": of_all.get("detection", 0.0),
        "waiting": of_all.get("waiting", 0.0),
        "restart": of_all.get("restart", 0.0) + up * (1 - running),
    }


def breakdown(of: dict[str, Any], seconds: float = SECONDS_PER_DAY) -> Term:
    """Shares as a tree of seconds that sums to `seconds` of wall time."""
    children = tuple(
        Term(name, float(of[name]) * seconds, "s", "modelled", _FORMULAS[name]) for name in BUCKETS if of[name] > 0
    )
    return Term("wall_time", sum(child.value for child in children), "s", "modelled", "", "sum", children)
