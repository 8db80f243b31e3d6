"""The arithmetic helpers give the same on numbers and on columns as numpy does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.formulas import numeric as n

values = st.floats(0.01, 1e12)


@given(values, values)
def test_pairs_agree_with_numpy(a: float, b: float) -> None:
    for ours, theirs in ((n.maximum, np.maximum), (n.minimum, np.minimum)):
        assert ours(a, b) == theirs(a, b)
        assert np.array_equal(ours(np.array([a, b]), b), theirs(np.array([a, b]), b))


@pytest.mark.parametrize("name", ["ceil", "floor", "log2", "log", "log1p", "sqrt"])
@given(values)
def test_single_arguments_agree_with_numpy(name: str, x: float) -> None:
    assert getattr(n, name)(x) == pytest.approx(float(getattr(np, name)(x)))
    assert getattr(n, name)(np.array([x, 1.0])) == pytest.approx(getattr(np, name)(np.array([x, 1.0])))


@pytest.mark.parametrize(
    ("given_values", "expected"),
    [
        ((), 0.0),
        ((3.0,), 3.0),
        ((3.0, 7, 5.0), 12),
        ((np.array([1.0, 9.0]), 4.0), np.array([5.0, 13.0])),
        ((2, np.array([1.0, 9.0]), np.array([5.0, 3.0])), np.array([7.0, 12.0])),
    ],
)
def test_two_largest(given_values: tuple[Any, ...], expected: Any) -> None:
    assert np.array_equal(n.two_largest(given_values), expected)


@given(st.floats(-700, 100))
def test_exponentials_agree_with_numpy(x: float) -> None:
    for ours, theirs in ((n.exp, np.exp), (n.expm1, np.expm1)):
        assert ours(x) == pytest.approx(float(theirs(x)))
        assert ours(np.array([x, 1.0])) == pytest.approx(theirs(np.array([x, 1.0])))


def test_where_picks_by_row() -> None:
    assert n.where(True, 1, 2) == 1 and n.where(False, 1, 2) == 2
    assert np.array_equal(n.where(np.array([True, False]), 1, np.array([5, 6])), [1, 6])
