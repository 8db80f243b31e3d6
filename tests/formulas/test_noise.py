"""Noise scale formulas against the identities of the paper."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.formulas import noise

positive = st.floats(0.01, 1e4)


@given(signal=positive, trace=positive, small=st.integers(1, 100), times=st.integers(2, 64))
def test_expected_norms_give_back_signal_and_trace(signal: float, trace: float, small: int, times: int) -> None:
    """E|g_B|² = |G|² + tr(Σ)/B, equation A.1 of the paper, solved for both unknowns."""
    large = small * times
    large_sq, small_sq = signal + trace / large, signal + trace / small
    near = {"rel": 1e-6, "abs": 1e-6 * (signal + trace)}
    assert noise.gradient_signal(large, small, large_sq, small_sq) == pytest.approx(signal, **near)
    assert noise.gradient_noise(large, small, large_sq, small_sq) == pytest.approx(trace, **near)


@given(batch=positive, critical=positive, steps=positive)
def test_steps_and_examples_lie_on_the_hyperbola(batch: float, critical: float, steps: float) -> None:
    """(S/S_min − 1)(E/E_min − 1) = 1, equation 2.11, and E = B·S."""
    fewest_examples = critical * steps
    s = noise.steps_at_batch(batch, critical, steps)
    e = noise.examples_at_batch(batch, critical, fewest_examples)
    assert (s / steps - 1) * (e / fewest_examples - 1) == pytest.approx(1, rel=1e-6)
    assert e == pytest.approx(batch * s, rel=1e-9)


def test_the_learning_rate_is_linear_then_flat() -> None:
    assert noise.sgd_learning_rate(1, 1e6, 1.0) == pytest.approx(1e-6, rel=1e-5)
    assert noise.sgd_learning_rate(1e9, 1e3, 1.0) == pytest.approx(1.0, rel=1e-5)
