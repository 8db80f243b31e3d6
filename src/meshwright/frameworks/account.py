"""Every setting of a file accounted for: its type, its range, whether this version has it, what it is called."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from meshwright.frameworks.fields import Field, Kind, Table, flatten
from meshwright.messages import N_, Text
from meshwright.rules import any_configuration as rule
from meshwright.rules.configuration import hit
from meshwright.rules.versions import covers, numbers
from meshwright.spec.configuration import Entry, Status
from meshwright.spec.finding import Finding

AUTO = "auto"  # Hugging Face fills it in
_FLAGS = {"true": True, "false": False, "yes": True, "no": False, "on": True, "off": False, "1": True, "0": False}
_WANTED: dict[Kind, str] = {
    "int": N_("a whole number"), "number": N_("a number"), "flag": N_("true or false"), "text": N_("a text"),
    "list": N_("a list"), "table": N_("a table of settings"),
}  # fmt: skip


@dataclass(slots=True)
class Ledger:
    """What has been found out about a file so far."""

    table: Table
    version: str
    values: dict[str, Any] = field(default_factory=dict)  # by the field's own name, typed
    entries: dict[str, Entry] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    lines: Mapping[str, int] = field(default_factory=dict)

    def status(self, name: str, status: Status) -> None:
        """Say of a setting that it is in conflict, for example."""
        if name in self.entries:
            old = self.entries[name]
            self.entries[name] = Entry(name=name, value=old.value, status=status, maps=old.maps, line=old.line,
                                       meaning=old.meaning)  # fmt: skip


def account(
    data: Mapping[str, Any], table: Table, version: str, *, lines: Mapping[str, int] | None = None, auto: bool = False
) -> Ledger:
    """Go through nested settings; `auto`: the word is a value that somebody fills in."""
    ledger = Ledger(table, version, lines=lines or {})
    for name, value in flatten(data, table):
        known = table.find(name)
        line = ledger.lines.get(name)
        if known is None:
            ledger.findings.append(_unknown(name, table, version))
            ledger.entries[name] = Entry(name=name[:120], value=_shown(value), status="unknown", line=line)
            continue
        if known.kind == "table" and isinstance(value, Mapping):
            if known.keys:
                _inside(name, value, known, ledger)
            if not covers(known.versions, version):
                ledger.findings.append(_gone(known, table.format, version))
            continue
        if value is None or name not in table.by_name:  # as good as left out, or inside a table that has its entry
            continue
        own = known.name
        ledger.values[own] = _read(known, value, ledger, auto=auto)
        status: Status = "unknown" if not covers(known.versions, version) else known.use
        ledger.entries[own] = Entry(name=name, value=_shown(value), status=status, maps=" ".join(known.maps), line=line,
                                    meaning=known.meaning)  # fmt: skip
    return ledger


def _inside(name: str, value: Mapping[str, Any], known: Field, ledger: Ledger) -> None:
    """A table that planning does not look into: one entry for all of it; `flatten` reports its unknown keys."""
    inside = {key: _shown(item) for key, item in value.items() if key in known.keys}
    if inside:
        ledger.entries[name] = Entry(name=name, value=inside, status=known.use, line=ledger.lines.get(name),
                                     meaning=known.meaning)  # fmt: skip


def _read(known: Field, value: Any, ledger: Ledger, *, auto: bool) -> Any:
    """The value in its type, with findings about it."""
    if auto and value == AUTO:
        return AUTO
    if not covers(known.versions, ledger.version):
        ledger.findings.append(_gone(known, ledger.table.format, ledger.version))
    typed, clean = typed_value(known.kind, value)
    if not clean:
        ledger.findings.append(_mistyped(known, value, typed))
    if typed is None:
        return None
    if known.choices and _folded(typed) not in {_folded(choice) for choice in known.choices}:
        ledger.findings.append(_illegal(known, typed))
        return None
    if isinstance(typed, (int, float)) and not isinstance(typed, bool) and not _bounded(known, typed):
        ledger.findings.append(_illegal(known, typed))
        return None
    return typed


def _folded(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


def _bounded(known: Field, value: float) -> bool:
    low = -math.inf if known.low is None else known.low
    return low <= value <= (math.inf if known.high is None else known.high)


def typed_value(kind: Kind, value: Any) -> tuple[Any, bool]:
    """The value as `kind` (None: cannot be), and whether it was written so."""
    match kind:
        case "any":
            return value, True
        case "flag":
            if isinstance(value, bool):
                return value, True
            return _FLAGS.get(str(value).strip().lower()), False
        case "int" | "number":
            return _number(kind, value)
        case "text":
            return (value, True) if isinstance(value, str) else (None, False)
        case "list":
            return (value, True) if isinstance(value, (list, tuple)) else (None, False)
        case "table":
            return (value, True) if isinstance(value, Mapping) else (None, False)


def _number(kind: Kind, value: Any) -> tuple[Any, bool]:
    written = isinstance(value, (int, float)) and not isinstance(value, bool)
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None, False
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None, False
    if not math.isfinite(number) or (kind == "int" and number != int(number)):
        return None, False
    return (int(number) if kind == "int" else number), written


def _shown(value: Any) -> Any:
    """A value for people: nothing longer than a line."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no such number
    if isinstance(value, (bool, int, float)) or value is None:
        return value
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= 80 else f"{text[:77]}…"


def _unknown(name: str, table: Table, version: str) -> Finding:
    parent = table.by_name.get(name.rpartition(".")[0])
    strict = bool(table.strict_from) and numbers(version) >= numbers(table.strict_from)
    refused = strict or (parent is not None and parent.closed)
    close = table.suggestions(name)
    fix = Text(N_("did you mean {names}?"), names=", ".join(close)) if close else None
    text = (
        N_("{framework} knows no setting '{name}' and refuses to start")
        if refused
        else N_("'{name}' is not a setting of {framework} that is known here")
        if table.strict_from
        else N_("{framework} knows no setting '{name}' and ignores it silently")
    )
    return hit(rule.UNKNOWN, name[:120], Text(text, framework=table.format, name=name[:120]), fix,
               severity="error" if refused else "warning", suggestions=close)  # fmt: skip


def _gone(known: Field, framework: str, version: str) -> Finding:
    fix = Text(N_("use {option}"), option=known.instead) if known.instead else None
    text = Text(N_("{framework} {version} has no '{name}' (versions {versions})"), framework=framework, version=version,
                name=known.name, versions=known.versions)  # fmt: skip
    return hit(rule.GONE, known.name, text, fix, versions=known.versions)


def _mistyped(known: Field, value: Any, typed: Any) -> Finding:
    text = Text(N_("'{name}' is {value}, not {wanted}"), name=known.name, value=repr(_shown(value)),
                wanted=Text(_WANTED[known.kind]))  # fmt: skip
    if typed is None:
        return hit(rule.TYPE, known.name, text, Text(N_("write {wanted}"), wanted=Text(_WANTED[known.kind])))
    right = str(typed).lower() if isinstance(typed, bool) else typed
    return hit(rule.TYPE, known.name, text, Text(N_("write {value}, without quotes"), value=right), value=typed)


def _illegal(known: Field, value: Any) -> Finding:
    message = Text(N_("{name} = {value} is not possible"), name=known.name, value=_shown(value))
    if known.choices:
        legal = ", ".join(str(choice) for choice in known.choices)
        return hit(
            rule.RANGE, known.name, message, Text(N_("choose one of {names}"), names=legal), legal=list(known.choices)
        )
    nearest = known.low if known.low is not None and value < known.low else known.high
    return hit(rule.RANGE, known.name, message, Text(N_("the nearest legal value is {value}"), value=f"{nearest:g}"),
               legal=nearest)  # fmt: skip
