"""A setting of a framework as one row of a table, from which reading, writing, docs and the conversion table are made.

`maps` names what of ours the setting is: `strategy.sharding`, `job.global_batch`, `model.hidden`, `cluster.devices`.
A setting with no `maps` is `irrelevant` to planning, or `unmodelled` where it changes memory or time but the estimate
takes the framework's default.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from meshwright.messages import Text

Kind = Literal["int", "number", "flag", "text", "list", "table", "any"]
Use = Literal["understood", "unmodelled", "irrelevant"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One setting: its name in the framework, what it means, what of ours it is, and since when it exists."""

    name: str  # dotted where tables nest
    kind: Kind
    meaning: Text
    maps: tuple[str, ...] = ()
    unmodelled: bool = False
    choices: tuple[Any, ...] = ()
    values: Mapping[Any, Any] = field(default_factory=dict)  # the framework's value: ours, one to one
    low: float | None = None
    high: float | None = None
    default: Any = None
    aliases: tuple[str, ...] = ()  # other spellings that the framework takes
    keys: tuple[str, ...] = ()  # of a table whose inside planning never looks at
    versions: str = ""  # of the framework that have it, e.g. `>=0.17`
    instead: str = ""  # what replaces it
    beside: str = ""  # the argument of the program around it that fills or must equal it
    needs: str = ""  # condition under which it has an effect; the framework's rules know its name
    closed: bool = False  # of a table: the framework refuses unknown keys in it

    @property
    def use(self) -> Use:
        """How planning uses it."""
        return "understood" if self.maps else "unmodelled" if self.unmodelled else "irrelevant"

    def ours(self, value: Any) -> Any:
        """The framework's value as ours."""
        return self.values.get(value, value) if self.values else value

    def theirs(self, value: Any) -> Any:
        """Our value as the framework's; KeyError where it has none."""
        if not self.values:
            return value
        return {ours: theirs for theirs, ours in self.values.items()}[value]


@dataclass(frozen=True)
class Table:
    """All settings of one framework."""

    format: str
    fields: tuple[Field, ...]
    strict_from: str = ""  # version from which the framework refuses settings that are not in the table; empty: never

    @cached_property
    def by_name(self) -> dict[str, Field]:
        """Fields by every spelling."""
        return {name: f for f in self.fields for name in (f.name, *f.aliases)}

    @cached_property
    def tables(self) -> dict[str, Field]:
        """Fields that hold others."""
        return {f.name: f for f in self.fields if f.kind == "table"}

    def find(self, name: str) -> Field | None:
        """The field of a dotted name, or of the table that swallows it."""
        if name in self.by_name:
            return self.by_name[name]
        parent, _, key = name.rpartition(".")
        holder = self.by_name.get(parent)
        return holder if holder is not None and key in holder.keys else None

    def siblings(self, name: str) -> list[str]:
        """Names that could stand where `name` stands."""
        parent = name.rpartition(".")[0]
        prefix = f"{parent}." if parent else ""
        inside = [n for n in self.by_name if n.startswith(prefix) and "." not in n[len(prefix) :]]
        holder = self.by_name.get(parent)
        return inside + [prefix + key for key in (holder.keys if holder else ())]

    def suggestions(self, name: str) -> list[str]:
        """Known names like an unknown one: close in spelling where it stands, or the same key in another table."""
        close = difflib.get_close_matches(name, self.siblings(name), n=3, cutoff=0.7)
        key = name.rpartition(".")[2]
        elsewhere = [n for n in self.by_name if n.rpartition(".")[2] == key and n != name]
        return list(dict.fromkeys([*close, *elsewhere]))[:3]

    def maps(self, ours: str) -> list[Field]:
        """Fields that set one of our fields."""
        return [f for f in self.fields if ours in f.maps]


def flatten(values: Mapping[str, Any], table: Table, prefix: str = "") -> Iterable[tuple[str, Any]]:
    """Dotted names and values; a table of settings is opened, any other mapping is a value."""
    for key, value in values.items():
        name = f"{prefix}{key}"
        known = table.by_name.get(name)
        if isinstance(value, Mapping) and known is not None and known.kind == "table":
            yield name, value
            yield from flatten(value, table, f"{name}.")
        else:
            yield name, value
