"""Goodput as an objective: plans ranked by useful tokens, sizes that count failures."""

from __future__ import annotations

import pytest

from meshwright import api
from meshwright.resilience.objective import share
from meshwright.resilience.plan import plan
from meshwright.resilience.situation import Options


def test_the_share_is_that_of_the_whole_answer() -> None:
    problem = api.problem(model="llama-3.1-8b", cluster="h100-sxm:64", seq_len=8192, global_batch=128)
    found = api.plan(problem, goal="goodput", top=5)
    best = found.best
    assert best is not None and best.useful is not None
    whole = plan(problem, best.strategy, best.estimate)
    assert best.useful == pytest.approx(whole.goodput.useful, rel=1e-3)


def test_a_plan_is_ranked_by_useful_tokens() -> None:
    problem = api.problem(model="llama-3.1-70b", cluster="h100-sxm:256", seq_len=8192, global_batch=256)
    options = api.resilience_options(failures="opt-175b", storage="nfs")
    found = api.plan(problem, goal="goodput", top=8, resilience=options)
    rates = [r.estimate.tokens_per_second * (r.useful or 0) for r in found.ranked]
    best = max(rates)
    assert all(rate >= 0.98 * best for rate in rates[:1]), "near ties go to the simpler strategy, as by time"
    assert all(r.useful is not None and 0 < r.useful < 1 for r in found.ranked)
    assert any("opt-175b" in str(text) for text in found.problem.assumptions)


def test_failures_can_change_the_order() -> None:
    """With everything copied before each save, a strategy that writes from one replica waits longer."""
    problem = api.problem(model="gpt-3-13b", cluster="a100-sxm-80gb:64", seq_len=2048, global_batch=512)
    of = share(problem, Options(mtti=1800.0, mode="blocking", write=100e9))
    first, _ = api.strategy(problem, framework="deepspeed", sharding="zero1")
    third, _ = api.strategy(problem, framework="deepspeed", sharding="zero3")
    assert of(first, 3.0) < of(third, 3.0)


def test_size_counts_failures_where_asked() -> None:
    problem = api.problem(model="llama-3.1-8b", cluster="h100-sxm:512", seq_len=8192, global_batch=512)
    plain = api.size(problem, tokens="1T", deadline="60d")
    counted = api.size(problem, tokens="1T", deadline="60d", resilience=api.resilience_options(rate="5000"))
    assert plain.devices and counted.devices and counted.devices >= plain.devices
    assert "failures counted" in str(counted.summary) and "failures counted" not in str(plain.summary)
    point = next(p for p in counted.points if p.devices == counted.devices)
    assert point.useful and point.useful < 0.95
    estimate = counted.estimate
    assert estimate and counted.days == pytest.approx(1e12 / estimate.tokens_per_second / point.useful / 86400)


def test_failures_decide_a_deadline() -> None:
    problem = api.problem(model="llama-3.1-8b", cluster="h100-sxm:64", seq_len=8192, global_batch=512)
    plain = api.size(problem, tokens="100B", deadline="100d")
    assert plain.days
    tight = f"{plain.days * 1.02:.3f}d"
    only = api.constraints(None, framework="megatron")
    assert api.size(problem, tokens="100B", deadline=tight, constraints=only).devices is not None
    often = api.resilience_options(mtti="20min")
    small = api.problem(model="llama-3.1-8b", cluster=f"h100-sxm:{plain.devices}", seq_len=8192, global_batch=512)
    assert api.size(small, tokens="100B", deadline=tight, constraints=only, resilience=often).devices is None
