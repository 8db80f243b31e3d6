"""Which constants measured runs may move, and how far: data/calibration/free.toml."""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass

from meshwright.catalog.constants import DATA, constants


@dataclass(frozen=True, slots=True, kw_only=True)
class Free:
    """One constant of the time model that a fit may move.

    `value` is what is known of it without the runs to be fitted; `low` and `high` bound what physics allows.
    """

    id: str  # kind.name.constant
    value: float
    low: float
    high: float

    @property
    def spread(self) -> float:
        """Standard deviation of the logarithm that the range stands for: six of them from end to end."""
        return math.log(self.high / self.low) / 6.0


def free_constants() -> tuple[Free, ...]:
    """All free constants with their values before any fit."""
    document = tomllib.loads((DATA / "calibration" / "free.toml").read_text("utf-8"))
    out = []
    for id, entry in document["constants"].items():
        kind, name, key = id.split(".", 2)
        low, high = entry["range"]
        value = float(constants(kind, name, fits=False)[key])
        out.append(Free(id=id, value=min(max(value, low), high), low=float(low), high=float(high)))
    return tuple(out)
