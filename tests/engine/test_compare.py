"""Estimates side by side: every path of every tree, and a sentence that names the term behind the difference."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshwright.catalog.hardware import cluster
from meshwright.catalog.models import model
from meshwright.engine.compare import compare
from meshwright.engine.evaluate import evaluate
from meshwright.errors import UsageError
from meshwright.spec.estimate import Estimate
from meshwright.spec.job import Job
from meshwright.spec.plan import Problem
from meshwright.spec.strategy import Strategy

WIDE = Strategy(tensor=8, data=8, recompute="selective", recompute_ops=("core_attn",))
PIPED = Strategy(tensor=2, pipeline=4, data=8, recompute="full")
SHARDED = Strategy(framework="fsdp", data=64, sharding="zero3", recompute="full")


@pytest.fixture(scope="module")
def problem() -> Problem:
    return Problem(model=model("llama-3.1-8b"), cluster=cluster("h100-sxm:64"), job=Job(seq_len=8192, global_batch=128))


def estimate(problem: Problem, strategy: Strategy) -> Estimate:
    answer = evaluate(problem, strategy)
    assert isinstance(answer, Estimate)
    return answer


def test_terms_are_the_union_of_the_trees_with_their_values(problem: Problem) -> None:
    items = [("wide", WIDE), ("piped", PIPED), ("sharded", SHARDED)]
    c = compare(problem, items)
    paths = [t.path for t in c.terms]
    assert len(paths) == len(set(paths))
    for i, (_, strategy) in enumerate(items):
        e = estimate(problem, strategy)
        expected = {path: float(node.value) for root in (e.time, e.memory) for path, node in root.walk()}
        got = {t.path: t.values[i] for t in c.terms if t.path.split(".")[0] in ("step", "device")}
        assert expected.keys() <= got.keys()
        for path, value in got.items():  # what a tree lacks is zero under a parent that it has, else absent
            lacking = 0.0 if path.rpartition(".")[0] in expected else None
            assert value == expected.get(path, lacking), path


def test_parents_stand_before_their_children_and_children_together(problem: Problem) -> None:
    paths = [t.path for t in compare(problem, [("wide", WIDE), ("piped", PIPED), ("sharded", SHARDED)]).terms]
    assert "step.bubble" in paths and "step.tensor_comm" in paths
    for path in paths:
        if "." in path:
            parent = path.rpartition(".")[0]
            start = paths.index(parent)
            assert all(p.startswith(parent + ".") for p in paths[start + 1 : paths.index(path)])


def test_the_summary_names_the_faster_its_lead_and_the_term(problem: Problem) -> None:
    """TP8 at 64 GPUs pays for its all-gathers; FSDP without TP has none."""
    wide, sharded = estimate(problem, WIDE), estimate(problem, SHARDED)
    quick, slow = sorted((("wide", wide), ("sharded", sharded)), key=lambda x: x[1].step_seconds)
    lead = slow[1].step_seconds / quick[1].step_seconds - 1
    text = str(compare(problem, [("wide", WIDE), ("sharded", SHARDED)]).summary)
    shown = f"{lead:.0%}" if lead >= 0.1 else f"{lead:.1%}"
    assert text.startswith(f"{quick[0]} does {shown} more tokens/s than {slow[0]}")
    ours = {t.name: t.value for t in quick[1].time.children}
    theirs = {t.name: t.value for t in slow[1].time.children}
    saved = max({*ours, *theirs}, key=lambda n: theirs.get(n, 0) - ours.get(n, 0))
    assert {"tensor_comm": "tensor-parallel communication", "compute": "through compute"}[saved] in text


def test_the_summary_names_who_has_memory_to_spare(problem: Problem) -> None:
    a, b = estimate(problem, WIDE), estimate(problem, SHARDED)
    spare = max((a, b), key=lambda e: e.capacity_bytes - e.peak_bytes)
    name = "wide" if spare is a else "sharded"
    assert f"{name} has most memory to spare" in str(compare(problem, [("wide", WIDE), ("sharded", SHARDED)]).summary)


def test_the_same_strategy_twice_is_equal_and_the_names_differ(problem: Problem) -> None:
    c = compare(problem, [("a", WIDE), ("a", WIDE)])
    assert c.names == ("a", "a (2)")
    assert "equally fast" in str(c.summary)
    assert all(t.values[0] == t.values[1] for t in c.terms)


def test_estimates_of_different_clusters_are_compared_per_device(problem: Problem) -> None:
    """Twice the devices do more tokens/s, but not per device."""
    larger = replace(problem, cluster=cluster("h100-sxm:128"))
    small, large = estimate(problem, PIPED), estimate(larger, replace(PIPED, data=16))
    assert large.tokens_per_second > small.tokens_per_second
    text = str(compare(problem, [("64", small), ("128", large)]).summary)
    assert "for each device" in text
    assert text.startswith("64 ")


def test_what_does_not_fit_is_said(problem: Problem) -> None:
    big = Problem(model=model("llama-3.1-70b"), cluster=cluster("h100-sxm:64"), job=Job(seq_len=8192, global_batch=128))
    over, fits = Strategy(tensor=1, data=64, sharding="none"), Strategy(tensor=8, pipeline=8, data=1, recompute="full")
    assert "these do not fit in memory: over" in str(compare(big, [("over", over), ("fits", fits)]).summary)
    both = compare(big, [("over", over), ("over too", replace(over, recompute="full"))])
    assert "none of them fits" in str(both.summary)


def test_a_strategy_that_no_framework_runs_is_refused_with_its_rule(problem: Problem) -> None:
    with pytest.raises(UsageError) as refused:
        compare(problem, [("fine", WIDE), ("odd", Strategy(tensor=3, data=8))])
    assert refused.value.where == "odd"
    assert "MW-C" in str(refused.value.text)


def test_one_strategy_cannot_be_compared(problem: Problem) -> None:
    with pytest.raises(UsageError):
        compare(problem, [("alone", WIDE)])
