"""Differences of a comparison read as what they are."""

from __future__ import annotations

import pytest

from meshwright.cli.render.compare import _delta


@pytest.mark.parametrize(
    ("first", "value", "unit", "said"),
    [
        (0.526, 0.552, "1", "+2.6 pp (+5%)"),  # points of a share, not a percentage of it
        (0.0, 0.428, "s", "+428 ms"),  # a term the first lacks
        (0.428, 0.0, "s", "−428 ms (-100%)"),
        (1.0, 1.0, "s", "="),
        (None, 1.0, "s", "-"),
    ],
)
def test_a_difference(first: float | None, value: float, unit: str, said: str) -> None:
    assert _delta(first, value, unit) == said


def test_what_was_assumed_for_a_comparison_is_said(run) -> None:
    result = run(
        "compare", "--model", "llama-3.1-70b", "--cluster", "h100-sxm:64", "--with", "tp8 pp2", "--with", "tp4 pp4"
    )
    assert "sequences a step" in result.stdout.splitlines()[0] + result.stdout.splitlines()[1]
    assert "Assumed" in result.stdout
    assert "recompute none, because none was given" in " ".join(result.stdout.split())
