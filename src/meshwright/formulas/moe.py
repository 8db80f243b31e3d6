"""Load of the busiest expert rank when routing is not perfectly balanced."""

from __future__ import annotations

from meshwright.formulas.numeric import Count, Fraction, log, maximum, sqrt
from meshwright.formulas.registry import formula


@formula(
    "moe.busiest_rank",
    source="expected maximum of n normal variables, sqrt(2 ln n) standard deviations (Cramér 1946, section 28.6)",
    equation="1 + s sqrt(2 ln n / e)",
)
def busiest_rank(ranks: Count, experts_per_rank: Count, spread: Fraction) -> Fraction:
    """Tokens of the busiest of `ranks` expert ranks over their mean.

    Parameters
    ----------
    ranks : expert-parallel ranks. [1]
    experts_per_rank : experts each holds; their loads average out. [1]
    spread : standard deviation of one expert's load over its mean, in one micro-batch. [1]

    Notes
    -----
    Loads of experts are taken as independent and normal: a rank's load deviates by spread/sqrt(experts_per_rank), and
    the largest of n deviates by about sqrt(2 ln n) of that. Assumes: no capacity limit. Ignores: placement of experts
    by measured load.

    Examples
    --------
    >>> busiest_rank(1, 8, 0.2)
    1.0
    >>> round(busiest_rank(64, 4, 0.2), 3)
    1.288
    """
    return 1 + spread * sqrt(2 * log(maximum(ranks, 1)) / experts_per_rank)
