"""An explanation as text: sections of sentences and of named values, sources, and where to read on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from meshwright.cli.labels import label
from meshwright.cli.language import say, tell
from meshwright.cli.output import Grid, View
from meshwright.cli.render import parts
from meshwright.messages import N_
from meshwright.spec.plan import Explanation


def draw(explanation: Explanation, view: View) -> Iterable[Any]:
    """Title, sections, sources, see also."""
    yield parts.line(f"{tell(explanation.title)}  ({label(explanation.kind)}: {explanation.subject})", "bold")
    for section in explanation.sections:
        yield parts.heading(tell(section.title))
        for text in section.body:
            yield parts.line(tell(text), indent=2)
        if section.rows:
            rows = [("  " + label(str(name)), _show(value, unit, view)) for name, value, unit in section.rows]
            yield parts.table(("", ""), rows, view, left=(0,))
    if explanation.sources:
        yield parts.heading(say(N_("Sources")))
        yield from parts.bullets(explanation.sources, "dim")
    if explanation.see_also:
        yield parts.heading(say(N_("See also")))
        yield parts.line(", ".join(explanation.see_also), indent=2)


def _show(value: Any, unit: str, view: View) -> str:
    return view.value(value, unit) if isinstance(value, (int, float)) else tell(value) if value is not None else "-"


def draw_list(subjects: Sequence[Any], view: View) -> Iterable[Any]:
    """Concepts, terms, rules and formulas, each with its title."""
    for kind in dict.fromkeys(s.kind for s in subjects):
        yield parts.heading(f"{label(kind)} ({sum(s.kind == kind for s in subjects)})")
        rows = [("  " + s.name, tell(s.title)) for s in subjects if s.kind == kind]
        yield parts.table(("", ""), rows, view, left=(0, 1))


def list_grid(subjects: Sequence[Any]) -> Grid:
    """One row a subject."""
    rows = tuple((s.kind, s.name, tell(s.title)) for s in subjects)
    heads = (say(N_("kind")), say(N_("name")), say(N_("title")))
    return Grid(keys=("kind", "name", "title"), heads=heads, rows=rows, raw=rows)


def grid(explanation: Explanation) -> Grid:
    """The named values of all sections."""
    raw = [(tell(s.title), str(name), value, unit) for s in explanation.sections for name, value, unit in s.rows]
    rows = [(section, label(name), _show(value, unit, View()), unit) for section, name, value, unit in raw]
    heads = (say(N_("section")), say(N_("name")), say(N_("value")), say(N_("unit")))
    return Grid(keys=("section", "name", "value", "unit"), heads=heads, rows=tuple(rows), raw=tuple(raw))
