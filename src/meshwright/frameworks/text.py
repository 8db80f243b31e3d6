"""Text that may be hostile, as plain data: JSON with every duplicate noticed, YAML of mappings, lists and scalars only.

Nothing here executes, expands or follows anything: YAML aliases and tags are refused, nesting and size are bounded.
"""

from __future__ import annotations

import json
from typing import Any

from meshwright.errors import InputError
from meshwright.files import decode, reason_of
from meshwright.messages import N_, Text

LARGEST = 4 * 10**6  # bytes; configurations have a few thousand
DEEPEST = 40
CORRECT = N_("correct the file there")


def read_json(content: str | bytes, *, where: str) -> tuple[dict[str, Any], list[str]]:
    """The object in JSON text, and the keys that stand in it twice (the last one counts, as in Python's reader)."""
    twice: list[str] = []

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        seen: dict[str, Any] = {}
        for key, value in pairs:
            if key in seen:
                twice.append(key)
            seen[key] = value
        return seen

    try:
        data = json.loads(decode(content, where=where), object_pairs_hook=unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise InputError(
            Text(N_("not valid JSON: {reason}"), reason=reason_of(error)), where=where, fix=Text(CORRECT)
        ) from None
    return shallow(mapping(data, where), where), twice


def _no_constant(name: str) -> float:
    raise ValueError(name)


def mapping(data: Any, where: str) -> dict[str, Any]:
    """`data` if it is a table of settings."""
    if not isinstance(data, dict):
        raise InputError(
            Text(N_("a configuration is a table of settings, and this is none")), where=where, fix=Text(N_("check the path"))
        )
    return data


def shallow(data: Any, where: str) -> Any:
    """`data` if it is not nested deeper than any configuration is."""
    level, layer = 0, [data]
    while layer:
        level += 1
        if level > DEEPEST:
            raise InputError(
                Text(N_("nested deeper than {limit} levels: this is no configuration"), limit=DEEPEST),
                where=where,
                fix=Text(N_("check the path")),
            )
        layer = [
            child
            for item in layer
            if isinstance(item, (dict, list))
            for child in (item.values() if isinstance(item, dict) else item)
        ]
    return data
