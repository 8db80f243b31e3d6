"""Predicted against measured peak memory of published runs, row by row and by framework.

    python benchmarks/memory_runs.py [--small] [--all] [path/to/measured_runs.csv]

Each source counts something else: torch's allocated or reserved bytes, or the whole process (nvidia-smi). The
prediction compared is the same quantity. `--small` reads memory_small_runs.csv (hidden width 512, exact bytes).
"""

from __future__ import annotations

import csv
import re
import statistics
import sys
from pathlib import Path
from typing import Any

from meshwright.engine.activations import block_activations
from meshwright.engine.memory import Memory, peak_phase, stage_memory
from meshwright.engine.operators import Shape
from meshwright.engine.software import software
from meshwright.engine.stages import stage_classes
from meshwright.spec.cluster import Accelerator, Cluster
from meshwright.spec.job import Job
from meshwright.spec.model import Attention, Block, Mlp, ModelSpec, Moe, MultiLatentAttention
from meshwright.spec.strategy import Strategy

DATA = Path(__file__).resolve().parents[1] / "../shared/validation"
GIB = 2.0**30
ARCHITECTURES = {
    "v100": "volta", "a100": "ampere", "a800": "ampere", "h100": "hopper", "h200": "hopper", "b200": "blackwell",
    "gb200": "blackwell", "gb300": "blackwell", "mi300x": "cdna3",
}  # fmt: skip
# torchtitan and ML Engineering print reserved GiB; SimuMax and Megatron print allocated bytes; BigScience nvidia-smi.
MEASURE = {"tt": ("reserved", GIB), "ao": ("reserved", GIB), "st": ("reserved", GIB), "hf": ("reserved", GIB),
           "bs": ("process", GIB), "simumax": ("allocated", 1e9), "golden": ("allocated", 1e9),
           "gold": ("allocated", 1e9)}  # fmt: skip
STACK = {"megatron": "megatron-core", "torchtitan": "fsdp2", "deepspeed": "deepspeed",
         "megatron-deepspeed": "megatron-deepspeed", "fsdp": "fsdp2"}  # fmt: skip
FRAMEWORK = {"megatron": "megatron", "torchtitan": "fsdp", "fsdp": "fsdp", "deepspeed": "deepspeed",
             "megatron-deepspeed": "deepspeed"}  # fmt: skip


def number(text: str, default: int = 1) -> int:
    """A cell as a whole number."""
    return int(float(text)) if text else default


def model_of(row: dict[str, str]) -> ModelSpec:
    """The architecture of a row: dense or mixture of experts, MHA, GQA or MLA."""
    hidden, heads = int(row["hidden"]), int(row["n_heads"])
    gated = row["gated_mlp"] == "1"
    other = row["other_arch"]
    old = row["framework"] == "megatron-deepspeed" or not gated
    mixer: Any
    if "MLA" in other:
        rank = {k: int(v) for k, v in re.findall(r"(q_lora|kv_lora|qk_nope|qk_rope|v_head)\D*(\d+)", other)}
        pair = re.search(r"qk\D*(\d+)\+(\d+)", other)
        nope, rope = (int(pair[1]), int(pair[2])) if pair else (rank.get("qk_nope", 128), rank.get("qk_rope", 64))
        mixer = MultiLatentAttention(
            heads=heads, q_rank=rank.get("q_lora"), kv_rank=rank.get("kv_lora", 512),
            nope_dim=nope, rope_dim=rope, v_dim=rank.get("v_head", 128),
        )  # fmt: skip
    else:
        dim = re.search(r"head_dim (\d+)", other)
        mixer = Attention(
            heads=heads, kv_heads=number(row["n_kv_heads"], heads), head_dim=int(dim[1]) if dim else hidden // heads,
            qkv_bias=old, out_bias=old, qk_norm="head" if "qk-norm" in other else "none",
        )  # fmt: skip
    norm = "layer" if old else "rms"
    blocks: list[Block] = [
        Block(mixer=mixer, mlp=Mlp(width=number(row["ffn_hidden"], 4 * hidden), gated=gated, bias=old), norm=norm)
    ]
    layers = int(row["n_layers"])
    pattern = (0,) * layers
    if row["n_experts"]:
        width = number(row["moe_ffn_hidden"], number(row["ffn_hidden"], 4 * hidden))
        shared = number(row["shared_experts"], 0) * width
        moe = Moe(
            experts=int(row["n_experts"]), top_k=number(row["top_k"]), width=width, gated=gated, shared_width=shared
        )
        blocks.append(Block(mixer=mixer, mlp=moe, norm=norm))
        dense = number(row["dense_layers"], 0)
        pattern = (0,) * dense + (1,) * (layers - dense)
    vocab = number(row["vocab"], 50257)
    return ModelSpec(
        name=row["model"], family="gpt" if old else "llama", hidden=hidden, vocab=vocab, blocks=tuple(blocks),
        pattern=pattern, tied_embeddings=old or "tied" in other, final_norm=norm,
        learned_positions=int(row["seq_len"]) if old and "rope" not in row["model"] else 0,
    )  # fmt: skip


def cluster_of(row: dict[str, str]) -> Cluster:
    """Just enough of a cluster for the memory model."""
    name = row["accelerator"].split("-")[0]
    device = Accelerator(
        id=row["accelerator"], name=name, vendor="", kind="gpu", architecture=ARCHITECTURES[name], peak_flops={},
        matmul_ceiling={}, compute_units=1, memory_bytes=80e9, memory_usable_bytes=80e9, memory_bandwidth=1e12,
        link="nvswitch", link_bandwidth=1e11, link_pair_bandwidth=1e11, scale_up_domain=8, host_bandwidth=1e10,
    )  # fmt: skip
    count = number(row["n_gpus"])
    return Cluster(id="", accelerator=device, devices=count, node_size=8, domain_size=8, link="nvswitch",
                   link_bandwidth=1e11, nic_bandwidth=1e10, nics_per_node=8, fabric="")  # fmt: skip


def strategy_of(row: dict[str, str]) -> Strategy:
    """The layout of a row."""
    tensor, pipeline, context = number(row["tp"]), number(row["pp"]), number(row["cp"])
    data = number(row["dp"], max(1, number(row["n_gpus"]) // (tensor * pipeline * context)))
    virtual = number(row["vpp"])
    framework = FRAMEWORK[row["framework"]]
    mode, _, ops = (row["recompute"] or "none").partition(":")
    expert = number(row["ep"])
    offload = "optimizer" if "offload" in row["sharding_note"] else "none"
    return Strategy(
        framework=framework, data=data, tensor=tensor, pipeline=pipeline, virtual=virtual, context=context,
        expert=expert, expert_tensor=number(row["etp"], tensor if expert == 1 else 1),
        sharding=row["sharding"] or "none",
        sequence_parallel=row["seq_parallel"] == "1" and tensor > 1, micro_batch=number(row["micro_batch"]),
        schedule="interleaved" if virtual > 1 else "1f1b", recompute={"partial": "selective"}.get(mode, mode),
        recompute_ops=tuple(ops.split("+")) if ops else ("core_attention",), offload=offload,
        loss=loss_of(row), precision=row["precision"].partition("-")[0],
    )  # fmt: skip


def loss_of(row: dict[str, str]) -> str:
    """The loss assumed for a row whose source does not state it; not looked up, and it moves the error a lot.

    `st` rows: tiled (Liger) logits, which the source mentions for st-013 only. torchtitan on Blackwell or torch 2.9:
    compiled loss, inferred from those rows needing about 8 bytes a logit less than the 2024 ones.
    """
    if row["id"].startswith("st-"):
        return "chunked"
    recent = ARCHITECTURES[row["accelerator"].split("-")[0]] == "blackwell" or "torch 2.9" in row["notes"]
    return "compiled" if row["framework"] == "torchtitan" and recent else "auto"


def predict(row: dict[str, str]) -> tuple[Memory, int]:
    """Memory of the heaviest stage of a row, and its index."""
    model, strategy = model_of(row), strategy_of(row)
    name = STACK[row["framework"]]
    stack = software(name, strategy.framework)
    optimizer = "adamw-8bit" if "8-bit" in row["optimizer"] else "adamw"
    job = Job(seq_len=int(row["seq_len"]), global_batch=number(row["global_batch"]), software=name, optimizer=optimizer)
    shape = Shape(
        micro_batch=strategy.micro_batch, seq_len=job.seq_len, tensor=strategy.tensor, context=strategy.context,
        expert=strategy.expert, expert_tensor=strategy.expert_tensor, sequence_parallel=strategy.sequence_parallel,
        fused_attention=stack.fused_attention, fused_elementwise=stack.fused_elementwise, dropout=stack.dropout,
    )  # fmt: skip
    blocks = block_activations(model, strategy, shape)
    cluster = cluster_of(row)
    stages = stage_classes(model, strategy.pipeline, strategy.virtual, (), strategy.schedule)
    found = [(stage_memory(model, cluster, job, strategy, s, blocks, stack), s.index) for s in stages]
    return max(found, key=lambda pair: pair[0].peak)


def usable(row: dict[str, str], tiers: tuple[str, ...]) -> bool:
    """Whether a row says enough to be predicted."""
    stated = all(row[k] for k in ("peak_mem_gb", "hidden", "n_layers", "seq_len", "micro_batch"))
    known = row["id"].split("-")[0] in MEASURE and row["framework"] in STACK and row["recompute"] != "unknown"
    return bool(stated and known and row["tier"] in tiers)


def line(row: dict[str, str], memory: Memory, stage: int, measured: float, value: float) -> str:
    """One row of the table: measured and predicted GB, error, and the largest parts of the peak phase."""
    phase = peak_phase(memory)
    biggest = sorted(memory.alive[phase].items(), key=lambda kv: -kv[1])[:7]
    parts = " ".join(f"{k}={v / 1e9:.2f}" for k, v in biggest)
    layout = " ".join(f"{k}{row[k]}" for k in ("tp", "pp", "vpp", "cp", "ep", "dp") if row[k])
    return (
        f"{row['id']:13} {row['model'][-40:]:40} {layout:34} mb{row['micro_batch']} {row['recompute'][:10]:10} "
        f"{measured / 1e9:8.2f} {value / 1e9:8.2f} {value / measured - 1:+7.1%} stage {stage} {phase}: {parts}"
    )


def compare(path: Path, tiers: tuple[str, ...]) -> None:
    """Print one line per row and the errors by source and framework."""
    errors: dict[tuple[str, str], list[float]] = {}
    for row in csv.DictReader(path.open()):
        if not usable(row, tiers):
            continue
        source = row["id"].split("-")[0]
        what, unit = MEASURE[source]
        m, stage = predict(row)
        value = {"allocated": m.allocated, "reserved": m.allocated + m.reserve, "process": m.peak}[what]
        measured = float(row["peak_mem_gb"]) * unit
        errors.setdefault((source, row["framework"]), []).append(value / measured - 1)
        print(line(row, m, stage, measured, value))
    print("\nsource   framework            rows  median   mean    bias   worst")
    for (source, framework), values in errors.items():
        size = [abs(v) for v in values]
        print(
            f"{source:8} {framework:20} {len(values):4} {statistics.median(size):7.1%} {statistics.mean(size):6.1%} "
            f"{statistics.mean(values):+7.1%} {max(size):7.1%}"
        )


def main(arguments: list[str]) -> None:
    """Read the flags."""
    small, everything = "--small" in arguments, "--all" in arguments
    paths = [a for a in arguments if not a.startswith("--")]
    default = DATA / ("memory_small_runs.csv" if small else "measured_runs.csv")
    compare(Path(paths[0]) if paths else default, ("M",) if small else ("A", "A-", "B") if everything else ("A", "A-"))


if __name__ == "__main__":
    main(sys.argv[1:])
