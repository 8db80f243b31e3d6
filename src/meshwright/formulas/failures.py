"""How often things break: rates in series, the chance of a failure, spares, replicas lost together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from meshwright.formulas.numeric import (
    Count,
    Fraction,
    PerSecond,
    Seconds,
    exp,
    expm1,
    log,
    maximum,
    minimum,
    sqrt,
    where,
)
from meshwright.formulas.registry import formula

GARWOOD = "Garwood 1936, Fiducial limits for the Poisson distribution"
SERIES = "a series system of parts that fail at constant rates"
_HALVINGS = 80  # a bisection to the last digit


@formula("failures.mtbf", source="maximum likelihood of a Poisson rate; FIT = failures in 1e9 device hours",
         equation="MTBF = T / k")  # fmt: skip
def mtbf(time: Seconds, failures: Count) -> Seconds:
    """Mean time between failures of one part, from the time all parts together were watched.

    Parameters
    ----------
    time : sum of the times of all parts, T. [s]
    failures : failures seen, k. [1]

    Examples
    --------
    >>> mtbf(1e9 * 3600, 1000) / 3600  # a part of 1,000 FIT, in hours
    1000000.0
    >>> round(mtbf(63 * 55, 10))  # node-days between failures of 63 B200 nodes in 55 days
    346
    """
    return time / failures


@formula("failures.mtti", source=SERIES, equation="M = 1 / (N r)")
def mtti(nodes: Count, rate: PerSecond) -> Seconds:
    """Mean time to interrupt of a job on `nodes` nodes, any of which stops it.

    Parameters
    ----------
    nodes : nodes of the job, N. [1]
    rate : failures of one node per time, r. [1/s]

    Examples
    --------
    >>> round(mtti(2048, 6.5e-3 / 24), 2), round(mtti(16384, 6.5e-3 / 24), 3)  # in hours, 16,384 and 131,072 GPUs
    (1.8, 0.225)
    """
    return 1 / (nodes * rate)


@formula("failures.probability", source=SERIES, equation="P = 1 - e^(-t/M)")
def failure_probability(time: Seconds, mtti: Seconds) -> Fraction:
    """Probability of at least one failure within `time`.

    Parameters
    ----------
    time : how long the job runs, t. [s]
    mtti : mean time to interrupt, M. [s]

    Examples
    --------
    >>> round(failure_probability(3600, 3.09 * 3600), 3)
    0.276
    """
    return -expm1(-time / mtti)


@formula("failures.poisson", source="Poisson 1837", equation="P(X <= k) = e^-μ sum_{i=0..k} μ^i / i!")
def poisson_cdf(count: Count, mean: Count) -> Fraction:
    """Probability that at most `count` of independent rare events happen when `mean` are expected.

    Parameters
    ----------
    count : events, k. [1]
    mean : events expected, μ. [1]

    Examples
    --------
    >>> round(poisson_cdf(15, 2048 * 3.79e-3), 3)  # 15 spares for 2,048 nodes with a day to repair each
    0.994
    """
    columns = isinstance(count, np.ndarray) or isinstance(mean, np.ndarray)
    log_mean = log(where(mean > 0, mean, 1.0 + 0 * mean))
    exponent: Any = -1.0 * mean
    total: Any = exp(exponent) + 0 * count
    for i in range(1, int(np.max(count)) + 1 if columns else int(count) + 1):
        exponent = exponent + log_mean - log(float(i))  # kept as a logarithm: e^-1000 is no float
        term = where(mean > 0, exp(exponent), 0.0 * exponent)
        total = total + where(count >= i, term, 0.0 * term)
    return minimum(total, 1.0 + 0 * total)


@formula(
    "failures.pair_loss",
    source="replicas of every shard on the nodes of a pair (GEMINI, SOSP 2023, section 4, groups of two)",
    equation="P = k (k - 1) / (2 (N - 1))",
)
def pair_loss(lost: Count, nodes: Count) -> Fraction:
    """Probability that some pair is lost whole when `lost` of `nodes` nodes go at once.

    Parameters
    ----------
    lost : nodes lost at once, k. [1]
    nodes : nodes of the job, N. [1]

    Notes
    -----
    Holds for k far below N; not above one. One node alone never is a pair.

    Examples
    --------
    >>> pair_loss(2, 101)
    0.01
    """
    share = lost * (lost - 1) / (2 * where(nodes > 1, nodes - 1, nodes))
    return minimum(share, 1.0 + 0 * share)


@formula("failures.interval.low", source=GARWOOD, equation="P(X >= k | μ) = tail")
def count_low(failures: Count, tail: Fraction = 0.05) -> Count:
    """The least mean for which so many failures, or more, are not rarer than `tail`.

    Parameters
    ----------
    failures : failures seen, k. [1]
    tail : probability beyond this end of the interval. [1]

    Examples
    --------
    >>> round(count_low(10), 3)  # half the 10th percentile of chi² with 20 degrees of freedom, at 5 %
    5.425
    """
    before = maximum(failures - 1, 0 * failures)
    mean = _first(lambda mean: 1 - poisson_cdf(before, mean) >= tail, 0.0 * failures, 1.0 * failures)
    return where(failures > 0, mean, 0.0 * failures)


@formula("failures.interval.high", source=GARWOOD, equation="P(X <= k | μ) = tail")
def count_high(failures: Count, tail: Fraction = 0.05) -> Count:
    """The largest mean for which so few failures, or fewer, are not rarer than `tail`.

    Parameters
    ----------
    failures : failures seen, k. [1]
    tail : probability beyond this end of the interval. [1]

    Examples
    --------
    >>> round(count_high(10), 3), round(count_high(0), 3)
    (16.962, 2.996)
    """
    most = failures + 10 * sqrt(failures + 1) + 10
    return _first(lambda mean: poisson_cdf(failures, mean) < tail, 1.0 * failures, most)


def _first(reached: Callable[[Count], Any], below: Count, above: Count) -> Count:
    """The mean from which on `reached` holds, between two that lie on either side of it, by halving."""
    for _ in range(_HALVINGS):
        middle = (below + above) / 2
        there = reached(middle)
        below, above = where(there, below, middle), where(there, middle, above)
    return (below + above) / 2
