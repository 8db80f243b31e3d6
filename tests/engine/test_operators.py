"""The walk over a block: saved bytes of Korthikanti et al. 2022, FLOPs, collectives, recompute groups, columns."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.catalog.models import model as catalogued
from meshwright.engine.flops import flops_of_block
from meshwright.engine.operators import (
    RECOMPUTE_GROUPS,
    Operator,
    Shape,
    Walk,
    block_input_bytes,
    block_walk,
    embedding_walk,
    head_walk,
    keys_per_query,
    saved_bytes,
)
from meshwright.spec.model import Attention, Block, Mlp, ModelSpec, Moe

# Sizes of table 3 of the paper: tensor degree, heads, hidden, micro-batch; sequence 2048. And two odd ones.
SIZES = [
    (8, 64, 6144, 4, 2048),
    (8, 96, 12288, 1, 2048),
    (8, 128, 20480, 1, 2048),
    (8, 160, 25600, 1, 2048),
    (1, 12, 768, 3, 1024),
    (2, 20, 1280, 5, 4096),
]
MODELS = [
    "gpt-3-175b",
    "llama-3.1-70b",
    "mixtral-8x7b",
    "deepseek-v3",
    "mamba2-2.7b",
    "jamba-v0.1",
    "gemma-2-9b",
    "qwen3-next-80b-a3b",
]


def gpt(heads: int, hidden: int) -> tuple[ModelSpec, Block]:
    """The block of the paper: layer norm, biases, MLP of width 4h, GeLU."""
    attention = Attention(heads=heads, kv_heads=heads, head_dim=hidden // heads, qkv_bias=True, out_bias=True)
    mlp = Mlp(width=4 * hidden, gated=False, bias=True, activation="gelu")
    block = Block(mixer=attention, mlp=mlp, norm="layer")
    return ModelSpec(name="gpt", family="gpt2", hidden=hidden, vocab=51200, blocks=(block,), pattern=(0,)), block


def walk_of_2022(t: int, a: int, h: int, b: int, s: int, *, sequence_parallel: bool) -> Walk:
    """Megatron of 2022: attention unfused, fused element-wise kernels, dropout on."""
    model, block = gpt(a, h)
    shape = Shape(
        micro_batch=b, seq_len=s, tensor=t, sequence_parallel=sequence_parallel, fused_attention=False, dropout=True
    )
    return block_walk(model, block, shape)


# ------------------------------------------------------------------------------- Korthikanti et al. 2022, section 4


@pytest.mark.parametrize(("t", "a", "h", "b", "s"), SIZES)
def test_no_parallelism_equation_1(t: int, a: int, h: int, b: int, s: int) -> None:
    walk = walk_of_2022(1, a, h, b, s, sequence_parallel=False)
    assert saved_bytes(walk, ()) == pytest.approx(s * b * h * (34 + 5 * a * s / h), rel=1e-12)


@pytest.mark.parametrize(("t", "a", "h", "b", "s"), SIZES)
def test_tensor_parallelism_equation_2(t: int, a: int, h: int, b: int, s: int) -> None:
    walk = walk_of_2022(t, a, h, b, s, sequence_parallel=False)
    assert saved_bytes(walk, ()) == pytest.approx(s * b * h * (10 + 24 / t + 5 * a * s / (h * t)), rel=1e-12)


@pytest.mark.parametrize(("t", "a", "h", "b", "s"), SIZES)
def test_sequence_parallelism_equation_4(t: int, a: int, h: int, b: int, s: int) -> None:
    walk = walk_of_2022(t, a, h, b, s, sequence_parallel=True)
    assert saved_bytes(walk, ()) == pytest.approx(s * b * h / t * (34 + 5 * a * s / h), rel=1e-12)


@pytest.mark.parametrize(("t", "a", "h", "b", "s"), SIZES)
def test_all_layers_of_the_first_stage_equation_5(t: int, a: int, h: int, b: int, s: int) -> None:
    """p micro-batches of L/p layers: sbhL/t (34 + 5as/h), whatever p."""
    layers = 48
    walk = walk_of_2022(t, a, h, b, s, sequence_parallel=True)
    for pipeline in (1, 4, 16):
        held = pipeline * (layers / pipeline) * saved_bytes(walk, ())
        assert held == pytest.approx(s * b * h * layers / t * (34 + 5 * a * s / h), rel=1e-12)


@pytest.mark.parametrize(("t", "a", "h", "b", "s"), SIZES)
def test_selective_recompute_equation_6(t: int, a: int, h: int, b: int, s: int) -> None:
    both = walk_of_2022(t, a, h, b, s, sequence_parallel=True)
    assert saved_bytes(both, ("core_attn",)) == pytest.approx(34 * s * b * h / t, rel=1e-12)
    tensor_only = walk_of_2022(t, a, h, b, s, sequence_parallel=False)
    assert saved_bytes(tensor_only, ("core_attn",)) == pytest.approx(s * b * h * (10 + 24 / t), rel=1e-12)


@pytest.mark.parametrize(("t", "a", "h", "b", "s"), SIZES)
def test_full_recompute_keeps_the_block_input(t: int, a: int, h: int, b: int, s: int) -> None:
    """Table 2, last row: 2sbh (a t-th of it when the sequence is split)."""
    model, _ = gpt(a, h)
    shape = Shape(micro_batch=b, seq_len=s, tensor=t, sequence_parallel=False)
    assert block_input_bytes(model, shape) == 2 * s * b * h
    assert block_input_bytes(model, shape._replace(sequence_parallel=True)) == pytest.approx(2 * s * b * h / t)


def test_sequence_parallelism_sends_the_same_bytes() -> None:
    """Section 4.2.2: a reduce-scatter and an all-gather move what one all-reduce does; one gather more, hidden."""
    kwargs = {"t": 8, "a": 64, "h": 6144, "b": 4, "s": 2048}
    split = walk_of_2022(**kwargs, sequence_parallel=True).collectives
    plain = walk_of_2022(**kwargs, sequence_parallel=False).collectives
    ring_passes = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}
    exposed = sum(c.payload * ring_passes[c.operation] for c in split if not c.behind)
    assert exposed == sum(c.payload * ring_passes[c.operation] for c in plain)
    assert {c.operation for c in plain} == {"all_reduce"} and len(
        plain
    ) == 4  # f and f-bar, forward and backward, twice
    assert [c.name for c in split if c.behind] == ["attention.regather", "mlp.regather"]


def test_fused_attention_keeps_statistics_instead_of_scores() -> None:
    """FlashAttention-2 stores one fp32 log-sum-exp per head and query (arXiv 2307.08691, section 3.1)."""
    model, block = gpt(64, 6144)
    shape = Shape(micro_batch=1, seq_len=2048, tensor=8)
    fused = block_walk(model, block, shape)
    assert {s.name: s.bytes for s in fused.saved}["attention.logsumexp"] == 4 * 2048 * 8
    scores = [
        s
        for s in block_walk(model, block, shape._replace(fused_attention=False)).saved
        if s.name == "attention.softmax"
    ]
    assert scores[0].bytes == 2 * 8 * 2048**2


# --------------------------------------------------------------------------------------------------- work of a block


@pytest.mark.parametrize(
    ("seq", "window", "causal"), [(7, None, True), (7, 3, True), (7, 9, True), (7, 1, True), (7, None, False)]
)
def test_keys_per_query_by_counting(seq: int, window: int | None, causal: bool) -> None:
    pairs = sum((not causal or k <= q) and (window is None or q - k < window) for q in range(seq) for k in range(seq))
    assert keys_per_query(seq, window, causal) == pytest.approx(pairs / seq)


def operator_flops(op: Operator) -> float:
    if op.kind in ("matmul", "grouped_matmul", "batched_matmul"):
        return float(2 * op.m * op.n * op.k * op.batch)
    return float(op.flops)


@pytest.mark.parametrize(
    "name", ["gpt-3-175b", "llama-3.1-70b", "mixtral-8x7b", "deepseek-v3", "qwen3-235b-a22b", "gemma-2-9b"]
)
def test_matrix_work_is_the_flops_of_the_model(name: str) -> None:
    """The walk's products per token equal those that `engine.flops` counts (which a judge compares with torch)."""
    model = catalogued(name)
    for block in model.blocks:
        walk = block_walk(model, block, Shape(micro_batch=1, seq_len=4096))
        matrices = sum(operator_flops(op) for op in walk.operators if "matmul" in op.kind) / 4096
        expected = sum(p.forward for p in flops_of_block(block, model.hidden, 4096) if p.kind == "matrix")
        assert matrices == pytest.approx(expected, rel=2e-3)
        attention = sum(operator_flops(op) for op in walk.operators if op.kind == "attention") / 4096
        causal = sum(p.forward for p in flops_of_block(block, model.hidden, 4096, "causal") if p.kind == "attention")
        assert attention == pytest.approx(causal, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("gpt-3-175b", {"tensor": 8}),
        ("llama-3.1-70b", {"tensor": 8}),
        ("mixtral-8x7b", {"tensor": 8}),
        ("llama-3.1-70b", {"context": 8}),
        ("mamba2-2.7b", {"context": 8}),
    ],
)
def test_degrees_divide_the_work(name: str, split: dict[str, int]) -> None:
    """Heads, columns or tokens: eight ranks do an eighth each (routers and other small projections may stay whole)."""
    model = catalogued(name)
    shape = Shape(micro_batch=1, seq_len=8192)
    for block in model.blocks:
        whole = sum(map(operator_flops, block_walk(model, block, shape).operators))
        part = sum(map(operator_flops, block_walk(model, block, shape._replace(**split)).operators))
        assert part == pytest.approx(whole / 8, rel=0.02)


def test_expert_parallelism_moves_every_routed_copy() -> None:
    """Out and back, forward and backward: tokens × top-k × hidden × 2 bytes each; the products do not change."""
    model = catalogued("mixtral-8x7b")
    shape = Shape(micro_batch=2, seq_len=4096, expert=8)
    walk = block_walk(model, model.blocks[0], shape)
    sent = [c for c in walk.collectives if c.group == "expert"]
    assert [c.operation for c in sent] == ["all_to_all"] * 4
    assert {c.payload for c in sent} == {2 * 4096 * 2 * 4096 * 2}
    alone = block_walk(model, model.blocks[0], shape._replace(expert=1))
    grouped = [[op for op in w.operators if op.kind == "grouped_matmul"] for w in (walk, alone)]
    assert sum(map(operator_flops, grouped[0])) == sum(map(operator_flops, grouped[1]))
    assert [op.batch for op in grouped[0]] == [1, 1] and [op.batch for op in grouped[1]] == [8, 8]


def test_low_precision_dispatch_halves_half_of_the_traffic() -> None:
    """DeepSeek-V3 dispatches in fp8 and combines in bf16 (arXiv 2412.19437, section 3.3.3)."""
    model = catalogued("deepseek-v3")
    moe = next(b for b in model.blocks if isinstance(b.mlp, Moe))
    payload = {
        c.name: c.payload
        for c in block_walk(model, moe, Shape(micro_batch=1, seq_len=4096, expert=64, dispatch_element=1)).collectives
    }
    assert payload["moe.combine"] == 2 * payload["moe.dispatch"] == 2 * 4096 * 8 * 7168


def test_head_and_embedding() -> None:
    model = catalogued("llama-3.1-8b")
    shape = Shape(micro_batch=1, seq_len=8192, tensor=2)
    logits = next(op for op in head_walk(model, shape, 128256).operators if op.kind == "matmul")
    assert operator_flops(logits) == 2 * 8192 * 4096 * 128256 / 2
    assert not logits.low_precision  # recipes leave the head in bf16
    reduced = embedding_walk(model, shape).collectives[0]
    assert (reduced.operation, reduced.payload) == ("reduce_scatter", 2 * 8192 * 4096)


# ------------------------------------------------------------------------------------------------------- properties


@pytest.mark.parametrize("name", MODELS)
def test_recompute_groups_only_free(name: str) -> None:
    """Every group frees something somewhere or nothing, never adds, and all of them together free most."""
    model = catalogued(name)
    for block in model.blocks:
        walk = block_walk(model, block, Shape(micro_batch=1, seq_len=4096))
        everything = saved_bytes(walk, ())
        for group in RECOMPUTE_GROUPS:
            assert 0 <= saved_bytes(walk, (group,)) <= everything
        assert saved_bytes(walk, RECOMPUTE_GROUPS) < everything
        assert all(set(s.freed_by) <= set(RECOMPUTE_GROUPS) for s in walk.saved)
        assert all(op.group in (*RECOMPUTE_GROUPS, "") for op in walk.operators)


@pytest.mark.parametrize("name", MODELS)
def test_what_a_group_frees_it_can_run_again(name: str) -> None:
    """A group that frees a tensor of a block holds an operator of that block that makes one."""
    model = catalogued(name)
    for block in model.blocks:
        walk = block_walk(model, block, Shape(micro_batch=1, seq_len=4096))
        freed = {s.freed_by[0] for s in walk.saved if s.freed_by}
        assert freed <= {op.group for op in walk.operators}


@given(
    name=st.sampled_from(MODELS),
    rows=st.lists(
        st.tuples(
            st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 4, 8]),
            st.sampled_from([1, 2]), st.integers(1, 8),
        ),
        min_size=1, max_size=4,
    ),
    sequence_parallel=st.booleans(),
    fused=st.booleans(),
)  # fmt: skip
def test_columns_give_what_numbers_give(
    name: str, rows: list[tuple[int, ...]], sequence_parallel: bool, fused: bool
) -> None:
    model = catalogued(name)
    columns = [np.array(c) for c in zip(*rows, strict=True)]
    degrees = ("tensor", "context", "expert", "expert_tensor", "micro_batch")
    common = {"seq_len": 4096, "sequence_parallel": sequence_parallel, "fused_attention": fused, "dropout": True}
    for block in model.blocks:
        table = block_walk(model, block, Shape(**dict(zip(degrees, columns, strict=True)), **common))  # type: ignore[arg-type]
        for i, row in enumerate(rows):
            single = block_walk(model, block, Shape(**dict(zip(degrees, row, strict=True)), **common))  # type: ignore[arg-type]
            saved = [float(np.broadcast_to(s.bytes, len(rows))[i]) for s in table.saved]
            assert saved == pytest.approx([float(s.bytes) for s in single.saved], rel=1e-12)
            work = [
                float(np.broadcast_to(np.asarray(op.m * op.n * op.k * op.batch + op.flops + op.traffic), len(rows))[i])
                for op in table.operators
            ]
            assert work == pytest.approx(
                [float(o.m * o.n * o.k * o.batch + o.flops + o.traffic) for o in single.operators], rel=1e-12
            )
            sent = {c.name: float(np.broadcast_to(np.asarray(c.payload), len(rows))[i]) for c in table.collectives}
            for c in single.collectives:  # a number of 1 may leave a collective out that a column keeps at group size 1
                assert sent[c.name] == pytest.approx(float(c.payload), rel=1e-12)


def test_a_longer_sequence_keeps_more() -> None:
    model = catalogued("llama-3.1-8b")
    sizes = [
        saved_bytes(block_walk(model, model.blocks[0], Shape(micro_batch=1, seq_len=s)), ()) for s in (1024, 2048, 4096)
    ]
    assert sizes[1] == 2 * sizes[0] and sizes[2] == 2 * sizes[1]  # fused attention: linear
    unfused = [
        saved_bytes(block_walk(model, model.blocks[0], Shape(micro_batch=1, seq_len=s, fused_attention=False)), ())
        for s in (1024, 2048, 4096)
    ]
    assert unfused[2] - unfused[1] > 2 * (unfused[1] - unfused[0])  # scores: quadratic


def test_parallel_and_serial_blocks_hold_the_same_parts() -> None:
    model = catalogued("gpt-3-175b")
    block = replace(model.blocks[0], norms=1, parallel=True)
    names = [op.name for op in block_walk(model, block, Shape(micro_batch=1, seq_len=128)).operators]
    assert sum(n.startswith("norm.") for n in names) == 1
    assert {"attention.qkv", "mlp.in", "mlp.out"} <= set(names)
