"""A plan as text: ranking, the winner in numbers, placement, reasons, what was rejected, closest misses, next."""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
    ("tp", "tensor"), ("pp", "pipeline"), ("vp", "virtual"), ("cp", "context"), ("ep", "expert"),
    ("etp", "expert_tensor"), ("dp", "data"), ("mbs", "micro_batch"),
)  # fmt: skip


def draw(plan: Plan, view: View) -> Iterable[Any]:
    """The whole plan."""
    yield parts.line(parts.problem_line(plan.problem), "bold")
    yield parts.line(counts(plan))
    if not plan.legal:
        yield parts.line(say(N_("NOTHING IS LEGAL: rules reject every strategy")), "bold red")
    elif plan.best is None:
        yield parts.line(say(N_("NOTHING FITS: no legal strategy fits into the memory of these devices")), "bold red")
    else:
        yield parts.line("")
        yield from ranking(plan, view)
        yield from winner(plan, plan.best, view)
    yield from trade(plan, view)
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


def ranking(plan: Plan, view: View) -> Iterable[Any]:
    """The ranked strategies, the winner in bold; degrees that nobody uses have no column.

    Reasons stand in the last column where it has room, else below the table.
    """
    columns = _columns(plan)
    rows = [[show(ranked) for _, show, _ in columns] for ranked in plan.ranked]
    heads = [head for head, _, _ in columns]
    words = {i for i, (_, _, word) in enumerate(columns) if word}
    used = sum(2 + max(map(len, cells)) for cells in zip(heads, *rows, strict=True))
    reasons = [tell(ranked.reason) for ranked in plan.ranked]
    if view.width - used >= _ROOM:
        heads.append(say(N_("why here")))
        yield parts.table(heads, [[*row, why] for row, why in zip(rows, reasons, strict=True)], view,
                          left={*words, len(heads) - 1}, mark=0)  # fmt: skip
        return
    yield parts.table(heads, rows, view, left=words, mark=0)
    if any(reasons):
        yield parts.heading(say(N_("Why in this order")))
        for ranked, why in zip(plan.ranked, reasons, strict=True):
            if why:
                yield parts.bullet(why, "dim", mark=str(ranked.rank))


_ROOM = 30  # least width of the column of reasons
_PLAIN_SCHEDULES = ("1f1b", "interleaved")  # the number of chunks says which


def _columns(plan: Plan) -> list[tuple[str, Callable[[Ranked], str], bool]]:
    """Heads, how to show a strategy, and whether the cells are words."""

    def degree(name: str) -> Callable[[Ranked], str]:
        return lambda r: str(getattr(r.strategy, name))

    columns: list[tuple[str, Callable[[Ranked], str], bool]] = [("#", lambda r: str(r.rank), False)]
    if len({r.strategy.framework for r in plan.ranked}) > 1:
        columns.append((say(N_("framework")), lambda r: str(r.strategy.framework), True))
    for head, name in _DEGREES:
        if any(_says(r.strategy, name) for r in plan.ranked):
            columns.append((head, degree(name), False))
    columns.append((say(N_("sharding")), lambda r: _sharding(r.strategy), True))
    columns.append((say(N_("recompute")), lambda r: str(r.strategy.recompute), True))
    if any(r.strategy.schedule not in _PLAIN_SCHEDULES for r in plan.ranked):
        columns.append((say(N_("schedule")), lambda r: str(r.strategy.schedule), True))
    columns.append((say(N_("step")), lambda r: show_seconds(r.estimate.step_seconds), False))
    columns.append(("MFU", lambda r: show_percent(r.estimate.mfu), False))
    if any(r.useful is not None for r in plan.ranked):
        columns.append((say(N_("useful")), lambda r: show_percent(r.useful or 1.0), False))
    columns.append((say(N_("peak")), lambda r: show_gib(r.estimate.peak_bytes), False))
    return columns


def _says(strategy: Any, name: str) -> bool:
    """Whether a degree of a strategy is worth a column: more than 1; of TP inside experts, another than outside."""
    if name == "expert_tensor":
        return bool(strategy.expert > 1 and strategy.expert_tensor != strategy.tensor)
    return int(getattr(strategy, name)) > 1


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


def trade(plan: Plan, view: View) -> Iterable[Any]:
    """The Pareto front: strategies that no other beats in both time and memory, drawn by the memory they take."""
    if len(plan.pareto) < 2:
        return
    yield parts.heading(say(N_("What memory buys: no strategy is both faster and smaller than these")))
    capacity = plan.pareto[0].estimate.capacity_bytes
    width, rows = 24, []
    for ranked in plan.pareto:
        e = ranked.estimate
        filled = min(round(width * e.peak_bytes / capacity), width)
        bar = ("#" if view.ascii else "█") * filled + ("." if view.ascii else "·") * (width - filled)
        cost = "-" if e.dollars_per_step is None else show_dollars(e)
        rows.append((show_seconds(e.step_seconds), show_gib(e.peak_bytes), bar, cost, parts.strategy_words(e.strategy)))
    heads = (
        say(N_("step")),
        say(N_("peak")),
        say(N_("of the device")),
        say(N_("$ per 1B tokens")),
        say(N_("strategy")),
    )
    yield parts.table(heads, rows, view, left=(2, 4))


def show_dollars(estimate: Any) -> str:
    """Dollars per billion tokens."""
    tokens = estimate.tokens_per_second * estimate.step_seconds
    return f"{estimate.dollars_per_step / tokens * 1e9:,.0f}"


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
            N_("{strategy}: over by {amount}, would take {step}")
            if miss.over_bytes > 0
            else N_("{strategy}: {amount} to spare on the device, yet not safe; would take {step}"),
            strategy=parts.strategy_words(miss.strategy),
            amount=show_gib(abs(miss.over_bytes)),
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
