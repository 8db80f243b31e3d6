"""Predictions against published measured runs: read the rows, express each, predict it, and say how far off it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshwright.errors import InputError
from meshwright.files import read_bytes
from meshwright.messages import N_, Text
from meshwright.validate.choice import Choices, ChoiceSet, by_source, choice_sets
from meshwright.validate.compare import Compared, Progress, compare, of_tiers
from meshwright.validate.html import page
from meshwright.validate.rows import LARGEST, MeasuredRun, read_runs
from meshwright.validate.summary import Group, Spread, Summary, as_row, as_summary, summarise

__all__ = [
    "ChoiceSet",
    "Choices",
    "Compared",
    "Group",
    "MeasuredRun",
    "Spread",
    "Summary",
    "Validation",
    "compare",
    "read_runs",
    "validate",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """Every row of a file against its prediction, and the errors by group."""

    rows: tuple[Compared, ...]
    summary: Summary
    held_out: str = ""  # what was left out to predict each row: source, publisher, model; empty: nothing

    @property
    def choices(self) -> tuple[Choices, ...]:
        """By source, whether the predictions pick the best of the strategies measured for one job."""
        return by_source(choice_sets(self.rows))

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The rows as plain data."""
        return [as_row(c) for c in self.rows]

    @property
    def document(self) -> dict[str, Any]:
        """Rows and summary as plain data."""
        choices = [{name: getattr(c, name) for name in c.__dataclass_fields__} for c in self.choices]
        summary = {**as_summary(self.summary), "held_out": self.held_out or None, "choices": choices}
        return {"rows": self.lines, "summary": summary}

    def html(self, language: str = "en") -> str:
        """One self-contained page."""
        return page(self.rows, self.summary, language)


def validate(
    runs: str | Path | bytes, *, tiers: Sequence[str] = (), where: str = "", progress: Progress | None = None
) -> Validation:
    """Compare the runs of a CSV file (its path, or its content); of the tiers named, or all."""
    if isinstance(runs, bytes):
        content, where = runs, where or "-"
    else:
        where = where or str(runs)
        content = read_bytes(runs, largest=LARGEST, fix=Text(N_("check the path")))
    read = read_runs(content, where=where)
    tiers = [tier.strip().upper() for tier in tiers]
    chosen = of_tiers(read, tiers)
    if not chosen:
        known = ", ".join(sorted({run.tier for run in read if run.tier})) or "-"
        raise InputError(
            Text(N_("no row is of tier {tiers}"), tiers=", ".join(tiers)[:60]),
            where="--tier",
            fix=Text(N_("choose one of {names}"), names=known[:200]),
        )
    compared = compare(chosen, progress=progress)
    return Validation(rows=compared, summary=summarise(compared))
