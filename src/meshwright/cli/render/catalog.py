"""Catalogue entries as text: lists by kind, one entry with the source of each value, what is wrong with a file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from meshwright.cli.labels import label
from meshwright.cli.language import say, tell
from meshwright.cli.output import Grid, View
from meshwright.cli.render import parts
from meshwright.messages import N_
from meshwright.spec import Finding


def draw_list(rows: Sequence[Any], view: View) -> Iterable[Any]:
    """One table per kind, with the values that matter for it."""
    kinds = list(dict.fromkeys(row.kind for row in rows))
    for kind in kinds:
        chosen = [row for row in rows if row.kind == kind]
        columns = list(dict.fromkeys(name for row in chosen for name in row.summary))
        cells = [[row.id, row.name, *(row.summary.get(name, "-") for name in columns)] for row in chosen]
        heads = [say(N_("id")), say(N_("name")), *(_column(name) for name in columns)]
        yield parts.heading(f"{label(kind)} ({len(chosen)})")
        yield parts.table(heads, cells, view, left=range(len(heads)))
    if not rows:
        yield parts.line(say(N_("nothing of that name")))


def _column(name: str) -> str:
    first, _, rest = name.partition(".")
    return f"{label(first)} {rest}".strip()


def list_grid(rows: Sequence[Any]) -> Grid:
    """Kind, id, name, aliases, origin."""
    raw = tuple((row.kind, row.id, row.name, " ".join(row.aliases), row.origin) for row in rows)
    heads = (say(N_("kind")), say(N_("id")), say(N_("name")), say(N_("aliases")), say(N_("origin")))
    return Grid(keys=("kind", "id", "name", "aliases", "origin"), heads=heads, rows=raw, raw=raw)


def draw_entry(entry: Any, view: View) -> Iterable[Any]:
    """Texts, values with basis, source and date, notes."""
    yield parts.line(f"{entry.name}  ({label(entry.kind)}: {entry.id})", "bold")
    for name, value in entry.words.items():
        if name not in ("id", "name"):
            yield parts.line(f"{label(name)}: {_words(value)}", indent=2)
    if entry.values:
        yield parts.heading(say(N_("Values")))
        grid = entry_grid(entry)
        kept = [i for i, key in enumerate(grid.keys) if key not in ("source", "si", "note")]
        rows = [[row[i] for i in kept] + [str(numbers.get(row[4], ""))] for row, numbers in _numbered(grid.rows)]
        heads = [*(grid.heads[i] for i in kept), say(N_("source"))]
        yield parts.table(heads, rows, view, left=(0, 2, 3, 4, 5))
    sources = list(dict.fromkeys(value.source for value in entry.values if value.source))
    if sources:
        yield parts.heading(say(N_("Sources")))
        for number, source in enumerate(sources, 1):
            yield parts.line(f"[{number}] {source}", indent=2)
    notes = [*entry.notes, *(f"{value.name}: {value.note}" for value in entry.values if value.note)]
    if notes:
        yield parts.heading(say(N_("Notes")))
        yield from parts.bullets(notes)
    yield parts.line(say(N_("file: {path}"), path=entry.path), "dim")


def _numbered(rows: Sequence[tuple[str, ...]]) -> Iterable[tuple[tuple[str, ...], dict[str, str]]]:
    sources = list(dict.fromkeys(row[4] for row in rows if row[4]))
    numbers = {source: f"[{i}]" for i, source in enumerate(sources, 1)}
    return [(row, numbers) for row in rows]


def _words(value: Any) -> str:
    return ", ".join(str(v) for v in value) if isinstance(value, (list, tuple)) else str(value)


def entry_grid(entry: Any) -> Grid:
    """One row per value."""
    keys = ("name", "value", "unit", "basis", "source", "date", "si", "note")
    raw = tuple(tuple(getattr(value, key) for key in keys) for value in entry.values)
    rows = tuple(tuple("" if cell is None else str(cell) for cell in row) for row in raw)
    heads = (say(N_("name")), say(N_("value")), say(N_("unit")), say(N_("basis")), say(N_("source")), say(N_("date")),
             say(N_("in base units")), say(N_("note")))  # fmt: skip
    return Grid(keys=keys, heads=heads, rows=rows, raw=raw)


def draw_findings(findings: Sequence[Finding], view: View) -> Iterable[Any]:
    """What is wrong, or that nothing is."""
    if not findings:
        yield parts.line(say(N_("VALID: nothing is wrong")), "bold green")
        return
    yield parts.line(say(N_("{count} findings"), count=len(findings)), "bold")
    yield from parts.findings_part(findings)


def findings_grid(findings: Sequence[Finding]) -> Grid:
    """One row per finding."""
    keys = ("code", "severity", "where", "message", "fix")
    raw = tuple(
        (f.code, f.severity, f.where, f.message.render("en"), f.fix.render("en") if f.fix else "") for f in findings
    )
    rows = tuple((f.code, label(f.severity), f.where, tell(f.message), tell(f.fix)) for f in findings)
    heads = (say(N_("rule")), say(N_("severity")), say(N_("where")), say(N_("what it says")), say(N_("what to try")))
    return Grid(keys=keys, heads=heads, rows=rows, raw=raw)


def draw_added(added: Any, view: View) -> Iterable[Any]:
    """Where it went, and what it hides."""
    yield parts.line(
        say(N_("added {kind} '{id}' to your catalogue: {path}"), kind=added.kind, id=added.id, path=added.path)
    )
    if added.replaces == "shipped":
        yield parts.line(say(N_("it hides the entry of the same name that is shipped")))
    elif added.replaces:
        yield parts.line(say(N_("it replaces your earlier entry")))
