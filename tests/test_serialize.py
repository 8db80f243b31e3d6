"""JSON documents: base units, no NaN, and the same records when read back."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright import serialize
from meshwright.errors import InputError, MeshwrightError
from meshwright.messages import Text
from meshwright.spec import Term

_spec = importlib.util.spec_from_file_location("samples_for_serialize", Path(__file__).parent / "cli" / "samples.py")
assert _spec is not None and _spec.loader is not None
samples = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(samples)


@pytest.mark.parametrize("kind", ["plan", "scale", "size"])
def test_round_trip(kind: str) -> None:
    record = {"plan": samples.plan, "scale": samples.scaling, "size": samples.sizing}[kind]()
    text = serialize.dumps(serialize.document(kind, record))
    result = serialize.read_result(json.loads(text))
    assert result.record == record
    assert result.problem == record.problem
    assert serialize.dumps(serialize.document(kind, result.record)) == text


def test_estimate_carries_its_problem() -> None:
    document = serialize.document("estimate", samples.estimate(), problem=samples.problem())
    result = serialize.read_result(json.loads(serialize.dumps(document)))
    assert result.record == samples.estimate()
    assert result.problem == samples.problem()
    assert result.strategies == ((samples.estimate().strategy.short, samples.estimate().strategy),)


def test_plan_gives_its_strategies_in_order() -> None:
    plan = samples.plan()
    result = serialize.read_result(serialize.document("plan", plan))
    assert [s for _, s in result.strategies] == [r.strategy for r in plan.ranked]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), object()])
def test_what_json_cannot_hold_is_an_internal_error(value: object) -> None:
    with pytest.raises(MeshwrightError) as caught:
        serialize.document("estimate", samples.estimate(memory=Term("device", value, "B")))
    assert caught.value.exit_code == 70
    assert "memory.value" in str(caught.value)


def test_numpy_becomes_plain() -> None:
    import numpy as np

    assert serialize.to_json({"a": np.float64(1.5), "b": np.arange(3), "c": np.int64(2)}) == {
        "a": 1.5,
        "b": [0, 1, 2],
        "c": 2,
    }


def test_text_keeps_template_and_values() -> None:
    assert serialize.to_json(Text("needs {n}", n=3)) == {"text": "needs 3", "id": "needs {n}", "values": {"n": 3}}


@pytest.mark.parametrize(
    "data",
    [
        None, [], 3, {}, {"schema": "other/1"}, {"schema": "meshwright.plan/2"}, {"schema": "meshwright.plan/1"},
        {"schema": "meshwright.estimate/1", "problem": {}}, {"schema": "meshwright.compare/1"},
    ],
)  # fmt: skip
def test_foreign_documents_are_refused(data: object) -> None:
    with pytest.raises(InputError):
        serialize.read_result(data)


def _paths(node: object, prefix: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [p for key, value in items for p in ((*prefix, key), *_paths(value, (*prefix, key)))]


DOCUMENT = json.loads(serialize.dumps(serialize.document("plan", dataclasses.replace(samples.plan(), pareto=()))))
PATHS = _paths(DOCUMENT)


@given(st.sampled_from(PATHS), st.sampled_from([None, "x", -1, 1.5, [], {}, True, {"kind": "Moe"}]))
def test_a_damaged_plan_is_read_or_refused_but_never_crashes(path: tuple[object, ...], value: object) -> None:
    data = json.loads(json.dumps(DOCUMENT))
    node = data
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    try:
        serialize.read_result(data)
    except InputError as error:
        assert str(error)


def test_unreadable_files(tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text("{", "utf-8")
    for path in (broken, tmp_path / "absent.json", tmp_path):
        with pytest.raises(InputError) as caught:
            serialize.load_result(path)
        assert caught.value.where == str(path)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("ranked", 0, "estimate", "strategy", "tensor"), "eight"),
        (("ranked", 0, "estimate", "strategy", "data"), 0),
        (("ranked", 1, "estimate", "strategy", "framework"), "megatorn"),
        (("problem", "model", "pattern"), [0, 7]),
        (("problem", "model", "hidden"), -4096),
        (("problem", "cluster", "devices"), 0),
        (("problem", "model", "blocks", 0, "mixer", "heads"), -1),
    ],
)
def test_values_that_cannot_be_name_their_place(path: tuple[object, ...], value: object) -> None:
    data = json.loads(json.dumps(DOCUMENT))
    node = data
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    with pytest.raises(InputError) as caught:
        serialize.read_result(data)
    assert str(path[-1]) in str(caught.value)
