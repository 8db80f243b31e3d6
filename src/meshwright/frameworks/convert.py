"""One framework's configuration as another's: which settings map, which change, which have no counterpart.

Both sides meet in our fields: a setting of the source maps to a field of ours, and so does one of the target.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from meshwright.frameworks.check import Checked
from meshwright.frameworks.fields import Table
from meshwright.frameworks.records import Counterpart, Exported
from meshwright.frameworks.registry import framework
from meshwright.messages import N_, Text
from meshwright.spec.configuration import Entry
from meshwright.spec.estimate import Refusal
from meshwright.spec.strategy import Strategy

SAME, CHANGED, LOST, ADDED, PROGRAM = "maps", "changed", "lost", "added", "program"
# What a framework has not, and the nearest that it has: field of the strategy, framework, value there.
NEAREST: dict[str, dict[str, dict[str, str]]] = {
    "sharding": {"fsdp": {"zero1": "zero2"}, "megatron": {"zero2": "zero1", "zero3": "zero1"}},
    "offload": {"fsdp": {"optimizer": "parameters"}, "megatron": {"parameters": "optimizer"}},
    "schedule": {
        "deepspeed": dict.fromkeys(("interleaved", "gpipe", "zb-h1", "zbv", "dualpipe"), "1f1b"),
        "megatron": {"gpipe": "1f1b", "zb-h1": "interleaved", "zbv": "interleaved", "dualpipe": "1f1b"},
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """The source judged, the files of the target (or why there are none), and the table of settings."""

    checked: Checked
    to: str
    exported: Exported | Refusal
    table: tuple[Counterpart, ...]
    left: tuple[Entry, ...]  # settings of the source that planning does not carry over


def adapted(strategy: Strategy, to: str) -> tuple[Strategy, dict[str, tuple[str, str]]]:
    """The strategy as the framework `to` can have it, and what changed: by field, the value before and after."""
    runs = framework(to).runs
    changes = {
        f"strategy.{field}": (before, after)
        for field, by in NEAREST.items()
        if (after := by.get(runs, {}).get(before := getattr(strategy, field))) is not None
    }
    fields: dict[str, Any] = {name.removeprefix("strategy."): after for name, (_, after) in changes.items()}
    if fields.get("schedule") == "1f1b" and strategy.virtual > 1:
        fields["virtual"], changes["strategy.virtual"] = 1, (str(strategy.virtual), "1")
    return dataclasses.replace(strategy, framework=runs, **fields), changes


def convert(checked: Checked, exported: Exported | Refusal, to: str, changes: dict[str, tuple[str, str]]) -> Converted:
    """The table beside files that were written."""
    table = () if isinstance(exported, Refusal) else tuple(counterparts(checked, exported, to, changes))
    left = tuple(e for e in checked.imported.entries if not e.maps)
    return Converted(checked=checked, to=to, exported=exported, table=table, left=left)


def counterparts(
    checked: Checked, exported: Exported, to: str, changes: dict[str, tuple[str, str]]
) -> Iterable[Counterpart]:
    """One row per field of ours that either side sets."""
    source: dict[str, list[tuple[str, Any]]] = {}
    for entry in checked.imported.entries:
        for ours in entry.maps.split():
            source.setdefault(ours, []).append((entry.name, entry.value))
    target = written(exported, framework(to).table)
    lost = {missing.name: missing.reason for missing in exported.missing}
    for ours in dict.fromkeys((*source, *target)):
        here, there = tuple(source.get(ours, ())), tuple(target.get(ours, ()))
        verdict = LOST if not there else ADDED if not here else CHANGED if ours in changes else SAME
        note = lost.get(ours)
        if ours in changes:
            before, after = changes[ours]
            text = N_("{framework} has no {before}; {after} is the nearest")
            note = Text(text, framework=framework(to).title, before=before, after=after)
        elif ours.startswith("model.") and not there:
            verdict, note = PROGRAM, Text(N_("the program builds the model"))
        yield Counterpart(ours=ours, source=here, target=there, verdict=verdict, note=note)


def written(exported: Exported, table: Table) -> dict[str, list[tuple[str, Any]]]:
    """Settings of written files by the field of ours they set."""
    out: dict[str, list[tuple[str, Any]]] = {}
    for name, value in exported.settings:
        known = table.find(name)
        for ours in known.maps if known else ():
            out.setdefault(ours, []).append((name, value))
    return out


def conversion_table(source: Table, target: Table) -> list[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    """For the docs: each field of ours with its names in two frameworks."""
    ours = dict.fromkeys(name for table in (source, target) for f in table.fields for name in f.maps)
    return [(n, tuple(f.name for f in source.maps(n)), tuple(f.name for f in target.maps(n))) for n in sorted(ours)]
