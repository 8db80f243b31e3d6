"""Where Megatron's arguments stand: in a launch script, in the dump at the start of a log, in YAML, or bare."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from meshwright.errors import InputError
from meshwright.files import decode
from meshwright.frameworks.megatron.fields import TABLE
from meshwright.frameworks.shell import Script, read_script
from meshwright.frameworks.text import read_yaml
from meshwright.messages import N_, Text

_DUMPED = re.compile(r"^\s*(?:\S*rank\S*\s*)?(?:\[[^\]]*\]:?\s*)?([a-z]\w+) \.{2,} (.*?)\s*$", re.MULTILINE)
_YAML = re.compile(r"^\s*[a-z]\w+\s*:\s*\S", re.MULTILINE)
ENOUGH = 8  # dumped lines that make a dump


@dataclass(slots=True)
class Found:
    """Arguments with their values, and what was learnt around them."""

    data: dict[str, Any] = field(default_factory=dict)
    twice: list[str] = field(default_factory=list)
    lines: dict[str, int] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    devices: int | None = None
    launch: bool = False


def find(content: str | bytes, environment: Mapping[str, str], *, where: str) -> Found:
    """The arguments in `content`."""
    text = decode(content, where=where)
    dumped = _DUMPED.findall(text)
    if len(dumped) >= ENOUGH:
        return _dump(dumped)
    if "--" not in text and _YAML.search(text):
        return _yaml(text, where)
    found = _script(text, environment)
    if not found.data:
        raise InputError(
            Text(N_("no arguments of Megatron-LM in this file")),
            where=where,
            fix=Text(N_("give a launch script, the arguments printed at the start of a log, or YAML")),
        )
    return found


def _dump(pairs: list[tuple[str, str]]) -> Found:
    """What a run prints: every argument, defaults and derived values too; only arguments that are set count."""
    found = Found()
    for dest, value in pairs:
        name = f"--{dest.replace('_', '-')}"
        known = TABLE.by_name.get(name)
        if dest == "world_size" and value.isdecimal():
            found.devices = int(value)
        if known is None or value in ("None", "[]", "") or (known.kind == "flag" and value != "True"):
            continue
        found.data[known.name] = _value(known.kind, [re.sub(r"^(torch\.|\w+\.)(?=[a-z]\w*$)", "", value)])
    return found


def _yaml(text: str, where: str) -> Found:
    """Arguments as keys, at the top or in sections."""
    data, twice = read_yaml(text, where=where)
    found = Found(twice=twice)
    for key, value in data.items():
        inside = value.items() if isinstance(value, dict) else [(key, value)]
        for dest, item in inside:
            name = f"--{str(dest).replace('_', '-')}"
            known = TABLE.by_name.get(name)
            if item is None or (known is not None and known.kind == "flag" and item is False):
                continue
            if dest == "world_size" and isinstance(item, int):
                found.devices = item
            else:
                found.data[name] = item
    return found


def _script(text: str, environment: Mapping[str, str]) -> Found:
    script = read_script(text, environment)
    command = max(script.launches, key=_known, default=None)
    launch = command is not None and _known(command) > 0
    words = _behind_program(command) if launch and command else _bare(script)
    found = Found(environment=dict(script.environment), launch=launch)
    found.devices = devices_of(script, command or [])
    for name, values in _pairs(words):
        known = TABLE.find(name)
        own = known.name if known else name
        value = _value(known.kind, values) if known else " ".join(values)
        if own in found.data and found.data[own] != value:
            found.twice.append(own)
        found.data[own] = value
    for name in found.data:
        at = re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text)
        if at:
            found.lines[name] = text.count("\n", 0, at.start()) + 1
    return found


def _known(words: list[str]) -> int:
    """How many words are arguments of Megatron."""
    return sum(1 for word in words if word.startswith("--") and TABLE.find(word.partition("=")[0]))


def _behind_program(words: list[str]) -> list[str]:
    """The words behind the script that is run; all of them where none is seen."""
    for index, word in enumerate(words):
        if word.endswith(".py"):
            return words[index + 1 :]
    return words


def _bare(script: Script) -> list[str]:
    """Arguments of a script that starts nothing: those in its arrays and texts, or in a command that is none."""
    lists = [value if isinstance(value, list) else str(value).split() for value in script.variables.values()]
    return [word for words in (*lists, *script.commands) for word in words if any(w.startswith("--") for w in words)]


def _pairs(words: list[str]) -> list[tuple[str, list[str]]]:
    """Each argument with the words behind it."""
    out: list[tuple[str, list[str]]] = []
    for word in words:
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word.partition("=")
            out.append((name.replace("_", "-") if name not in TABLE.by_name else name, [value] if equals else []))
        elif out:
            out[-1][1].append(word)
    return out


def _value(kind: str, words: list[str]) -> Any:
    """The words behind an argument as its kind; as they are where they are no such value."""
    if kind == "flag":
        return True
    if kind == "list":
        return [part for word in words for part in re.split(r"[,\s\[\]']+", word) if part] if len(words) == 1 else words
    text = " ".join(words)
    if kind == "any":
        return text
    try:
        number = float(text)
    except ValueError:
        return text
    if not math.isfinite(number):
        return text
    return int(number) if kind == "int" and number == int(number) and abs(number) < 10**15 else number


# What people call the numbers of nodes and of devices in a node; options of launchers, then of SLURM, then variables.
_NODES = ("--nnodes", "--num_nodes", "--num-nodes", "--num_machines")
_EACH = ("--nproc_per_node", "--nproc-per-node", "--num_gpus", "--gpus_per_node", "--gpus-per-node")
_NODE_VARIABLES = ("NNODES", "NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES", "WORLD_NODES")
_EACH_VARIABLES = ("GPUS_PER_NODE", "NPROC_PER_NODE", "SLURM_GPUS_ON_NODE", "GPUS")


def devices_of(script: Script, command: list[str]) -> int | None:
    """Devices that a script starts on, or None where it does not say."""
    options = {name: values[0] for name, values in _launcher_options(command) if values}
    total = _count(script.variables.get("WORLD_SIZE"))
    each = _first(options, _EACH) or _first(script.scheduler, ("gpus-per-node", "ntasks-per-node")) or _gres(script)
    each = each or _first(script.variables, _EACH_VARIABLES)
    nodes = (
        _first(options, _NODES) or _first(script.scheduler, ("nodes", "N")) or _first(script.variables, _NODE_VARIABLES)
    )
    return each * (nodes or 1) if each else total


def _launcher_options(command: list[str]) -> list[tuple[str, list[str]]]:
    out: list[tuple[str, list[str]]] = []
    for word in command:
        if word.endswith(".py"):
            break
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            out.append((name, [value] if equals else []))
        elif out:
            out[-1][1].append(word)
    return out


def _first(source: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    return next((count for name in names if (count := _count(source.get(name)))), None)


def _count(value: Any) -> int | None:
    return int(value) if isinstance(value, str) and value.isdecimal() and int(value[:9]) > 0 else None


def _gres(script: Script) -> int | None:
    found = re.search(r"gpu(?::\w+)*?:(\d+)", script.scheduler.get("gres", ""))
    return int(found[1]) if found else None
