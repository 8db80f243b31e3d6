"""Seconds of one optimizer step, assembled from stage times, pipeline, gradient traffic and optimizer.

Every input may be a number or a column; the schedule, the framework and the overlap switches are plain categories.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from meshwright.engine.software import Software
from meshwright.engine.stages import StageClass
from meshwright.formulas.numeric import maximum, minimum, where
from meshwright.formulas.pipeline import SCHEDULE_BUBBLE


class StageTime(NamedTuple):
    """One micro-batch on one stage, all its chunks. [s]"""

    forward: Any
    backward: Any

    @property
    def both(self) -> Any:
        """Forward plus backward."""
        return self.forward + self.backward


class GradientTraffic(NamedTuple):
    """Collectives of the states of one stage. [s] `each` says whether they run per micro-batch or once a step."""

    gather_forward: Any  # parameters before the forward pass
    gather_backward: Any  # parameters again before the backward pass (full sharding)
    reduce: Any  # gradients
    gather_each: bool
    reduce_each: bool
    buckets: Any  # pieces a whole collective is cut into: what cannot hide is one of them


class Step(NamedTuple):
    """Where the seconds of a step go; the sum is the step."""

    steady: Any  # micro-batches × slowest stage
    bubble: Any
    pipeline_comm: Any
    param_gather: Any
    grad_reduce: Any
    contention: Any
    optimizer: Any
    host: Any
    data: Any

    @property
    def total(self) -> Any:
        """Seconds per step."""
        return (
            self.steady + self.bubble + self.pipeline_comm + self.param_gather + self.grad_reduce
            + self.contention + self.optimizer + self.host + self.data
        )  # fmt: skip


def stage_time(
    stage: StageClass,
    forward: Sequence[Any],
    backward: Sequence[Any],
    head: tuple[Any, Any],
    embedding: tuple[Any, Any],
    mtp_kind: int,
) -> StageTime:
    """Time of a stage from the per-kind block times; a multi-token-prediction module costs one block and one head.

    Where two ranks hold the same layers (DualPipe) each runs its share of the micro-batches: a mean over all of them.
    """
    f: Any = 0.0
    b: Any = 0.0
    for count, block_f, block_b in zip(stage.counts, forward, backward, strict=True):
        if count:
            f = f + count * block_f
            b = b + count * block_b
    if stage.embedding:
        f, b = f + embedding[0], b + embedding[1]
    if stage.head:
        f, b = f + head[0], b + head[1]
    if stage.mtp:
        f, b = f + forward[mtp_kind] + head[0], b + backward[mtp_kind] + head[1]
    return StageTime(stage.share * f, stage.share * b)


def exposed(total: Any, window: Any, buckets: Any, overlap: bool) -> Any:
    """What a collective of `total` seconds adds when it may hide in `window`: at least its last bucket. [s]"""
    if not overlap:
        return total
    return maximum(total - window, total / buckets)


def assemble(
    *,
    micro_batches: Any,
    pipeline: Any,
    virtual: Any,
    schedule: str,
    stages: Sequence[StageClass],
    times: Sequence[StageTime],
    waits: Sequence[StageTime],
    traffic: Sequence[GradientTraffic],
    send: Any,
    optimizer: Any,
    software: Software,
    overlap_reduce: bool,
    overlap_gather: bool,
    contention: float,
    data_time: float,
) -> Step:
    """Put a step together.

    `times`, `waits` (for launches: the device is idle, traffic hides there too) and `traffic` stand per stage class;
    `send` is one activation hop between stages. With `pipeline > 1` and gathers or reductions per micro-batch, they
    hide behind that micro-batch's own passes.
    """
    m = micro_batches
    # A stage takes its passes and the time its device waits for launches in them.
    busy = [StageTime(t.forward + w.forward, t.backward + w.backward) for t, w in zip(times, waits, strict=True)]
    slow_f, slow_b, idle, everything = busy[0].forward, busy[0].backward, waits[0].both, 0.0
    for stage, t, w in zip(stages, busy, waits, strict=True):
        slower = t.both > slow_f + slow_b
        slow_f, slow_b = where(slower, t.forward, slow_f), where(slower, t.backward, slow_b)
        idle = where(slower, w.both, idle)
        everything = everything + stage.stages_in_class * t.both
    slowest = slow_f + slow_b
    bubble = SCHEDULE_BUBBLE[schedule](pipeline, m, everything, slowest, slow_f, slow_b, virtual)
    gather: Any = 0.0
    reduce: Any = 0.0
    hidden: Any = 0.0
    for t, g in zip(busy, traffic, strict=True):
        stage_gather, stage_reduce, stage_hidden = _states(m, virtual, pipeline, t, g, overlap_reduce, overlap_gather)
        gather = maximum(gather, stage_gather)
        reduce = maximum(reduce, stage_reduce)
        hidden = maximum(hidden, stage_hidden)
    return Step(
        steady=m * (slowest - idle),
        bubble=bubble,
        pipeline_comm=_pipeline_comm(m, pipeline, virtual, send, software.overlap_p2p),
        param_gather=gather,
        grad_reduce=reduce,
        contention=contention * hidden,
        optimizer=optimizer,
        host=software.step_overhead + idle * m,
        data=data_time,
    )


def _pipeline_comm(m: Any, pipeline: Any, virtual: Any, send: Any, overlapped: bool) -> Any:
    """Exposed sends: two per micro-batch and chunk unless interleaving hides them, and the hops of fill and drain."""
    steady = 2 * m * virtual * send
    if overlapped:
        steady = where(virtual > 1, 0.0 * steady, steady)
    return where(pipeline > 1, steady + 2 * (pipeline - 1) * send, 0.0 * steady)


def _states(
    m: Any, virtual: Any, pipeline: Any, t: StageTime, g: GradientTraffic, over_reduce: bool, over_gather: bool
) -> tuple[Any, Any, Any]:
    """Exposed parameter gathers, exposed gradient reductions, and what ran hidden, of one stage. [s]"""
    gathers = g.gather_forward + g.gather_backward
    if g.gather_each:
        forward = exposed(g.gather_forward, t.forward, g.buckets, over_gather)
        # Backward hides gather and reduction together: they share the link.
        both = g.gather_backward + (g.reduce if g.reduce_each else 0.0)
        backward = exposed(both, t.backward, g.buckets, over_gather and over_reduce)
        share = g.gather_backward / maximum(both, 1e-30)
        gather = m * (forward + backward * share)
        reduce = m * backward * (1 - share)
        if not g.reduce_each:
            reduce = exposed(g.reduce, t.backward, g.buckets, over_reduce)
        total = m * (gathers + (g.reduce if g.reduce_each else 0.0)) + (0.0 if g.reduce_each else g.reduce)
        return gather, reduce, total - gather - reduce
    # Gradients are final chunk by chunk: the last chunk's only during the last backward, earlier ones p slots before.
    cover = t.backward * (1 + (virtual - 1) * minimum(m, pipeline)) / virtual
    gather = exposed(gathers, t.forward, g.buckets, over_gather)
    if g.reduce_each:
        reduce = m * exposed(g.reduce, t.backward, g.buckets, over_reduce)
        return gather, reduce, gathers + m * g.reduce - gather - reduce
    reduce = exposed(g.reduce, cover, g.buckets, over_reduce)
    return gather, reduce, gathers + g.reduce - gather - reduce
