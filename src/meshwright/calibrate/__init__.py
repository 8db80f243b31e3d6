"""Constants fitted to measured runs, and what they predict of runs they never saw."""

from __future__ import annotations

from meshwright.calibrate.bands import Band, bands, covered, widening
from meshwright.calibrate.cross import cross_validated
from meshwright.calibrate.fit import Fit, fit
from meshwright.calibrate.folds import GROUPINGS, HeldOut, held_out
from meshwright.calibrate.free import Free, free_constants
from meshwright.calibrate.observe import Observation, observations

__all__ = [
    "GROUPINGS", "Band", "Fit", "Free", "HeldOut", "Observation", "bands", "covered", "cross_validated", "fit",
    "free_constants", "held_out", "observations", "widening",
]  # fmt: skip
