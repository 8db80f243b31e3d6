"""Shared by all tests: where the reference material lies, and a hypothesis profile for a two-core machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("meshwright", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=60)
settings.load_profile("meshwright")


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """No settings of the person who runs the tests: language, colours, own configuration."""
    for name in list(os.environ):
        if name.startswith("MESHWRIGHT_") or name in (
            "LANG",
            "LC_ALL",
            "LC_MESSAGES",
            "LANGUAGE",
            "NO_COLOR",
            "FORCE_COLOR",
        ):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.getbasetemp() / "no-config"))


@pytest.fixture(scope="session")
def shared() -> Path:
    """Reference facts, measured runs and cases, where the checkout has them beside it."""
    path = Path(__file__).resolve().parents[1] / ".." / "shared"
    if not path.is_dir():
        pytest.skip("no ../shared beside the checkout")
    return path.resolve()
