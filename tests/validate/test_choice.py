"""Regret and rank correlation of one job measured under several strategies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau

from meshwright.validate import by_source, choice_sets, validate
from meshwright.validate.choice import kendall

ROWS = Path(__file__).parents[1] / "data/measured_runs/rows.csv"


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), min_size=2, max_size=12))
def test_correlation_is_kendalls(pairs: list[tuple[int, int]]) -> None:
    """Against scipy, where nothing is tied."""
    distinct = list({m: (float(p), float(m) ** 3) for p, m in pairs}.values())  # cubes differ by more than a tie
    if len(distinct) < 2 or len({p for p, _ in distinct}) < len(distinct):
        return
    assert kendall(distinct) == pytest.approx(kendalltau(*zip(*distinct, strict=True)).statistic)


def test_regret_is_what_the_predicted_best_loses() -> None:
    first = next(c for c in validate(ROWS).rows if c.error is not None)
    assert first.estimate is not None
    made = [
        replace(first, predicted=p, measured=m, estimate=replace(first.estimate, strategy=s))
        for p, m, s in (
            (100.0, 90.0, first.estimate.strategy),
            (90.0, 100.0, replace(first.estimate.strategy, micro_batch=64)),
            (80.0, 50.0, replace(first.estimate.strategy, micro_batch=128)),
        )
    ]
    (found,) = choice_sets(made)
    assert found.regret == pytest.approx(0.1) and found.strategies == 3
    assert found.correlation == pytest.approx(1 / 3)
    (source,) = by_source([found])
    assert (source.sets, source.worst_regret) == (1, found.regret)
    assert choice_sets(made[:1]) == ()
