"""Makes the module of sample rows importable under pytest's importlib mode."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

_spec = importlib.util.spec_from_file_location("validate_runs", Path(__file__).with_name("runs.py"))
assert _spec is not None and _spec.loader is not None
_runs = importlib.util.module_from_spec(_spec)
sys.modules["validate_runs"] = _runs
_spec.loader.exec_module(_runs)
