"""The card of a formula: what it computes, its equation and source, its assumptions, and values put in."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import tomllib
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import meshwright.formulas
from meshwright.catalog.concepts import CardText
from meshwright.engine.explain.words import Row, plain
from meshwright.formulas.numeric import Unit
from meshwright.formulas.registry import REGISTRY, Call, Formula
from meshwright.messages import LOCALE_DIR, N_, Text
from meshwright.spec.plan import Explanation, Section

_SHOWN_UNIT = {
    "byte": "B", "second": "s", "flop": "FLOP", "flop / second": "FLOP/s", "byte / second": "B/s", "token": "token",
    "dollar": "$", "second / byte ** 0.5": "s/√B", "1 / second": "1/s",
}  # fmt: skip
_HEADS = ("Parameters", "Notes", "References", "Examples", "Returns")


for _module in pkgutil.iter_modules(meshwright.formulas.__path__):  # each registers its formulas
    importlib.import_module(f"meshwright.formulas.{_module.name}")


@dataclass(frozen=True, slots=True)
class Doc:
    """The parts of a formula's docstring."""

    summary: str
    parameters: Mapping[str, str]
    notes: str
    references: str
    example: tuple[str, ...]


@lru_cache(maxsize=512)
def doc_of(id: str) -> Doc:
    """Read the numpydoc docstring of formula `id`."""
    text = inspect.getdoc(REGISTRY[id].function) or ""
    parts = re.split(rf"^({'|'.join(_HEADS)})\n-+\n", text, flags=re.MULTILINE)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    return Doc(
        summary=" ".join(parts[0].split()),
        parameters=_parameters(sections.get("Parameters", "")),
        notes=" ".join(sections.get("Notes", "").split()),
        references=" ".join(sections.get("References", "").split()),
        example=tuple(line for line in sections.get("Examples", "").splitlines() if line.strip()),
    )


def _parameters(text: str) -> dict[str, str]:
    """`a, b : what they are` becomes an entry per name; lines that are indented continue the one above."""
    out: dict[str, str] = {}
    names: list[str] = []
    for line in text.splitlines():
        if line[:1] not in ("", " ") and " : " in line:
            left, right = line.split(" : ", 1)
            names = [name.strip() for name in left.split(",")]
            each = right.split(", ")  # "s, b : sequence length, micro-batch" describes one after the other
            out.update(
                zip(names, each, strict=True) if len(each) == len(names) else dict.fromkeys(names, right.strip())
            )
        elif line.strip():
            out.update({name: f"{out[name]} {line.strip()}" for name in names})
    return out


@lru_cache(maxsize=512)
def units_of(id: str) -> Mapping[str, str]:
    """Unit of every parameter and of the result (`return`), as a reader writes it; empty for numbers."""
    hints = typing.get_type_hints(REGISTRY[id].function, include_extras=True)
    out = {}
    for name, hint in hints.items():
        unit = next((m for m in getattr(hint, "__metadata__", ()) if isinstance(m, Unit)), "")
        out[name] = _SHOWN_UNIT.get(str(unit), "")
    return out


@lru_cache(maxsize=1)
def spanish() -> Mapping[str, Mapping[str, str]]:
    """Summaries and notes of the docstrings in Spanish, by formula id."""
    return tomllib.loads((LOCALE_DIR / "formulas.es.toml").read_text("utf-8"))


def summary(id: str) -> CardText:
    """What the formula computes."""
    english = doc_of(id).summary
    return CardText(english, spanish().get(id, {}).get("summary", english))


def notes(id: str) -> tuple[CardText, ...]:
    """Assumptions, what is ignored, and remarks."""
    english = doc_of(id).notes
    return (CardText(english, spanish().get(id, {}).get("notes", english)),) if english else ()


def call_rows(call: Call) -> tuple[Row, ...]:
    """The values put into a formula, and its result last."""
    units = units_of(call.id)
    rows: list[Row] = [(name, _number(value), units.get(name, "")) for name, value in call.inputs.items()]
    return (*rows, ("value", _number(call.output), units.get("return", "")))


def _number(value: Any) -> Any:
    """A plain Python value (recorded ones may be numpy scalars)."""
    return value.item() if hasattr(value, "item") else value


def section(id: str, calls: Iterable[Call] = ()) -> Section:
    """One formula inside the explanation of a term: equation, source, assumptions, and the largest call's values."""
    formula = REGISTRY[id]
    made = sorted((c for c in calls if c.id == id), key=lambda c: -abs(float(c.output)))
    body = [summary(id)] + [plain(formula.equation)] * bool(formula.equation)
    body += [*notes(id), Text(N_("source: {source}"), source=formula.source)]
    if len(made) > 1:
        body.append(Text(N_("used {count} times here; the largest, with the values of this plan:"), count=len(made)))
    elif made:
        body.append(Text(N_("with the values of this plan:")))
    return Section(title=Text(N_("Formula {id}"), id=id), body=tuple(body), rows=call_rows(made[0]) if made else ())


def formula_explanation(id: str, calls: Iterable[Call] = ()) -> Explanation:
    """The card of formula `id`; `calls` are those of the reader's plan."""
    formula = REGISTRY[id]
    doc = doc_of(id)
    made = [c for c in calls if c.id == id]
    sections = [
        Section(title=Text(N_("What it computes")), body=(summary(id),)),
        Section(title=Text(N_("Equation")), body=(plain(formula.equation),) if formula.equation else ()),
        Section(title=Text(N_("What goes in")), body=tuple(_inputs(formula)), rows=()),
        Section(title=Text(N_("Assumptions and remarks")), body=notes(id)),
        Section(title=Text(N_("Example")), body=tuple(plain(line) for line in doc.example)),
    ]
    if made:
        sections.insert(2, _in_plan(made))
    return Explanation(
        subject=id,
        kind="formula",
        title=Text(N_("Formula {id}"), id=id),
        sections=tuple(s for s in sections if s.body or s.rows),
        sources=(formula.source, *((doc.references,) if doc.references else ())),
        see_also=siblings(id),
    )


def _in_plan(made: list[Call]) -> Section:
    largest = max(made, key=lambda c: abs(float(c.output)))
    text = Text(N_("used {count} times; the call with the largest result:"), count=len(made))
    return Section(title=Text(N_("In your plan")), body=(text,), rows=call_rows(largest))


def _inputs(formula: Formula) -> list[Text]:
    """`name [unit]: description`, a line per parameter."""
    doc, units = doc_of(formula.id), units_of(formula.id)
    out = []
    for name in inspect.signature(formula.function).parameters:
        described = re.sub(r"\.? \[[^\]]*\]$", "", doc.parameters.get(name, ""))
        head = f"{name} [{units.get(name) or '1'}]"
        out.append(plain(f"{head}: {described}" if described else head))
    return out


def siblings(id: str) -> tuple[str, ...]:
    """Formulas of the same family."""
    family = id.rsplit(".", 1)[0] + "."
    return tuple(other for other in sorted(REGISTRY) if other != id and other.startswith(family))[:8]
