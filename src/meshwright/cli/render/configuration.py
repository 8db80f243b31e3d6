"""Configurations of frameworks: settings accounted for, findings, files, conversions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from meshwright import __version__
from meshwright.cli.labels import label
from meshwright.cli.language import say, tell
from meshwright.cli.output import Grid, Verbatim, View
from meshwright.cli.render import parts
from meshwright.messages import N_
from meshwright.spec.configuration import STATUSES

Checks = Sequence[tuple[str, Any]]
STATUS: dict[str, str] = {
    "understood": N_("Understood"),
    "unmodelled": N_("Changes memory or time, but the estimate takes the framework's default"),
    "irrelevant": N_("Without meaning for planning"),
    "unknown": N_("Unknown"),
    "conflict": N_("In conflict"),
}
VERDICTS: dict[str, str] = {
    "maps": N_("maps"), "changed": N_("changes"), "lost": N_("no counterpart"), "added": N_("added"),
    "program": N_("in the program"),
}  # fmt: skip


def head(imported: Any) -> str:
    """Framework, version, how many settings of which kind."""
    counts = {status: sum(1 for e in imported.entries if e.status == status) for status in STATUSES}
    return say(
        N_("{framework} {version} · {count} settings: {understood} understood, {unmodelled} not modelled, {irrelevant}"
           " irrelevant, {unknown} unknown, {conflict} in conflict"),
        framework=imported.format, version=imported.version, count=len(imported.entries), **counts,
    )  # fmt: skip


def draw_imported(imported: Any, view: View) -> Iterable[Any]:
    """Settings by what became of them, what they say, what is wrong."""
    yield parts.line(head(imported), "bold")
    for status in STATUSES:
        rows = [(e.name, _value(e.value), e.maps.replace(" ", ", ") or tell(e.meaning)) for e in imported.entries
                if e.status == status]  # fmt: skip
        if rows:
            yield parts.heading(say(STATUS[status]))
            yield parts.table((say(N_("setting")), say(N_("value")), say(N_("is here"))), rows, view, left=(0, 1, 2))
    yield from parts.findings_part(imported.findings)
    yield from parts.assumptions_part(imported.assumptions)


def _value(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= 40 else f"{text[:37]}…"


def entries_grid(imported: Any) -> Grid:
    """One row per setting."""
    keys = ("name", "value", "status", "maps", "line")
    raw = tuple((e.name, str(e.value), e.status, e.maps, e.line) for e in imported.entries)
    rows = tuple(tuple("" if cell is None else str(cell) for cell in row) for row in raw)
    return Grid(keys=keys, heads=keys, rows=rows, raw=raw)


def entry_lines(imported: Any) -> list[Mapping[str, Any]]:
    """One object per setting."""
    return [{"name": e.name, "value": e.value, "status": e.status, "maps": e.maps, "line": e.line}
            for e in imported.entries]  # fmt: skip


# ---------------------------------------------------------------------------------------------- check


def draw_checks(checks: Checks, view: View) -> Iterable[Any]:
    """Each file: what it is, verdicts, findings, assumptions."""
    for index, (file, checked) in enumerate(checks):
        if index:
            yield parts.line("")
        yield parts.line(f"{file}: {head(checked.imported)}", "bold")
        if checked.problem is not None:
            yield parts.line(parts.problem_line(checked.problem))
            yield parts.line(parts.strategy_words(checked.strategy))
        if checked.estimate is not None:
            yield parts.verdict(checked.estimate)
            for sentence in parts.speed_lines(checked.estimate, checked.problem):
                yield parts.line(sentence)
        for text in checked.open:
            yield parts.line(tell(text), "dim")
        yield parts.line(verdict(checked), "bold green" if checked.passes else "bold red")
        yield from parts.findings_part(checked.findings)
        yield from parts.assumptions_part(checked.assumptions)


def verdict(checked: Any) -> str:
    """Passed, or how many errors."""
    if checked.passes:
        return say(N_("PASSED"))
    if checked.errors:
        return say(N_("FAILED: errors: {count}"), count=checked.errors)
    return say(N_("FAILED: it does not fit"))


def check_document(checks: Checks, to_json: Callable[[Any], Any]) -> Mapping[str, Any]:
    """All files in one document."""
    files = [
        {
            "file": file, "passes": c.passes, "format": c.imported.format, "version": c.imported.version,
            "findings": [{**to_json(f), "line": c.line(f)} for f in c.findings],
            "settings": to_json(c.imported.entries), "sections": to_json(c.imported.sections),
            "problem": to_json(c.problem), "strategy": to_json(c.strategy), "estimate": to_json(c.estimate),
            "assumptions": to_json(c.assumptions), "open": to_json(c.open),
        }
        for file, c in checks
    ]  # fmt: skip
    return {"schema": "meshwright.check/1", "meshwright_version": __version__,
            "passes": all(c.passes for _, c in checks), "files": files}  # fmt: skip


def finding_lines(checks: Checks) -> list[Mapping[str, Any]]:
    """One object per finding, in English."""
    return [
        {"file": file, "line": c.line(f), "code": f.code, "severity": f.severity, "where": f.where,
         "message": f.message.render("en"), "fix": f.fix.render("en") if f.fix else None}
        for file, c in checks for f in c.findings
    ]  # fmt: skip


def findings_grid(checks: Checks) -> Grid:
    """One row per finding."""
    keys = ("file", "line", "code", "severity", "where", "message", "fix")
    raw = tuple(tuple(line[key] for key in keys) for line in finding_lines(checks))
    rows = tuple(
        (file, str(c.line(f) or ""), f.code, label(f.severity), f.where, tell(f.message), tell(f.fix))
        for file, c in checks
        for f in c.findings
    )
    heads = (say(N_("file")), say(N_("line")), say(N_("rule")), say(N_("severity")), say(N_("where")),
             say(N_("what it says")), say(N_("what to try")))  # fmt: skip
    return Grid(keys=keys, heads=heads, rows=rows, raw=raw)


# ---------------------------------------------------------------------------------------------- export and convert


def draw_exported(exported: Any, problem: Any, strategy: Any, view: View, folder: str | None) -> Iterable[Any]:
    """The strategy, the files (unless they were written to a folder), and what is missing."""
    yield parts.line(parts.problem_line(problem), "bold")
    yield parts.line(parts.strategy_words(strategy))
    yield from files_part(exported, folder)
    yield from missing_part(exported)
    yield from parts.assumptions_part(problem.assumptions)


def files_part(exported: Any, folder: str | None) -> Iterable[Any]:
    """The text of every file."""
    if folder is not None:
        return
    for file in exported.files:
        yield parts.heading(f"{file.name} ({exported.format} {exported.version})")
        yield Verbatim(file.text.rstrip("\n"))


def missing_part(exported: Any) -> Iterable[Any]:
    """What the framework cannot say, and remarks."""
    if exported.missing:
        yield parts.heading(say(N_("Not expressed in these files")))
        for missing in exported.missing:
            yield parts.bullet(f"{missing.name} = {missing.value}: {tell(missing.reason)}")
    if exported.notes:
        yield parts.heading(say(N_("Notes")))
        yield from parts.bullets(exported.notes)


def settings_grid(exported: Any) -> Grid:
    """One row per setting written."""
    raw = tuple((name, str(value)) for name, value in exported.settings)
    return Grid(keys=("name", "value"), heads=(say(N_("setting")), say(N_("value"))), rows=raw, raw=raw)


def counterparts_grid(converted: Any) -> Grid:
    """One row per field of ours."""
    keys = ("field", "source", "target", "verdict", "note")
    raw = tuple(
        (c.ours, _spelt(c.source), _spelt(c.target), c.verdict, c.note.render("en") if c.note else "")
        for c in converted.table
    )
    rows = tuple(
        (c.ours, _spelt(c.source), _spelt(c.target), say(VERDICTS[c.verdict]), tell(c.note)) for c in converted.table
    )
    heads = (say(N_("field")), converted.checked.imported.format, converted.to, "", say(N_("note")))
    return Grid(keys=keys, heads=heads, rows=rows, raw=raw)


def _spelt(settings: Sequence[tuple[str, Any]]) -> str:
    return ", ".join(name if value is True or value == "" else f"{name} = {_value(value)}" for name, value in settings)


def draw_converted(converted: Any, view: View, folder: str | None) -> Iterable[Any]:
    """The table, what stays behind, the files, what is wrong with the source."""
    checked = converted.checked
    yield parts.line(head(checked.imported), "bold")
    yield parts.line(parts.problem_line(checked.problem))
    yield parts.line(parts.strategy_words(checked.strategy))
    for verdict in VERDICTS:
        rows = [c for c in converted.table if c.verdict == verdict]
        if rows:
            yield parts.heading(say(VERDICTS[verdict]))
        for c in rows:
            both = " → ".join(part for part in (_spelt(c.source), _spelt(c.target)) if part)
            yield parts.line(f"{c.ours}: {both}" + (f" ({tell(c.note)})" if c.note else ""), indent=2)
    if converted.left:
        yield parts.heading(say(N_("Not carried over")))
        yield parts.line(", ".join(entry.name for entry in converted.left), indent=2)
    yield from files_part(converted.exported, folder)
    yield from missing_part(converted.exported)
    yield from parts.findings_part(checked.findings)
    yield from parts.assumptions_part(checked.assumptions)


def converted_record(converted: Any) -> Mapping[str, Any]:
    """What JSON shows of a conversion."""
    checked = converted.checked
    return {
        "from": checked.imported.format, "to": converted.to, "problem": checked.problem, "strategy": checked.strategy,
        "table": converted.table, "not_carried_over": [entry.name for entry in converted.left],
        "exported": converted.exported, "findings": checked.findings, "assumptions": checked.assumptions,
    }  # fmt: skip
