"""Makes the module of measurements made by hand importable under pytest's importlib mode, and runs the command."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from meshwright.cli.main import cli

_spec = importlib.util.spec_from_file_location("measured", Path(__file__).with_name("measured.py"))
assert _spec is not None and _spec.loader is not None
_measured = importlib.util.module_from_spec(_spec)
sys.modules["measured"] = _measured
_spec.loader.exec_module(_measured)


@pytest.fixture
def run() -> Callable[..., Result]:
    """Run the command line in this process."""

    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(cli, list(arguments))

    return invoke
