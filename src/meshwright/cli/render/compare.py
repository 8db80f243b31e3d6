"""Strategies side by side: headline numbers, then every term with its difference to the first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from meshwright.cli.labels import label
from meshwright.cli.language import say, tell
from meshwright.cli.output import Grid, View
from meshwright.cli.render import parts
from meshwright.messages import N_
from meshwright.spec.plan import ComparedTerm, Comparison, Problem
from meshwright.units import show, show_gib

DEEPEST = 3


def draw(comparison: Comparison, problem: Problem, view: View) -> Iterable[Any]:
    """Problem, names, verdicts, summary, terms, assumptions."""
    yield parts.line(parts.problem_line(problem), "bold")
    yield parts.line(tell(comparison.summary), "bold")
    for index, (name, estimate) in enumerate(zip(comparison.names, comparison.estimates, strict=True)):
        yield parts.line(f"{chr(65 + index % 26)}  {name}: {parts.strategy_words(estimate.strategy)}")
        yield parts.line(parts.verdict(estimate).plain, parts.VERDICT_STYLE[estimate.verdict], indent=3)
    yield parts.heading(say(N_("Term by term; differences are against A")))
    yield parts.grid_table(grid(comparison, shallow=True), view)
    yield from parts.assumptions_part(problem.assumptions)


def grid(comparison: Comparison, *, shallow: bool = False) -> Grid:
    """One row per term: values of all, differences of all but the first."""
    letters = [chr(65 + i % 26) for i in range(len(comparison.names))]
    terms = [t for t in comparison.terms if not shallow or t.path.count(".") < DEEPEST]
    heads = [say(N_("term")), letters[0]]
    keys = ["path", "unit", comparison.names[0]]
    for letter, name in zip(letters[1:], comparison.names[1:], strict=True):
        heads += [letter, f"{letter} − A"]
        keys += [name, f"{name} minus first"]
    return Grid(
        keys=tuple(keys),
        heads=tuple(heads),
        rows=tuple(_cells(term) for term in terms),
        raw=tuple(_raw(term) for term in terms),
    )


def _cells(term: ComparedTerm) -> tuple[str, ...]:
    depth = term.path.count(".")
    cells = ["  " * depth + label(term.path.rsplit(".", 1)[-1], term.path.split(".", 1)[0])]
    first = term.values[0]
    for index, value in enumerate(term.values):
        cells.append(_show(value, term.unit))
        if index:
            cells.append(_delta(first, value, term.unit))
    return tuple(cells)


def _show(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    return show_gib(value) if unit in ("B", "bytes") else show(value, unit)


def _delta(first: float | None, value: float | None, unit: str) -> str:
    if first is None or value is None:
        return "-"
    if value == first:
        return "="
    sign = "+" if value > first else "−"
    share = 100 * (value - first) / abs(first) if first else 0.0
    percent = f" ({share:+.0f}%)" if abs(share) >= 0.5 else ""
    # The difference of two shares is in points: "+2.7%" beside "(+5%)" would be two percentages of two things.
    amount = f"{100 * abs(value - first):.1f} pp" if unit == "1" else _show(abs(value - first), unit)
    return f"{sign}{amount}{percent}"


def _raw(term: ComparedTerm) -> tuple[Any, ...]:
    first = term.values[0]
    raw: list[Any] = [term.path, term.unit, first]
    for value in term.values[1:]:
        raw += [value, None if value is None or first is None else value - first]
    return tuple(raw)
