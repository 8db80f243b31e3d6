"""Words and numbers of explanations: glossary texts in both languages, values as a reader sees them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import Any

from meshwright import glossary
from meshwright.catalog.concepts import CardText
from meshwright.messages import Text
from meshwright.units import show

Row = tuple[str, Any, str]  # label, value, unit: a row of `Section`


def key(name: str) -> str:
    """Lower case, no accents, words joined by underscores; dots stay (they separate the parts of a path)."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower().strip()
    return re.sub(r"[\s\-]+", "_", plain)


def label(term: str) -> CardText:
    """The glossary's label of a term, in both languages."""
    return CardText(glossary.label(term, "en"), glossary.label(term, "es"))


def labels(terms: Iterable[str]) -> CardText:
    """Several labels, separated by commas."""
    names = tuple(terms)
    return CardText(
        ", ".join(glossary.label(n, "en") for n in names), ", ".join(glossary.label(n, "es") for n in names)
    )


def meaning(term: str) -> tuple[CardText, ...]:
    """What a term is, in both languages; nothing for an unknown one."""
    english = glossary.meaning(term, "en")
    return (CardText(english, glossary.meaning(term, "es")),) if english else ()


def plain(text: str) -> Text:
    """A text without language: an equation, an example, a code."""
    return Text("{text}", text=text)


def shown(value: Any, unit: str) -> str:
    """`value` with three figures and a unit that fits."""
    return show(value, unit)


def row_name(path: str) -> str:
    """Name under which a term of a tree is labelled: `device.context` is not the degree `context`."""
    root, _, _ = path.partition(".")
    name = path.rsplit(".", 1)[-1]
    return f"{root}.{name}" if f"{root}.{name}" in glossary.entries() else name
