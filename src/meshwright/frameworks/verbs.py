"""The verbs about configurations of frameworks: import, export, convert (check is put together in `check`)."""

from __future__ import annotations

from pathlib import Path

from meshwright.files import read_bytes
from meshwright.frameworks.detect import detect
from meshwright.frameworks.records import Exported, Imported, Surroundings
from meshwright.frameworks.registry import framework
from meshwright.frameworks.text import LARGEST
from meshwright.messages import N_, Text
from meshwright.spec.plan import Problem
from meshwright.spec.strategy import Strategy


def read_file(source: str | Path | bytes, around: Surroundings, format: str = "", *, where: str = "") -> Imported:
    """A configuration from a path, or from its content as bytes."""
    if isinstance(source, bytes):
        content, where = source, where or "-"
    else:
        content, where = read_bytes(source, largest=LARGEST, fix=Text(N_("check the path"))), where or str(source)
    chosen = framework(format or detect(content, where=where))
    return chosen.read(content, around, where=where)


def write_files(problem: Problem, strategy: Strategy, format: str, version: str = "") -> Exported:
    """The files of a strategy for the framework `format`."""
    return framework(format).write(problem, strategy, version)


def runs(format: str) -> str:
    """Which of our frameworks the strategies of a format belong to."""
    return framework(format).runs
