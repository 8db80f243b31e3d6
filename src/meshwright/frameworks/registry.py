"""The frameworks whose configurations are read and written; each registers with one line and is loaded on use."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from meshwright.errors import UnknownNameError
from meshwright.frameworks.fields import Table
from meshwright.frameworks.records import Exported, Imported, Surroundings
from meshwright.messages import N_, Text
from meshwright.spec.plan import Problem
from meshwright.spec.strategy import Strategy


@dataclass(frozen=True, slots=True)
class Framework:
    """One framework: how its configurations are recognised, read and written."""

    id: str
    title: str
    runs: str  # which of our frameworks its strategies belong to
    syntax: str  # json, yaml, toml or arguments
    package: str

    def _of(self, module: str, name: str) -> Any:
        return getattr(importlib.import_module(f"{self.package}.{module}"), name)

    @property
    def table(self) -> Table:
        """Its settings."""
        return self._of("fields", "TABLE")

    @property
    def version(self) -> str:
        """The version that is read and written where none is named: the one its judge has."""
        return self._of("fields", "VERSION")

    @property
    def read(self) -> Callable[..., Imported]:
        """`read(content, surroundings, where=…)`."""
        return self._of("read", "read")

    @property
    def write(self) -> Callable[[Problem, Strategy, str], Exported]:
        """`write(problem, strategy, version)`."""
        return self._of("write", "write")


FRAMEWORKS: dict[str, Framework] = {
    f.id: f
    for f in (
        Framework("deepspeed", "DeepSpeed", "deepspeed", "json", "meshwright.frameworks.deepspeed"),
        Framework("megatron", "Megatron-LM", "megatron", "arguments", "meshwright.frameworks.megatron"),
        Framework("torchtitan", "torchtitan", "fsdp", "toml", "meshwright.frameworks.torchtitan"),
        Framework("accelerate", "Hugging Face Accelerate", "fsdp", "yaml", "meshwright.frameworks.accelerate"),
    )
}


@cache
def framework(name: str) -> Framework:
    """The framework called `name`."""
    if name.lower() not in FRAMEWORKS:
        raise UnknownNameError(Text(N_("format")), name, FRAMEWORKS)
    return FRAMEWORKS[name.lower()]


def read(name: str, content: str | bytes, around: Surroundings, *, where: str = "") -> Imported:
    """A configuration of the framework `name`."""
    return framework(name).read(content, around, where=where)
