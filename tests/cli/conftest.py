"""A shell whose api answers with records made by hand: the contract of the shell does not depend on the engine."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner, Result

from meshwright import api
from meshwright.cli.main import cli

_spec = importlib.util.spec_from_file_location("samples", Path(__file__).with_name("samples.py"))
assert _spec is not None and _spec.loader is not None
_samples = importlib.util.module_from_spec(_spec)
sys.modules["samples"] = _samples
_spec.loader.exec_module(_samples)


@pytest.fixture
def samples() -> ModuleType:
    """The module of records made by hand."""
    return _samples


@pytest.fixture
def run() -> Callable[..., Result]:
    """Run the command line in this process."""

    def invoke(*arguments: str, **extra: object) -> Result:
        return CliRunner().invoke(cli, list(arguments), **extra)  # type: ignore[arg-type]

    return invoke


@pytest.fixture
def stubbed(monkeypatch: pytest.MonkeyPatch, samples: ModuleType) -> pytest.MonkeyPatch:
    """The api answering with samples."""
    from meshwright.messages import Text
    from meshwright.spec.plan import ComparedTerm, Comparison, Explanation, Section

    explanation = Explanation(
        subject="mfu", kind="concept", title=Text("no model is given"),
        sections=(Section(title=Text("no cluster is given"), body=(Text("no model is given"),),
                          rows=(("compute", 4.0, "s"),)),),
        sources=("somewhere",), see_also=("hfu",),
    )  # fmt: skip
    comparison = Comparison(
        names=("a", "b"), estimates=(samples.estimate(), samples.estimate()), summary=Text("no model is given"),
        terms=(ComparedTerm(path="step", unit="s", values=(5.5, 6.0)),
               ComparedTerm(path="step.compute", unit="s", values=(4.0, None))),
    )  # fmt: skip
    monkeypatch.setattr(api, "problem", lambda **_: samples.problem())
    monkeypatch.setattr(api, "constraints", lambda *_, **__: None)
    monkeypatch.setattr(api, "estimate", lambda *_: samples.estimate())
    monkeypatch.setattr(api, "plan", lambda *_, **__: samples.plan())
    monkeypatch.setattr(api, "scale", lambda *_, **__: samples.scaling())
    monkeypatch.setattr(api, "size", lambda *_, **__: samples.sizing())
    monkeypatch.setattr(api, "explain", lambda *_, **__: explanation)
    monkeypatch.setattr(api, "compare", lambda *_: comparison)
    return monkeypatch
