"""Idle time of pipeline schedules, in closed form, from the stages' forward and backward times."""

from __future__ import annotations

from collections.abc import Callable

from meshwright.formulas.numeric import Count, Fraction, Seconds, maximum
from meshwright.formulas.registry import formula

NARAYANAN = "Narayanan et al. 2021, arXiv 2104.04473"


@formula(
    "pipeline.bubble.1f1b", source=NARAYANAN + ", section 2.2.1", equation="sum_s t_s - max_s t_s = (p - 1)(t_f + t_b)"
)
def bubble_1f1b(all_stages: Seconds, slowest: Seconds) -> Seconds:
    """Idle time of the slowest stage under 1F1B or GPipe: the other stages fill and drain the pipe once.

    Parameters
    ----------
    all_stages : forward plus backward of one micro-batch, summed over the stages. [s]
    slowest : the same for the slowest stage. [s]

    Notes
    -----
    With equal stages (p − 1)(t_f + t_b). Assumes: sends are hidden or counted elsewhere.

    Examples
    --------
    >>> bubble_1f1b(8 * 3.0, 3.0)  # p = 8, t_f + t_b = 3
    21.0
    """
    return all_stages - slowest


@formula(
    "pipeline.bubble.interleaved",
    source=NARAYANAN + ", section 2.2.2",
    equation="(p - 1)(t_f + t_b) / v + max(p - m, 0)(1 - 1/v)(t_f + t_b)",
)
def bubble_interleaved(all_stages: Seconds, slowest: Seconds, chunks: Count, absent: Count = 0) -> Seconds:
    """Idle time of the interleaved schedule with `chunks` model chunks per stage.

    Parameters
    ----------
    all_stages, slowest : as in `bubble_1f1b`. [s]
    chunks : model chunks per stage, v. [1]
    absent : micro-batches that are missing to one per stage, max(p - m, 0). [1]

    Notes
    -----
    The second term is not the paper's, which asks for a multiple of p micro-batches: with fewer, each stage waits
    p - m chunk passes for a micro-batch to come round again, once per chunk, and interleaving gains little.

    Examples
    --------
    >>> bubble_interleaved(24.0, 3.0, 3)
    7.0
    >>> bubble_interleaved(12.0, 3.0, 3, absent=3)  # one micro-batch visits four stages one after the other
    9.0
    """
    return (all_stages - slowest) / chunks + absent * slowest * (chunks - 1) / chunks


@formula(
    "pipeline.bubble.zb_h1", source="Qi et al. 2023, arXiv 2401.10241, table 2", equation="(p - 1)(t_F + t_B - t_W)"
)
def bubble_zero_bubble_h1(stages: Count, forward: Seconds, input_grad: Seconds, weight_grad: Seconds) -> Seconds:
    """Idle time of ZB-H1: weight gradients fill the drain.

    Parameters
    ----------
    stages : pipeline stages p. [1]
    forward, input_grad, weight_grad : one micro-batch on one stage. [s]

    Examples
    --------
    >>> bubble_zero_bubble_h1(8, 1.0, 1.0, 1.0)  # a third of 1F1B's 21
    7.0
    """
    return (stages - 1) * maximum(forward + input_grad - weight_grad, 0 * forward)


@formula(
    "pipeline.bubble.dualpipe",
    source="DeepSeek-V3 report, arXiv 2412.19437, table 2",
    equation="(p/2 - 1)(t_FB + t_B - 3 t_W)",
)
def bubble_dualpipe(stages: Count, together: Seconds, backward: Seconds, weight_grad: Seconds) -> Seconds:
    """Idle time of DualPipe: two directions meet, all-to-all hides behind the other's compute.

    Parameters
    ----------
    stages : pipeline stages p, even. [1]
    together : a forward and a backward chunk overlapped. [s]
    backward : a whole backward chunk. [s]
    weight_grad : its weight-gradient part. [s]

    Examples
    --------
    >>> bubble_dualpipe(8, 3.0, 2.0, 1.0)
    6.0
    """
    return (stages / 2 - 1) * maximum(together + backward - 3 * weight_grad, 0 * backward)


@formula("pipeline.bubble.fraction", source=NARAYANAN + ", section 2.2", equation="(p - 1) / (v m)")
def bubble_fraction(stages: Count, micro_batches: Count, chunks: Count = 1) -> Fraction:
    """Bubble over ideal compute for equal stages.

    Examples
    --------
    >>> bubble_fraction(8, 64, 3)
    0.036458333333333336
    """
    return (stages - 1) / (chunks * micro_batches)


@formula(
    "pipeline.bubble.zbv",
    source="Qi et al. 2024, Pipeline Parallelism with Controllable Memory, arXiv 2405.15362",
    equation="(p - 1)(max(t_F, t_B, t_W) - t_F + max(t_F, t_B, t_W) - t_W) / 2",
)
def bubble_zbv(stages: Count, forward: Seconds, input_grad: Seconds, weight_grad: Seconds) -> Seconds:
    """Idle time of ZB-V: none while the three passes take equally long, else what they differ by.

    Parameters
    ----------
    stages : pipeline stages p. [1]
    forward, input_grad, weight_grad : one micro-batch on one stage. [s]

    Notes
    -----
    Ignores: sends. The factor for unequal passes is a model, not the paper's.

    Examples
    --------
    >>> bubble_zbv(8, 1.0, 1.0, 1.0)
    0.0
    """
    longest = maximum(forward, maximum(input_grad, weight_grad))
    return (stages - 1) * (longest - forward + longest - weight_grad) / 2


SCHEDULE_BUBBLE: dict[str, Callable[..., Seconds]] = {
    "1f1b": lambda p, m, total, slow, f, b, v: bubble_1f1b(total, slow),
    "gpipe": lambda p, m, total, slow, f, b, v: bubble_1f1b(total, slow),
    "interleaved": lambda p, m, total, slow, f, b, v: bubble_interleaved(total, slow, v, maximum(p - m, 0 * p)),
    "zb-h1": lambda p, m, total, slow, f, b, v: bubble_zero_bubble_h1(p, f, b / 2, b / 2),
    "zbv": lambda p, m, total, slow, f, b, v: bubble_zbv(p, f, b / 2, b / 2),
    "dualpipe": lambda p, m, total, slow, f, b, v: bubble_dualpipe(p, f + b, b, b / 2),
}
