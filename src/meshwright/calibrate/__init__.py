"""Constants fitted to measured runs, and what they predict of runs they never saw."""

from __future__ import annotations

from meshwright.calibrate.fit import Fit, fit
from meshwright.calibrate.folds import GROUPINGS, HeldOut, held_out
from meshwright.calibrate.free import Free, free_constants
from meshwright.calibrate.observe import Observation, observations

__all__ = [
    "GROUPINGS", "Fit", "Free", "HeldOut", "Observation", "fit", "free_constants", "held_out", "observations",
]  # fmt: skip
