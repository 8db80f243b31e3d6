"""The words of the product: every term it prints, with its label and meaning in English and Spanish, and its unit.

Read from `locale/glossary.toml` on first use. Keys are the stable names of JSON fields and of tree nodes.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from meshwright.messages import LOCALE_DIR, Text


@dataclass(frozen=True, slots=True)
class Entry:
    """One term: labels and meanings by language; `kind` is the family it belongs to; `unit` is empty for words."""

    name: str
    kind: str
    unit: str
    labels: Mapping[str, str]
    meanings: Mapping[str, str]


@lru_cache(maxsize=1)
def entries() -> Mapping[str, Entry]:
    """All entries by name."""
    raw = tomllib.loads((LOCALE_DIR / "glossary.toml").read_text("utf-8"))["terms"]
    return {
        name: Entry(name, e["kind"], e.get("unit", ""), {"en": e["en"], "es": e["es"]}, e["meaning"])
        for name, e in raw.items()
    }


def entry(term: str) -> Entry | None:
    """The entry of `term`: a name, or a dotted path of a tree, whose own name is the last part.

    A name that means different things in two trees has an entry per tree (`device.context`), tried first.
    """
    parts = term.replace("-", "_").split(".")
    known = entries()
    candidates = [term, *(f"{part}.{parts[-1]}" for part in parts[:-1]), parts[-1]]
    return next((known[name] for name in candidates if name in known), None)


def label(term: str, language: str = "en") -> str:
    """How `term` is written for a reader of `language`; an unknown term is its own label."""
    found = entry(term)
    return found.labels.get(language, found.labels["en"]) if found else term.rsplit(".", 1)[-1].replace("_", " ")


class Label(Text):
    """A term as a value of a sentence: rendered as its label in the language of the sentence."""

    __slots__ = ()

    def __init__(self, term: str) -> None:
        super().__init__(term)

    def render(self, language: str = "en") -> str:
        """The label of the term in `language`."""
        return label(self.template, language)


def meaning(term: str, language: str = "en") -> str:
    """One sentence on what `term` is, in `language`; empty for an unknown term."""
    found = entry(term)
    return found.meanings.get(language, found.meanings["en"]) if found else ""


def unit(term: str) -> str:
    """Base unit of `term` in JSON; empty for words, counts without unit and unknown terms."""
    found = entry(term)
    return found.unit if found else ""
