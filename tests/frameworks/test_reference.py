"""The generated pages are those of the tables, and name every setting."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshwright.frameworks.reference import pages
from meshwright.frameworks.registry import FRAMEWORKS

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "frameworks"


@pytest.mark.parametrize("name", sorted(pages()))
def test_the_page_is_up_to_date(name: str) -> None:
    text = (DOCS / name).read_text("utf-8")
    assert text == pages()[name], "run: python -m meshwright.frameworks.reference docs/reference/frameworks"


@pytest.mark.parametrize("id", FRAMEWORKS)
def test_every_setting_is_named(id: str) -> None:
    text = pages()[f"{id}.md"]
    for field in FRAMEWORKS[id].table.fields:
        names = [f"{field.name}.{key}" for key in field.keys] or [field.name]
        assert field.kind == "table" or all(f"`{name}`" in text for name in names), field.name


@pytest.mark.parametrize("id", FRAMEWORKS)
def test_what_a_setting_maps_to_exists(id: str) -> None:
    """Fields of Strategy and Job by name; those of models and clusters are words of the table."""
    import dataclasses

    from meshwright.spec import Job, Strategy

    known = {f"strategy.{f.name}" for f in dataclasses.fields(Strategy)} | {
        f"job.{f.name}" for f in dataclasses.fields(Job)
    }
    for field in FRAMEWORKS[id].table.fields:
        for ours in field.maps:
            assert ours in known or ours.startswith(("model.", "cluster.")), (field.name, ours)
