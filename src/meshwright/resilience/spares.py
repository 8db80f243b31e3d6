"""Machines held back: as many as are in repair at the same time, by Poisson."""

from __future__ import annotations

from meshwright.catalog.failures import common
from meshwright.formulas.failures import poisson_cdf
from meshwright.spec.resilience import FailureModel, SpareKind, Spares

_MOST = 100_000


def spares_for(mean: float, quantile: float) -> int:
    """The smallest number of spares that suffices with probability `quantile` when `mean` are in repair.

    >>> spares_for(2048 * 3.79e-3, 0.99)
    15
    """
    low, high = -1, max(4, int(2 * mean) + 4)
    while poisson_cdf(high, mean) < quantile and high < _MOST:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if poisson_cdf(middle, mean) >= quantile else (middle, high)
    return high


def spares(
    model: FailureModel,
    kind: SpareKind = "warm",
    *,
    nodes: int | None = None,
    repair: float | None = None,
    quantile: float | None = None,
) -> Spares:
    """Spares for a job: `nodes` of them if given, else what suffices with probability `quantile`.

    Only failures that take a node with them need one. `repair` is how long it is away, in seconds.
    """
    known = common()
    repair = known["repair"] if repair is None else repair
    quantile = known["spare_quantile"] if quantile is None else quantile
    mean = model.share("node", "several") / model.mtti * repair
    count = spares_for(mean, quantile) if nodes is None else nodes
    return Spares(
        kind=kind, nodes=count, quantile=quantile, in_repair=mean, repair=repair,
        short=max(0.0, 1 - float(poisson_cdf(count, mean))),
    )  # fmt: skip


def waiting(model: FailureModel, held: Spares) -> float:
    """Mean wait for a machine after a failure.  [s]

    A cold spare is booted first. When none is left the job waits for the first of those in repair.
    """
    needs = model.share("node", "several")
    none_left = held.repair / (held.nodes + 1)  # the first of nodes + 1 repairs, each anywhere in its course
    boot = common()["provision"] if held.kind == "cold" else 0.0
    return needs * ((1 - held.short) * boot + held.short * none_left)
