"""Incident logs: rates against quantiles of chi², lemons planted by chance, and what is wrong with a file said."""

from __future__ import annotations

import numpy as np
import pytest

from meshwright.errors import InputError
from meshwright.resilience.incidents import find_lemons, group_of, read_incidents, study

DAY = 86400.0
LOG = b"""timestamp,host,reason,duration
2026-01-01T00:00:00,n1,Xid 79 GPU fell off the bus,20min
2026-01-03 12:00,n2,NCCL watchdog timeout,300
2026-01-02T00:00:00+00:00,n3,IB link flap,
"""


def test_a_log_is_read_in_order_with_its_units() -> None:
    incidents, first, last = read_incidents(LOG)
    assert [i.node for i in incidents] == ["n1", "n3", "n2"]
    assert [i.downtime for i in incidents] == [1200, None, 300]
    assert (last - first).total_seconds() == 2.5 * DAY == incidents[-1].seconds
    assert [group_of(i.cause) for i in incidents] == ["accelerator", "network", "software"]


@pytest.mark.parametrize(
    ("count", "low", "high"),
    [(0, 0.0, 2.9957), (1, 0.0513, 4.7439), (10, 5.4254, 16.962), (419, 385.90, 454.26)],
)
def test_the_interval_is_that_of_chi_squared(count: int, low: float, high: float) -> None:
    """Half the 5 % and 95 % quantiles of chi² with 2k and 2k + 2 degrees of freedom (tables)."""
    from meshwright.formulas.failures import count_high, count_low

    assert count_low(count) == pytest.approx(low, rel=2e-3, abs=1e-4)
    assert count_high(count) == pytest.approx(high, rel=2e-3)


def test_intervals_against_scipy() -> None:
    chi2 = pytest.importorskip("scipy.stats").chi2
    from meshwright.formulas.failures import count_high, count_low

    for count in (1, 3, 47, 419, 2000):
        assert count_low(count) == pytest.approx(chi2.ppf(0.05, 2 * count) / 2, rel=1e-6)
        assert count_high(count) == pytest.approx(chi2.ppf(0.95, 2 * count + 2) / 2, rel=1e-6)


def test_63_nodes_of_b200() -> None:
    """55 days, 10 failures: 2.9 in 1,000 node-days."""
    rng = np.random.default_rng(0)
    days = rng.uniform(1, 28, 10)
    lines = [f"2026-02-{int(day):02d},node{n},Xid 63" for n, day in enumerate(days)]
    incidents, _, _ = read_incidents("\n".join(["time,node,cause", *lines]).encode())
    found = study(incidents, nodes=63, days=55)
    assert found.rate * 1000 * DAY == pytest.approx(2.886, abs=0.001)
    assert found.low < found.rate < found.high
    assert not found.lemons and found.source.basis == "incidents"
    assert "2.89 in 1,000 node-days" in str(found.summary)


def test_three_lemons_of_63_are_found() -> None:
    """Half of the failures fall on three nodes, as in the published cluster of B200."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        weights = np.full(63, 0.5 / 60)
        weights[:3] = 0.5 / 3
        found = {lemon.node for lemon in find_lemons(counted(rng.choice(63, size=120, p=weights)), 63)}
        assert {"0", "1", "2"} <= found and len(found) <= 4


def counted(nodes: np.ndarray) -> dict[str, int]:
    return {str(n): int((nodes == n).sum()) for n in set(nodes.tolist())}


def test_equal_nodes_have_no_lemons() -> None:
    """A wrong alarm in about one cluster in a hundred."""
    alarms = 0
    for seed in range(300):
        nodes = np.random.default_rng(seed).integers(0, 200, size=150)
        alarms += bool(find_lemons(counted(nodes), 200))
    assert alarms <= 9


def test_without_lemons_the_rate_is_that_of_the_rest() -> None:
    rows = [f"2026-01-{1 + i:02d},bad,gpu" for i in range(20)] + [f"2026-01-{1 + i:02d},n{i},gpu" for i in range(5)]
    incidents, first, last = read_incidents("\n".join(["date,node,cause", *rows]).encode())
    found = study(incidents, nodes=100, span=(last - first).total_seconds())
    assert [lemon.node for lemon in found.lemons] == ["bad"]
    assert found.rate_without * 99 == pytest.approx(found.rate * 100 * 5 / 25)
    assert any("from the first to the last" in str(text) for text in found.assumptions)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"time,node\n", "no incident"),
        (b"when,what\n1,2\n", "no column 'time'"),
        (b"time,what\n2026-01-01,2\n", "no column 'node'"),
        (b"time,node\nyesterday,n1\n", "'yesterday' is no time"),
        (b"time,node\n2026-01-01,\n", "names no node"),
        (b"time,node,downtime\n2026-01-01,n1,soon\n", "'soon' is not a duration"),
    ],
)
def test_what_is_wrong_with_a_log_is_said(content: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read_incidents(content, where="log.csv")
    assert caught.value.where.startswith("log.csv") and caught.value.fix


def test_more_nodes_named_than_given_and_no_time_at_all() -> None:
    incidents, _, _ = read_incidents(b"time,node\n2026-01-01,a\n2026-01-01,b\n")
    with pytest.raises(InputError, match="more than the 1 given"):
        study(incidents, nodes=1, days=3)
    with pytest.raises(InputError, match="no rate follows"):
        study(incidents, nodes=2, span=0.0)
