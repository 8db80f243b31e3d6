"""What more devices buy: one picture, where the time goes at each count, and the table behind it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from meshwright.cli.labels import label
from meshwright.cli.language import say, tell
from meshwright.cli.output import Grid, View
from meshwright.cli.render import chart, parts
from meshwright.messages import N_
from meshwright.spec.plan import ScalePoint, Scaling
from meshwright.units import show_count, show_money, show_percent, show_seconds


def draw(scaling: Scaling, view: View) -> Iterable[Any]:
    """Summary, picture, shares of the step, table."""
    yield parts.line(parts.problem_line(scaling.problem), "bold")
    yield parts.line(say(N_("mode: {mode}"), mode=label(scaling.mode)))
    yield parts.line(tell(scaling.summary), "bold")
    yield from picture(scaling, view)
    yield from time_shares(scaling.points, view)
    yield parts.heading(say(N_("Best strategy at each count")))
    yield counts_table(scaling, view)
    yield from parts.assumptions_part(scaling.problem.assumptions)


def picture(scaling: Scaling, view: View) -> Iterable[Any]:
    """What a device does, and what a further one adds, against their number: the curve that ends the argument."""
    works = [(float(p.devices), p.efficiency) for p in scaling.points if p.efficiency is not None]
    adds = [(float(p.devices), max(0.0, min(p.marginal, 1.0))) for p in scaling.points if p.marginal is not None]
    if view.plain or len(works) < 2:
        return
    x = chart.Axis([(n, f"{int(n):,}") for n, _ in works], works[0][0], works[-1][0])
    y = chart.Axis([(s, show_percent(s, 0)) for s in (0.0, 0.25, 0.5, 0.75, 1.0)], 0.0, 1.0, logarithmic=False)
    yield parts.heading(say(N_("What a device does (●), and what one more adds (○), in % of the best")))
    signs = (chart.Curve(adds, "○", "·"), chart.Curve(works, "●", "•"))
    mark = None if scaling.knee is None else float(scaling.knee)
    for text in chart.curves(signs, x, y, width=min(72, view.width - 12), height=13, mark=mark):
        yield parts.line(text)
    if scaling.knee is not None:
        yield parts.line(
            say(
                N_("┆ beyond {knee} devices more devices buy little: {binds}"),
                knee=f"{scaling.knee:,}",
                binds=label(scaling.binds),
            ),
            "bold",
        )


def time_shares(points: tuple[ScalePoint, ...], view: View) -> Iterable[Any]:
    """How the step divides into exposed communication, bubble and the rest at each count."""
    rows = []
    for point in points:
        if point.estimate is None or point.exposed_communication is None:
            continue
        exposed, bubble = point.exposed_communication, point.bubble or 0.0
        rows.append((
            f"{point.devices:,}",
            [(say(N_("computing")), max(0.0, 1 - exposed - bubble)), (say(N_("exposed communication")), exposed),
             (say(N_("pipeline bubble")), bubble)],
        ))  # fmt: skip
    if rows and not view.plain:
        yield parts.heading(say(N_("Where the time of a step goes")))
        for text in chart.shares(rows, width=min(60, view.width - 20)):
            yield parts.line(text)


def counts_table(scaling: Scaling, view: View) -> Any:
    """The main columns, so that the strategy has room; all of them are in CSV, Markdown and JSON."""
    whole = grid(scaling.points)
    dropped = {"exposed_communication", "bubble"}
    if len({point.global_batch for point in scaling.points}) == 1:
        dropped.add("global_batch")
    kept = [i for i, key in enumerate(whole.keys) if key not in dropped]
    rows = [[row[i] for i in kept] for row in whole.rows]
    return parts.table([whole.heads[i] for i in kept], rows, view, left=(len(kept) - 1,), mark=_knee_row(scaling))


def grid(points: tuple[ScalePoint, ...]) -> Grid:
    """One row per device count."""
    keys = ("devices", "global_batch", "step_seconds", "tokens_per_second", "mfu", "efficiency",
            "exposed_communication", "bubble", "marginal", "dollars_per_token", "strategy")  # fmt: skip
    heads = (say(N_("devices")), say(N_("batch")), say(N_("step")), "tokens/s", "MFU", say(N_("efficiency")),
             say(N_("exposed")), say(N_("bubble")), say(N_("one more adds")), say(N_("$ per 1B tokens")),
             say(N_("strategy")))  # fmt: skip
    rows: list[tuple[str, ...]] = []
    raw: list[tuple[Any, ...]] = []
    for p in points:
        e = p.estimate
        dollars = p.dollars_per_token
        raw.append((p.devices, p.global_batch, e and e.step_seconds, e and e.tokens_per_second, e and e.mfu,
                    p.efficiency, p.exposed_communication, p.bubble, p.marginal, dollars,
                    e.strategy.short if e else ""))  # fmt: skip
        if e is None:
            why = tell(p.reason) or say(N_("nothing fits"))
            rows.append((f"{p.devices:,}", f"{p.global_batch:,}", *("-",) * 8, why))
            continue
        rows.append((f"{p.devices:,}", f"{p.global_batch:,}", show_seconds(e.step_seconds),
                     show_count(round(e.tokens_per_second)), show_percent(e.mfu), _percent(p.efficiency),
                     _percent(p.exposed_communication), _percent(p.bubble), _percent(p.marginal),
                     "-" if dollars is None else show_money(dollars * 1e9), e.strategy.short))  # fmt: skip
    return Grid(keys=keys, heads=heads, rows=tuple(rows), raw=tuple(raw))


def _percent(value: float | None) -> str:
    return "-" if value is None else show_percent(value, 0)


def _knee_row(scaling: Scaling) -> int:
    return next((i for i, p in enumerate(scaling.points) if p.devices == scaling.knee), -1)
