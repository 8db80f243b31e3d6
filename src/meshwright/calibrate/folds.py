"""Predictions of runs that the constants never saw: every group is left out once and the constants fitted to the rest.

The fit to all runs gives a linearised model, which is solved again without the group; where a constant moves far,
once more from there. The group is then predicted by the whole model under those constants.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from meshwright.calibrate.fit import Fit, Progress, predict, solve
from meshwright.calibrate.observe import Observation

NEAR = 0.15  # of a logarithm: so far the linearised model is taken at its word

GROUPINGS: Mapping[str, Callable[[Observation], str]] = {
    "source": lambda run: run.source,
    "publisher": lambda run: run.publisher,
    "model": lambda run: run.model,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """One run, predicted by constants fitted without its group. Logarithms of seconds."""

    run: Observation
    group: str
    log_seconds: float

    @property
    def error(self) -> float:
        """Predicted over measured tokens/s, minus one."""
        return float(np.exp(self.run.log_seconds - self.log_seconds)) - 1.0


def held_out(
    runs: Sequence[Observation], known: Fit, grouping: str, *, progress: Progress | None = None
) -> tuple[HeldOut, ...]:
    """Every run predicted without its group, in the order given."""
    names = [GROUPINGS[grouping](run) for run in runs]
    groups = sorted(set(names))
    out: dict[int, HeldOut] = {}
    for i, group in enumerate(groups):
        rest = np.array([name != group for name in names])
        point = solve(runs, known.free, known.point, known.predicted, known.slopes, rest)
        if np.max(np.abs(point - known.point)) > NEAR:
            point = solve(runs, known.free, point, predict(known.free, point, runs), known.slopes, rest)
        mine = [n for n, name in enumerate(names) if name == group]
        seconds = predict(known.free, point, [runs[n] for n in mine])
        out |= {n: HeldOut(run=runs[n], group=group, log_seconds=float(s)) for n, s in zip(mine, seconds, strict=True)}
        if progress is not None:
            progress((i + 1) / len(groups), group)
    return tuple(out[n] for n in range(len(runs)))
