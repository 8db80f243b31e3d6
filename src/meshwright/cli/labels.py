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


def label(name: str, tree: str = "") -> str:
    """`name` of a term in the reader's language: glossary, then the catalogue of messages, then words of the id.

    A name that means different things in two trees has a glossary entry per tree, e.g. `device.context`.
    """
    if name in WORDS:
        return say(WORDS[name])
    plain = (name, name.replace("-", "_"), name.replace("_", "-"))
    for key in (*(f"{tree}.{name}" for _ in (1,) if tree), *plain):
        text = glossary().get(key, {}).get(current())
        if isinstance(text, str):
            return text
    return name.replace("_", " ")


def goal(name: str) -> str:
    """A goal in the reader's language; `memory` as a goal is not the memory of a device."""
    return say(N_("most memory to spare")) if name == "memory" else label(name)


# Names that the glossary lacks, or has for another use.
WORDS: dict[str, str] = {
    "memory": N_("memory"),
    "concept": N_("concept"),
    "accelerators": N_("accelerators"),
    "models": N_("models"),
    "clusters": N_("clusters"),
    "links": N_("links"),
    "prices": N_("prices"),
    "nics": N_("network cards"),
    "power": N_("power"),
    "latency": N_("latency"),
    "usd_per_hour": N_("$ an hour"),
    "vendor": N_("vendor"),
    "architecture": N_("architecture"),
    "aliases": N_("aliases"),
    "kind": N_("kind"),
    "link_id": N_("link type"),
    "nic_link": N_("network link"),
    "default_node": N_("usual host"),
}
