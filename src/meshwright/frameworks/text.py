"""Text that may be hostile, as plain data: JSON with every duplicate noticed, YAML of mappings, lists and scalars only.

Nothing here executes, expands or follows anything: YAML aliases and tags are refused, nesting and size are bounded.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
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
            Text(N_("a configuration is a table of settings, and this is none")),
            where=where,
            fix=Text(N_("check the path")),
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


def read_yaml(content: str | bytes, *, where: str) -> tuple[dict[str, Any], list[str]]:
    """The mapping in YAML text, and the keys that stand in it twice (the first counts). No aliases, no tags."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    text = decode(content, where=where)
    twice: list[str] = []
    try:
        _plain_yaml(text, where, twice)
        reader = YAML(typ="safe", pure=True)
        reader.allow_duplicate_keys = True
        data = reader.load(text)
    except (YAMLError, ValueError, RecursionError, TypeError, AttributeError) as error:
        raise InputError(
            Text(N_("not valid YAML: {reason}"), reason=str(error).splitlines()[0][:160]),
            where=where,
            fix=Text(CORRECT),
        ) from None
    return shallow(_text_keys(mapping(data, where)), where), twice


def _text_keys(data: Any) -> Any:
    """Keys as text: YAML makes numbers and flags of some."""
    if isinstance(data, dict):
        return {str(key): _text_keys(value) for key, value in data.items()}
    return [_text_keys(item) for item in data] if isinstance(data, list) else data


def _plain_yaml(text: str, where: str, twice: list[str]) -> None:
    """Refuse what a configuration never holds before anything is built from it; note keys that stand twice."""
    from ruamel.yaml import YAML
    from ruamel.yaml import events as yaml

    stack: list[tuple[bool, set[str]]] = []  # is it a mapping, its keys
    key_next: list[bool] = []
    for event in YAML(typ="safe", pure=True).parse(text):
        if isinstance(event, yaml.AliasEvent) or (getattr(event, "tag", None) or "").count(":") > 0:
            raise InputError(
                Text(N_("YAML aliases and tags are not read here")), where=where, fix=Text(N_("write the values out"))
            )
        if isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            if len(stack) >= DEEPEST:
                raise InputError(
                    Text(N_("nested deeper than {limit} levels: this is no configuration"), limit=DEEPEST),
                    where=where,
                    fix=Text(N_("check the path")),
                )
            stack.append((isinstance(event, yaml.MappingStartEvent), set()))
            key_next.append(True)
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            stack.pop()
            key_next.pop()
            if key_next:
                key_next[-1] = True
        elif isinstance(event, yaml.ScalarEvent) and stack and stack[-1][0]:
            if key_next[-1]:
                if event.value in stack[-1][1]:
                    twice.append(str(event.value))
                stack[-1][1].add(event.value)
            key_next[-1] = not key_next[-1]


def read_toml(content: str | bytes, *, where: str) -> tuple[dict[str, Any], dict[str, int]]:
    """The tables in TOML text, and on which line each setting stands. TOML refuses what stands twice."""
    text = decode(content, where=where)
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits is a ValueError too
        raise InputError(
            Text(N_("not valid TOML: {reason}"), reason=reason_of(error)), where=where, fix=Text(CORRECT)
        ) from None
    lines: dict[str, int] = {}
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[([\w.\- ]{1,200})\]", line):
            section = header[1].strip()
            lines[section] = number
        elif key := re.match(r"\s*([\w\-]{1,200})\s*=", line):
            lines[f"{section}.{key[1]}" if section else key[1]] = number
    return shallow(data, where), lines


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted names as tables in tables."""
    out: dict[str, Any] = {}
    for name, value in flat.items():
        *parents, key = name.split(".")
        here = out
        for parent in parents:
            here = here.setdefault(parent, {})
        here[key] = value
    return out


def json_text(data: Mapping[str, Any]) -> str:
    """A JSON file as people write it."""
    return json.dumps(data, indent=2) + "\n"
