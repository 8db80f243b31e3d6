"""The mask over columns says what `check` says row by row; nearest legal values are legal."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.rules import RULES, RuleContext, check, hard_mask
from meshwright.rules.check import length_of
from meshwright.spec import Cluster, ModelSpec, Strategy

from .samples import (
    A100,
    DEEPSEEK,
    GPT2,
    H100,
    LINEAR,
    LLAMA_8B,
    LLAMA_70B,
    LLAMA_405B,
    MAMBA1,
    MAMBA2,
    MIXTRAL,
    TPU,
    cluster,
    context,
)

MODELS = (GPT2, LLAMA_8B, LLAMA_70B, LLAMA_405B, MIXTRAL, DEEPSEEK, MAMBA2, MAMBA1, LINEAR)
SHARDINGS = ("none", "zero1", "zero2", "zero3")
SCHEDULES = ("1f1b", "interleaved", "gpipe", "zb-h1", "zbv", "dualpipe")
degree = st.sampled_from((1, 1, 2, 3, 4, 6, 8, 16))
COLUMNS = ("data", "tensor", "pipeline", "virtual", "context", "expert", "expert_tensor", "shard", "micro_batch")


@st.composite
def tables(draw: st.DrawFn) -> RuleContext:
    """A context whose degrees are columns of a few rows; half of the rows fill the cluster."""
    rows = draw(st.integers(1, 8))
    devices = draw(st.sampled_from((8, 16, 64, 48)))
    columns = {n: draw(st.lists(degree, min_size=rows, max_size=rows)) for n in COLUMNS}
    for i in range(0, rows, 2):
        model = columns["tensor"][i] * columns["pipeline"][i] * columns["context"][i]
        columns["data"][i] = max(devices // model, 1)
    columns["shard"] = [draw(st.sampled_from((0, 0, s))) for s in columns["shard"]]
    flags = draw(st.lists(st.booleans(), min_size=rows, max_size=rows))
    framework = draw(st.sampled_from(("megatron", "fsdp", "deepspeed", "jax")))
    strategy = Strategy(
        framework=framework,
        sharding=draw(st.sampled_from(SHARDINGS)),
        schedule=draw(st.sampled_from(SCHEDULES)),
        recompute=draw(st.sampled_from(("none", "selective", "full"))),
        offload=draw(st.sampled_from(("none", "optimizer", "parameters", "activations"))),
        precision=draw(st.sampled_from(("bf16", "fp16", "fp8", "nvfp4"))),
        sequence_parallel=np.array(flags),
        overlap_tensor=draw(st.booleans()),
        **{n: np.array(v, dtype=np.int64) for n, v in columns.items()},
    )
    base = context(
        draw(st.sampled_from(MODELS)),
        cluster(draw(st.sampled_from((H100, A100, TPU))), devices, slices=draw(st.sampled_from((1, 2)))),
        seq_len=draw(st.sampled_from((1024, 4098, 8192))),
        global_batch=draw(st.sampled_from((16, 48, 256))),
        uneven_stages=draw(st.booleans()),
    )
    return dataclasses.replace(base, strategy=strategy)


def row(table: RuleContext, i: int) -> RuleContext:
    """Row `i` as plain numbers."""
    plain = {
        f.name: v[i].item()
        for f in dataclasses.fields(Strategy)
        if isinstance(v := getattr(table.strategy, f.name), np.ndarray)
    }
    return dataclasses.replace(table, strategy=dataclasses.replace(table.strategy, **plain))


@given(tables())
def test_mask_equals_check_row_by_row(table: RuleContext) -> None:
    legal, rejected = hard_mask(table)
    first: dict[str, int] = {}
    for i in range(legal.size):
        errors = sorted(f.code for f in check(row(table, i)) if f.severity == "error")
        assert legal[i] == (not errors)
        if errors:
            first[errors[0]] = first.get(errors[0], 0) + 1
    assert dict(rejected) == first
    assert sum(n for _, n in rejected) == np.count_nonzero(~legal)


@given(tables())
def test_warnings_have_masks_too(table: RuleContext) -> None:
    for rule in RULES.values():
        if rule.severity == "warning" and rule.concerns(table):
            mask = np.broadcast_to(rule.violated(table), length_of(table.strategy))
            for i in range(mask.size):
                assert mask[i] == bool(rule.violated(row(table, i)))


def test_a_strategy_of_plain_values_gives_a_mask_of_one() -> None:
    assert hard_mask(context(LLAMA_8B))[0].tolist() == [True]
    legal, rejected = hard_mask(context(GPT2, tensor=8))
    assert (legal.tolist(), rejected) == ([False], [("MW-C102", 1)])


@pytest.mark.parametrize("field", ["tensor", "data", "micro_batch", "virtual"])
def test_a_degree_below_one_is_one_finding(field: str) -> None:
    found = check(context(LLAMA_8B, devices=8, **{field: 0}))
    assert [f.code for f in found] == ["MW-C100"]


def replaced(c: RuleContext, field: str, value: Any) -> RuleContext:
    if field in ("seq_len", "global_batch", "optimizer"):
        return dataclasses.replace(c, job=dataclasses.replace(c.job, **{field: value}))
    if field == "devices":
        return dataclasses.replace(c, cluster=dataclasses.replace(c.cluster, devices=value))
    return dataclasses.replace(c, strategy=dataclasses.replace(c.strategy, **{field: value}))


@given(tables())
def test_nearest_legal_values_are_legal(table: RuleContext) -> None:
    for i in range(length_of(table.strategy)):
        c = row(table, i)
        for finding in check(c):
            legal = finding.data.get("legal")
            if finding.severity != "error" or legal is None:
                continue
            options = legal.items() if isinstance(legal, dict) else ((finding.where, v) for v in legal)
            for field, value in options:
                changed = replaced(c, field, value)
                rule = RULES[finding.code]
                assert not (rule.concerns(changed) and rule.violated(changed)), (finding.code, field, value)


def big_table(model: ModelSpec, on: Cluster, rows: int, **scalars: Any) -> RuleContext:
    rng = np.random.default_rng(1)
    tops = {"tensor": 4, "pipeline": 5, "context": 3, "expert": 4, "virtual": 2, "micro_batch": 4}
    powers = {name: 2 ** rng.integers(0, top, rows) for name, top in tops.items()}
    model_ranks = powers["tensor"] * powers["pipeline"] * powers["context"]
    data = np.maximum(on.devices // model_ranks, 1)
    strategy = Strategy(data=data, expert_tensor=np.ones(rows, dtype=np.int64), **powers, **scalars)
    return dataclasses.replace(context(model, on, seq_len=4096, global_batch=8192), strategy=strategy)


@pytest.mark.parametrize("model", [LLAMA_70B, DEEPSEEK])
def test_a_million_rows_are_masked_quickly(model: ModelSpec) -> None:
    table = big_table(model, cluster(H100, 16384), 1_000_000)
    start = time.process_time()
    legal, _ = hard_mask(table)
    assert 0 < np.count_nonzero(legal) < legal.size
    assert time.process_time() - start < 1.0  # about 0.1 s on an idle core; the limit allows for a busy one


def test_one_check_is_quick() -> None:
    base = context(LLAMA_70B, cluster(H100, 512), tensor=8, pipeline=4, framework="megatron")
    check(base)
    start = time.process_time()
    for _ in range(100):
        check(dataclasses.replace(base))
    assert (time.process_time() - start) / 100 < 0.002  # about 0.15 ms on an idle core
