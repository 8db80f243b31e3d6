"""Constants that explain measured step times best, held near what is known of them without the runs.

Robust least squares on the logarithm of the step time: each run counts by its tier, a run that is far off counts
little (soft L1), and every constant is pulled towards its own value with the width its range stands for. The
model is linearised at a point, solved, and linearised again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from meshwright.calibrate.free import Free
from meshwright.calibrate.observe import Observation
from meshwright.catalog.constants import overlaid
from meshwright.engine.evaluate import step_seconds
from meshwright.errors import InputError, MissingExtraError
from meshwright.messages import N_, Text

Vector = npt.NDArray[np.float64]
Progress = Callable[[float, Any], None]

NOISE = 0.06  # standard deviation of the logarithm that a measured run deserves: repeats of one set-up differ by that
STEP = 0.02  # of the logarithm of a constant, for its derivative
REACH = 0.5  # a linearised model is trusted that far, in logarithms
ROUNDS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Fitted values with their standard errors (relative), and the linearised model they came from."""

    free: tuple[Free, ...]
    values: Mapping[str, float]
    errors: Mapping[str, float]
    point: Vector  # logarithms of the constants
    predicted: Vector  # logarithm of the step time of every observation at `point`
    slopes: Vector  # its derivatives, observation × constant


def predict(free: Sequence[Free], point: Vector, runs: Sequence[Observation]) -> Vector:
    """Logarithm of the predicted step time of every run under the constants exp(`point`)."""
    with overlaid(_named(free, point)):
        return np.array([math.log(step_seconds(run.problem, run.strategy)) for run in runs])


def fit(runs: Sequence[Observation], free: Sequence[Free], *, progress: Progress | None = None) -> Fit:
    """Fit all free constants to all runs. Raises `InputError` where none can be learned from."""
    if not any(run.weight for run in runs):
        raise InputError(
            Text(N_("no run of the file can be fitted: none has both a measured rate and stated settings")),
            where="tier",
            fix=Text(N_("a fit learns from runs of tiers A, A- and B")),
        )
    point = np.log([f.value for f in free])
    everything = np.ones(len(runs), dtype=bool)
    predicted = predict(free, point, runs)
    slopes = np.empty((len(runs), len(free)))
    for round in range(ROUNDS):
        slopes = _slopes(free, point, runs, predicted, progress, round)
        point = solve(runs, free, point, predicted, slopes, everything)
        predicted = predict(free, point, runs)
    return Fit(
        free=tuple(free),
        values=_named(free, point),
        errors=dict(zip((f.id for f in free), _errors(runs, free, slopes), strict=True)),
        point=point,
        predicted=predicted,
        slopes=slopes,
    )


def solve(
    runs: Sequence[Observation],
    free: Sequence[Free],
    point: Vector,
    predicted: Vector,
    slopes: Vector,
    known: npt.NDArray[np.bool_],
) -> Vector:
    """The constants that fit the `known` runs best, in the model linearised at `point`."""
    least_squares = _least_squares()
    weight = np.array([run.weight for run in runs])[known] / NOISE
    residual = (predicted - np.array([run.log_seconds for run in runs]))[known]
    prior = np.log([f.value for f in free])
    spread = np.array([f.spread for f in free])
    low, high = np.log([f.low for f in free]), np.log([f.high for f in free])

    def cost(step: Vector) -> Vector:
        deviation = (residual + slopes[known] @ step) * weight
        robust = np.sign(deviation) * np.sqrt(2.0 * (np.sqrt(1.0 + deviation**2) - 1.0))
        return np.concatenate([robust, (point + step - prior) / spread])

    below, above = np.maximum(low - point, -REACH) - 1e-9, np.minimum(high - point, REACH) + 1e-9
    found = least_squares(cost, np.clip(np.zeros(len(point)), below, above), bounds=(below, above))
    return np.asarray(np.clip(point + found.x, low, high))


def _slopes(
    free: Sequence[Free],
    point: Vector,
    runs: Sequence[Observation],
    predicted: Vector,
    progress: Progress | None,
    round: int,
) -> Vector:
    slopes = np.empty((len(runs), len(free)))
    for j, f in enumerate(free):
        step = STEP if point[j] + STEP <= math.log(f.high) else -STEP
        moved = point.copy()
        moved[j] += step
        slopes[:, j] = (predict(free, moved, runs) - predicted) / step
        if progress is not None:
            progress((round * len(free) + j + 1) / (ROUNDS * len(free)), f.id)
    return slopes


def _errors(runs: Sequence[Observation], free: Sequence[Free], slopes: Vector) -> Vector:
    """Relative standard errors of the constants."""
    weighted = slopes * (np.array([run.weight for run in runs]) / NOISE)[:, None]
    spread = np.array([f.spread for f in free])
    information = weighted.T @ weighted + np.diag(1.0 / spread**2)
    return np.sqrt(np.diag(np.linalg.inv(information)))


def _named(free: Sequence[Free], point: Vector) -> dict[str, float]:
    return {f.id: float(v) for f, v in zip(free, np.exp(point), strict=True)}


def _least_squares() -> Any:
    try:
        from scipy.optimize import least_squares
    except ImportError:
        raise MissingExtraError(
            Text(N_("fitting constants needs scipy, which is not installed")),
            where="scipy",
            fix=Text(N_("install it: {command}"), command="pip install 'meshwright[fit]'"),
        ) from None
    return least_squares
