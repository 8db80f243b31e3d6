"""The stated space: which degrees are tried, fixed values, and what leaves no candidate."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.catalog.hardware import cluster
from meshwright.catalog.models import model
from meshwright.engine.search.plan import plan, search
from meshwright.engine.search.space import Constraints, divisors, frameworks_for, meshes, table
from meshwright.spec.job import Job
from meshwright.spec.plan import Problem


def problem(name: str, where: str, seq: int = 4096, batch: int = 64, **job: Any) -> Problem:
    return Problem(model=model(name), cluster=cluster(where), job=Job(seq_len=seq, global_batch=batch, **job))


@given(st.integers(1, 20000))
def test_divisors_by_trial(n: int) -> None:
    assert divisors(n) == [d for d in range(1, n + 1) if n % d == 0]


def test_frameworks_follow_the_hardware() -> None:
    assert frameworks_for(cluster("tpu-v5e:16"), Constraints()) == ("jax",)
    assert set(frameworks_for(cluster("h100-sxm:16"), Constraints())) == {"megatron", "fsdp", "deepspeed"}
    assert frameworks_for(cluster("h100-sxm:16"), Constraints(frameworks=("fsdp",))) == ("fsdp",)


@pytest.mark.parametrize(
    ("name", "where"),
    [("llama-3.1-8b", "h100-sxm:64"), ("mixtral-8x7b", "h100-sxm:24"), ("deepseek-v3", "gb200-nvl72:144")],
)
def test_meshes_are_every_product_that_fills_the_cluster(name: str, where: str) -> None:
    """Against a product of all numbers up to the limits, for Megatron's degrees."""
    p = problem(name, where, seq=8192)
    n, m = p.cluster.devices, p.model
    rows = {tuple(map(int, r)) for r in meshes(m, p.cluster, p.job, "megatron", Constraints())}
    heads = {b.mixer.heads for b in m.blocks}.pop()  # type: ignore[union-attr]
    experts = m.moe.experts if m.moe else 1
    expected = set()
    for t, c, pp in itertools.product(range(1, min(p.cluster.domain_size, 32) + 1), (1, 2, 4), range(1, m.layers + 1)):
        if heads % t or n % (t * c * pp):
            continue
        d = n // (t * c * pp)
        for e in (e for e in range(1, experts + 1) if experts % e == 0):
            for et in {t} if e == 1 else {1, t}:
                if e == 1 or d * c * t % (e * et) == 0:
                    expected.add((t, c, pp, e, et, d))
    assert rows == expected


@pytest.mark.parametrize("framework", ["megatron", "fsdp", "deepspeed"])
@pytest.mark.parametrize("interleaved", [False, True])
def test_tables_are_sorted_and_split_the_batch(framework: str, interleaved: bool) -> None:
    p = problem("llama-3.1-8b", "h100-sxm:32", batch=96)
    t = table(p.model, p.cluster, p.job, framework, Constraints(), interleaved)
    key = t.pipeline * 10_000 + t.virtual
    assert (np.diff(key) >= 0).all()
    assert ((t.virtual > 1) == interleaved).all()
    assert (t.tensor * t.context * t.pipeline * t.data == 32).all()
    fits = 96 % t.data == 0
    assert (96 % (t.data * t.micro_batch)[fits] == 0).all()
    assert len(set(zip(*(c.tolist() for c in t), strict=True))) == len(t)


FIXED = {
    "tensor": (2,), "pipeline": (4,), "context": (2,), "data": (8,), "micro_batch": (2,), "virtual": (2,),
    "expert": (4,), "expert_tensor": (1,), "sharding": ("zero1",), "recompute": ("full",), "frameworks": ("megatron",),
    "schedule": ("interleaved",),
}  # fmt: skip


@pytest.mark.parametrize("name", FIXED)
def test_every_candidate_obeys_a_fixed_value(name: str) -> None:
    p = problem("mixtral-8x7b", "h100-sxm:32", batch=64)
    columns, _ = search(p, Constraints(**{name: FIXED[name]}))
    assert len(columns.peak)
    attribute = {"frameworks": "framework"}.get(name, name)
    seen = {getattr(columns.strategy(i), attribute) for i in range(0, len(columns.peak), 11)}
    if name == "expert_tensor":  # without expert parallelism it is the tensor degree
        seen = {
            columns.strategy(i).expert_tensor for i in range(0, len(columns.peak), 11) if columns.strategy(i).expert > 1
        }
    assert seen == set(FIXED[name])


def test_several_values_and_several_constraints() -> None:
    p = problem("mixtral-8x7b", "h100-sxm:32", batch=64)
    c = Constraints(
        tensor=(1, 4), pipeline=(2,), frameworks=("megatron",), micro_batch=(1, 2), recompute=("none", "full")
    )
    columns, _ = search(p, c)
    strategies = [columns.strategy(i) for i in range(len(columns.peak))]
    assert {s.tensor for s in strategies} == {1, 4} and {s.pipeline for s in strategies} == {2}
    assert {s.micro_batch for s in strategies} == {1, 2} and {s.recompute for s in strategies} == {"none", "full"}


@pytest.mark.parametrize(
    ("constraints", "code"),
    [
        (Constraints(tensor=(3,)), "MW-C101"),  # 3 does not divide 32 devices
        (Constraints(data=(5,)), "MW-C101"),
        (Constraints(pipeline=(64,)), "MW-C101"),
        (Constraints(tensor=(4,), pipeline=(4,), data=(4,)), "MW-C101"),  # 64 devices
        (Constraints(expert=(7,), frameworks=("megatron",)), "MW-C110"),  # 8 experts
        (Constraints(tensor=(16,), frameworks=("fsdp",)), "MW-C103"),  # 8 KV heads over 16 ranks in PyTorch
        (Constraints(micro_batch=(5,)), "MW-C201"),  # 64 sequences in fives
        (Constraints(virtual=(5,), pipeline=(8,)), "MW-C108"),  # 40 chunks of 32 layers
    ],
)
def test_what_cannot_be_is_rejected_by_name(constraints: Constraints, code: str) -> None:
    """No legal strategy: an empty plan that says so, with the rule in the funnel."""
    p = problem("mixtral-8x7b", "h100-sxm:32", batch=64)
    result = plan(p, constraints=constraints)
    assert result.candidates > 0 and result.legal == result.fitting == 0
    assert result.ranked == () and result.best is None and result.near_misses == ()
    assert code in {step.code for step in result.funnel if step.rejected}, [s.code for s in result.funnel if s.rejected]
    assert result.next_steps and all(str(t) for t in result.next_steps)


def test_more_stages_than_layers_is_rejected_by_name() -> None:
    result = plan(problem("mixtral-8x7b", "h100-sxm:64", batch=64), constraints=Constraints(pipeline=(64,)))
    assert result.legal == 0 and "MW-C108" in {step.code for step in result.funnel if step.rejected}


def test_precision_the_device_lacks_leaves_nothing() -> None:
    result = plan(problem("t5-3b", "v100-sxm-32gb:16", seq=512))  # bf16 on V100
    rejected = {step.code: step for step in result.funnel}
    assert result.legal == 0 and rejected["MW-C401"].rejected > 0 and rejected["MW-C401"].remaining == 0
