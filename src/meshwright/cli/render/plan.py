"""A plan as text: ranking, the winner in numbers, placement, reasons, what was rejected, closest misses, next."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from meshwright.cli.labels import goal
from meshwright.cli.language import say, tell
from meshwright.cli.output import Grid, View
from meshwright.cli.render import parts
from meshwright.cli.render.estimate import numbers, stages_part
from meshwright.cli.render.placement import placement_part
from meshwright.messages import N_
from meshwright.spec.plan import Plan, Ranked
from meshwright.units import show_gib, show_percent, show_seconds

_DEGREES = (
    ("tp", "tensor"), ("pp", "pipeline"), ("vp", "virtual"), ("cp", "context"), ("ep", "expert"), ("dp", "data"),
    ("mbs", "micro_batch"),
)  # fmt: skip


def draw(plan: Plan, view: View) -> Iterable[Any]:
    """The whole plan."""
    yield parts.line(parts.problem_line(plan.problem), "bold")
    yield parts.line(counts(plan))
    if plan.best is None:
        yield parts.line(say(N_("NOTHING FITS: no legal strategy fits into the memory of these devices")), "bold red")
    else:
        yield ranking(plan, view)
        yield from winner(plan, plan.best, view)
    yield from rejections(plan, view)
    yield from misses(plan, view)
    yield from parts.findings_part(plan.findings)
    assumed = plan.best.estimate.assumptions if plan.best else ()
    yield from parts.assumptions_part((*plan.problem.assumptions, *assumed))
    if plan.next_steps:
        yield parts.heading(say(N_("Next")))
        yield from parts.bullets(plan.next_steps)


def counts(plan: Plan) -> str:
    """How many strategies were looked at, and how long it took."""
    return say(
        N_("{candidates} candidates · {legal} legal · {fitting} fit · {seconds} · goal: {goal}"),
        candidates=f"{plan.candidates:,}",
        legal=f"{plan.legal:,}",
        fitting=f"{plan.fitting:,}",
        seconds=show_seconds(plan.seconds),
        goal=goal(plan.goal),
    )


def ranking(plan: Plan, view: View) -> Any:
    """The ranked strategies, the winner in bold; degrees that nobody uses have no column."""
    used = [(head, name) for head, name in _DEGREES if any(_int(getattr(r.strategy, name)) > 1 for r in plan.ranked)]
    frameworks = {r.strategy.framework for r in plan.ranked}
    pipelined = len({r.strategy.schedule for r in plan.ranked}) > 1
    heads = ["#", *([say(N_("framework"))] if len(frameworks) > 1 else []), *(head for head, _ in used)]
    heads += [say(N_("sharding")), say(N_("recompute"))]
    heads += [say(N_("schedule"))] if pipelined else []
    heads += [say(N_("step")), "MFU", say(N_("peak")), say(N_("spare")), say(N_("why here"))]
    rows = []
    for ranked in plan.ranked:
        strategy, estimate = ranked.strategy, ranked.estimate
        row = [str(ranked.rank), *([strategy.framework] if len(frameworks) > 1 else [])]
        row += [str(getattr(strategy, name)) for _, name in used]
        row += [_sharding(strategy), strategy.recompute]
        row += [strategy.schedule if _int(strategy.pipeline) > 1 else "-"] if pipelined else []
        row += [show_seconds(estimate.step_seconds), show_percent(estimate.mfu), show_gib(estimate.peak_bytes)]
        row += [show_gib(estimate.capacity_bytes - estimate.peak_bytes), tell(ranked.reason)]
        rows.append(row)
    words = {0, heads.index(say(N_("sharding"))), heads.index(say(N_("recompute"))), len(heads) - 1}
    words |= {1} if len(frameworks) > 1 else set()
    return parts.table(heads, rows, view, left=words, mark=0)


def _int(value: Any) -> int:
    return int(value)


def _sharding(strategy: Any) -> str:
    return f"{strategy.sharding}/{strategy.shard}" if strategy.shard else str(strategy.sharding)


def winner(plan: Plan, best: Ranked, view: View) -> Iterable[Any]:
    """The best strategy in numbers, where its groups lie, and why it is the best."""
    yield parts.heading(say(N_("Best: {strategy}"), strategy=parts.strategy_words(best.strategy)))
    yield parts.verdict(best.estimate)
    yield from numbers(best.estimate, plan.problem, view)
    yield from stages_part(best.estimate, view)
    yield from placement_part(plan.placement, best.strategy, plan.problem.cluster, view)
    if plan.reasons:
        yield parts.heading(say(N_("Why")))
        yield from parts.bullets(plan.reasons)
    yield from parts.findings_part(best.estimate.findings)


def rejections(plan: Plan, view: View) -> Iterable[Any]:
    """The funnel: which rule removed how many, the largest first; rules that removed nothing are left out."""
    steps = [step for step in plan.funnel if step.rejected]
    if not steps:
        return
    yield parts.heading(say(N_("Rejected, in this order")))
    rows = [(step.code, tell(step.title), f"{step.rejected:,}", f"{step.remaining:,}") for step in steps]
    heads = (say(N_("rule")), say(N_("what it says")), say(N_("rejected")), say(N_("remaining")))
    yield parts.table(heads, rows, view, left=(0, 1))


def misses(plan: Plan, view: View) -> Iterable[Any]:
    """Strategies that nearly made it, and what would let them in."""
    if not plan.near_misses:
        return
    yield parts.heading(say(N_("Closest misses")))
    for miss in plan.near_misses:
        text = say(
            N_("{strategy}: over by {amount}, would take {step}"),
            strategy=parts.strategy_words(miss.strategy),
            amount=show_gib(miss.over_bytes),
            step=show_seconds(miss.step_seconds),
        )
        yield parts.bullet(text)
        if miss.fix is not None:
            yield parts.line(say(N_("try: {fix}"), fix=tell(miss.fix)), "cyan", indent=6)


_KEYS = (
    "rank", "framework", "tensor", "pipeline", "virtual", "context", "expert", "expert_tensor", "data", "shard",
    "micro_batch", "sharding", "recompute", "schedule", "offload", "precision",
)  # fmt: skip


def grid(plan: Plan) -> Grid:
    """One row per ranked strategy."""
    rows, raw = [], []
    for ranked in plan.ranked:
        estimate, strategy = ranked.estimate, ranked.strategy
        fields = (ranked.rank, *(getattr(strategy, key) for key in _KEYS[1:]))
        values = (estimate.step_seconds, estimate.tokens_per_second, estimate.mfu, estimate.peak_bytes,
                  estimate.capacity_bytes, estimate.dollars_per_step)  # fmt: skip
        raw.append((*fields, *values))
        shown = (show_seconds(values[0]), f"{values[1]:,.0f}", show_percent(values[2]), show_gib(values[3]),
                 show_gib(values[4]), "-" if values[5] is None else f"${values[5]:,.2f}")  # fmt: skip
        rows.append((*(str(f) for f in fields), *shown))
    units = ("step_seconds", "tokens_per_second", "mfu", "peak_bytes", "capacity_bytes", "dollars_per_step")
    heads = (
        "#",
        *_KEYS[1:],
        say(N_("step")),
        "tokens/s",
        "MFU",
        say(N_("peak")),
        say(N_("capacity")),
        say(N_("$ a step")),
    )
    return Grid(keys=(*_KEYS, *units), heads=heads, rows=tuple(rows), raw=tuple(raw))
