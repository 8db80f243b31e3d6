"""A framework's configuration under its own names, and what became of each of its settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from meshwright.messages import Text

# unmodelled: changes memory or time, but the estimate does not take it up.
Status = Literal["understood", "unmodelled", "irrelevant", "unknown", "conflict"]
STATUSES: tuple[str, ...] = ("understood", "unmodelled", "irrelevant", "unknown", "conflict")


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """What rules about files look at: effective values by their names in the framework, and what surrounds them."""

    format: str
    version: str  # of the framework
    values: Mapping[str, Any] = field(default_factory=dict)  # by dotted name; "auto" filled where something fills it
    lines: Mapping[str, int] = field(default_factory=dict)  # where a setting stands, as far as that is known
    environment: Mapping[str, str] = field(default_factory=dict)
    launch: bool = False  # the file starts the run, so that what it does not export is not set
    devices: int | None = None
    data: int | None = None  # data-parallel ranks, where they are known
    beside: Mapping[str, Any] = field(default_factory=dict)  # of the program around it: TrainingArguments

    def on(self, name: str) -> bool:
        """Whether a flag is on."""
        return self.values.get(name) is True

    def line(self, name: str) -> int | None:
        """The line of a setting, or of the nearest table around it."""
        while name:
            if name in self.lines:
                return self.lines[name]
            name = name.rpartition(".")[0]
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One setting of a file and what became of it; `maps` names fields of ours, e.g. `strategy.sharding`."""

    name: str
    value: Any
    status: Status
    maps: str = ""
    line: int | None = None
    meaning: Text | None = None
