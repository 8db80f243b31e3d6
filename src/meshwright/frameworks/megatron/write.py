"""A strategy as a launch script of Megatron-LM: environment, torchrun, and the arguments in commented groups."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator
from typing import Any

from meshwright.engine.stages import chunk_sizes
from meshwright.frameworks.megatron import layout
from meshwright.frameworks.megatron.fields import FORMAT, VERSION
from meshwright.frameworks.records import Exported, File, Missing
from meshwright.messages import N_, Text
from meshwright.rules.advice import connections
from meshwright.rules.base import RuleContext
from meshwright.spec.cluster import Cluster
from meshwright.spec.model import Attention, Mlp, ModelSpec, Moe, MultiLatentAttention
from meshwright.spec.plan import Problem
from meshwright.spec.strategy import Strategy

SCRIPT = "pretrain.sh"
Settings = Iterator[tuple[str, Any]]  # a flag has the value True
OPTIMIZERS = {
    "adamw": "adam",
    "adamw-bf16": "adam",
    "sgd": "sgd",
    "sgd-momentum": "sgd",
    "lion": "lion",
    "muon": "muon",
}


def write(problem: Problem, strategy: Strategy, version: str = "") -> Exported:
    """The script, and what it cannot say."""
    groups = (
        ("MODEL_ARGS", "the model", list(model_arguments(problem))),
        ("PARALLEL_ARGS", "the partition", list(parallel_arguments(problem, strategy))),
        ("TRAINING_ARGS", "batch, precision, optimizer", list(training_arguments(problem, strategy))),
        ("DATA_ARGS", "mock data: put your own data and tokenizer here", list(data_arguments(problem))),
    )
    settings = tuple(pair for _, _, pairs in groups for pair in pairs)
    return Exported(
        format=FORMAT, version=version or VERSION, files=(File(name=SCRIPT, text=_script(problem, strategy, groups)),),
        settings=settings, missing=tuple(missing(problem, strategy)),
        notes=(Text(N_("the learning rate is an example; mock data until data and tokenizer are named")),),
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------- arguments


def model_arguments(problem: Problem) -> Settings:
    """What the model is; parts that Megatron's GPT has no argument for are in `missing`."""
    model = problem.model
    dense, moe = (_first(model, kind) for kind in (Mlp, Moe))
    yield "--num-layers", model.layers
    yield "--hidden-size", model.hidden
    width = dense or moe
    if width is not None:
        yield "--ffn-hidden-size", width.width
        if width.gated:
            yield "--swiglu", True
    mixer = model.blocks[0].mixer
    bias = (width is not None and width.bias) or (isinstance(mixer, Attention) and mixer.out_bias)
    yield from _attention(model, mixer, bias)
    yield "--normalization", "RMSNorm" if model.final_norm == "rms" else "LayerNorm"
    if not bias:
        yield "--disable-bias-linear", True
    yield "--max-position-embeddings", max(model.max_positions or 0, model.learned_positions, problem.job.seq_len)
    yield "--position-embedding-type", "learned_absolute" if model.learned_positions else "rope"
    if not model.tied_embeddings:
        yield "--untie-embeddings-and-output-weights", True
    if moe is not None:
        yield from _experts(model, moe)
    if model.mtp_layers:
        yield "--mtp-num-layers", model.mtp_layers


def _first(model: ModelSpec, kind: type) -> Any:
    return next((b.mlp for b in model.blocks if isinstance(b.mlp, kind)), None)


def _attention(model: ModelSpec, mixer: Any, bias: bool) -> Settings:
    if isinstance(mixer, MultiLatentAttention):
        yield "--multi-latent-attention", True
        yield "--num-attention-heads", mixer.heads
        if mixer.q_rank:
            yield "--q-lora-rank", mixer.q_rank
        yield "--kv-lora-rank", mixer.kv_rank
        yield "--qk-head-dim", mixer.nope_dim
        yield "--qk-pos-emb-head-dim", mixer.rope_dim
        yield "--v-head-dim", mixer.v_dim
    elif isinstance(mixer, Attention):
        yield "--num-attention-heads", mixer.heads
        if mixer.kv_heads != mixer.heads:
            yield "--group-query-attention", True
            yield "--num-query-groups", mixer.kv_heads
        if mixer.head_dim * mixer.heads != model.hidden:
            yield "--kv-channels", mixer.head_dim
        if mixer.qkv_bias and not bias:
            yield "--add-qkv-bias", True
        if mixer.qk_norm == "head":
            yield "--qk-layernorm", True


def _experts(model: ModelSpec, moe: Moe) -> Settings:
    yield "--num-experts", moe.experts
    yield "--moe-router-topk", moe.top_k
    yield "--moe-ffn-hidden-size", moe.width
    if moe.shared_width:
        yield "--moe-shared-expert-intermediate-size", moe.shared_width
    if moe.router_groups > 1:
        yield "--moe-router-num-groups", moe.router_groups
        yield "--moe-router-group-topk", moe.router_top_groups
    sparse = [int(isinstance(model.blocks[kind].mlp, Moe)) for kind in model.pattern]
    if not all(sparse):
        yield "--moe-layer-freq", _pattern(sparse)
    yield "--moe-grouped-gemm", True
    yield "--moe-token-dispatcher-type", "alltoall"


def _pattern(sparse: list[int]) -> str:
    """Runs of layers as a sum of lists."""
    runs: list[tuple[int, int]] = []
    for kind in sparse:
        runs = [*runs[:-1], (kind, runs[-1][1] + 1)] if runs and runs[-1][0] == kind else [*runs, (kind, 1)]
    return "(" + "+".join(f"[{kind}]*{count}" for kind, count in runs) + ")"


def parallel_arguments(problem: Problem, strategy: Strategy) -> Settings:
    """Degrees, split, sharding, overlap, recomputation, offload."""
    s, model = strategy, problem.model
    yield "--tensor-model-parallel-size", s.tensor
    if s.tensor > 1 and s.sequence_parallel:
        yield "--sequence-parallel", True
    yield "--pipeline-model-parallel-size", s.pipeline
    yield from _stages(model, s)
    if s.context > 1:
        yield "--context-parallel-size", s.context
    if model.is_moe:
        yield "--expert-model-parallel-size", s.expert
        yield "--expert-tensor-parallel-size", s.expert_tensor
        if overlaps_experts(s, model):
            yield "--overlap-moe-expert-parallel-comm", True
    if s.sharding == "zero1":
        yield "--use-distributed-optimizer", True
        if s.shard and s.shard < s.data * s.context:
            yield "--num-distributed-optimizer-instances", s.data * s.context // s.shard
    if s.overlap_grad_reduce:
        yield "--overlap-grad-reduce", True
        if s.overlap_param_gather and s.sharding == "zero1":
            yield "--overlap-param-gather", True
    if s.overlap_tensor and s.tensor > 1:
        yield "--tp-comm-overlap", True
    yield from _memory(s, model)


def overlaps_experts(s: Strategy, model: ModelSpec) -> bool:
    """Whether Megatron can overlap the all-to-all of experts as the strategy wants (megatron-core "
    "TransformerConfig)."""
    wanted = bool(s.overlap_expert) and s.expert > 1
    staged = s.pipeline == 1 or s.virtual > 1
    modules = model.mtp_layers == 0 or (model.mtp_layers == 1 and s.pipeline > 1)
    again = s.recompute == "full" or (s.recompute == "selective" and "moe" in s.recompute_ops)
    return wanted and staged and modules and not again and s.precision not in ("fp32", "tf32")


def _stages(model: ModelSpec, s: Strategy) -> Settings:
    if s.pipeline == 1:
        return
    sizes = chunk_sizes(model.layers, s.pipeline, s.virtual, s.layers_per_stage)
    if len(set(sizes)) > 1 or s.layers_per_stage or model.mtp_layers:
        yield "--pipeline-model-parallel-layout", layout.write(sizes, model.mtp_layers)
    elif s.virtual > 1:
        yield "--num-virtual-stages-per-pipeline-rank", s.virtual


def _memory(s: Strategy, model: ModelSpec) -> Settings:
    if s.recompute == "full":
        yield "--recompute-granularity", "full"
        yield "--recompute-method", "uniform"
        yield "--recompute-num-layers", 1
    elif s.recompute == "selective":
        yield "--recompute-granularity", "selective"
        yield "--recompute-modules", ["core_attn" if op == "core_attention" else op for op in s.recompute_ops]
    if s.offload == "optimizer":
        yield "--optimizer-cpu-offload", True
        yield "--use-precision-aware-optimizer", True
    elif s.offload == "activations":
        yield "--cpu-offloading-num-layers", model.layers - 1


def training_arguments(problem: Problem, strategy: Strategy) -> Settings:
    """Batch, sequence, precision, optimizer, length of the run."""
    job = problem.job
    yield "--micro-batch-size", strategy.micro_batch
    yield "--global-batch-size", job.global_batch
    yield "--seq-length", job.seq_len
    yield "--train-iters", steps(problem)
    yield "--lr", 3e-4
    precision = strategy.precision
    if precision == "fp16":
        yield "--fp16", True
    elif precision not in ("fp32", "tf32"):
        yield "--bf16", True
    if precision in ("fp8", "mxfp8"):
        yield "--fp8-format", "e4m3" if precision == "mxfp8" else "hybrid"
        yield "--fp8-recipe", "mxfp8" if precision == "mxfp8" else "delayed"
    elif precision == "nvfp4":
        yield "--fp4-format", "e2m1"
    yield "--optimizer", OPTIMIZERS.get(job.optimizer, "adam")
    if job.optimizer == "sgd":
        yield "--sgd-momentum", 0.0
    rate = 0.1 if job.dropout else 0.0
    yield "--attention-dropout", rate
    yield "--hidden-dropout", rate


def steps(problem: Problem) -> int:
    """Steps of the run, or a hundred where its length is not known."""
    job = problem.job
    return max(math.ceil(job.tokens / job.tokens_per_step), 1) if job.tokens else 100


def data_arguments(problem: Problem) -> Settings:
    """Data that needs no files."""
    yield "--mock-data", True
    yield "--tokenizer-type", "NullTokenizer"
    yield "--vocab-size", problem.model.vocab


def environment(problem: Problem, strategy: Strategy) -> dict[str, str]:
    """Variables that the run needs."""
    wanted = connections(RuleContext(problem.model, problem.cluster, problem.job, strategy))
    return {"CUDA_DEVICE_MAX_CONNECTIONS": wanted} if wanted.isdecimal() else {}


# ---------------------------------------------------------------------------------------------- script


def _script(problem: Problem, strategy: Strategy, groups: Any) -> str:
    cluster = problem.cluster
    each = _per_node(cluster)
    lines = [
        "#!/usr/bin/env bash",
        f"# {problem.model.name} on {cluster.devices} x {cluster.accelerator.name}: {strategy.short}",
        "# Run it on every node, with NODE_RANK and MASTER_ADDR set; MEGATRON is a checkout of Megatron-LM.",
        "set -euo pipefail",
        "",
    ]
    lines += [f"export {name}={value}" for name, value in environment(problem, strategy).items()]
    lines += [
        f"GPUS_PER_NODE={each}",
        f"NUM_NODES={-(-cluster.devices // each)}",
        "NODE_RANK=${NODE_RANK:-0}",
        "MASTER_ADDR=${MASTER_ADDR:-localhost}",
        "MEGATRON=${MEGATRON:-.}",
        "",
        "DISTRIBUTED_ARGS=(",
        "  --nproc_per_node $GPUS_PER_NODE --nnodes $NUM_NODES --node_rank $NODE_RANK",
        "  --master_addr $MASTER_ADDR --master_port 6000",
        ")",
    ]
    for name, about, pairs in groups:
        lines += ["", f"# {about}", f"{name}=(", *(f"  {_spelt(*pair)}" for pair in pairs), ")"]
    names = " ".join(f'"${{{name}[@]}}"' for name, _, _ in groups)
    lines += ["", 'torchrun "${DISTRIBUTED_ARGS[@]}" "$MEGATRON/pretrain_gpt.py" \\', f"  {names}", ""]
    return "\n".join(lines)


def _per_node(cluster: Cluster) -> int:
    return min(cluster.node_size, cluster.devices)


def _spelt(name: str, value: Any) -> str:
    if value is True:
        return name
    words = value if isinstance(value, list) else [value]
    return " ".join([name, *(shlex.quote(f"{word:g}" if isinstance(word, float) else str(word)) for word in words)])


# ---------------------------------------------------------------------------------------------- missing


def missing(problem: Problem, strategy: Strategy) -> Iterator[Missing]:
    """What is lost, never silently."""
    s, job, model = strategy, problem.job, problem.model
    odd = _not_gpt(model)
    table = (
        ("model", model.name, bool(odd), Text(N_("Megatron's GPT has no {what}"), what=odd[0] if odd else "")),
        ("job.optimizer", job.optimizer, job.optimizer == "adamw-bf16",
         Text(N_("set the types of moments and master weights by --use-precision-aware-optimizer"))),
        ("job.tokens", job.tokens, not job.tokens, Text(N_("not given: --train-iters is an example"))),
        ("strategy.overlap_expert", s.overlap_expert,
         bool(s.overlap_expert) and s.expert > 1 and not overlaps_experts(s, model),
         Text(N_("Megatron overlaps it with virtual stages in a pipeline, without recomputing experts or whole "
                 "layers only"))),
        ("strategy.loss", s.loss, s.loss != "auto", Text(N_("set in the code that builds the model, not in a file"))),
        ("strategy.schedule", s.schedule, s.schedule not in ("1f1b", "interleaved"),
         Text(N_("not in the main line of Megatron-Core"))),
    )  # fmt: skip
    for name, value, lost, reason in table:
        if lost:
            yield Missing(name=name, value=value, reason=reason)


def _not_gpt(model: ModelSpec) -> list[Text]:
    """Parts of a model that GPT arguments cannot say."""
    mixers = {block.mixer for block in model.blocks}
    mlps = {block.mlp for block in model.blocks if isinstance(block.mlp, Mlp)}
    found = (
        (N_("recurrent or mixed layers"), any(not isinstance(m, Attention | MultiLatentAttention) for m in mixers)),
        (N_("layers with several kinds of attention"), len(mixers) > 1),
        (N_("MLPs of several widths"), len(mlps) > 1),
        (N_("encoder"), model.encoder_layers > 0 or any(b.cross for b in model.blocks)),
        (N_("parallel attention and MLP"), any(b.parallel for b in model.blocks)),
        (N_("norms beyond two a layer"), any(b.norms > 2 for b in model.blocks)),
        (N_("extra parameters"), bool(model.extras)),
        (N_("norm of the embedding, or model without a head"), model.embedding_norm != "none" or not model.has_head),
    )
    return [Text(name) for name, there in found if there]
