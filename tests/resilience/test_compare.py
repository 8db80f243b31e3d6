"""Policies over the size of the cluster: what must hold of the curves, and where they cross."""

from __future__ import annotations

import pytest
from survival_cases import llama_70b, llama_405b

from meshwright.catalog import failures as known
from meshwright.errors import InputError
from meshwright.resilience.compare import compare
from meshwright.resilience.situation import Options
from meshwright.spec.resilience import PolicyComparison


@pytest.fixture(scope="module")
def curves() -> PolicyComparison:
    return compare(*llama_405b(), Options(source=known.failure_source("llama-3-405b"), storage="tectonic"))


def share(found: PolicyComparison, mode: str, devices: int) -> float:
    return next(p.useful for p in found.points if p.mode == mode and p.devices == devices)


def test_every_policy_stands_at_every_size(curves: PolicyComparison) -> None:
    assert curves.counts[0] == 128 and curves.counts[-1] == 131072
    for n in curves.counts[3:]:
        modes = {p.mode for p in curves.points if p.devices == n}
        assert modes == {"blocking", "async", "two-tier", "peer", "replicas", "hot-spares"}


def test_larger_clusters_fail_more_and_keep_less(curves: PolicyComparison) -> None:
    """Once nodes and not the job's own software fail; up to 64 devices of rounding to whole steps and spares."""
    for mode in ("blocking", "async", "hot-spares", "replicas"):
        values = [share(curves, mode, n) for n in curves.counts if n >= 8192]
        assert values == sorted(values, reverse=True)


def test_a_better_mechanism_is_never_worse(curves: PolicyComparison) -> None:
    for n in curves.counts:
        assert share(curves, "async", n) >= share(curves, "blocking", n) - 1e-9
        assert share(curves, "hot-spares", n) >= share(curves, "async", n)
        assert share(curves, "two-tier", n) >= share(curves, "async", n) - 2e-3
        assert share(curves, "peer", n) >= share(curves, "two-tier", n) - 2e-3


def test_replicas_pay_where_failures_are_frequent(curves: PolicyComparison) -> None:
    """Where a failure comes every 20 minutes, restarts of five minutes leave little; groups that go on leave most."""
    gain = {n: share(curves, "replicas", n) - share(curves, "async", n) for n in (16384, 131072)}
    assert gain[131072] > 3 * gain[16384] > 0
    even = next(b for b in curves.break_even if b.better == "replicas")
    assert even.devices is not None and even.devices <= 16384 and even.until is None


def test_a_break_even_is_where_the_curves_cross(curves: PolicyComparison) -> None:
    for even in curves.break_even:
        if even.devices is None:
            continue
        at = curves.counts.index(even.devices)
        assert share(curves, even.better, even.devices) >= share(curves, even.than, even.devices) + 0.001
        if at:
            before = curves.counts[at - 1]
            if any(p.mode == even.better and p.devices == before for p in curves.points):
                assert share(curves, even.better, before) < share(curves, even.than, before) + 0.001


def test_slow_storage_is_where_a_second_tier_pays() -> None:
    """Behind one NFS server a restart reads for hours, which memory of another node avoids."""
    nfs = compare(*llama_70b(), Options(storage="nfs"), (512,))
    fast = compare(*llama_70b(), Options(storage="tectonic"), (512,))
    assert share(nfs, "peer", 512) - share(nfs, "async", 512) > 0.02
    assert share(fast, "peer", 512) - share(fast, "async", 512) < 0.005


def test_a_count_that_holds_no_whole_copy_is_refused() -> None:
    with pytest.raises(InputError, match="no whole number of model copies of 16"):
        compare(*llama_70b(), None, (1000,))


def test_a_measured_mean_time_scales_with_the_nodes() -> None:
    found = compare(*llama_70b(), Options(mtti=10 * 3600.0), (256, 512, 1024))
    times = {p.devices: p.mtti for p in found.points}
    assert times[512] == pytest.approx(36000) and times[1024] == pytest.approx(18000)
