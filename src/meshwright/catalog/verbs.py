"""What `catalog list|show|add|validate` do, for every kind: a kind is a folder under `data/`."""

from __future__ import annotations

import builtins
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from meshwright import units
from meshwright.catalog import load
from meshwright.catalog.validate import check_file, kind_of, validate
from meshwright.errors import InputError, UnknownNameError
from meshwright.files import reason_of
from meshwright.messages import N_, Text

__all__ = ["Added", "Row", "Shown", "ShownValue", "add", "listed_kinds", "list", "list_entries", "show", "validate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of `catalog list`."""

    kind: str
    id: str
    name: str
    aliases: tuple[str, ...]
    origin: str  # shipped or user
    summary: Mapping[str, str]  # a few values, printed


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownValue:
    """One value as the file gives it, and `si`, the number in base units where the unit is known."""

    name: str
    value: Any
    unit: str
    basis: str
    source: str
    date: str
    note: str = ""
    si: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """Everything a file says; `words` are its texts, `values` its numbers with where they come from."""

    kind: str
    id: str
    name: str
    path: str
    origin: str
    words: Mapping[str, Any]
    values: tuple[ShownValue, ...]
    notes: tuple[str, ...] = field(default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """Where `catalog add` put a file, and what it now hides."""

    kind: str
    id: str
    path: str
    replaces: str  # "", user or shipped


_SUMMARY: Mapping[str, tuple[str, ...]] = {
    "accelerators": ("peak_flops.bf16", "memory", "memory_bandwidth", "link_bandwidth", "power"),
    "links": ("bandwidth", "latency"),
    "nodes": ("accelerator", "accelerators", "nics", "nic_bandwidth", "fabric"),
    "clusters": ("node", "devices"),
    "prices": ("usd_per_hour",),
    "failures": ("constants.rate",),
}


def listed_kinds() -> tuple[str, ...]:
    """Kinds that `catalog list` knows, in the order people look for them."""
    return (
        "accelerators", "nodes", "clusters", "links", "prices", "models", "software", "kernels", "failures", "storage",
        "recovery",
    )  # fmt: skip


def kind_called(name: str) -> str:
    """The kind meant by `name`, singular or plural, or a beginning of it."""
    key = load.normalise(name)
    found = [kind for kind in listed_kinds() if kind == key or kind.startswith(key)]
    if len(found) == 1 or key in found:
        return key if key in found else found[0]
    what: Any = Text(N_("kind of entry"))
    raise UnknownNameError(what, name[:60], found or listed_kinds(), ambiguous=len(found) > 1)


def list_entries(kind: str | None = None, contains: str = "") -> builtins.list[Row]:
    """The entries of a kind (of all kinds without one) whose id, name or alias contains a text."""
    chosen = listed_kinds() if kind is None else (kind_called(kind),)
    needle = load.normalise(contains)
    rows = [_row(each, id, path) for each in chosen for id, path in load.files(each).items()]
    return [r for r in rows if not needle or any(needle in load.normalise(n) for n in (r.id, r.name, *r.aliases))]


list = list_entries  # the verb's own name


def _row(kind: str, id: str, path: Path) -> Row:
    raw = load.read(path)
    values = {name: _printed(raw, name) for name in _SUMMARY.get(kind, ())}
    return Row(
        kind=kind,
        id=id,
        name=str(raw.get("name") or raw.get("title") or id),
        aliases=tuple(str(a) for a in _list(raw.get("aliases"))),
        origin=_origin(path),
        summary={name: text for name, text in values.items() if text},
    )


def _origin(path: Path) -> str:
    return "shipped" if load.is_shipped(path) else "user"


def _list(given: Any) -> builtins.list[Any]:
    return given if isinstance(given, builtins.list) else []


def _printed(raw: Mapping[str, Any], name: str) -> str:
    """A value found by its path, for people; the file's own unit, not a converted one."""
    given: Any = raw
    for part in name.split("."):
        given = given.get(part) if isinstance(given, Mapping) else None
    if isinstance(given, Mapping) and "value" in given:
        value, unit = given["value"], str(given.get("unit", ""))
        text = units.figures(value, 4).rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
        return text if unit in ("", "1") else f"{text} {unit}"
    return given if isinstance(given, str) else ""


def show(name: str, kind: str | None = None) -> Shown:
    """Every value of one entry; without a kind, the name is looked for in all of them."""
    kind = _holder(name) if kind is None else kind_called(kind)
    id, raw, path = load.entry(kind, name)
    words = {k: v for k, v in raw.items() if not isinstance(v, Mapping) and k not in ("catalog", "notes")}
    return Shown(
        kind=kind,
        id=id,
        name=str(raw.get("name") or raw.get("title") or id),
        path=str(path),
        origin=_origin(path),
        words=words,
        values=tuple(_values(raw)),
        notes=tuple(str(n) for n in _list(raw.get("notes"))),
    )


def _holder(name: str) -> str:
    """The kind that has an entry of this name: exact before fragments, in the order of `listed_kinds`."""
    order = [kind for kind in listed_kinds() if kind != "prices"]
    for kind in order:
        if load.exact(kind, name):
            return kind
    for of_aliases in (False, True):
        found = {kind: load.fragments(kind, name, of_aliases=of_aliases) for kind in order}
        if single := next((kind for kind in order if len(found[kind]) == 1), None):
            return single
        if several := [id for kind in order for id in found[kind]]:
            raise UnknownNameError(_entry(), name[:80], several, ambiguous=True)
    raise UnknownNameError(_entry(), name[:80], {n for k in order for n in (*load.files(k), *load.aliases(k))})


def _entry() -> Any:
    return Text(N_("catalogue entry"))


def _values(raw: Mapping[str, Any], prefix: str = "") -> Iterator[ShownValue]:
    for key, given in raw.items():
        if not isinstance(given, Mapping):
            if prefix and not isinstance(given, builtins.list):
                yield _plain(prefix + key, given, raw)
        elif "value" in given:
            yield _shown(prefix + key, given)
        else:
            yield from _values(given, f"{prefix}{key}.")


def _shown(name: str, given: Mapping[str, Any]) -> ShownValue:
    unit = str(given.get("unit", ""))
    value = given["value"]
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return ShownValue(
        name=name,
        value=value,
        unit=unit,
        basis=str(given.get("basis", "")),
        source=str(given.get("source", "")),
        date=str(given.get("date", "")),
        note=str(given.get("note", "")),
        si=value * units.UNITS[unit][1] if number and unit in units.UNITS else None,
    )


def _plain(name: str, value: Any, table: Mapping[str, Any]) -> ShownValue:
    """A bare value inside a table; source and basis are the table's, where it has them."""
    basis, source, date = (str(table.get(key, "")) for key in ("basis", "source", "date"))
    return ShownValue(name=name, value=value, unit="", basis=basis, source=source, date=date)


def add(path: str | os.PathLike[str], *, kind: str | None = None, replace: bool = False) -> Added:
    """Validate a file and copy it into the user's catalogue, where it hides a shipped entry of the same id.

    Raises `InputError` with the first thing wrong, or when the user's catalogue already has the id.
    """
    file = load.expand(path)
    raw = load.read(file)
    kind = kind_of(raw, file) if kind is None else kind_called(kind)
    id = raw.get("id", file.stem)
    if not isinstance(id, str) or id != load.normalise(id) or not id.replace("-", "").replace(".", "").isalnum():
        raise InputError(
            Text(N_("an id has lower-case letters, digits, dots and dashes")),
            where=f"{file}: id",
            fix=Text(N_("write it like {examples}"), examples="my-node-8x-h100"),
        )
    _refuse_faults(file, kind, id)
    target = load.writable_folder() / kind / f"{id}.toml"
    if target.exists() and not replace:
        raise InputError(
            Text(N_("your catalogue already has a {what} '{name}'"), what=load.noun(kind), name=id),
            where=str(target),
            fix=Text(N_("give it another id, or replace it with --replace")),
        )
    replaces = _origin(load.files(kind)[id]) if id in load.files(kind) else ""
    _write(target, file.read_bytes())
    return Added(kind=kind, id=id, path=str(target), replaces=replaces)


def _refuse_faults(file: Path, kind: str, id: str) -> None:
    faults = [f for f in check_file(file, kind) if f.code != "MW-CATALOG-ID"]  # it is stored under its id anyway
    if not faults:
        return
    first = faults[0]
    text = first.message
    if len(faults) > 1:
        text = Text(N_("{problem} (and {more} more)"), problem=first.message, more=len(faults) - 1)
    raise InputError(text, where=first.where, fix=first.fix)


def _write(target: Path, content: bytes) -> None:
    """Written whole or not at all."""
    # A name of its own for each process: two that add at once do not write into one another's half.
    temporary = target.with_suffix(f".{os.getpid()}.partial")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(content)
        temporary.replace(target)
    except OSError as error:
        raise InputError(
            Text(N_("cannot write the file: {reason}"), reason=reason_of(error)),
            where=str(target),
            fix=Text(N_("set {variable} to a folder you can write to"), variable=load.ENVIRONMENT),
        ) from None
