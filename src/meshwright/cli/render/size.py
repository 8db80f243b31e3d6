"""The cluster for a deadline or a budget: the answer, the days and dollars of its neighbours."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from meshwright.cli.labels import goal
from meshwright.cli.language import say, tell
from meshwright.cli.output import Grid, View
from meshwright.cli.render import chart, parts
from meshwright.messages import N_
from meshwright.spec.plan import ScalePoint, Sizing
from meshwright.units import plain_days, show_count, show_money, show_percent, show_seconds


def draw(sizing: Sizing, view: View) -> Iterable[Any]:
    """Answer, its strategy, chart of days, table."""
    yield parts.line(parts.problem_line(sizing.problem), "bold")
    yield parts.line(say(N_("goal: {goal}"), goal=goal(sizing.goal)))
    yield parts.line(tell(sizing.summary), "bold")
    if sizing.estimate is not None:
        yield parts.line(parts.strategy_words(sizing.estimate.strategy))
        yield parts.verdict(sizing.estimate)
    yield from _chart(sizing, view)
    if sizing.points:
        yield parts.heading(say(N_("What was tried")))
        table = grid(sizing)
        mark = next((i for i, p in enumerate(sizing.points) if p.devices == sizing.devices), -1)
        yield parts.grid_table(table, view, left=(len(table.heads) - 1,), mark=mark)
    yield from parts.assumptions_part(sizing.problem.assumptions)


def _days(sizing: Sizing, point: ScalePoint) -> float | None:
    """Days of the run, failures counted where they were asked for."""
    tokens = sizing.problem.job.tokens
    if not tokens or point.estimate is None:
        return None
    return tokens / point.estimate.tokens_per_second / (point.useful or 1.0) / 86400


def _chart(sizing: Sizing, view: View) -> Iterable[Any]:
    points = [p for p in sizing.points if p.estimate is not None]
    days = [(float(p.devices), _days(sizing, p)) for p in points]
    values = [(x, d) for x, d in days if d]
    if view.plain or len(values) < 2:
        return
    first_x, first_d = values[0]
    ideal = [(x, first_d * first_x / x) for x, _ in values]
    lowest, highest = min(d for _, d in (*values, *ideal)), max(d for _, d in (*values, *ideal))
    shown = [(values[0][1], plain_days(values[0][1])), (values[-1][1], plain_days(values[-1][1]))]
    x = chart.Axis([(n, f"{int(n):,}") for n, _ in values], values[0][0], values[-1][0])
    y = chart.Axis(shown, lowest, highest)
    yield parts.heading(say(N_("Days (●; · if every device counted fully; ┆ the answer)")))
    signs = (chart.Curve(ideal, "·", "·"), chart.Curve(values, "●", "•"))
    mark = None if sizing.devices is None else float(sizing.devices)
    for text in chart.curves(signs, x, y, width=min(72, view.width - 16), height=10, mark=mark):
        yield parts.line(text)


def grid(sizing: Sizing) -> Grid:
    """One row per device count that was tried."""
    keys = ("devices", "days", "dollars", "step_seconds", "tokens_per_second", "mfu", "strategy")
    heads = (
        say(N_("devices")),
        say(N_("days")),
        say(N_("cost")),
        say(N_("step")),
        "tokens/s",
        "MFU",
        say(N_("strategy")),
    )
    rows: list[tuple[str, ...]] = []
    raw: list[tuple[Any, ...]] = []
    for point in sizing.points:
        estimate = point.estimate
        if estimate is None:
            raw.append((point.devices, None, None, None, None, None, ""))
            rows.append((f"{point.devices:,}", *("-",) * 5, tell(point.reason) or say(N_("nothing fits"))))
            continue
        days = _days(sizing, point)
        tokens = sizing.problem.job.tokens
        dollars = None if point.dollars_per_token is None or not tokens else point.dollars_per_token * tokens
        raw.append((point.devices, days, dollars, estimate.step_seconds, estimate.tokens_per_second, estimate.mfu,
                    estimate.strategy.short))  # fmt: skip
        rows.append((f"{point.devices:,}", "-" if days is None else plain_days(days),
                     "-" if dollars is None else show_money(dollars), show_seconds(estimate.step_seconds),
                     show_count(round(estimate.tokens_per_second)), show_percent(estimate.mfu),
                     estimate.strategy.short))  # fmt: skip
    return Grid(keys=keys, heads=heads, rows=tuple(rows), raw=tuple(raw))
