"""Preemptible machines: the arithmetic of a stop, the price at which they stop paying."""

from __future__ import annotations

import pytest
from survival_cases import case

from meshwright.errors import UsageError
from meshwright.resilience.situation import Options
from meshwright.resilience.spot import spot
from meshwright.spec.estimate import Estimate
from meshwright.spec.plan import Problem
from meshwright.spec.strategy import Strategy

DAY = 86400.0


def small() -> tuple[Problem, Strategy, Estimate]:
    return case("llama-3.1-8b", "h100-sxm:64", 4096, 128, 1e12, framework="fsdp")


def test_rare_preemptions_cost_nothing_and_the_price_decides() -> None:
    problem = small()[0]
    found = spot(*small(), price=(problem.cluster.price_per_device_hour or 0) / 2, between=3650 * DAY)
    assert found.useful == pytest.approx(found.useful_on_demand, rel=1e-3)
    assert found.dollars_per_token == pytest.approx(found.dollars_per_token_on_demand / 2, rel=1e-3)


def test_a_noticed_preemption_is_a_stop_and_nothing_more() -> None:
    """Eight nodes, each taken every two days: a stop of about a quarter of an hour every six."""
    found = spot(*small(), price=1.0, between=2 * DAY, notice=120.0, wait=600.0)
    assert found.saved_on_notice
    stop = found.useful_on_demand / found.useful - 1
    assert stop * 2 * DAY / 8 == pytest.approx(600 + 60 + 120, abs=60)


def test_without_notice_work_is_lost_too() -> None:
    with_notice, without = (spot(*small(), price=1.0, between=DAY, notice=n) for n in (120.0, 0.5))
    assert not without.saved_on_notice and without.useful < with_notice.useful


def test_break_even_is_where_a_token_costs_the_same() -> None:
    found = spot(*small(), price=1.5, between=DAY)
    assert found.break_even
    at = spot(*small(), price=1.5, between=found.break_even)
    assert at.dollars_per_token == pytest.approx(at.dollars_per_token_on_demand, rel=1e-3)


def test_at_the_same_price_it_never_pays() -> None:
    price = small()[0].cluster.price_per_device_hour or 0
    found = spot(*small(), price=price * 1.01, between=30 * DAY)
    assert found.break_even is None and "never pays" in str(found.summary)


def test_costs_need_a_price() -> None:
    from dataclasses import replace

    problem, strategy, estimate = small()
    bare = replace(problem, cluster=replace(problem.cluster, price_per_device_hour=None))
    with pytest.raises(UsageError, match="no price"):
        spot(bare, strategy, estimate, price=1.0, between=DAY, options=Options())
