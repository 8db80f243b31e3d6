"""From strategy to seconds: shapes by software and precision, placement, remembered blocks, sends, state traffic."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from meshwright.catalog.hardware import cluster
from meshwright.catalog.models import model
from meshwright.engine.evaluate import estimate_legal
from meshwright.engine.placement import place
from meshwright.engine.timing import Blocks, blocks_of, blocks_once, layout_of, send_time, setting, shape_of, stages_of
from meshwright.spec.job import Job
from meshwright.spec.plan import Problem
from meshwright.spec.strategy import Strategy

CLUSTER = cluster("h100-sxm:64")
JOB = Job(seq_len=8192, global_batch=128)


def parts(strategy: Strategy, name: str = "llama-3.1-8b", job: Job = JOB, where: Any = CLUSTER) -> tuple[Any, Any]:
    s = setting(model(name), where, job, strategy.framework, strategy.precision)
    return s, place(where, strategy)


def blocks(strategy: Strategy, name: str = "llama-3.1-8b", job: Job = JOB, where: Any = CLUSTER) -> Blocks:
    s, groups = parts(strategy, name, job, where)
    return blocks_of(s, strategy, groups)


def test_shape_follows_software_and_precision() -> None:
    strategy = Strategy(tensor=8, data=8)
    s, _ = parts(strategy)
    assert shape_of(s, strategy).sequence_parallel and not shape_of(s, replace(strategy, tensor=1)).sequence_parallel
    assert not shape_of(s, replace(strategy, sequence_parallel=False)).sequence_parallel
    assert shape_of(s, strategy).element == 2 and shape_of(s, replace(strategy, precision="fp32")).element == 4
    low = shape_of(s, replace(strategy, precision="fp8"))
    assert low.dispatch_element == 2  # Megatron dispatches bf16 tokens under fp8 recipes too
    sparing = s._replace(software=replace(s.software, dispatch_bytes=1))
    assert 1 < shape_of(sparing, replace(strategy, precision="fp8")).dispatch_element < 1.1  # DeepSeek-V3: with scales
    assert shape_of(s, replace(strategy, dispatcher="alltoall")).dispatcher == "alltoall" != s.software.dispatcher
    old, _ = parts(strategy, job=replace(JOB, software="megatron-2022"))
    assert not shape_of(old, strategy).fused_attention and shape_of(s, strategy).fused_attention


CHANGES: list[dict[str, Any]] = [
    {"recompute": "full"}, {"recompute": "selective", "recompute_ops": ("core_attn",)},
    {"recompute": "selective", "recompute_ops": ("mlp",)}, {"overlap_tensor": True}, {"overlap_expert": True},
    {"micro_batch": 2}, {"context": 2, "data": 4}, {"expert": 8, "expert_tensor": 1}, {"expert": 8, "expert_tensor": 4},
    {"sequence_parallel": False}, {"precision": "fp8"}, {"framework": "fsdp", "sharding": "zero3"},
    {"pipeline": 2, "data": 4},
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_remembered_blocks_are_the_blocks_asked_for(change: dict[str, Any]) -> None:
    plain = Strategy(tensor=4, data=16, expert_tensor=4)
    for strategy in (plain, replace(plain, **change), plain):
        s, groups = parts(strategy, "mixtral-8x7b")
        assert blocks_once(s, strategy, groups) == blocks_of(s, strategy, groups)


def test_tensor_parallelism_across_nodes_costs_more() -> None:
    """Sixteen ranks on two nodes leave them over eight cards: a little slower than NVLink at 50 GB/s each, four times
    slower still at 12.5."""
    slow = cluster("h100-sxm:64", nic_bandwidth=12.5e9)
    inside, outside = Strategy(tensor=8, data=8), Strategy(tensor=16, data=4)
    near, far = blocks(inside).kinds[0].forward_comm["tensor"], blocks(outside).kinds[0].forward_comm["tensor"]
    assert near < far < 2 * near
    assert blocks(inside, where=slow).kinds[0].forward_comm["tensor"] == near
    assert 3 * far < blocks(outside, where=slow).kinds[0].forward_comm["tensor"] < 4.2 * far


def test_expert_parallelism_inside_a_node_is_cheaper() -> None:
    inside = blocks(Strategy(data=64, expert=8), "mixtral-8x7b")
    outside = blocks(Strategy(tensor=8, data=8, expert=8, expert_tensor=8), "mixtral-8x7b")
    per_token = [b.kinds[0].forward_comm["expert"] for b in (inside, outside)]
    assert per_token[1] * 8 > per_token[0]  # an eighth of the tokens each, over the network


def test_context_parallelism_hides_its_ring_behind_long_sequences() -> None:
    short = blocks(Strategy(context=8, data=8, tensor=1), job=replace(JOB, seq_len=4096))
    long = blocks(Strategy(context=8, data=8, tensor=1), job=replace(JOB, seq_len=131072))
    assert long.kinds[0].forward_comm["context"] == 0  # attention grows with the square, the ring with the length
    assert short.kinds[0].forward_comm["context"] >= 0


def test_one_hop_between_stages() -> None:
    """A micro-batch of 8,192 tokens × 4,096 × 2 bytes, an eighth per tensor rank, at most at 50 GB/s."""
    strategy = Strategy(tensor=8, pipeline=8, data=1)
    s, groups = parts(strategy)
    bytes_sent = 8192 * 4096 * 2 / 8
    assert bytes_sent / 50e9 < send_time(s, strategy, groups) < 3 * bytes_sent / 50e9
    assert send_time(s, strategy, groups) < send_time(s, replace(strategy, micro_batch=4), groups)


@pytest.mark.parametrize(
    ("framework", "sharding", "each"),
    [
        ("megatron", "none", (False, False)),
        ("megatron", "zero1", (False, False)),
        ("deepspeed", "zero2", (False, True)),  # gradients are reduced after every micro-batch
        ("fsdp", "zero3", (True, True)),
    ],
)
def test_when_states_are_exchanged(framework: str, sharding: str, each: tuple[bool, bool]) -> None:
    strategy = Strategy(framework=framework, sharding=sharding, data=64)
    s, groups = parts(strategy)
    traffic = layout_of(s, strategy, stages_of(s.model, strategy)[0], groups).traffic
    assert (traffic.gather_each, traffic.reduce_each) == each
    assert (traffic.gather_forward > 0) == (sharding != "none")
    assert (traffic.gather_backward > 0) == (sharding == "zero3")
    assert traffic.reduce > 0


def test_gradients_of_8b_move_at_no_more_than_the_cards_allow() -> None:
    """8.03 B gradients: 64 ranks on 8 nodes send 7/8 and more of them over one 50 GB/s card each."""
    strategy = Strategy(sharding="zero1", data=64)
    s, groups = parts(strategy)
    stage = stages_of(s.model, strategy)[0]
    reduce = layout_of(s, strategy, stage, groups).traffic.reduce
    size = 8.03e9 * s.software.reduce_bytes
    assert 0.8 * size / 450e9 < reduce < 2 * size / 50e9


def test_the_optimizer_shrinks_with_its_shards() -> None:
    whole, sharded = Strategy(sharding="none", data=64), Strategy(sharding="zero1", data=64)
    seconds = []
    for strategy in (whole, sharded):
        s, groups = parts(strategy)
        seconds.append(layout_of(s, strategy, stages_of(s.model, strategy)[0], groups).optimizer)
    assert seconds[0] == pytest.approx(64 * seconds[1], rel=0.2)
    # AdamW with fp32 states: parameters, moments read and written, gradients read once or twice: 28 to 34 bytes.
    assert 28 < seconds[0] * 3.35e12 / 8.03e9 < 34 / 0.75


def test_offloaded_optimizer_is_bound_by_the_host() -> None:
    strategy = Strategy(framework="deepspeed", sharding="zero2", data=64)
    s, groups = parts(strategy)
    stage = stages_of(s.model, strategy)[0]
    device = layout_of(s, strategy, stage, groups).optimizer
    assert layout_of(s, replace(strategy, offload="optimizer"), stage, groups).optimizer > 5 * device


@pytest.mark.parametrize("name", ["llama-3.1-8b", "mixtral-8x7b", "deepseek-v2-lite", "jamba-v0.1"])
def test_the_step_is_its_compute_and_what_is_exposed(name: str) -> None:
    """One stage: micro-batches times every layer, head and embedding; the rest is named in the tree."""
    problem = Problem(model=model(name), cluster=CLUSTER, job=JOB)
    strategy = Strategy(tensor=2, data=32, expert_tensor=2)
    e = estimate_legal(problem, strategy)
    b = blocks(strategy, name)
    layers = sum(problem.model.count(k) * (c.forward + c.backward) for k, c in enumerate(b.kinds))
    ends = b.head.forward + b.head.backward + b.embedding.forward + b.embedding.backward
    named = {t.name: t.value for t in e.time.children}
    moving = sum(named.get(n, 0.0) for n in ("compute", "tensor_comm", "context_comm", "expert_comm"))
    assert moving == pytest.approx(e.micro_batches * (layers + ends), rel=1e-9)
