"""A comparison in which no run was seen by the constants that predict it, nor by the band around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from meshwright.calibrate.bands import band_of, bands, widening
from meshwright.calibrate.fit import Progress, fit
from meshwright.calibrate.folds import held_out
from meshwright.calibrate.free import free_constants
from meshwright.calibrate.observe import observations
from meshwright.validate.compare import Compared

FIT = 0.7  # share of the work that the first fit takes


def cross_validated(
    rows: Sequence[Compared], grouping: str, *, progress: Progress | None = None
) -> tuple[Compared, ...]:
    """The rows again, rate and interval predicted without each row's group; memory stays as it was.

    Where a setting was not stated, the interval still spans its choices, moved and widened with the prediction.
    """
    runs = observations(rows)
    if not runs:
        return tuple(rows)
    first = None if progress is None else lambda share, what: progress(FIT * share, what)
    second = None if progress is None else lambda share, what: progress(FIT + (1 - FIT) * share, what)
    known = fit(runs, free_constants(), progress=first)
    apart = {run.run.id: run for run in held_out(runs, known, grouping, progress=second)}
    groups = {run.group for run in apart.values()}
    rest = {group: [run for run in apart.values() if run.group != group] for group in groups}
    without = {group: bands(these, widening(these, [True] * len(these))) for group, these in rest.items()}
    out = []
    for c in rows:
        run = apart.get(c.run.id)
        if run is None or c.problem is None or c.predicted is None or c.interval is None or c.estimate is None:
            out.append(c)
            continue
        rate = c.problem.job.tokens_per_step / float(np.exp(run.log_seconds)) / c.problem.cluster.devices
        low, high = band_of(run, without[run.group])
        step = c.estimate.step_seconds
        wide = c.estimate.step_interval
        # What the choices of unstated settings added to the interval, beyond the band of the one that was taken.
        slower = min(c.interval[0] / (c.predicted * step / wide[1]), 1.0)
        faster = max(c.interval[1] / (c.predicted * step / wide[0]), 1.0)
        out.append(replace(c, predicted=rate, interval=(rate / high * slower, rate / low * faster)))
    return tuple(out)
