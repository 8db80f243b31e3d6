"""Failure rates of one job against what published systems counted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshwright.catalog import failures as known
from meshwright.catalog.hardware import cluster
from meshwright.resilience.failures import by_component, failure_model, given_rate

DAY = 86400.0
SYSTEMS = ("meta-rsc-1", "meta-rsc-2", "llama-3-405b", "bloom-176b", "b200-63", "opt-175b", "default")


@pytest.mark.parametrize(
    ("name", "nodes", "days", "seen"),
    [("llama-3-405b", 2048, 54, 419), ("b200-63", 63, 55, 10), ("bloom-176b", 48, 105, 15)],
)
def test_a_published_rate_gives_its_count_back(name: str, nodes: int, days: float, seen: int) -> None:
    source = known.failure_source(name)
    assert source.rate * nodes * days * DAY == pytest.approx(seen, rel=0.005)
    assert source.low < source.rate < source.high


def test_interruptions_of_llama_3_lie_between_two_clusters_of_the_same_house() -> None:
    """RSC-1 says 719, RSC-2 259; 419 were counted."""
    here = cluster("llama3-h100-24k", devices=16384)
    expected = {n: failure_model(here, known.failure_source(n)).expected(54 * DAY) for n in SYSTEMS}
    assert expected["meta-rsc-1"] == pytest.approx(718.8, abs=0.1)
    assert expected["meta-rsc-2"] == pytest.approx(258.8, abs=0.1)
    assert expected["meta-rsc-2"] < 419 < expected["meta-rsc-1"]
    default = failure_model(here)
    assert 54 * DAY / default.mtti_high < 419 < 54 * DAY / default.mtti_low


def test_interruptions_of_63_nodes() -> None:
    model = failure_model(cluster("b200-sxm:504"), known.failure_source("b200-63"), small_job=False)
    assert model.expected(55 * DAY) == pytest.approx(10, rel=0.001)


def test_llama_3_by_cause() -> None:
    """268 of 419 were the GPU's own; 148 were faulty GPUs, 35.3 % and not the printed 30.1 %."""
    causes = {c.name: c for c in known.failure_source("llama-3-405b").causes}
    assert causes["gpu"].share == pytest.approx(148 / 419)
    gpu = sum(c.share for c in causes.values() if c.group in ("accelerator", "hbm"))
    assert gpu == pytest.approx(268 / 419)
    model = failure_model(cluster("h100-sxm:16384"), known.failure_source("llama-3-405b"))
    parts = by_component(model)
    assert sum(parts.values()) == pytest.approx(1 / model.mtti)
    assert parts["hbm"] * 54 * DAY == pytest.approx(72, rel=0.001)


def test_a_small_job_fails_of_its_own_software() -> None:
    """Meta's jobs of 1,024 A100 failed every 7.9 h, where their nodes alone say 28.8 h."""
    source = known.failure_source("meta-rsc-1")
    small = failure_model(cluster("a100-sxm-80gb:1024"), source)
    alone = failure_model(cluster("a100-sxm-80gb:1024"), source, small_job=False)
    assert alone.mtti / 3600 == pytest.approx(28.8, abs=0.1)
    assert small.bound_by_job and 8 <= small.mtti / 3600 <= 30 and small.mtti < alone.mtti
    assert any("own software" in str(text) for text in small.assumptions)
    assert by_component(small)["small_job"] == pytest.approx(1 / small.mtti - 1 / alone.mtti)
    large = failure_model(cluster("h100-sxm:16384"), source)
    assert not large.bound_by_job and "small_job" not in by_component(large)


def test_own_rates_are_taken_as_they_are() -> None:
    here = cluster("h100-sxm:64")
    own = failure_model(here, given_rate(1e-3 / DAY))
    assert own.mtti == pytest.approx(DAY / 8e-3) and own.small_job is None and not own.assumptions
    measured = failure_model(here, mtti_given=5 * 3600.0)
    assert measured.mtti == pytest.approx(5 * 3600) == pytest.approx(measured.mtti_low)


def test_nodes_of_another_size_are_scaled_by_their_devices() -> None:
    base = cluster("h100-sxm:4096")
    halves = replace(base, node_size=4)
    source = known.failure_source("meta-rsc-1")
    assert failure_model(halves, source).mtti == pytest.approx(failure_model(base, source).mtti)
    assert any("a node here has 4" in str(text) for text in failure_model(halves, source).assumptions)
