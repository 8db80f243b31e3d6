"""The glossary: every word the product prints has its label and meaning in both languages."""

from __future__ import annotations

import dataclasses
import re
import typing

import pytest

from meshwright import glossary
from meshwright.engine import memory as engine_memory
from meshwright.glossary import entries, entry, label, meaning, unit
from meshwright.spec import estimate as estimates
from meshwright.spec import finding as findings
from meshwright.spec.estimate import Estimate
from meshwright.spec.job import Job
from meshwright.spec.plan import ScalePoint
from meshwright.spec.strategy import Strategy

# What Spanish-speaking engineers leave in English, or write the same way.
SAME_IN_BOTH = [
    "logits",
    "total",
    "backward",
    "forward",
    "step",
    "MLP",
    "embedding",
    "MFU",
    "HFU",
    "tokens/s",
    "checkpoint",
    "buffers",
    "buckets",
    "tokens",
    "batch",
    "dropout",
    "micro-batch",
    "micro-batches",
    "pipeline",
    "sharding",
    "offload",
    "framework",
    "error",
    "rails",
    "pod",
    "slices",
    "ranks",
    "Pareto",
]


@pytest.fixture(params=sorted(entries()))
def term(request: pytest.FixtureRequest) -> glossary.Entry:
    return entries()[request.param]


def test_both_languages(term: glossary.Entry) -> None:
    for texts in (term.labels, term.meanings):
        assert set(texts) == {"en", "es"}
        assert all(text.strip() == text and text for text in texts.values())
    assert term.meanings["en"].endswith(".") and term.meanings["es"].endswith(".")
    assert term.meanings["en"] != term.meanings["es"]


def test_spanish_label_is_spanish(term: glossary.Entry) -> None:
    if term.labels["en"] == term.labels["es"]:
        assert term.labels["en"] in SAME_IN_BOTH


def test_placeholders_match(term: glossary.Entry) -> None:
    for texts in (term.labels, term.meanings):
        assert re.findall(r"\{\w+\}", texts["en"]) == re.findall(r"\{\w+\}", texts["es"])


def test_units_are_base_units(term: glossary.Entry) -> None:
    assert term.unit in {
        "",
        "1",
        "B",
        "s",
        "d",
        "J",
        "$",
        "$/h",
        "$/token",
        "FLOP",
        "FLOP/s",
        "B/s",
        "token",
        "token/s",
    }


def test_one_label_means_one_thing() -> None:
    """Two names may share a label only when they mean the same, or live in different families."""
    seen: dict[tuple[str, str], str] = {}
    for name, found in entries().items():
        key = (found.kind, found.labels["en"])
        if key in seen:
            assert entries()[seen[key]].labels["es"] == found.labels["es"]
        seen[key] = name


@pytest.mark.parametrize("name", sorted(engine_memory._TERMS))
def test_every_part_of_memory_is_known(name: str) -> None:
    assert entry(name)


@pytest.mark.parametrize("name", engine_memory.PHASES)
def test_every_phase_is_known(name: str) -> None:
    assert entry(name)


@pytest.mark.parametrize(
    "name",
    [*typing.get_args(estimates.Verdict), *typing.get_args(estimates.Certainty), *typing.get_args(findings.Severity)],
)
def test_every_verdict_certainty_and_severity_is_known(name: str) -> None:
    assert entry(name)


@pytest.mark.parametrize("record", [Strategy, Job, ScalePoint])
def test_every_field_of_the_shared_records_is_known(record: type) -> None:
    plumbing = {"estimate", "reason", "achieved"}
    unknown = [f.name for f in dataclasses.fields(record) if f.name not in plumbing and entry(f.name) is None]
    assert not unknown


def test_numbers_of_an_estimate_are_known() -> None:
    numbers = [f.name for f in dataclasses.fields(Estimate) if str(f.type) in ("float", "float | None", "int")]
    assert not [name for name in numbers if entry(name) is None]


def test_every_term_of_a_real_estimate_is_known() -> None:
    """The trees of three executions, as the command line prints them."""
    from meshwright import api

    for model, devices, framework, given in (
        ("llama-3.1-8b", "h100-sxm:16", "fsdp", {}),
        ("llama-3.1-70b", "h100-sxm:64", "megatron", {"tensor": 8, "pipeline": 4, "virtual": 2}),
        ("mixtral-8x7b", "h100-sxm:64", "megatron", {"tensor": 2, "expert": 8, "recompute": "full"}),
    ):
        problem = api.problem(model=model, cluster=devices, seq_len=4096, global_batch=256)
        estimate = api.estimate(problem, api.strategy(problem, framework=framework, **given)[0])
        assert isinstance(estimate, Estimate)
        paths = [path for tree in (estimate.memory, estimate.time, estimate.stages[0].host) for path, _ in tree.walk()]
        assert not [path for path in paths if entry(path) is None]


def test_a_path_finds_the_name_of_its_own_tree() -> None:
    assert label("device.context") == "runtime context"  # a TPU has no CUDA
    assert label("context") == "context" and label("context", "es") == "contexto"
    assert label("step.data_comm.grad_reduce", "es") == "reducción de gradientes"


def test_labels_of_the_verdicts_in_spanish() -> None:
    assert [label(v, "es") for v in ("FITS", "TIGHT", "OVER")] == ["CABE", "JUSTO", "NO CABE"]


def test_an_unknown_term_is_its_own_label() -> None:
    assert label("some.new_term", "es") == "new term"
    assert meaning("some.new_term") == "" and unit("some.new_term") == ""


def test_unknown_language_falls_back_to_english() -> None:
    assert label("bubble", "fr") == label("bubble", "en") == "pipeline bubble"
