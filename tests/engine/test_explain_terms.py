"""Every term that any estimate emits has a label in both languages and a formula that exists."""

from __future__ import annotations

from functools import lru_cache

import pytest

import meshwright.engine.explain  # noqa: F401  (registers every formula)
from meshwright import api, glossary
from meshwright.engine.evaluate import estimate_legal
from meshwright.formulas.registry import REGISTRY, recording
from meshwright.spec.estimate import Term
from meshwright.spec.strategy import FRAMEWORKS, OFFLOADS, RECOMPUTES, SCHEDULES, SHARDINGS, Strategy

SPREAD = [Strategy(framework=f, sharding=s, data=64) for f in FRAMEWORKS for s in SHARDINGS] + [
    *(Strategy(schedule=name, pipeline=4, virtual=2 if name == "interleaved" else 1, data=16) for name in SCHEDULES),
    *(Strategy(recompute=name, tensor=2, data=32) for name in RECOMPUTES),
    *(Strategy(framework=f, offload=name, data=64) for name in OFFLOADS for f in FRAMEWORKS),
    *(Strategy(loss=name, data=64) for name in ("plain", "compiled")),
    Strategy(tensor=2, context=2, data=16, precision="fp8"),
    Strategy(tensor=8, context=8, data=1),
    Strategy(framework="fsdp", sharding="zero3", pipeline=2, data=32),
    Strategy(framework="fsdp", sharding="zero3", shard=8, data=64),
    Strategy(expert=2, data=64),
]


@lru_cache(maxsize=1)
def emitted() -> dict[str, Term]:
    """Terms by path: every model of the catalogue in four frameworks, a dense and a sparse one in every way."""
    plain = [Strategy(framework=f, data=64, sharding="zero1") for f in FRAMEWORKS]
    wanted = [(row.id, "h100-sxm:64", plain) for row in api.catalog_list("models")]
    wanted += [(m, c, SPREAD) for m in ("llama-3.1-8b", "deepseek-v3") for c in ("h100-sxm:64", "v5p:64", "mi300x:64")]
    out: dict[str, Term] = {}
    for model, cluster, strategies in wanted:
        problem = api.problem(model=model, cluster=cluster, seq_len=512, global_batch=512)
        for strategy in strategies:
            if cluster.startswith("v5p") and strategy.offload != "none":
                continue
            estimate = estimate_legal(problem, strategy)
            for tree in (estimate.memory, estimate.time, *(s.device for s in estimate.stages), estimate.stages[0].host):
                out.update(tree.walk())
    return out


def test_the_sweep_is_wide() -> None:
    names = {path.rsplit(".", 1)[-1] for path in emitted()}
    assert {"mixer", "moe", "shared", "bubble", "expert_comm", "context_comm", "recompute", "buckets"} <= names


def test_every_emitted_term_has_a_label_and_a_meaning_in_both_languages() -> None:
    for path in emitted():
        entry = glossary.entry(path)
        assert entry is not None, path
        for language in ("en", "es"):
            assert entry.labels[language] and entry.meanings[language], path


def test_every_formula_an_emitted_term_names_is_registered() -> None:
    assert {path: t.formula for path, t in emitted().items() if t.formula and t.formula not in REGISTRY} == {}


def test_leaves_without_a_formula_are_the_known_constants() -> None:
    """A leaf names its formula, but for constants of the catalogue, inputs, and what is counted tensor by tensor."""
    constants = {"contention", "host_overhead", "data_loading", "workspace"}
    counted = {"recompute"}
    bare = {path.rsplit(".", 1)[-1] for path, t in emitted().items() if not t.children and not t.formula}
    assert bare <= constants | counted


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_bubble_names_the_formula_of_its_schedule(schedule: str) -> None:
    problem = api.problem(model="llama-3.1-8b", cluster="h100-sxm:64", seq_len=512, global_batch=512)
    virtual = 2 if schedule == "interleaved" else 1
    estimate = estimate_legal(problem, Strategy(schedule=schedule, pipeline=4, virtual=virtual, data=16))
    term = estimate.time.find("bubble")
    if term is not None:
        with recording() as calls:
            estimate_legal(problem, estimate.strategy)
        assert {c.id for c in calls if c.id.startswith("pipeline.bubble.")} == {term.formula}


@pytest.mark.parametrize("cluster", ["h100-sxm:64", "v5p:64"])
def test_communication_names_a_formula_that_was_called(cluster: str) -> None:
    problem = api.problem(model="llama-3.1-8b", cluster=cluster, seq_len=512, global_batch=512)
    with recording() as calls:
        estimate = estimate_legal(problem, Strategy(framework="jax", tensor=2, sharding="zero3", data=32))
    for name in ("tensor_comm", "data_comm.grad_reduce"):
        term = estimate.time.find(name)
        assert term is not None and term.formula in {c.id for c in calls}, name
