"""Checkpoint intervals and the useful share of wall time under failures that come at random (Poisson)."""

from __future__ import annotations

from meshwright.formulas.numeric import (
    Count,
    Fraction,
    PerSecond,
    Seconds,
    exp,
    expm1,
    floor,
    log,
    log1p,
    maximum,
    minimum,
    sqrt,
    where,
)
from meshwright.formulas.registry import formula

YOUNG = "Young 1974, A first order approximation to the optimum checkpoint interval"
DALY = "Daly 2006, A higher order estimate of the optimum checkpoint interval for restart dumps"
RELIABILITY = (
    "Kokolis et al. 2024, Revisiting reliability in large-scale machine learning research clusters, 2410.21680"
)
RENEWAL = "renewal of a run with exponential failures, after " + DALY
_STEEP = 700.0  # e to the power of more is no float
_STEPS = 4  # Newton steps after which ten digits stand, from d far below M to far above


@formula("checkpoint.interval.young", source=YOUNG, equation="τ = sqrt(2 d M)")
def young(cost: Seconds, mtti: Seconds) -> Seconds:
    """Work between checkpoints that loses least, to first order.

    Parameters
    ----------
    cost : time a checkpoint stops the run, d. [s]
    mtti : mean time to interrupt of the job, M. [s]

    Notes
    -----
    Assumes: d is far below M; restart time does not depend on the interval.

    Examples
    --------
    >>> round(young(300, 24 * 3600) / 60)  # 5 minutes to save, a failure a day
    120
    """
    return sqrt(2 * cost * mtti)


@formula("checkpoint.interval.daly_first", source=DALY + ", equation 13", equation="τ = sqrt(2 d M) - d")
def daly_first(cost: Seconds, mtti: Seconds) -> Seconds:
    """Work between checkpoints to first order, the checkpoint itself counted as exposed to failures.

    Parameters
    ----------
    cost, mtti : as in `young`. [s]

    Notes
    -----
    Not below zero, where the approximation has no meaning.

    Examples
    --------
    >>> round(daly_first(300, 24 * 3600) / 60)
    115
    """
    return maximum(sqrt(2 * cost * mtti) - cost, 0 * cost)


@formula(
    "checkpoint.interval.daly",
    source=DALY + ", equation 37",
    equation="τ = sqrt(2 d M) (1 + sqrt(d / 2M) / 3 + (d / 2M) / 9) - d  for d < 2M, else M",
)
def daly(cost: Seconds, mtti: Seconds) -> Seconds:
    """Work between checkpoints to higher order.

    Parameters
    ----------
    cost, mtti : as in `young`. [s]

    Examples
    --------
    >>> [round(daly(5, m), 1) for m in (24 * 60, 6 * 60, 15)]  # in minutes; the paper: 117, 57, 9.1
    [116.7, 56.7, 9.1]
    """
    ratio = cost / (2 * mtti)
    series = sqrt(2 * cost * mtti) * (1 + sqrt(ratio) / 3 + ratio / 9) - cost
    return where(cost < 2 * mtti, series, mtti)


@formula(
    "checkpoint.interval.exact",
    source=RENEWAL + "; the root of d/dτ of its equation for the wall time",
    equation="x - 1 + e^-x = d/M;  τ = x M - d",
)
def exact_interval(cost: Seconds, mtti: Seconds) -> Seconds:
    """Work between checkpoints that makes the expected wall time least, failures during checkpoints included.

    Parameters
    ----------
    cost, mtti : as in `young`. [s]

    Notes
    -----
    Does not depend on the restart time. The root is found by Newton's method from above, where it cannot overshoot.

    Examples
    --------
    >>> [round(exact_interval(5, m), 2) for m in (24 * 60, 6 * 60, 15)]  # Daly's series, at 15 min: 9.14
    [116.69, 56.71, 9.17]
    """
    ratio = cost / mtti
    x = ratio + sqrt(2 * ratio)
    for _ in range(_STEPS):
        slope = -expm1(-x)
        x = where(slope > 0, x - (x + expm1(-x) - ratio) / where(slope > 0, slope, slope + 1), x)
    return maximum(x * mtti - cost, 0 * cost)


@formula("goodput.efficiency", source=DALY + ", equation 20", equation="E = τ / (M e^(R/M) (e^((τ + d)/M) - 1))")
def efficiency(interval: Seconds, cost: Seconds, mtti: Seconds, restart: Seconds) -> Fraction:
    """Useful share of wall time of a run that saves, fails and starts again.

    Parameters
    ----------
    interval : useful work between checkpoints, τ. [s]
    cost : time a checkpoint stops the run, d. [s]
    mtti : mean time to interrupt of the job, M. [s]
    restart : from failure to the first new step: detect, wait, load, initialise, R. [s]

    Notes
    -----
    Exact for exponential times between failures. Failures strike checkpoints and restarts too.

    Examples
    --------
    >>> round(efficiency(1500, 20, 3.09 * 3600, 300), 3)  # Llama 3 405B: a failure each 3.09 h
    0.896
    """
    exposed = (interval + cost) / mtti
    # Written in falling exponents, so that a hopeless setting gives 0 and not an overflow.
    return interval / mtti * exp(-restart / mtti) * exp(-exposed) / -expm1(-exposed)


@formula(
    "goodput.efficiency.asynchronous",
    source=RENEWAL + "; a failure also undoes the time in which a snapshot was on its way to storage",
    equation="E = τ / (M e^((R + p)/M) (e^((τ + s)/M) - 1)),  τ >= p",
)
def efficiency_asynchronous(
    interval: Seconds, stall: Seconds, persist: Seconds, mtti: Seconds, restart: Seconds
) -> Fraction:
    """Useful share of wall time when only the copy to the host stops the run and storage is written behind it.

    Parameters
    ----------
    interval : useful work between snapshots, τ. [s]
    stall : copy from device to host, s. [s]
    persist : until the snapshot is safe in storage, p. [s]
    mtti, restart : as in `efficiency`. [s]

    Notes
    -----
    Exact for exponential times between failures. One snapshot is on its way at a time: τ may not be below p.

    Examples
    --------
    >>> round(efficiency_asynchronous(600, 1, 60, 3.09 * 3600, 300), 3)
    0.941
    """
    return efficiency(interval, stall, mtti, restart + persist)


@formula("goodput.loss.small", source=DALY + ", first order", equation="1 - E = d/τ + (τ/2 + d/2 + R)/M")
def small_loss(interval: Seconds, cost: Seconds, mtti: Seconds, restart: Seconds) -> Fraction:
    """Lost share of wall time where it is small: stalls, half an interval and a restart for each failure.

    Parameters
    ----------
    interval, cost, mtti, restart : as in `efficiency`. [s]

    Examples
    --------
    >>> round(small_loss(3600, 40, 7 * 86400, 1800), 4)
    0.0171
    """
    return cost / interval + (interval / 2 + cost / 2 + restart) / mtti


@formula(
    "goodput.ettr", source=RELIABILITY + ", expected effective training time ratio",
    equation="E[ETTR] = (1 - N r (u + Δ/2)) / (1 + w/Δ)",
)  # fmt: skip
def expected_ettr(nodes: Count, rate: PerSecond, restart: Seconds, interval: Seconds, write: Seconds) -> Fraction:
    """Effective training time ratio of a job, to first order and without queueing.

    Parameters
    ----------
    nodes : nodes of the job, N. [1]
    rate : failures of one node per time, r. [1/s]
    restart : restart overhead, u. [s]
    interval : between checkpoints, Δ. [s]
    write : time a checkpoint stops the run, w. [s]

    Notes
    -----
    Holds while N r (u + Δ/2) is small; from about 0.25 on it strays from the exact form.

    Examples
    --------
    >>> round(expected_ettr(2048, 6.5e-3 / 86400, 300, 1500, 20), 3)
    0.827
    """
    return (1 - nodes * rate * (restart + interval / 2)) / (1 + write / interval)


@formula(
    "goodput.loss.two_tier",
    source="two checkpoint tiers, each as in the first-order form of Daly 2006",
    equation="d1/τ1 + d2/τ2 + s (τ1/2 + R1)/M + h (τ2/2 + R2)/M",
)
def two_tier_loss(
    interval: Seconds, cost: Seconds, storage_interval: Seconds, storage_cost: Seconds, mtti: Seconds,
    hard: Fraction, restart: Seconds, storage_restart: Seconds,
) -> Fraction:  # fmt: skip
    """Lost share of wall time with a quick tier for most failures and storage for those that destroy it.

    Parameters
    ----------
    interval, cost : between saves to the quick tier, and their stall. [s]
    storage_interval, storage_cost : the same for storage. [s]
    mtti : mean time to interrupt, of all failures. [s]
    hard : share of failures after which only storage helps. [1]
    restart, storage_restart : from failure to work, from either tier. [s]

    Examples
    --------
    >>> round(two_tier_loss(60, 0.5, 3600, 2, 10000, 0.1, 120, 600), 4)
    0.0464
    """
    soft = 1 - hard
    quick = cost / interval + soft * (interval / 2 + restart) / mtti
    return quick + storage_cost / storage_interval + hard * (storage_interval / 2 + storage_restart) / mtti


@formula(
    "goodput.efficiency.two_tier",
    source=RENEWAL + "; hard failures compete with a period of quick segments (Laplace transform of its length Y)",
    equation="E = n τ L_Y L_p / ((1 - L_Y)(1/h + M (e^(R2/M) - 1))),  L_Y = E[e^(-h Y)]",
)
def efficiency_two_tier(
    interval: Seconds,
    cost: Seconds,
    segments: Count,
    storage_cost: Seconds,
    mtti: Seconds,
    hard: Fraction,
    restart: Seconds,
    storage_restart: Seconds,
    quick_persist: Seconds = 0.0,
    persist: Seconds = 0.0,
) -> Fraction:
    """Useful share of wall time with `segments` quick saves for each save to storage.

    Parameters
    ----------
    interval, cost : useful work between quick saves, and their stall. [s]
    segments : quick saves for each save to storage, n. [1]
    storage_cost : further stall of a save to storage. [s]
    mtti : mean time to interrupt, of all failures, M. [s]
    hard : share of failures after which only storage helps. [1]
    restart, storage_restart : from failure to work, from either tier. [s]
    quick_persist, persist : until a snapshot is safe in its tier, and in storage. [s]

    Notes
    -----
    Exact for exponential times between failures where snapshots are safe at once, and without soft failures, where it
    is `efficiency` of the whole period; else within a percent.

    Examples
    --------
    >>> round(efficiency_two_tier(60, 0.5, 60, 2, 10000, 0.1, 120, 600), 4)
    0.9541
    """
    # In terms of what is lost, not of what is left, so that rare failures do not vanish in rounding.
    hard = minimum(maximum(hard, 1e-9), 1.0 - 0 * hard)
    soft = 1 - hard
    back = (restart + quick_persist) / mtti
    lost = -expm1(-minimum(back, _STEEP + 0 * back))
    recovery = (1 - lost) / (1 - soft * lost)  # of a soft restart, itself exposed to failures

    def log_passed(length: Seconds) -> Fraction:
        """Logarithm of the chance to get through a segment without a hard failure."""
        struck = -expm1(-length / mtti)
        repeated = 1 - soft * struck * recovery
        never = struck * hard / ((1 - soft * lost) * repeated)
        return where(never < 0.5, log1p(-minimum(never, 0.5 + 0 * never)), -length / mtti - log(repeated))

    segment = interval + cost
    period = (segments - 1) * log_passed(segment) + log_passed(segment + storage_cost)
    ahead = floor(persist / segment)  # segments walked until a snapshot in storage counts
    late = ahead * log_passed(segment) + log_passed(persist - ahead * segment)
    between = mtti / hard + mtti * expm1(minimum(storage_restart / mtti, _STEEP + 0 * storage_restart / mtti))
    return segments * interval * exp(period + late) / (-expm1(period) * between)


@formula(
    "goodput.efficiency.replicas",
    source="replica-level fault tolerance (torchft): groups that fail and heal on their own",
    equation="E = e^(-S/M) e^(-(H - S)/(D M))",
)
def efficiency_replicas(replicas: Count, mtti: Seconds, heal: Seconds, stop: Seconds) -> Fraction:
    """Useful share of wall time when a failure takes one of `replicas` groups out and the others go on.

    Parameters
    ----------
    replicas : data-parallel groups that can leave and join, D. [1]
    mtti : mean time to interrupt, of all groups together, M. [s]
    heal : from the failure of a group until it takes part again, the stop included, H. [s]
    stop : time that a failure costs every group: half a step and the new quorum, S. [s]

    Notes
    -----
    Assumes: no rollback, batch or micro-batches re-dealt over the groups that are left, throughput as their number.

    Examples
    --------
    >>> round(efficiency_replicas(128, 3.09 * 3600, 1200, 30), 4)
    0.9965
    """
    return exp(-maximum(heal - stop, 0 * heal) / (replicas * mtti)) * exp(-stop / mtti)


@formula("goodput.downtime", source=RENEWAL, equation="1 - e^(-R/M)")
def downtime(restart: Seconds, mtti: Seconds) -> Fraction:
    """Share of wall time spent between failures and the first new step, restarts that fail again included.

    Parameters
    ----------
    restart : from failure to the first new step, R. [s]
    mtti : mean time to interrupt, M. [s]

    Examples
    --------
    >>> round(downtime(600, 10000), 4)
    0.0582
    """
    return -expm1(-restart / mtti)


@formula(
    "goodput.slow_node", source="a synchronous step lasts as long as its slowest rank", equation="x / (1 + x)"
)  # fmt: skip
def slow_node(slowdown: Fraction) -> Fraction:
    """Share of working time lost when the slowest rank needs `slowdown` more time than the others.

    Parameters
    ----------
    slowdown : extra time of the slowest rank over the usual one, x. [1]

    Examples
    --------
    >>> slow_node(0.25)
    0.2
    """
    return slowdown / (1 + slowdown)
