"""The cluster for a deadline or a budget: against brute force, a published training run, and impossible wishes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshwright.catalog.hardware import cluster
from meshwright.catalog.models import model
from meshwright.engine.points import best_at
from meshwright.engine.search.space import Constraints
from meshwright.engine.size import size
from meshwright.errors import UsageError
from meshwright.spec.job import Job
from meshwright.spec.plan import Problem

FSDP = Constraints(frameworks=("fsdp",), virtual=(1,), recompute=("none", "full"))
DAY = 86400


def problem(name: str, where: str, seq_len: int, batch: int, **job: object) -> Problem:
    return Problem(
        model=model(name),
        cluster=cluster(where),
        job=Job(seq_len=seq_len, global_batch=batch, **job),  # type: ignore[arg-type]
    )


@pytest.fixture(scope="module")
def base() -> Problem:
    return problem("llama-3.1-8b", "h100-sxm:192", 4096, 480)


@pytest.fixture(scope="module")
def brute(base: Problem) -> dict[int, tuple[float, float]]:
    """Days and dollars for 1T tokens on every whole number of nodes."""
    out = {}
    for n in range(8, base.cluster.devices + 1, 8):
        e = best_at(base, n, base.job.global_batch, FSDP).estimate
        if e:
            days = 1e12 / e.tokens_per_second / DAY
            out[n] = (days, days * 24 * n * (base.cluster.price_per_device_hour or 0))
    return out


@pytest.mark.parametrize("deadline", [12, 20, 33, 60, 120])
def test_fewest_is_the_fewest_of_all_counts(
    base: Problem, brute: dict[int, tuple[float, float]], deadline: float
) -> None:
    s = size(base, tokens=1e12, deadline_days=deadline, constraints=FSDP)
    assert s.devices == min(n for n, (days, _) in brute.items() if days <= deadline)
    assert s.days == pytest.approx(brute[s.devices][0])
    assert s.dollars == pytest.approx(brute[s.devices][1])
    assert len(s.points) < len(brute), "the search should try fewer counts than there are"


@pytest.mark.parametrize("deadline", [15, 40, 100])
def test_cheapest_is_within_two_per_cent_of_the_cheapest_of_all_counts(
    base: Problem, brute: dict[int, tuple[float, float]], deadline: float
) -> None:
    s = size(base, tokens=1e12, deadline_days=deadline, goal="cheapest", constraints=FSDP)
    least = min(dollars for days, dollars in brute.values() if days <= deadline)
    assert s.days is not None and s.dollars is not None
    assert s.days <= deadline
    assert least <= s.dollars * (1 + 1e-9) and s.dollars <= 1.02 * least


def test_deepseek_v3_needs_about_its_published_days() -> None:
    """DeepSeek-V3 report, section 1: a trillion tokens took 3.7 days on 2,048 H800 (180K GPU hours)."""
    base = problem("deepseek-v3", "h800-sxm:2048", 4096, 15360, precision="fp8")
    limits = Constraints(frameworks=("megatron",), tensor=(1, 2), pipeline=(8, 16), expert=(64,), context=(1,))
    s = size(base, tokens=1e12, deadline_days=5, constraints=limits)
    assert s.devices is not None and s.days is not None
    assert s.devices * s.days * 24 == pytest.approx(180e3, rel=0.25)


def test_the_answer_meets_the_deadline_and_the_points_say_how_others_fail(base: Problem) -> None:
    s = size(base, tokens=1e12, deadline_days=30, constraints=FSDP)
    assert s.devices is not None and s.estimate is not None and s.days is not None
    assert s.devices % base.cluster.node_size == 0
    assert s.days == pytest.approx(1e12 / s.estimate.tokens_per_second / DAY) and s.days <= 30
    assert s.days == pytest.approx(s.estimate.days), "the estimate counts the tokens of the question"
    for p in s.points:
        assert p.reason is not None
        if p.devices < s.devices and p.estimate:
            assert "too late" in str(p.reason)
    assert s.problem.job.tokens == 1e12
    assert "9 in 10 runs" in str(s.summary)


def test_a_deadline_that_only_the_expected_step_meets_is_flagged(base: Problem) -> None:
    s = size(base, tokens=1e12, deadline_days=60, constraints=FSDP)
    assert s.estimate and s.days
    tight = size(base, tokens=1e12, deadline_days=s.days * 1.001, constraints=FSDP)
    assert "slow end of this misses" in str(tight.summary)


# ------------------------------------------------------------------------------------------ impossible


def test_more_devices_are_named_where_they_would_do(base: Problem) -> None:
    small = replace(base, cluster=cluster("h100-sxm:16"))
    s = size(small, tokens=1e12, deadline_days=45, constraints=FSDP)
    assert s.devices is None and s.estimate is None and s.days is None
    assert "no count up to 16 devices" in str(s.summary)
    assert "devices would take" in str(s.summary)


def test_a_deadline_before_the_peak_rate_allows_it_is_refused_without_a_search(base: Problem) -> None:
    """6·8.03e9·1e12 FLOP at 989 TFLOP/s on 8 devices are at least 70 days."""
    small = replace(base, cluster=cluster("h100-sxm:8"))
    s = size(small, tokens=1e12, deadline_days=60, constraints=FSDP)
    assert s.devices is None and not s.points
    assert "even at the peak rate" in str(s.summary)


def test_where_more_devices_do_not_help_the_batch_is_blamed() -> None:
    tiny = problem("llama-3.1-8b", "h100-sxm:64", 4096, 8)
    s = size(tiny, tokens=15e12, deadline_days=60)
    assert s.devices is None
    assert "More devices are not the answer" in str(s.summary) and "8 sequences" in str(s.summary)


def test_too_small_a_budget_says_what_it_pays(base: Problem) -> None:
    s = size(base, tokens=1e12, budget=10_000, constraints=FSDP)
    assert s.devices is None
    assert "The budget pays" in str(s.summary)
    cheapest = min(p.dollars_per_token for p in s.points if p.dollars_per_token)
    assert cheapest * 1e12 > 10_000


def test_a_model_that_fits_nowhere_says_so() -> None:
    s = size(problem("llama-3.1-405b", "h100-sxm:8", 4096, 8), tokens=1e9, deadline_days=1000)
    assert s.devices is None and "weights alone" in str(s.summary)


@pytest.mark.parametrize("wish", [{"budget": 1e6}, {"deadline_days": 30.0, "goal": "cheapest"}])
def test_costs_without_a_price_are_refused(base: Problem, wish: dict[str, object]) -> None:
    free = replace(base, cluster=replace(base.cluster, price_per_device_hour=None))
    with pytest.raises(UsageError) as refused:
        size(free, tokens=1e12, **wish)  # type: ignore[arg-type]
    assert refused.value.where == "--price" and "--price" in str(refused.value.fix)


def test_a_deadline_needs_no_price(base: Problem) -> None:
    free = replace(base, cluster=replace(base.cluster, price_per_device_hour=None))
    s = size(free, tokens=1e12, deadline_days=60, constraints=FSDP)
    assert s.devices and s.dollars is None


# ------------------------------------------------------------------------------------------ budgets and limits


def test_budget_and_deadline_both_hold(base: Problem, brute: dict[int, tuple[float, float]]) -> None:
    budget = 1.05 * min(dollars for days, dollars in brute.values() if days <= 40)
    s = size(base, tokens=1e12, deadline_days=40, budget=budget, constraints=FSDP)
    assert s.days is not None and s.dollars is not None
    assert s.days <= 40 and s.dollars <= budget


def test_without_a_deadline_the_fastest_within_the_budget_is_shown(base: Problem) -> None:
    s = size(base, tokens=1e12, budget=1e6, constraints=FSDP)
    assert s.devices == 8 and "within the same budget" in str(s.summary)


def test_a_cluster_named_without_a_number_sets_no_limit(base: Problem) -> None:
    open_end = replace(base, cluster=cluster("dgx-h100"))
    assert open_end.cluster.devices == 8
    s = size(open_end, tokens=1e12, deadline_days=30, constraints=FSDP)
    assert s.devices == size(base, tokens=1e12, deadline_days=30, constraints=FSDP).devices


def test_slices_of_a_tpu_are_sized_by_their_shapes() -> None:
    s = size(problem("llama-3.1-8b", "tpu-v5p:256", 4096, 512), tokens=1e12, deadline_days=40)
    assert s.devices is not None and cluster(f"tpu-v5p:{s.devices}").devices == s.devices
