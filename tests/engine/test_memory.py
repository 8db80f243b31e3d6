"""Peak memory of a rank: published measurements, documented rules of the frameworks, and properties."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from meshwright.engine.activations import block_activations
from meshwright.engine.memory import (
    PHASES,
    Memory,
    host_per_node,
    peak_phase,
    stage_memory,
    stage_tree,
    stated_error,
    verdict,
)
from meshwright.engine.operators import Shape
from meshwright.engine.software import software
from meshwright.engine.stages import StageClass, all_stages, stage_classes
from meshwright.engine.states import padded_vocab, rank_params
from meshwright.spec.cluster import Accelerator, Cluster
from meshwright.spec.job import Job
from meshwright.spec.model import Attention, Block, Mlp, ModelSpec, Moe
from meshwright.spec.strategy import Strategy

GIB = 2.0**30


def llama(layers: int, hidden: int, width: int, heads: int, vocab: int = 128256) -> ModelSpec:
    mixer = Attention(heads=heads, kv_heads=8, head_dim=hidden // heads)
    block = Block(mixer=mixer, mlp=Mlp(width=width))
    return ModelSpec(name="llama", family="llama", hidden=hidden, vocab=vocab, blocks=(block,), pattern=(0,) * layers)


LLAMA_8B = llama(32, 4096, 14336, 32)
LLAMA_70B = llama(80, 8192, 28672, 64)
LLAMA_70B_12 = llama(12, 8192, 28672, 64)
MIXTRAL = replace(
    llama(8, 1024, 2048, 16),
    blocks=(Block(mixer=Attention(heads=16, kv_heads=8, head_dim=64), mlp=Moe(experts=8, top_k=2, width=2048)),),
)


def cluster(devices: int, architecture: str = "hopper") -> Cluster:
    device = Accelerator(
        id=architecture, name=architecture, vendor="", kind="gpu", architecture=architecture, peak_flops={},
        matmul_ceiling={}, compute_units=1, memory_bytes=80e9, memory_usable_bytes=79.1 * GIB, memory_bandwidth=3e12,
        link="nvswitch", link_bandwidth=4e11, link_pair_bandwidth=4e11, scale_up_domain=8, host_bandwidth=5e10,
    )  # fmt: skip
    return Cluster(
        id="c", accelerator=device, devices=devices, node_size=8, domain_size=8, link="nvswitch", link_bandwidth=4e11,
        nic_bandwidth=5e10, nics_per_node=8, fabric="infiniband",
    )  # fmt: skip


def memory_of(
    model: ModelSpec, strategy: Strategy, job: Job, stage: StageClass | None = None, devices: int = 8
) -> Memory:
    stack = software(job.software, strategy.framework)
    shape = Shape(
        micro_batch=strategy.micro_batch, seq_len=job.seq_len, tensor=strategy.tensor, context=strategy.context,
        expert=strategy.expert, expert_tensor=strategy.expert_tensor, sequence_parallel=strategy.sequence_parallel,
        fused_attention=stack.fused_attention, fused_elementwise=stack.fused_elementwise, dropout=stack.dropout,
    )  # fmt: skip
    stage = stage or all_stages(model, int(np.max(strategy.pipeline)), 1, (), strategy.schedule)[0]
    blocks = block_activations(model, strategy, shape)
    return stage_memory(model, cluster(devices), job, strategy, stage, blocks, stack)


def fsdp(**kwargs) -> Strategy:
    return Strategy(framework="fsdp", sharding="zero3", sequence_parallel=False, **kwargs)


# ------------------------------------------------------------------------------------------ against measured runs


@pytest.mark.parametrize(
    ("tensor", "pipeline", "data", "gib"),
    # SimuMax v1.2, B200, Llama3-70B cut to 12 layers, torch max_allocated of the worst rank.
    [(1, 2, 4, 66.55), (2, 1, 4, 60.68), (4, 1, 2, 39.07), (8, 1, 1, 28.29)],
)
def test_megatron_peaks_of_simumax(tensor, pipeline, data, gib):
    strategy = Strategy(data=data, tensor=tensor, pipeline=pipeline, sequence_parallel=tensor > 1)
    job = Job(seq_len=4096, global_batch=4 * data)
    stages = all_stages(LLAMA_70B_12, pipeline)
    peak = max(memory_of(LLAMA_70B_12, strategy, job, s).allocated for s in stages)
    assert peak / GIB == pytest.approx(gib, rel=0.03)


def test_megatron_peaks_by_stage():
    """The same source prints both stages of PP 2: 68,149 MiB on the first, 64,479 MiB on the last."""
    strategy = Strategy(data=4, pipeline=2, sequence_parallel=False)
    job = Job(seq_len=4096, global_batch=16)
    first, last = (memory_of(LLAMA_70B_12, strategy, job, s).allocated / 2**20 for s in all_stages(LLAMA_70B_12, 2))
    assert first == pytest.approx(68149, rel=0.03)
    assert last == pytest.approx(64479, rel=0.03)


@pytest.mark.parametrize(("devices", "eager", "compiled"), [(8, 82.4, 77.0), (128, 67.0, 62.0)])
def test_torchtitan_8b(devices, eager, compiled):
    """Case A14: within 10 % of both variants, reserved GiB."""
    strategy = fsdp(data=devices, micro_batch=2, recompute="selective")
    m = memory_of(LLAMA_8B, strategy, Job(seq_len=8192, global_batch=2 * devices), devices=devices)
    reserved = (m.allocated + m.reserve) / GIB
    assert reserved == pytest.approx(eager, rel=0.1)
    assert reserved == pytest.approx(compiled, rel=0.1)


def test_torchtitan_8b_does_not_fit_on_80_gb_at_8_gpus():
    small, large = (
        memory_of(LLAMA_8B, fsdp(data=n, micro_batch=2, recompute="selective"), Job(seq_len=8192, global_batch=2 * n))
        for n in (8, 128)
    )
    assert verdict(small.peak, 79.1 * GIB, 0.1) != "FITS"
    assert (small.allocated - large.allocated) / GIB == pytest.approx(14.0, abs=1.0)  # measured 15.0 to 15.4


@pytest.mark.parametrize(("context", "gib"), [(1, 83.9), (2, 84.2), (4, 84.0), (8, 84.5)])
def test_context_parallel_keeps_memory_flat(context, gib):
    """Case A15: sequence and context double together; states stay divided over data times context."""
    strategy = fsdp(data=8 // context, context=context, recompute="full")
    m = memory_of(LLAMA_8B, strategy, Job(seq_len=32768 * context, global_batch=8 // context))
    assert (m.allocated + m.reserve) / GIB == pytest.approx(gib, rel=0.05)


def test_chunked_loss_saves_the_logits():
    """torchtitan: chunked cross entropy saves 7.3 GiB at 8,192 tokens (compiled loss before)."""
    job, strategy = Job(seq_len=8192, global_batch=8), fsdp(data=8, recompute="selective", loss="compiled")
    before = memory_of(LLAMA_8B, strategy, job).alive["forward"]["logits"]
    after = memory_of(LLAMA_8B, replace(strategy, loss="chunked"), job).alive["forward"]["logits"]
    plain = memory_of(LLAMA_8B, replace(strategy, loss="plain"), job).alive["forward"]["logits"]
    assert (before - after) / GIB < 7.3 < (plain - after) / GIB


# ------------------------------------------------------------------------------------------ what frameworks document


def test_states_of_megatron_are_18_bytes_or_6_plus_12_over_dp():
    names = ("parameters", "gradients", "main_parameters", "optimizer")
    job = Job(seq_len=4096, global_batch=8)
    stage = all_stages(LLAMA_8B, 1)[0]
    for sharding, per in (("none", 18), ("zero1", 6 + 12 / 8)):
        strategy = Strategy(data=8, sharding=sharding, sequence_parallel=False)
        alive = memory_of(LLAMA_8B, strategy, job).alive["optimizer"]
        assert sum(alive[n] for n in names) == pytest.approx(per * rank_params(LLAMA_8B, strategy, stage).total)


def test_llama_8b_has_its_published_parameters_on_one_rank():
    strategy = fsdp(data=8)
    assert rank_params(LLAMA_8B, strategy, all_stages(LLAMA_8B, 1)[0]).total == 8_030_261_248


def test_megatron_pads_the_vocabulary():
    """GPT-2's 50,257 becomes 50,304 with TP 1 and 51,200 with TP 8 (Megatron's log)."""
    gpt = replace(LLAMA_8B, vocab=50257)
    assert padded_vocab(gpt, Strategy(tensor=1)) == 50304
    assert padded_vocab(gpt, Strategy(tensor=8)) == 51200
    assert padded_vocab(gpt, fsdp(tensor=8)) == 50257
    assert list(padded_vocab(gpt, Strategy(tensor=np.array([1, 8])))) == [50304, 51200]


def test_zero3_offload_of_70b_needs_more_than_a_terabyte():
    """Case A28: 18 bytes a parameter, 1,242 GB and more for 69B on one host."""
    strategy = Strategy(framework="deepspeed", sharding="zero3", data=8, offload="parameters", sequence_parallel=False)
    m = memory_of(LLAMA_70B, strategy, Job(seq_len=2048, global_batch=8))
    assert m.host["offloaded"] * 8 / 70.55e9 == pytest.approx(18, rel=0.01)
    assert host_per_node(m, cluster(8)) > 1242e9


def test_offload_param_is_ignored_by_stage_2():
    """Case A29: 16-bit weights stay whole on every GPU, whatever offload_param says."""
    strategy = Strategy(framework="deepspeed", sharding="zero2", data=4, offload="parameters", sequence_parallel=False)
    m = memory_of(LLAMA_8B, strategy, Job(seq_len=2048, global_batch=4))
    assert m.alive["forward"]["parameters"] == pytest.approx(2 * 8_030_261_248)


def test_initialisation_needs_more_host_memory_than_training():
    """Case A06: ZeRO-2 offload builds fp32 shards on every rank first; ZeRO-3 with zero.Init does not."""
    job = Job(seq_len=2048, global_batch=8)
    two = Strategy(framework="deepspeed", sharding="zero2", data=8, offload="optimizer", sequence_parallel=False)
    m = memory_of(LLAMA_8B, two, job)
    assert m.host["initialise"] - m.host["steady"] == pytest.approx(4 * 8_030_261_248)
    m = memory_of(LLAMA_8B, replace(two, sharding="zero3"), job)
    assert m.host["initialise"] == m.host["steady"]


def test_pipelined_fsdp_keeps_whole_gradients_and_weights():
    """torch.distributed.pipelining defers reduction: fp32 gradients of the stage whole, 16-bit weights gathered."""
    job = Job(seq_len=4096, global_batch=64)
    strategy = fsdp(data=4, pipeline=2)
    alive = memory_of(LLAMA_8B, strategy, job).alive["backward"]
    params = rank_params(LLAMA_8B, strategy, all_stages(LLAMA_8B, 2)[0]).total
    assert alive["gathered_units"] == pytest.approx(2 * params)
    assert alive["unsynchronised_gradients"] + alive["gradients"] == pytest.approx(4 * params)


def test_experts_are_divided_over_their_own_ranks():
    job = Job(seq_len=1024, global_batch=16)
    stage = all_stages(MIXTRAL, 1)[0]
    one = rank_params(MIXTRAL, Strategy(data=8, sequence_parallel=False), stage)
    eight = rank_params(MIXTRAL, Strategy(data=8, expert=8, sequence_parallel=False), stage)
    assert eight.dense == one.dense and eight.expert == one.expert / 8
    # With EP = DP nobody else holds the same experts: their optimizer states are not divided further.
    m = memory_of(MIXTRAL, Strategy(data=8, expert=8, sequence_parallel=False), job)
    assert m.alive["optimizer"]["optimizer"] == pytest.approx(8 * (eight.dense / 8 + eight.expert))


def test_earlier_stages_hold_more_micro_batches():
    job, strategy = Job(seq_len=4096, global_batch=64), Strategy(pipeline=4, sequence_parallel=False)
    held = [memory_of(LLAMA_8B, strategy, job, s).alive["backward"]["activations"] for s in all_stages(LLAMA_8B, 4)]
    assert [h / held[-1] for h in held] == pytest.approx([4, 3, 2, 1])
    every = replace(strategy, schedule="gpipe")
    assert memory_of(LLAMA_8B, every, job).alive["backward"]["activations"] == pytest.approx(64 * held[-1])


# ---------------------------------------------------------------------------------------------------------- properties

STRATEGIES = [
    Strategy(data=8, tensor=2, pipeline=2),
    Strategy(data=4, tensor=2, pipeline=4, sharding="none", recompute="full"),
    Strategy(data=8, precision="fp8", tensor=2),
    Strategy(data=8, sharding="zero3", sequence_parallel=False),
    Strategy(data=8, context=2, recompute="selective", recompute_ops=("mlp",), sequence_parallel=False),
    fsdp(data=8, micro_batch=2, recompute="selective"),
    fsdp(data=8, tensor=2, pipeline=2),
    Strategy(framework="fsdp", sharding="none", data=8, sequence_parallel=False),
    Strategy(framework="fsdp", sharding="zero2", data=8, sequence_parallel=False),
    Strategy(framework="deepspeed", sharding="zero1", data=8, sequence_parallel=False),
    Strategy(framework="deepspeed", sharding="zero2", data=8, offload="optimizer", sequence_parallel=False),
    Strategy(framework="deepspeed", sharding="zero3", data=8, sequence_parallel=False),
    Strategy(framework="jax", sharding="zero3", data=8, recompute="full", sequence_parallel=False),
    Strategy(data=8, offload="activations", recompute="full", sequence_parallel=False),
]
JOB = Job(seq_len=4096, global_batch=64)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
@pytest.mark.parametrize("model", [LLAMA_8B, MIXTRAL], ids=["dense", "moe"])
def test_the_tree_sums_to_the_peak(strategy, model):
    for stage in stage_classes(model, strategy.pipeline):
        m = memory_of(model, strategy, JOB, stage)
        tree = stage_tree(m, stage, cluster(8))
        leaves = sum(term.value for _, term in tree.device.walk() if term.combine == "leaf")
        assert leaves == pytest.approx(m.peak) == pytest.approx(tree.device.value)
        assert tree.phase == peak_phase(m) and set(tree.phases) == set(PHASES)
        assert max(tree.phases.values()) == pytest.approx(m.allocated)
        assert all(value >= 0 for alive in m.alive.values() for value in alive.values())
        assert tree.host.value >= m.host["steady"] * 8 * 0.999


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
@pytest.mark.parametrize("model", [LLAMA_8B, MIXTRAL], ids=["dense", "moe"])
def test_a_column_equals_its_scalars(strategy, model):
    tensors, datas = np.array([1, 2, 4, 8]), np.array([16, 8, 4, 2])
    for stage in stage_classes(model, strategy.pipeline):
        column = memory_of(model, replace(strategy, tensor=tensors, data=datas, shard=np.zeros(4, int)), JOB, stage)
        scalars = [
            memory_of(model, replace(strategy, tensor=int(t), data=int(d)), JOB, stage)
            for t, d in zip(tensors, datas, strict=True)
        ]
        assert column.peak == pytest.approx([m.peak for m in scalars])
        assert column.host["steady"] * np.ones(4) == pytest.approx([m.host["steady"] for m in scalars])


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
def test_more_ranks_never_need_more_memory(strategy):
    """At a fixed micro-batch and number of micro-batches, more data-parallel ranks never add bytes to the allocator."""
    peaks = []
    for data in (1, 2, 4, 8, 16, 64):
        job = replace(JOB, global_batch=8 * data * strategy.micro_batch)
        peaks.append(memory_of(LLAMA_8B, replace(strategy, data=data), job).allocated)
    assert all(b <= a * (1 + 1e-12) for a, b in pairwise(peaks))


@pytest.mark.parametrize("degree", ["tensor", "context"])
@pytest.mark.parametrize("framework", ["megatron", "fsdp"])
def test_splitting_a_model_further_never_needs_more(degree, framework):
    base = Strategy(framework=framework, sharding="zero1" if framework == "megatron" else "zero3", recompute="full")
    peaks = []
    for n in (2, 4, 8):
        peaks.append(memory_of(LLAMA_8B, replace(base, **{degree: n}), Job(seq_len=8192, global_batch=8)).allocated)
    assert peaks == sorted(peaks, reverse=True)


def test_recompute_saves_in_order():
    peaks = [
        memory_of(LLAMA_8B, Strategy(data=8, sequence_parallel=False, recompute=r, recompute_ops=("mlp",)), JOB)
        for r in ("none", "selective", "full")
    ]
    stored = [p.alive["forward"]["activations"] for p in peaks]
    assert stored[0] > stored[1] > stored[2]
    assert stored[2] == 32 * 4096 * 4096 * 2  # the layers' inputs


def test_sharding_stages_order():
    job = replace(JOB, global_batch=64)
    for framework in ("deepspeed", "fsdp"):
        peaks = [
            memory_of(LLAMA_8B, Strategy(framework=framework, sharding=s, data=8, sequence_parallel=False), job).phases
            for s in ("none", "zero1", "zero2", "zero3")
        ]
        states = [p["initialise"] for p in peaks]
        assert states == sorted(states, reverse=True)


def test_verdict_words():
    assert verdict(70.0, 80.0, 0.1) == "FITS"
    assert verdict(75.0, 80.0, 0.1) == "TIGHT"
    assert verdict(80.1, 80.0, 0.1) == "OVER"
    assert 0 < stated_error(Strategy()) < stated_error(Strategy(framework="deepspeed")) < 0.3
