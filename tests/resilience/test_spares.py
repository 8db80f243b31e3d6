"""Spares against the published examples, and the wait that follows from holding too few."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from meshwright.catalog import failures as known
from meshwright.catalog.hardware import cluster
from meshwright.resilience.failures import failure_model
from meshwright.resilience.spares import spares, spares_for, waiting

DAY = 86400.0


@pytest.mark.parametrize(
    ("nodes", "rate", "days", "expected"),
    [(2048, 3.79e-3, 1, (15, 18)), (2048, 3.79e-3, 3, (35, 40)), (128, 16e-3, 1, (6, 8)), (1200, 5e-3, 2, (21, 24))],
)
def test_published_examples(nodes: int, rate: float, days: float, expected: tuple[int, int]) -> None:
    assert tuple(spares_for(nodes * rate * days, q) for q in (0.99, 0.999)) == expected


def test_spares_are_enough_as_often_as_asked() -> None:
    rng = np.random.default_rng(3)
    for mean in (0.3, 4.0, 60.0, 900.0):
        held = spares_for(mean, 0.99)
        assert (rng.poisson(mean, 200_000) <= held).mean() >= 0.9885
        assert (rng.poisson(mean, 200_000) <= held - 1).mean() < 0.9915


def test_only_failures_that_take_a_node_need_a_spare() -> None:
    model = failure_model(cluster("h100-sxm:16384"), known.failure_source("llama-3-405b"))
    held = spares(model)
    whole = model.nodes * model.rate * DAY
    assert held.in_repair == pytest.approx(whole * (419 - 54 - 7 - 2) / 419)
    assert held.short < 0.01


def test_without_spares_the_repair_is_waited_out() -> None:
    model = failure_model(cluster("h100-sxm:4096"))
    none, enough, cold = (spares(model, nodes=0), spares(model), spares(model, "cold"))
    assert waiting(model, none) > 0.9 * DAY * model.share("node", "several") * none.short
    assert waiting(model, enough) < 600
    assert waiting(model, cold) - waiting(model, enough) == pytest.approx(
        600 * model.share("node", "several") * (1 - cold.short)
    )
    assert waiting(model, replace(none, short=0.0)) == 0
