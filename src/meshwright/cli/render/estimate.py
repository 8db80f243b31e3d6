"""One strategy as text: verdict, memory tree, stages, time tree, speed, findings, assumptions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from meshwright.cli.labels import label
from meshwright.cli.language import say, tell
from meshwright.cli.output import Grid, View
from meshwright.cli.render import parts
from meshwright.messages import N_, Text
from meshwright.spec import Estimate, StageMemory
from meshwright.spec.estimate import Refusal
from meshwright.spec.plan import Problem
from meshwright.units import show_gib, show_seconds


def draw(estimate: Estimate, problem: Problem, view: View, assumptions: tuple[Text, ...] = ()) -> Iterable[Any]:
    """Everything a person asks about one strategy."""
    yield parts.line(parts.problem_line(problem), "bold")
    yield parts.line(parts.strategy_words(estimate.strategy))
    yield parts.verdict(estimate)
    yield from numbers(estimate, problem, view)
    yield from stages_part(estimate, view)
    yield from parts.findings_part(estimate.findings)
    yield from parts.assumptions_part((*problem.assumptions, *assumptions, *estimate.assumptions))
    yield from _next(estimate)


def draw_refusal(refusal: Refusal, problem: Problem) -> Iterable[Any]:
    """A strategy that no framework would run: the findings, and what to do."""
    yield parts.line(parts.problem_line(problem), "bold")
    yield parts.line(parts.strategy_words(refusal.strategy))
    yield parts.line(say(N_("NOT LEGAL: rules forbid this strategy, so there is nothing to estimate")), "bold red")
    yield from parts.findings_part(refusal.findings)
    yield from parts.assumptions_part(problem.assumptions)
    yield parts.heading(say(N_("Next")))
    yield parts.bullet(say(N_("`meshwright plan` with the same model and cluster finds what fits")))


def refusal_grid(refusal: Refusal) -> Grid:
    """One row per finding."""
    raw = tuple((f.code, f.severity, f.where, f.message.render("en"), tell(f.fix)) for f in refusal.findings)
    rows = tuple((f.code, label(f.severity), f.where, tell(f.message), tell(f.fix)) for f in refusal.findings)
    heads = (say(N_("rule")), say(N_("severity")), say(N_("where")), say(N_("what it says")), say(N_("what to try")))
    return Grid(keys=("code", "severity", "where", "message", "fix"), heads=heads, rows=rows, raw=raw)


def numbers(estimate: Estimate, problem: Problem, view: View) -> Iterable[Any]:
    """Memory and time trees, bars, and what follows from them."""
    yield parts.line("")
    title = say(N_("memory, stage {stage}"), stage=estimate.peak_stage)
    memory = parts.tree(estimate.memory, title, view, whole=estimate.capacity_bytes)
    time = parts.tree(estimate.time, say(N_("time of a step")), view)
    if memory.width + time.width + parts.GAP <= view.width:
        yield parts.side_by_side(memory.table, time.table)
    else:
        yield memory.table
        yield parts.line("")
        yield time.table
    yield parts.line("")
    yield from _bars(estimate, view)
    yield parts.line("")
    for sentence in parts.speed_lines(estimate, problem):
        yield parts.line(sentence)
    reason = tell(estimate.interval_reason)
    if reason:
        yield parts.line(say(N_("interval: {reason}"), reason=reason), "dim")
    if estimate.bound_by:
        yield parts.line(say(N_("bound by {what}"), what=label(estimate.bound_by)))


def _bars(estimate: Estimate, view: View) -> Iterable[Any]:
    width = min(60, view.width - 36)
    for title, term, whole, amount in (
        (say(N_("memory")), estimate.memory, estimate.capacity_bytes, show_gib(estimate.capacity_bytes)),
        (say(N_("time")), estimate.time, float(estimate.time.value), show_seconds(estimate.step_seconds)),
    ):
        terms = sorted(term.children, key=lambda t: -float(t.value))
        kept = [(label(t.name, term.name), float(t.value)) for t in terms[:3] if t.value > 0]
        rest = sum(float(t.value) for t in terms[3:])
        if rest > 0:
            kept.append((say(N_("rest")), rest))
        bar, legend = parts.stacked_bar(kept, whole, width)
        yield parts.line(f"{title:<9}[{bar}] {amount}")
        yield parts.line(f"{'':<10}{legend}", "dim")


def stages_part(estimate: Estimate, view: View) -> Iterable[Any]:
    """Memory of each pipeline stage; neighbours that are alike share a row."""
    if len(estimate.stages) < 2:
        return
    names = list(dict.fromkeys(child.name for stage in estimate.stages for child in stage.device.children))
    spare = view.width >= 96
    rows = []
    for first, last in _alike(estimate.stages):
        stage = estimate.stages[first]
        values = {child.name: float(child.value) for child in stage.device.children}
        title = str(stage.stage) if first == last else f"{stage.stage}–{estimate.stages[last].stage}"
        row = [title, label(stage.phase), *(show_gib(values.get(name, 0.0)) for name in names)]
        row.append(show_gib(float(stage.device.value)))
        rows.append([*row, show_gib(estimate.capacity_bytes - float(stage.device.value))] if spare else row)
    heads = [say(N_("stage")), say(N_("peak in")), *(label(n, "device") for n in names), say(N_("peak"))]
    yield parts.heading(say(N_("Memory by pipeline stage")))
    yield parts.table([*heads, say(N_("spare"))] if spare else heads, rows, view, left=(0, 1))


def _alike(stages: tuple[StageMemory, ...]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for index, stage in enumerate(stages):
        if runs:
            first = stages[runs[-1][0]]
            close = abs(float(first.device.value) - float(stage.device.value)) <= 1e-6 * float(first.device.value)
            if close and first.phase == stage.phase:
                runs[-1] = (runs[-1][0], index)
                continue
        runs.append((index, index))
    return runs


def _next(estimate: Estimate) -> Iterable[Any]:
    yield parts.heading(say(N_("Next")))
    if estimate.verdict == "OVER":
        yield parts.bullet(say(N_("`meshwright plan` with the same model and cluster finds what fits")))
    else:
        yield parts.bullet(say(N_("`meshwright plan` with the same model and cluster finds what is faster")))
    yield parts.bullet(say(N_("`meshwright explain NAME` says what a term, a code or a concept means, e.g. mfu")))


def grid(estimate: Estimate) -> Grid:
    """Every term of both trees, with its path."""
    rows, raw = [], []
    for tree in (estimate.memory, estimate.time):
        for path, term in tree.walk():
            value = float(term.value)
            cell = show_gib(value) if term.unit in ("B", "bytes") else show_seconds(value)
            rows.append((path, cell, label(term.certainty), term.formula))
            raw.append((path, value, term.unit, term.certainty, term.formula))
    return Grid(
        keys=("path", "value", "unit", "certainty", "formula"),
        heads=(say(N_("term")), say(N_("value")), say(N_("certainty")), say(N_("formula"))),
        rows=tuple(rows),
        raw=tuple(raw),
    )
