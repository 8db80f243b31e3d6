"""Names of terms, groups and choices as a reader knows them; the glossary's label where it has one."""

from __future__ import annotations

import functools
import tomllib
from typing import Any

from meshwright.cli.language import current, say
from meshwright.messages import LOCALE_DIR, N_


@functools.cache
def glossary() -> dict[str, dict[str, Any]]:
    """Entries of `locale/glossary.toml` by id; empty when it is absent."""
    path = LOCALE_DIR / "glossary.toml"
    if not path.is_file():
        return {}
    document = tomllib.loads(path.read_text("utf-8"))
    entries = document.get("terms", document.get("term", document))
    if isinstance(entries, list):
        return {str(entry.get("id", entry.get("en"))): entry for entry in entries}
    return {key: entry for key, entry in entries.items() if isinstance(entry, dict)}


def label(name: str) -> str:
    """`name` of a term in the reader's language: glossary, then the catalogue of messages, then words of the id."""
    for key in (name, name.replace("_", "-"), name.replace("-", "_"), name.replace("_", " ")):
        entry = glossary().get(key)
        if entry and isinstance(entry.get(current(), entry.get("en")), str):
            return str(entry.get(current(), entry.get("en")))
    return say(WORDS[name]) if name in WORDS else name.replace("_", " ")


def goal(name: str) -> str:
    """A goal in the reader's language; `memory` as a goal is not the term of that name."""
    return say(N_("most memory to spare")) if name == "memory" else label(name)


WORDS: dict[str, str] = {
    "tensor": N_("tensor"),
    "pipeline": N_("pipeline"),
    "context": N_("context"),
    "expert": N_("expert"),
    "data": N_("data"),
    "shard": N_("shard"),
    "exact": N_("exact"),
    "modelled": N_("modelled"),
    "fitted": N_("fitted"),
    "assumed": N_("assumed"),
    "error": N_("error"),
    "warning": N_("warning"),
    "advice": N_("advice"),
    "info": N_("note"),
    "fastest": N_("fastest"),
    "cheapest": N_("cheapest"),
    "fewest": N_("fewest devices"),
    "fixed-batch": N_("fixed batch"),
    "growing-batch": N_("growing batch"),
    "compute": N_("compute"),
    "communication": N_("communication"),
    "bubble": N_("pipeline bubble"),
}
