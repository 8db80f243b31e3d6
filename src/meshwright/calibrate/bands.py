"""How far predictions of runs like this were off, measured on runs that the constants never saw."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from meshwright.calibrate.folds import HeldOut
from meshwright.engine.uncertainty import resemblance

EVERY = "any"
LEVELS = (0.05, 0.95)
FEWEST_RUNS = 8  # of a band
FEWEST_SOURCES = 2  # what one source measured says how it measures, not how the model errs


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """5th and 95th percentile of measured over predicted step time, over `runs` runs of `sources` sources."""

    low: float
    high: float
    runs: int
    sources: int


def groups_of(run: HeldOut) -> tuple[str, ...]:
    """Groups of like runs that a run belongs to, closest first, all runs last."""
    strategy, architecture = run.run.strategy, run.run.problem.cluster.accelerator.architecture
    moe = run.run.problem.model.is_moe
    return (*resemblance(strategy.framework, architecture, moe, strategy.precision), EVERY)


def bands(runs: Iterable[HeldOut], widen: float = 1.0) -> dict[str, Band]:
    """The band of every group that enough runs of enough sources measured, and of all runs.

    `widen` multiplies its logarithms: sources that come later differ more from these than these from each other.
    """
    members: dict[str, list[HeldOut]] = defaultdict(list)
    for run in runs:
        for group in groups_of(run):
            members[group].append(run)
    found = {group: _band(these, widen) for group, these in members.items()}
    return {group: band for group, band in sorted(found.items()) if band is not None}


def covered(runs: Sequence[HeldOut], widen: float = 1.0) -> list[bool]:
    """Whether each run lies in the band that the other groups of the cross-validation give it."""
    without: Mapping[str, Mapping[str, Band]] = {
        group: bands((run for run in runs if run.group != group), widen) for group in {run.group for run in runs}
    }
    out = []
    for run in runs:
        low, high = band_of(run, without[run.group])
        out.append(low <= 1.0 + run.error <= high)
    return out


def band_of(run: HeldOut, known: Mapping[str, Band]) -> tuple[float, float]:
    """The band of the closest group that has one; without any, half to twice."""
    band = next((known[group] for group in groups_of(run) if group in known), None)
    return (0.5, 2.0) if band is None else (band.low, band.high)


def widening(runs: Sequence[HeldOut], judged: Sequence[bool]) -> float:
    """The least widening with which bands from other sources hold 90 % of the `judged` runs."""
    for widen in np.arange(1.0, 3.0, 0.05):
        inside = [held for held, counts in zip(covered(runs, float(widen)), judged, strict=True) if counts]
        if inside and sum(inside) >= LEVELS[1] * len(inside) - LEVELS[0] * len(inside):
            return round(float(widen), 2)
    return 3.0


def _band(runs: Sequence[HeldOut], widen: float) -> Band | None:
    sources = {run.run.publisher for run in runs}
    if len(runs) < FEWEST_RUNS or len(sources) < FEWEST_SOURCES:
        return None
    low, high = np.quantile([1.0 + run.error for run in runs], LEVELS)
    low, high = low**widen, high**widen
    return Band(low=float(low), high=float(high), runs=len(runs), sources=len(sources))
