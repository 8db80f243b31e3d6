"""The page: nothing from outside, one point per compared row, nothing of a row that is not escaped."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import pytest
from validate_runs import DATA, changed, table

from meshwright.validate import validate


@pytest.mark.parametrize("language", ["en", "es"])
def test_one_point_per_compared_row(language: str) -> None:
    found = validate(DATA)
    page = found.html(language)
    timed = [c for c in found.rows if c.error is not None]
    assert len(re.findall(r'class="run"', page)) == len(timed)
    for c in timed:
        assert f"{c.run.id} · " in page


def test_nothing_comes_from_outside() -> None:
    page = validate(DATA).html()
    assert not re.search(r"""https?:|//[a-z]|<script|<link|<img|@import|url\(|src=|href=""", page)


def test_cells_are_escaped_and_the_page_is_well_formed() -> None:
    evil = "<script>alert('x')</script> & \"quoted\""
    page = validate(table(changed(id=evil, model=evil, framework=evil, notes=evil), changed(tier="C", id=evil))).html()
    assert "<script" not in page
    for drawing in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        ElementTree.fromstring(drawing)


def test_both_languages_and_both_themes() -> None:
    found = validate(DATA)
    assert "Predicted against measured training runs" in found.html("en")
    assert "Predicted against" not in found.html("es")
    assert "prefers-color-scheme:dark" in found.html("es")


def test_points_stand_where_their_numbers_are() -> None:
    """A row predicted exactly lies on the diagonal of the square of axes."""
    found = validate(
        table(changed(), changed(id="low", tokens_per_s_per_gpu="10"), changed(id="x", tokens_per_s_per_gpu="1000"))
    )
    page = found.html()
    points = re.findall(r'class="run" cx="([\d.]+)" cy="([\d.]+)"', page)
    xs = [float(x) for x, _ in points]
    assert xs[1] < xs[0] < xs[2]
    assert len({y for _, y in points}) == 1  # one prediction, three measurements


def test_a_file_without_throughput_still_has_a_page() -> None:
    page = validate(table(changed(tier="C"))).html()
    assert "tier C" in page
    assert 'class="run"' not in page
