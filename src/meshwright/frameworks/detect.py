"""Which framework a file belongs to, by its name and by the settings in it."""

from __future__ import annotations

import re
from pathlib import Path

from meshwright.errors import InputError
from meshwright.files import decode
from meshwright.frameworks.registry import FRAMEWORKS, framework
from meshwright.messages import N_, Text

_ARGUMENT = re.compile(r"(?<![\w-])--(?:[a-z0-9]+[-_])+[a-z0-9]+")


def detect(content: str | bytes, *, where: str = "") -> str:
    """The framework whose settings the text holds most of; an InputError where none is recognised."""
    text = decode(content, where=where)
    scores = {name: _known(text, name, where) for name in FRAMEWORKS}
    best = max(scores, key=lambda name: scores[name])
    if scores[best] == 0:
        raise InputError(
            Text(N_("no framework is recognised in this file")),
            where=where,
            fix=Text(N_("say which it is: --from {names}"), names=" | ".join(FRAMEWORKS)),
        )
    return best


def _known(text: str, name: str, where: str) -> float:
    """How many settings of a framework stand in the text; none where the file is of another kind."""
    suffix = Path(where).suffix.lower()
    kind = framework(name).syntax
    if suffix in _SYNTAX and kind != _SYNTAX[suffix] and (name, suffix) not in _ALSO:
        return 0
    table = framework(name).table
    if kind == "arguments":
        found = {argument.replace("_", "-") for argument in _ARGUMENT.findall(text[: 10**6])}
        keys = re.findall(r"^\s*([a-z]\w+)\s*(?::|\.{2,})", text[: 10**6], re.MULTILINE)  # of YAML, and of a dump
        found |= {f"--{key.replace('_', '-')}" for key in keys}
        return sum(1 for argument in found if table.find(argument))
    if kind == "json" and text.lstrip()[:1] != "{":
        return 0
    words = set(re.findall(r"[A-Za-z_][\w-]*", text[: 10**6]))
    own = {part for known in table.by_name for part in known.split(".")}
    return len(words & own) - 0.001 * len(own)  # of two that know as many, the one with fewer settings


_ALSO = {("megatron", ".yaml"), ("megatron", ".yml")}
_SYNTAX = {".json": "json", ".sh": "arguments", ".slurm": "arguments", ".toml": "toml", ".bash": "arguments",
".yaml": "yaml",
           ".yml": "yaml"}  # fmt: skip
