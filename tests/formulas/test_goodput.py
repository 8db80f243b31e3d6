"""Checkpoint intervals and efficiencies against published figures, each other, and quadrature written here."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.formulas import goodput as g
from meshwright.formulas.checkpoint import bandwidth_for_loss, checkpoint_bytes, transfer_time
from meshwright.formulas.failures import failure_probability, mtbf, mtti, pair_loss, poisson_cdf

HOUR, DAY = 3600.0, 86400.0
LLAMA3 = 3.09 * HOUR  # mean time to interrupt: 419 unexpected interruptions in 54 days


@pytest.mark.parametrize(("mtti_minutes", "printed"), [(24 * 60, 117), (6 * 60, 57), (15, 9.1)])
def test_daly_prints_these_intervals_for_five_minutes_of_saving(mtti_minutes: float, printed: float) -> None:
    assert g.daly(5.0, mtti_minutes) == pytest.approx(printed, abs=0.5 if printed > 10 else 0.05)


@pytest.mark.parametrize(
    ("devices", "rate", "hours"),
    [(16384, 6.5e-3, 1.803), (131072, 6.5e-3, 0.225), (16384, 2.34e-3, 5.01), (131072, 2.34e-3, 0.626)],
)
def test_mean_time_to_interrupt_of_two_clusters_of_meta(devices: int, rate: float, hours: float) -> None:
    assert mtti(devices / 8, rate / DAY) / HOUR == pytest.approx(hours, rel=2e-3)


@pytest.mark.parametrize(
    ("write", "restart", "printed"), [(5, 300, 0.945), (20, 300, 0.916), (60, 300, 0.876), (20, 180, 0.926),
                                      (20, 600, 0.892)],
)  # fmt: skip
def test_effective_time_of_llama_3(write: float, restart: float, printed: float) -> None:
    interval = g.daly(write, LLAMA3)
    assert g.efficiency(interval, write, LLAMA3, restart) == pytest.approx(printed, abs=6e-4)


@pytest.mark.parametrize(
    ("mean", "quantile", "spares"),
    [(2048 * 3.79e-3, 0.99, 15), (2048 * 3.79e-3, 0.999, 18), (3 * 2048 * 3.79e-3, 0.99, 35),
     (3 * 2048 * 3.79e-3, 0.999, 40), (128 * 16e-3, 0.99, 6), (128 * 16e-3, 0.999, 8), (2 * 1200 * 5e-3, 0.99, 21),
     (2 * 1200 * 5e-3, 0.999, 24)],
)  # fmt: skip
def test_spares_of_the_published_examples(mean: float, quantile: float, spares: int) -> None:
    assert poisson_cdf(spares, mean) >= quantile > poisson_cdf(spares - 1, mean)


@given(st.floats(0.01, 300), st.integers(0, 400))
def test_poisson_is_the_sum_of_its_terms(mean: float, count: int) -> None:
    terms = [math.exp(-mean + i * math.log(mean) - math.lgamma(i + 1)) for i in range(count + 1)]
    assert poisson_cdf(count, mean) == pytest.approx(math.fsum(terms), rel=1e-9, abs=1e-12)


@given(st.floats(1, 3600), st.floats(600, 1e6))
def test_the_exact_interval_is_where_no_other_does_better(cost: float, mean: float) -> None:
    best = g.exact_interval(cost, mean)
    around = best * np.array([0.9, 0.97, 1.0, 1.03, 1.1])
    values = g.efficiency(around, cost, mean, 60.0)
    assert values.argmax() == 2


@given(st.floats(1, 100), st.floats(1100, 1e6))
def test_daly_is_within_three_percent_of_the_optimum(cost: float, mean: float) -> None:
    """For d/M below 0.1."""
    assert g.daly(cost, mean) == pytest.approx(g.exact_interval(cost, mean), rel=0.03)
    assert g.young(cost, mean) > g.daly_first(cost, mean)


@given(st.floats(60, 7200), st.floats(0.1, 60), st.floats(2 * HOUR, 1e3 * HOUR), st.floats(0, 600))
def test_meta_and_exact_agree_where_losses_are_small(interval: float, cost: float, mean: float, restart: float) -> None:
    exact = g.efficiency(interval, cost, mean, restart)
    if exact > 0.85:
        assert g.expected_ettr(1, 1 / mean, restart, interval, cost) == pytest.approx(exact, abs=0.01)


def test_meta_strays_where_losses_are_large() -> None:
    mean, restart, interval = 4000.0, 600.0, 2400.0
    assert (restart + interval / 2) / mean > 0.25
    assert abs(g.expected_ettr(1, 1 / mean, restart, interval, 60) - g.efficiency(interval, 60, mean, restart)) > 0.02


@given(st.floats(60, 7200), st.floats(0.1, 60), st.floats(0, 3600))
def test_limits(interval: float, cost: float, restart: float) -> None:
    """Without failures only the saving costs; without a cost the interval goes to nothing."""
    assert g.efficiency(interval, cost, 1e12, restart) == pytest.approx(1 / (1 + cost / interval), rel=1e-6)
    assert g.small_loss(interval, cost, 1e15, restart) == pytest.approx(cost / interval, rel=1e-6)
    for rule in (g.young, g.daly, g.daly_first, g.exact_interval):
        assert rule(1e-9, 1e4) < 0.01


@given(st.floats(30, 7200), st.floats(0.1, 60), st.floats(HOUR, 1e3 * HOUR), st.floats(0, 1800), st.floats(0, 1800))
def test_two_tiers_with_one_kind_of_failure_are_one_tier(
    interval: float, cost: float, mean: float, restart: float, other: float
) -> None:
    one = g.efficiency(interval, cost, mean, restart)
    assert g.efficiency_two_tier(interval, cost, 1, 0.0, mean, 1.0, other, restart) == pytest.approx(one, rel=1e-9)
    quick = g.efficiency_two_tier(interval, cost, 5, 0.0, mean, 0.0, restart, other)
    assert quick == pytest.approx(one, rel=1e-5)  # storage never helps, so that only the quick tier matters


@given(st.floats(30, 300), st.integers(2, 40), st.floats(0.01, 0.5))
def test_two_tiers_to_first_order(interval: float, segments: int, hard: float) -> None:
    mean, stalls = 3e6, (0.2, 1.0)
    exact = g.efficiency_two_tier(interval, stalls[0], segments, stalls[1], mean, hard, 60, 600)
    loss = g.two_tier_loss(interval, stalls[0], interval * segments, stalls[1], mean, hard, 60, 600)
    assert 1 / exact - 1 == pytest.approx(loss, rel=0.02)


def test_hopeless_settings_give_zero_and_no_overflow() -> None:
    assert g.efficiency(3600, 60, 1.0, 600) == 0
    assert g.efficiency_two_tier(3600, 60, 100, 60, 1.0, 0.5, 600, 6000) == 0
    assert g.efficiency_asynchronous(3600, 60, 60, 1.0, 600) == 0


def test_slow_nodes_replicas_and_downtime() -> None:
    assert g.slow_node(0.05) == pytest.approx(1 - 1 / 1.05)
    loss = 1200 / (128 * LLAMA3) + 30 / LLAMA3  # formula of replica-level fault tolerance, first order
    assert 1 - g.efficiency_replicas(128, LLAMA3, 1200, 30) == pytest.approx(loss, rel=0.01)
    assert g.downtime(300, LLAMA3) == pytest.approx(300 / LLAMA3, rel=0.02)
    assert failure_probability(LLAMA3, LLAMA3) == pytest.approx(1 - 1 / math.e)
    assert mtbf(54 * DAY, 419) / HOUR == pytest.approx(3.09, abs=0.005)
    assert pair_loss(1, 100) == 0 and pair_loss(5, 2) == 1


def test_sizes_and_times_of_published_checkpoints() -> None:
    assert checkpoint_bytes(176.247e9) == pytest.approx(2.467e12, rel=1e-3)
    assert checkpoint_bytes(176.247e9, 2, 0, 0) / 2**30 == pytest.approx(328.3, abs=0.1)
    assert checkpoint_bytes(175e9, 2, 4, 4) / 2**40 == pytest.approx(1.59, abs=0.01)
    assert transfer_time(5.67e12, 7e12, 2048, 1e12) == pytest.approx(0.8, abs=0.02)
    loss, size = 0.04, 5.67e12
    cost = size / bandwidth_for_loss(size, LLAMA3, loss)
    assert g.small_loss(g.young(cost, LLAMA3), cost, LLAMA3, 0) == pytest.approx(loss, rel=0.03)
