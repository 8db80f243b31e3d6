"""Single terms of a step against published breakdowns: differences between runs, where common errors cancel.

Figures: shared/validation/breakdowns_open.md sections 4 and 5, breakdowns_megatron.md sections 6, 7 and 9.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from meshwright.engine.evaluate import step_seconds
from meshwright.validate import Compared, validate

RUNS = Path(__file__).parents[3] / "shared/validation/measured_runs.csv"
pytestmark = pytest.mark.skipif(not RUNS.is_file(), reason="published runs are not beside the checkout")


@pytest.fixture(scope="module")
def runs() -> dict[str, Compared]:
    """All published runs by id."""
    return {c.run.id: c for c in validate(RUNS).rows}


def seconds(c: Compared) -> float:
    """Predicted step."""
    assert c.estimate is not None
    return c.estimate.step_seconds


def test_bloom_pays_per_batch_and_once(runs: dict[str, Compared]) -> None:
    """Chronicles sweep: 23.5-24.0 s per 512 samples and 11.9 s that do not depend on the batch (fill and states)."""
    c = runs["bs-056"]
    assert c.problem is not None and c.estimate is not None
    steps = [
        step_seconds(replace(c.problem, job=replace(c.problem.job, global_batch=batch)), c.estimate.strategy)
        for batch in (512, 1024, 1536, 2048)
    ]
    slopes = [b - a for a, b in pairwise(steps)]
    assert slopes == pytest.approx([23.75] * 3, rel=0.2)
    assert steps[0] - slopes[0] == pytest.approx(11.9, rel=0.25)


WEAK_SCALING = [("dgxc-196", "dgxc-200", 0.022), ("dgxc-201", "dgxc-205", 0.059), ("dgxc-083", "dgxc-090", 0.056)]


@pytest.mark.parametrize(("small", "large", "loss"), WEAK_SCALING)
def test_weak_scaling_to_2048_devices_costs_a_few_per_cent(
    runs: dict[str, Compared], small: str, large: str, loss: float
) -> None:
    assert seconds(runs[large]) / seconds(runs[small]) - 1 == pytest.approx(loss, abs=0.045)


def test_tensor_parallelism_costs_more_at_the_node_boundary(runs: dict[str, Compared]) -> None:
    """nanotron, 3.57B on H100, TP 2 to 32: -5, -19, -43 and -41 % per doubling; nodes hold 8."""
    rates = [runs[f"nt-{i:03d}"].predicted or 0.0 for i in range(27, 32)]
    losses = [b / a - 1 for a, b in pairwise(rates)]
    assert losses == pytest.approx([-0.05, -0.19, -0.43, -0.41], abs=0.12)
    assert losses[2] < losses[1] < losses[0] < 0


def test_hiding_the_expert_exchange(runs: dict[str, Compared]) -> None:
    """Qwen3-235B on 256 H100: 19.7 to 17.6 s when the all-to-all runs behind another micro-batch."""
    assert seconds(runs["zoo-002"]) / seconds(runs["zoo-001"]) - 1 == pytest.approx(17.6 / 19.7 - 1, abs=0.06)


def test_compiling_pays(runs: dict[str, Compared]) -> None:
    """torchtitan 8B on 8 H100: 5,762 to 6,667 tokens/s a device with torch.compile; here only fusion is modelled."""
    gain = (runs["tt-002"].predicted or 0.0) / (runs["tt-001"].predicted or 1.0) - 1
    assert 0.01 < gain < 0.2
