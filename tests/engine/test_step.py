"""Assembly of a step: what hides behind what, on numbers small enough to add up by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.engine.software import software
from meshwright.engine.stages import StageClass
from meshwright.engine.step import GradientTraffic, StageTime, Step, assemble, exposed, stage_time

STACK = replace(software("megatron-core"), step_overhead=0.0)
QUIET = GradientTraffic(0.0, 0.0, 0.0, False, False, 1.0)


def stages(count: int) -> list[StageClass]:
    """First, middle and last of `count` pipeline stages with two layers each."""
    if count == 1:
        return [StageClass(0, 1, ((2,),), True, True, pipeline=1)]
    out = [StageClass(0, 1, ((2,),), embedding=True, pipeline=count)]
    if count > 2:
        out.append(StageClass(1, count - 2, ((2,),), pipeline=count))
    return [*out, StageClass(count - 1, 1, ((2,),), head=True, pipeline=count)]


def step(
    pipeline: int = 1, times: list[StageTime] | None = None, traffic: GradientTraffic = QUIET, **changes: Any
) -> Step:
    classes = stages(pipeline)
    arguments: dict[str, Any] = {
        "micro_batches": 8, "pipeline": pipeline, "virtual": 1, "schedule": "1f1b", "stages": classes,
        "times": times or [StageTime(1.0, 2.0)] * len(classes), "traffic": [traffic] * len(classes), "send": 0.0,
        "optimizer": 0.0, "waits": [StageTime(0.0, 0.0)] * len(classes), "software": STACK,
        "overlap_reduce": True, "overlap_gather": True,
        "contention": 0.0, "data_time": 0.0,
    }  # fmt: skip
    return assemble(**{**arguments, **changes})


def test_plain_data_parallel_step() -> None:
    assert step().total == 8 * 3.0
    assert step(optimizer=0.5, data_time=0.25, waits=[StageTime(0.04, 0.06)]).total == pytest.approx(
        24 + 0.5 + 0.25 + 0.8
    )


def test_uneven_pipeline_runs_at_the_pace_of_its_slowest_stage() -> None:
    times = [StageTime(1.0, 2.0), StageTime(1.0, 2.0), StageTime(1.2, 2.4)]
    s = step(4, times)
    assert s.steady == pytest.approx(8 * 3.6) and s.bubble == pytest.approx(3.0 + 2 * 3.0)


def test_interleaving_divides_the_bubble() -> None:
    assert step(4, virtual=3, schedule="interleaved").bubble == pytest.approx(step(4).bubble / 3)


def test_sends_are_exposed_unless_chunks_interleave() -> None:
    """Two per micro-batch, and the hops that fill and drain the pipe."""
    assert step(4, send=0.01).pipeline_comm == pytest.approx(2 * 8 * 0.01 + 2 * 3 * 0.01)
    interleaved = {"send": 0.01, "virtual": 3, "schedule": "interleaved"}
    assert step(4, **interleaved).pipeline_comm == pytest.approx(2 * 3 * 0.01)
    eager = replace(STACK, overlap_p2p=False)
    assert step(4, software=eager, **interleaved).pipeline_comm == pytest.approx(2 * 3 * 8 * 0.01 + 2 * 3 * 0.01)
    assert step(1, send=0.01).pipeline_comm == 0


def test_gradient_reduction_hides_behind_one_backward_pass() -> None:
    """1.5 s of reduction behind 2 s of backward: only the last of ten buckets is seen; 5 s: three are."""
    short = GradientTraffic(0.0, 0.0, 1.5, False, False, 10.0)
    assert step(traffic=short).grad_reduce == pytest.approx(0.15)
    assert step(traffic=short._replace(reduce=5.0)).grad_reduce == pytest.approx(3.0)
    assert step(traffic=short, overlap_reduce=False).grad_reduce == pytest.approx(1.5)


def test_chunks_reduce_earlier() -> None:
    """With several chunks per rank, only the last chunk's gradients wait for the end."""
    late = GradientTraffic(0.0, 0.0, 4.0, False, False, 100.0)
    assert step(4, traffic=late).grad_reduce == pytest.approx(2.0)
    assert step(4, traffic=late, virtual=2, schedule="interleaved").grad_reduce < step(4, traffic=late).grad_reduce


def test_full_sharding_pays_every_micro_batch() -> None:
    """ZeRO-3 gathers twice and reduces once per micro-batch; what is longer than the pass stays exposed."""
    fast = GradientTraffic(0.5, 0.5, 0.5, True, True, 1e9)
    assert step(traffic=fast).total == pytest.approx(24.0, rel=1e-6)
    slow = GradientTraffic(3.0, 3.0, 3.0, True, True, 1e9)
    s = step(traffic=slow)
    assert s.param_gather + s.grad_reduce == pytest.approx(8 * ((3 - 1) + (6 - 2)), rel=1e-6)
    blocking = step(traffic=fast, overlap_reduce=False, overlap_gather=False)
    assert blocking.total == pytest.approx(24 + 8 * 1.5)


def test_hidden_communication_slows_compute() -> None:
    traffic = GradientTraffic(0.0, 0.0, 1.5, False, False, 10.0)
    s = step(traffic=traffic, contention=0.2)
    assert s.contention == pytest.approx(0.2 * (1.5 - 0.15))


@given(
    total=st.floats(0, 100), window=st.floats(0, 100), buckets=st.floats(1, 1000), overlap=st.booleans(),
)  # fmt: skip
def test_exposure_is_between_nothing_and_everything(total: float, window: float, buckets: float, overlap: bool) -> None:
    seen = exposed(total, window, buckets, overlap)
    assert 0 <= seen <= total
    assert seen >= total - window
    assert exposed(total, window, buckets, False) == total


@given(
    pipeline=st.sampled_from([1, 2, 4, 8]), m=st.integers(1, 64), virtual=st.integers(1, 4),
    gather=st.floats(0, 5), reduce=st.floats(0, 5), each=st.booleans(), send=st.floats(0, 0.1),
    overlap=st.booleans(),
)  # fmt: skip
def test_terms_are_positive_and_nothing_is_lost(
    pipeline: int, m: int, virtual: int, gather: float, reduce: float, each: bool, send: float, overlap: bool
) -> None:
    traffic = GradientTraffic(gather, gather if each else 0.0, reduce, each, each, 4.0)
    s = step(
        pipeline, traffic=traffic, micro_batches=m, virtual=virtual, send=send, overlap_reduce=overlap,
        overlap_gather=overlap, contention=1.0, schedule="interleaved" if virtual > 1 else "1f1b",
    )  # fmt: skip
    assert all(term >= -1e-12 for term in s)
    assert s.total == pytest.approx(sum(s))
    moved = (m if each else 1) * (traffic.gather_forward + traffic.gather_backward + reduce)
    assert s.param_gather + s.grad_reduce + s.contention == pytest.approx(moved)  # contention 1: hidden seconds return


def test_stage_time_adds_what_the_stage_holds() -> None:
    """Two layers of one kind and one of another, embedding, head, and a prediction module (one block and one head)."""
    stage = StageClass(0, 1, ((2, 1),), True, True, True)
    t = stage_time(stage, [1.0, 10.0], [2.0, 20.0], (0.5, 0.7), (0.1, 0.2), 1)
    assert t.forward == pytest.approx(2 + 10 + 0.1 + 0.5 + 10 + 0.5)
    assert t.backward == pytest.approx(4 + 20 + 0.2 + 0.7 + 20 + 0.7)
    assert t.both == t.forward + t.backward
