"""The log of a run as JSON lines: it survives being killed in the middle of one, and says what was trained twice."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Loss by step; `differing` are the steps that were trained again and came out otherwise."""

    loss: dict[int, float]
    differing: tuple[int, ...]
    repeated: int  # steps that were trained more than once


class Journal:
    """Appends to a file; use it on one rank only."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        torn = self.path.exists() and not self.path.read_bytes().endswith(b"\n") and self.path.stat().st_size
        self._file = self.path.open("a", encoding="utf-8", buffering=1)
        if torn:
            self._file.write("\n")

    def note(self, kind: str, **facts: Any) -> None:
        """One line with the time; numbers are written so that they come back bit by bit."""
        self._file.write(json.dumps({"kind": kind, "time": time.time(), **facts}) + "\n")


def entries(path: str | Path) -> list[dict[str, Any]]:
    """The lines of a journal; one cut short by a kill is left out."""
    out = []
    for line in Path(path).read_text("utf-8").splitlines():
        try:
            out.append(json.loads(line))
        except ValueError:
            continue
    return out


def curve(path: str | Path) -> Curve:
    """Loss by step over all restarts."""
    loss: dict[int, float] = {}
    differing, repeated = [], 0
    for entry in entries(path):
        if entry["kind"] != "step":
            continue
        step = entry["step"]
        repeated += step in loss
        if loss.setdefault(step, entry["loss"]) != entry["loss"]:
            differing.append(step)
    return Curve(loss=loss, differing=tuple(differing), repeated=repeated)
