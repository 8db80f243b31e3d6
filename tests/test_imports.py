"""What importing costs: the shell stays light, and nobody imports torch."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("torch", "transformers", "jax", "scipy", "pint", "pydantic", "rich", "click")


def loaded_after(code: str) -> set[str]:
    report = f"{code}; import sys; print(*[m for m in {HEAVY!r} + ('numpy',) if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("code", "allowed"),
    [
        ("import meshwright", set()),
        ("import meshwright.api", set()),
        ("import meshwright.cli.main", {"click"}),
        ("from meshwright import api; api.problem(model='llama-3.1-8b', cluster='h100-sxm:8')", {"numpy"}),
        ("import meshwright.engine.search.space", {"numpy"}),
    ],
)
def test_nothing_heavy_is_loaded(code: str, allowed: set[str]) -> None:
    assert loaded_after(code) <= allowed
