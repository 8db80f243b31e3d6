"""The sentences of a plan say what its table says."""

from __future__ import annotations

import pytest

from meshwright import api
from meshwright.engine.search.reasons import _difference


@pytest.mark.parametrize(
    ("slower", "said"),
    [
        (0.254, "25.4% slower"),
        (0.0, "0.0% slower"),
        (-0.017, "1.7% faster, a near tie that the simpler one wins"),
        (-0.3, "30.0% faster, with more memory"),
    ],
)
def test_a_difference_keeps_its_sign(slower: float, said: str) -> None:
    assert str(_difference(slower)) == said


def test_a_faster_row_of_the_table_is_not_called_slower() -> None:
    """Llama-3.1-70B on 64 H100: the first of a near tie is simpler, others are a little faster."""
    problem = api.problem(model="llama-3.1-70b", cluster="h100-sxm:64", seq_len=8192)
    plan = api.plan(problem, top=10)
    assert plan.best is not None
    first = plan.best.estimate.step_seconds
    quicker = [r for r in plan.ranked if r.estimate.step_seconds < 0.999 * first]
    said = " ".join(str(reason) for reason in plan.reasons)
    assert quicker and "faster" in said
