"""Predictions against measured runs: errors by group, the rows furthest off, and why others were not compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from meshwright.cli.language import say, tell
from meshwright.cli.output import Grid, View
from meshwright.cli.render import parts
from meshwright.messages import N_
from meshwright.units import show_count, show_percent

SHOWN = ("tier", "accelerator", "framework", "precision", "feature", "scale")
SMALLEST = 3  # groups of fewer rows are in --json and --format csv only
HEADS: dict[str, str] = {
    "accelerator": N_("accelerator"), "framework": N_("framework"), "precision": N_("precision"),
    "feature": N_("parallelism"), "scale": N_("devices"), "tier": N_("tier"),
}  # fmt: skip


def draw(found: Any, view: View, *, worst: int) -> Iterable[Any]:
    """Headline, errors of throughput and of memory by group, worst rows, reasons."""
    summary = found.summary
    counts = say(
        N_("{compared} of {rows} rows compared, {skipped} skipped"),
        compared=f"{summary.compared:,}", rows=f"{summary.rows:,}", skipped=f"{summary.skipped:,}",
    )  # fmt: skip
    yield parts.line(counts, "bold")
    if found.held_out:
        text = N_("every run predicted by constants and intervals that never saw its {group}")
        yield parts.line(say(text, group=say(HELD_OUT[found.held_out])))
    yield from headline(summary)
    if any(group.throughput for group in summary.groups):
        yield parts.heading(say(N_("Error of tokens/s by group")))
        yield parts.table(_throughput_heads(), _throughput_rows(summary), view)
    if any(group.memory for group in summary.groups):
        yield parts.heading(say(N_("Error of peak memory by group")))
        yield parts.table(_memory_heads(), _memory_rows(summary), view)
    yield from choice_part(found.choices, view)
    yield from worst_part(found.rows, view, worst)
    yield from skipped_part(summary, view)


HELD_OUT: dict[str, str] = {"source": N_("source"), "publisher": N_("publisher"), "model": N_("model family")}


def choice_part(choices: Sequence[Any], view: View) -> Iterable[Any]:
    """What the strategy predicted to be best loses against the best one measured, by source."""
    if not choices:
        return
    yield parts.heading(say(N_("Choice among measured strategies of one job")))
    heads = ("", say(N_("jobs")), say(N_("strategies")), say(N_("regret")), say(N_("worst")),
             say(N_("rank correlation")))  # fmt: skip
    rows = [
        (c.source[:40], show_count(c.sets), show_count(c.strategies), show_percent(c.regret, 1),
         show_percent(c.worst_regret, 1), "-" if c.correlation is None else f"{c.correlation:.2f}")
        for c in choices
    ]  # fmt: skip
    yield parts.table(heads, rows, view)


def headline(summary: Any) -> Iterable[Any]:
    """What to take away: throughput beside the naive guess, memory, and what was assumed."""
    speed, naive, memory = summary.overall.throughput, summary.overall.naive, summary.overall.memory
    if speed is not None:
        text = N_(
            "tokens/s of {n} rows: median error {median}, mean {mean}, bias {bias}, 90 % within {p90};"
            " {coverage} inside the stated interval"
        )
        yield parts.line(say(text, n=speed.n, coverage=_percent(speed.coverage), **_figures(speed)))
    if naive is not None:
        text = N_(
            "the naive guess (median MFU of the accelerator over other sources): median {median}, mean {mean},"
            " 90 % within {p90}"
        )
        yield parts.line(say(text, **_figures(naive)))
    if memory is not None:
        text = N_("peak memory of {n} rows: median error {median}, mean {mean}, bias {bias}, 90 % within {p90}")
        yield parts.line(say(text, n=memory.n, **_figures(memory)))
    if summary.as_usual:
        text = N_("not stated, so the usual was taken, in rows: {columns}")
        yield parts.line(say(text, columns=_counts(summary.as_usual)), "dim")
    if summary.passed_over:
        text = N_("cells that are no number were passed over, in rows: {columns}")
        yield parts.line(say(text, columns=_counts(summary.passed_over)), "yellow")
    if summary.assumed_recompute:
        taken = _counts(summary.assumed_recompute)
        text = N_(
            "recompute not stated: the choice that suits the memory best was taken ({taken}); intervals span all"
            " choices"
        )
        yield parts.line(say(text, taken=taken), "dim")


def _counts(rows: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {n}" for name, n in sorted(rows.items()))


def _figures(found: Any) -> dict[str, str]:
    return {"median": _percent(found.median_abs), "mean": _percent(found.mean_abs), "bias": _signed(found.bias),
            "p90": _percent(found.p90_abs)}  # fmt: skip


# ---------------------------------------------------------------------------------------------- tables


def _throughput_heads() -> Sequence[str]:
    return ("", "n", say(N_("median")), say(N_("mean")), say(N_("bias")), "p90", say(N_("inside")),
            say(N_("naive median")), say(N_("naive mean")))  # fmt: skip


def _memory_heads() -> Sequence[str]:
    return ("", "n", say(N_("median")), say(N_("mean")), say(N_("bias")), "p90")


def _throughput_rows(summary: Any) -> list[Sequence[str]]:
    rows: list[Sequence[str]] = []
    for name, group in _named(summary):
        found, naive = group.throughput, group.naive
        if found is not None and _large(found, group):
            cells = (_percent(naive.median_abs), _percent(naive.mean_abs)) if naive else ("-", "-")
            rows.append((name, *_cells(found), _percent(found.coverage, 0), *cells))
    return rows


def _memory_rows(summary: Any) -> list[Sequence[str]]:
    groups = [(name, group) for name, group in _named(summary) if group.memory is not None]
    return [(name, *_cells(group.memory)) for name, group in groups if _large(group.memory, group)]


def _large(found: Any, group: Any) -> bool:
    """Whether a group has enough rows to mean something."""
    return found.n >= SMALLEST or group.factor == "all"


def _named(summary: Any) -> Iterable[tuple[str, Any]]:
    """All rows, then the groups, named by factor and value."""
    yield say(N_("all")), summary.overall
    for factor in SHOWN:
        for group in summary.of(factor):
            yield f"{say(HEADS[factor])} {group.value}", group


def _cells(found: Any) -> tuple[str, ...]:
    return (f"{found.n:,}", *_figures(found).values())


def _percent(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else show_percent(value, digits)


def _signed(value: float | None) -> str:
    return "-" if value is None else f"{'+' if value >= 0 else ''}{show_percent(value)}"


def worst_part(rows: Sequence[Any], view: View, count: int) -> Iterable[Any]:
    """The rows furthest off."""
    off = sorted((c for c in rows if c.error is not None), key=lambda c: -abs(c.error))[:count]
    if not off:
        return
    yield parts.heading(say(N_("Furthest off")))
    heads = ("id", say(N_("model")), say(N_("devices")), say(N_("predicted")), say(N_("measured")), say(N_("error")))
    cells = [
        (c.run.id[:24], c.run.model[:32], f"{c.run.n_gpus} × {c.run.accelerator}", show_count(c.predicted),
         show_count(c.measured), _signed(c.error))
        for c in off
    ]  # fmt: skip
    yield parts.table(heads, cells, view, left=(0, 1, 2))


def skipped_part(summary: Any, view: View) -> Iterable[Any]:
    """Why rows were not compared, with counts."""
    if not summary.reasons:
        return
    yield parts.heading(say(N_("Not compared")))
    for reason, n in summary.reasons:
        yield parts.line(f"{n:>5}  {tell(reason)}")


def grid(found: Any) -> Grid:
    """One line per row of the file."""
    keys = tuple(found.lines[0])
    heads = keys  # the keys of the document: this table is read by machines
    raw = tuple(tuple(_flat(line[key]) for key in keys) for line in found.lines)
    rows = tuple(tuple("-" if cell is None else f"{cell:.6g}" if isinstance(cell, float) else str(cell) for cell in row)
                 for row in raw)  # fmt: skip
    return Grid(keys=keys, heads=heads, rows=rows, raw=raw)


def _flat(value: Any) -> Any:
    return " ".join(f"{x:.6g}" for x in value) if isinstance(value, list) else value
