"""Cost of one block: table 4 of Korthikanti et al. 2022, sums, recompute, overlap; numbers equal columns."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.catalog.hardware import accelerator, cluster
from meshwright.catalog.models import model
from meshwright.engine.block import BlockCost, Overlap, Recompute, block_cost
from meshwright.engine.kernels import operator_time, rates
from meshwright.engine.operators import Collective, Operator, Shape, Walk, block_walk
from meshwright.engine.placement import place
from meshwright.engine.timing import blocks_of, setting
from meshwright.spec.job import Job
from meshwright.spec.strategy import Strategy

RATES = rates(accelerator("h100-sxm"), "bf16")
NO_OVERLAP = Overlap()
MODELS = ["llama-3.1-8b", "mixtral-8x7b", "deepseek-v3", "mamba2-2.7b", "qwen3-next-80b-a3b"]


def walk_of(name: str, kind: int = -1, **shape: object) -> Walk:
    spec = model(name)
    return block_walk(spec, spec.blocks[kind], Shape(**{"micro_batch": 1, "seq_len": 4096, **shape}))  # type: ignore[arg-type]


def slow(c: Collective) -> float:
    return 1e-3


def cost(walk: Walk, mode: str = "none", groups: tuple[str, ...] = (), overlap: Overlap = NO_OVERLAP) -> BlockCost:
    return block_cost(walk, RATES, slow, Recompute(mode, groups), overlap)


# ------------------------------------------------------------------------------ Korthikanti et al. 2022, table 4

TABLE_4 = [  # sequence parallel, recompute, forward ms, backward ms (recompute included)
    (False, "none", 7.7, 11.9),
    (True, "none", 7.2, 11.8),
    (False, "full", 7.7, 19.5),
    (False, "selective", 7.7, 13.2),
    (True, "selective", 7.2, 13.1),
]


def block_of_22b(sequence_parallel: bool, recompute: str) -> BlockCost:
    where = cluster("dgx-a100-80gb:8")
    job = Job(seq_len=2048, global_batch=4, precision="fp16", software="megatron-2022")
    strategy = Strategy(
        tensor=8,
        micro_batch=4,
        recompute=recompute,
        sequence_parallel=sequence_parallel,
        sharding="none",
        precision="fp16",
    )
    s = setting(model("megatron-22b"), where, job, "megatron", "fp16")
    return blocks_of(s, strategy, place(where, strategy)).kinds[0]


@pytest.mark.parametrize(("sequence_parallel", "recompute", "forward", "backward"), TABLE_4)
def test_layer_of_22b(sequence_parallel: bool, recompute: str, forward: float, backward: float) -> None:
    block = block_of_22b(sequence_parallel, recompute)
    assert 1e3 * block.forward == pytest.approx(forward, rel=0.1)
    assert 1e3 * block.backward == pytest.approx(backward, rel=0.1)
    assert 1e3 * (block.forward + block.backward) == pytest.approx(forward + backward, rel=0.1)


@pytest.mark.parametrize(
    ("sequence_parallel", "recompute", "overhead"),
    [(False, "full", 0.39), (False, "selective", 0.07), (True, "selective", 0.04)],
)
def test_overhead_of_recomputation(sequence_parallel: bool, recompute: str, overhead: float) -> None:
    """Over the baseline without recompute and without sequence parallelism; within three points."""
    baseline, changed = block_of_22b(False, "none"), block_of_22b(sequence_parallel, recompute)
    assert (changed.forward + changed.backward) / (baseline.forward + baseline.backward) - 1 == pytest.approx(
        overhead, abs=0.03
    )


# ------------------------------------------------------------------------------------------------------------- sums


@pytest.mark.parametrize("name", MODELS)
def test_parts_are_the_sum_of_the_kernels(name: str) -> None:
    walk = walk_of(name)
    forward, backward = zip(*(operator_time(op, RATES) for op in walk.operators), strict=True)
    block = cost(walk)
    assert sum(block.forward_parts.values()) == pytest.approx(sum(forward))
    assert sum(block.backward_parts.values()) == pytest.approx(sum(backward))
    assert block.recompute == 0


@pytest.mark.parametrize("name", MODELS)
def test_full_recompute_runs_the_forward_pass_again(name: str) -> None:
    """Its compute and its exposed communication (the collectives repeat too)."""
    walk = walk_of(name, tensor=8, expert=8)
    plain, full = cost(walk), cost(walk, "full")
    assert full.forward == plain.forward
    assert full.backward - plain.backward == pytest.approx(plain.forward)


@pytest.mark.parametrize("name", MODELS)
def test_selective_recompute_lies_between(name: str) -> None:
    walk = walk_of(name, tensor=8, expert=8)
    none, full = cost(walk), cost(walk, "full")
    groups = {op.group for op in walk.operators} - {""}
    for group in groups:
        one = cost(walk, "selective", (group,))
        assert none.backward < one.backward < full.backward
    assert cost(walk, "selective", ()).backward == none.backward
    assert cost(walk, "selective", tuple(groups)).backward <= full.backward * (1 + 1e-12)


def test_recompute_of_a_group_repeats_its_collectives() -> None:
    walk = walk_of("mixtral-8x7b", expert=8)
    moe, norm = cost(walk, "selective", ("moe",)), cost(walk, "selective", ("layernorm",))
    assert moe.backward_comm["expert"] == pytest.approx(norm.backward_comm["expert"] + 2e-3)  # dispatch and combine


# ---------------------------------------------------------------------------------------------------------- overlap


def kernel(seconds: float, part: str) -> Operator:
    """A copy that takes `seconds` forward and twice that backward, gaps included."""
    return Operator("k", part, "memory", traffic=(seconds - RATES.launch) * RATES.memory, backward_ratio=2.0)


def block_with(collective: Collective, seconds: float, overlap: Overlap = NO_OVERLAP) -> BlockCost:
    walk = Walk((kernel(10e-3, "attention"), kernel(30e-3, "mlp")), (), (collective,))
    return block_cost(walk, RATES, lambda c: seconds, Recompute(), overlap)


def test_ring_attention_hides_behind_attention_only() -> None:
    ring = Collective("ring", "context", "all_gather", 1.0, behind="attention")
    assert block_with(ring, 8e-3).forward_comm["context"] == 0
    hidden = block_with(ring, 25e-3)
    assert hidden.forward_comm["context"] == pytest.approx(15e-3) and hidden.hidden_comm == pytest.approx(10e-3)


def test_tensor_communication_is_exposed_unless_overlapped() -> None:
    gather = Collective("gather", "tensor", "all_gather", 1.0)
    assert block_with(gather, 4e-3).forward_comm["tensor"] == 4e-3
    overlapped = block_with(gather, 4e-3, Overlap(tensor=True))
    # Four chunks: the first one is still seen (Transformer Engine user buffers).
    assert overlapped.forward_comm["tensor"] == pytest.approx(1e-3) and overlapped.hidden_comm == pytest.approx(3e-3)


def test_all_to_all_hides_behind_the_other_micro_batch_when_asked() -> None:
    exchange = Collective("dispatch", "expert", "all_to_all", 1.0, behind="moe")
    assert block_with(exchange, 15e-3).forward_comm["expert"] == 15e-3
    assert block_with(exchange, 15e-3, Overlap(expert=True)).forward_comm["expert"] == 0
    assert block_with(exchange, 50e-3, Overlap(expert=True)).forward_comm["expert"] > 0


@given(st.floats(0, 0.1), st.sampled_from(["tensor", "context", "expert"]), st.booleans(), st.booleans())
def test_overlap_never_costs_and_nothing_is_lost(seconds: float, group: str, tensor: bool, expert: bool) -> None:
    c = Collective("c", group, "all_gather", 1.0, behind="attention" if group == "context" else "")
    plain, hidden = block_with(c, seconds), block_with(c, seconds, Overlap(tensor, expert))
    assert 0 <= hidden.forward_comm[group] <= plain.forward_comm[group] <= seconds
    assert hidden.forward_comm[group] + hidden.hidden_comm == pytest.approx(seconds, abs=1e-15)


def test_every_other_product_of_torchtitan() -> None:
    """Operator-wise selective checkpointing of torchtitan: half of the matrix products run again, no attention."""
    walk = walk_of("llama-3.1-8b")
    again = block_cost(
        walk, RATES, slow, Recompute("selective", ("core_attn",), every_other=True), NO_OVERLAP
    ).recompute
    by_kind: dict[str, float] = {}
    for op in walk.operators:
        by_kind[op.kind] = by_kind.get(op.kind, 0.0) + operator_time(op, RATES)[0]
    assert again == pytest.approx(by_kind["matmul"] / 2 + by_kind["memory"])


def test_many_small_kernels_are_bound_by_the_host() -> None:
    """A hundred kernels of a microsecond each cannot run faster than the host launches them."""
    walk = Walk(tuple(Operator("k", "mlp", "memory", traffic=1.0) for _ in range(100)), (), ())
    block = block_cost(walk, RATES, slow, Recompute(), NO_OVERLAP)
    assert block.forward + block.backward + block.host == pytest.approx(300 * RATES.host_launch)
    assert cost(walk_of("llama-3.1-8b", micro_batch=4)).host == 0


# ------------------------------------------------------------------------------------------------ numbers and columns


DEGREES = st.tuples(  # tensor, context, expert, expert tensor, micro-batch
    st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2]), st.sampled_from([1, 2, 8]), st.sampled_from([1, 2]),
    st.integers(1, 4),
)  # fmt: skip


@given(
    name=st.sampled_from(MODELS),
    rows=st.lists(DEGREES, min_size=1, max_size=3),
    mode=st.sampled_from(["none", "selective", "full"]),
    precision=st.sampled_from(["bf16", "fp8"]),
)
def test_columns_give_what_numbers_give(name: str, rows: list[tuple[int, ...]], mode: str, precision: str) -> None:
    """Every block kind, head and embedding of a table, through placement and collectives."""
    where = cluster("h100-sxm:64")
    job = Job(seq_len=8192, global_batch=512, precision=precision)  # type: ignore[arg-type]
    s = setting(model(name), where, job, "megatron", precision)
    strategies = [
        Strategy(
            tensor=t, context=c, expert=e, expert_tensor=et if e > 1 else t, data=64 // (t * c), micro_batch=b,
            recompute=mode, precision=precision, recompute_ops=("core_attn", "moe_act"),
        )
        for t, c, e, et, b in rows
    ]  # fmt: skip
    names = ("tensor", "context", "expert", "expert_tensor", "data", "micro_batch", "pipeline", "shard")
    table = replace(strategies[0], **{n: np.array([getattr(x, n) for x in strategies]) for n in names})
    columns = blocks_of(s, table, place(where, table))
    for i, strategy in enumerate(strategies):
        single = blocks_of(s, strategy, place(where, strategy))
        pairs = [
            *zip(columns.kinds, single.kinds, strict=True),
            (columns.head, single.head),
            (columns.embedding, single.embedding),
        ]
        for many, one in pairs:
            for value in ("forward", "backward", "recompute", "hidden_comm", "host"):
                column = np.broadcast_to(np.asarray(getattr(many, value), dtype=float), (len(rows),))
                assert column[i] == pytest.approx(getattr(one, value), rel=1e-9, abs=1e-15)
        for many_bytes, one_bytes in zip(
            columns.activations.stored + columns.activations.transient,
            single.activations.stored + single.activations.transient,
            strict=True,
        ):
            assert np.broadcast_to(many_bytes, (len(rows),))[i] == pytest.approx(one_bytes, rel=1e-9)
