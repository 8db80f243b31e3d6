"""The stated space: which degrees and categories are tried, as columns.

A *mesh* is one row of degrees (tensor, context, pipeline, expert, expert_tensor, data); a *candidate* adds virtual
chunks, micro-batch and the categories (sharding, recompute, offload). Rows grow with the number of divisors of the
device count, not with the device count.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from meshwright.engine.activations import groups_of_model
from meshwright.spec.cluster import Cluster
from meshwright.spec.job import Job
from meshwright.spec.model import Attention, ModelSpec, MultiLatentAttention
from meshwright.spec.strategy import Strategy

Column = npt.NDArray[np.int64]
OFFLOADS = ("none", "optimizer", "parameters")  # parameters: ZeRO-3 only


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraints:
    """What the user fixes; empty leaves the planner's whole space. A fixed degree may lie outside the default space."""

    frameworks: tuple[str, ...] = ()
    tensor: tuple[int, ...] = ()
    pipeline: tuple[int, ...] = ()
    virtual: tuple[int, ...] = ()
    context: tuple[int, ...] = ()
    expert: tuple[int, ...] = ()
    expert_tensor: tuple[int, ...] = ()
    data: tuple[int, ...] = ()
    micro_batch: tuple[int, ...] = ()
    sharding: tuple[str, ...] = ()
    shard: tuple[int, ...] = ()  # sizes of the sharding group; 0 is the whole data group
    recompute: tuple[str, ...] = ()
    recompute_ops: tuple[str, ...] = ()
    schedule: tuple[str, ...] = ()
    offload: tuple[str, ...] = ()
    max_memory_fraction: float = 1.0


class Category(NamedTuple):
    """The plain (not numeric) choices of a group of candidates.

    States are sharded over the whole data group, or (hybrid) over `shard` ranks, or over the ranks of the group that
    lie in `span` consecutive devices: a node, a rack, a TPU slice.
    """

    framework: str
    sharding: str
    offload: str
    shard: int = 0
    span: int = 0


class Table(NamedTuple):
    """Candidates of one framework and one schedule, as columns of equal length."""

    tensor: Column
    context: Column
    pipeline: Column
    expert: Column
    expert_tensor: Column
    data: Column
    virtual: Column
    micro_batch: Column

    def rows(self, index: npt.NDArray[np.bool_] | npt.NDArray[np.int64] | slice) -> Table:
        """The chosen rows."""
        return Table(*(column[index] for column in self))

    def __len__(self) -> int:
        return len(self.tensor)


def divisors(n: int) -> list[int]:
    """Divisors of `n`, ascending.

    >>> divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    small = [d for d in range(1, int(n**0.5) + 1) if n % d == 0]
    return small + [n // d for d in reversed(small) if d * d != n]


def frameworks_for(cluster: Cluster, constraints: Constraints) -> tuple[str, ...]:
    """Frameworks tried: JAX on TPU, Megatron, FSDP and DeepSpeed elsewhere."""
    if constraints.frameworks:
        return constraints.frameworks
    return ("jax",) if cluster.accelerator.kind == "tpu" else ("megatron", "fsdp", "deepspeed")


def _heads(model: ModelSpec) -> int:
    for block in model.blocks:
        if isinstance(block.mixer, Attention | MultiLatentAttention):
            return block.mixer.heads
    return 0


def tensor_degrees(model: ModelSpec, cluster: Cluster, framework: str) -> list[int]:
    """TP from 1 to the scale-up domain, dividing the heads (the hidden size where there are none)."""
    if framework == "deepspeed":
        return [1]
    limit = min(cluster.domain_size, 64) if cluster.torus else min(cluster.domain_size, 32)
    return [d for d in divisors(_heads(model) or model.hidden) if d <= limit]


def context_degrees(job: Job, framework: str) -> list[int]:
    """CP in powers of two while a rank keeps at least 2,048 tokens of the sequence."""
    if framework in ("deepspeed", "jax"):
        return [1]
    return [c for c in (1 << i for i in range(9)) if c == 1 or job.seq_len // c >= 2048]


def pipeline_degrees(model: ModelSpec, devices: int, framework: str) -> list[int]:
    """PP: every divisor of the device count up to the number of layers."""
    if framework in ("deepspeed", "jax"):
        return [1]
    return [p for p in divisors(devices) if p <= model.layers]


def expert_degrees(model: ModelSpec, framework: str) -> list[int]:
    """EP: every divisor of the number of experts; 1 for dense models."""
    if model.moe is None or framework == "deepspeed":
        return [1]
    return divisors(model.moe.experts)


def _expert_tensor_degrees(tensor: int, expert: int, framework: str) -> set[int]:
    """TP inside experts: the dense degree without EP; with it 1, or in Megatron also the dense degree."""
    if expert == 1:
        return {tensor}
    return {1, tensor} if framework == "megatron" else {1}


def _given(fixed: Sequence[int], default: Iterable[int]) -> list[int]:
    return sorted(set(fixed)) if fixed else list(default)


def meshes(
    model: ModelSpec, cluster: Cluster, job: Job, framework: str, constraints: Constraints
) -> npt.NDArray[np.int64]:
    """Every mesh of the space that fills the cluster: rows (tensor, context, pipeline, expert, expert_tensor, data).

    Where what the user fixed leaves none, the meshes that come closest stand in, for the rules to say what is wrong.
    """
    n = cluster.devices
    rows: list[tuple[int, ...]] = []
    no_mesh: list[tuple[int, ...]] = []
    no_experts: list[tuple[int, ...]] = []
    experts = _given(constraints.expert, expert_degrees(model, framework))
    tensors = _given(constraints.tensor, tensor_degrees(model, cluster, framework))
    contexts = _given(constraints.context, context_degrees(job, framework))
    pipelines = _given(constraints.pipeline, pipeline_degrees(model, n, framework))
    for t, c, p in itertools.product(tensors, contexts, pipelines):
        d = max(n // (t * c * p), 1)
        if t * c * p * d != n or (constraints.data and d not in constraints.data):
            no_mesh += [(t, c, p, 1, t, given) for given in constraints.data or (d,)]
            continue
        for e in experts:
            for et in _given(constraints.expert_tensor, _expert_tensor_degrees(t, e, framework)):
                fills = e == 1 or (d * c * t) % (e * et) == 0
                (rows if fills else no_experts).append((t, c, p, e, et, d))
    return np.array(rows or no_experts or no_mesh, dtype=np.int64).reshape(-1, 6)


def virtual_degrees(layers: int, pipeline: int, constraints: Constraints) -> list[int]:
    """Chunks per rank: 1, every count that divides the layers evenly, and up to 4 unevenly."""
    if constraints.virtual:
        return sorted(set(constraints.virtual))
    if pipeline == 1:
        return [1]
    per_rank = layers / pipeline
    return [v for v in range(1, int(per_rank) + 1) if layers % (pipeline * v) == 0 or v <= min(per_rank, 4)] or [1]


def micro_batches_for(job: Job, data: int, constraints: Constraints) -> list[int]:
    """Micro-batch sizes: powers of two (and what divides the local batch) up to 64 sequences."""
    if constraints.micro_batch:
        return sorted(set(constraints.micro_batch))
    local = max(job.global_batch // data, 1)
    return [b for b in divisors(local) if b <= 64] if job.global_batch % data == 0 else [1]


def table(
    model: ModelSpec, cluster: Cluster, job: Job, framework: str, constraints: Constraints, interleaved: bool
) -> Table:
    """Candidates of a framework with one chunk per rank, or several (`interleaved`), sorted by (PP, chunks)."""
    base = meshes(model, cluster, job, framework, constraints)
    by_pipeline = {int(p): virtual_degrees(model.layers, int(p), constraints) for p in np.unique(base[:, 2])}
    by_data = {int(d): micro_batches_for(job, int(d), constraints) for d in np.unique(base[:, 5])}
    pieces = []
    for row in base:
        chosen = [v for v in by_pipeline[int(row[2])] if (v > 1) == interleaved]
        sizes = by_data[int(row[5])]
        if chosen and sizes:
            grid = np.array(list(itertools.product(chosen, sizes)), dtype=np.int64)
            pieces.append(np.hstack([np.broadcast_to(row, (len(grid), 6)), grid]))
    rows = np.concatenate(pieces) if pieces else np.empty((0, 8), dtype=np.int64)
    rows = rows[np.lexsort((rows[:, 6], rows[:, 2]))]
    return Table(*(np.ascontiguousarray(rows[:, i]) for i in range(8)))


def categories(
    model: ModelSpec, cluster: Cluster, job: Job, framework: str, constraints: Constraints
) -> list[Category]:
    """Sharding and offload choices of a framework."""
    default = {
        "megatron": ("none", "zero1"),
        "fsdp": ("zero2", "zero3"),
        "deepspeed": ("zero1", "zero2", "zero3"),
        "jax": ("zero3",),
    }[framework]
    shardings = constraints.sharding or default
    offloads = constraints.offload or (OFFLOADS if framework == "deepspeed" else ("none",))
    hybrids = [(size, 0) for size in constraints.shard] or [(0, 0), *_spans(cluster, framework)]
    return [
        Category(framework, sharding, offload, shard, span)
        for sharding, (shard, span), offload in itertools.product(shardings, hybrids, offloads)
        if sharding == "zero3" or not (shard or span or (offload == "parameters" and not constraints.offload))
    ]


def _spans(cluster: Cluster, framework: str) -> list[tuple[int, int]]:
    """Hybrid sharding tried by default: inside a scale-up domain (FSDP, DeepSpeed) or inside a slice (JAX)."""
    if cluster.devices <= cluster.domain_size:
        return []
    slices = framework == "jax" and cluster.slices > 1
    return [(0, cluster.domain_size)] if slices or framework in ("fsdp", "deepspeed") else []


class Mode(NamedTuple):
    """A recompute mode and, where it is selective, the operator groups it runs again."""

    recompute: str
    ops: tuple[str, ...] = ("core_attn",)


# Cheap to run again for the bytes they free: element-wise outputs and MLA's up-projections. Megatron-LM names modules,
# and has none for the activation of a dense MLP; JAX names tensors.
LIGHT_OPS = {
    "megatron": ("layernorm", "mla_up_proj", "moe_act"),
    "jax": ("layernorm", "mla_up_proj", "mlp_act", "moe_act"),
}


def recomputes(model: ModelSpec, framework: str, constraints: Constraints) -> tuple[Mode, ...]:
    """Recompute modes tried; where operators can be named, `selective` by attention core and by light operators.

    Of the light operators those that `model` has: the strategy names nothing that is not there.
    """
    here = groups_of_model(model)
    light = tuple(op for op in LIGHT_OPS.get(framework, ()) if op in here)
    out = []
    for name in constraints.recompute or ("none", "selective", "full"):
        if name == "selective" and constraints.recompute_ops:
            out.append(Mode(name, constraints.recompute_ops))
        elif name == "selective" and light:
            out += [Mode(name), Mode(name, light)]
        else:
            out.append(Mode(name))
    return tuple(out)


def schedules(constraints: Constraints, interleaved: bool) -> tuple[str, ...]:
    """Pipeline schedules tried: 1F1B and, with several chunks, interleaved; others when asked for."""
    if constraints.schedule:
        return tuple(s for s in constraints.schedule if (s == "interleaved") == interleaved)
    return ("interleaved",) if interleaved else ("1f1b",)


def strategy_of(t: Table, category: Category, mode: Mode, schedule: str, precision: str, moe: bool) -> Strategy:
    """The strategies of a table as one record of columns; `moe`: of a model with experts."""
    shard = np.full(len(t), category.shard, dtype=np.int64)
    if category.span:
        shard = np.maximum(category.span // t.tensor, 1)
    return Strategy(
        framework=category.framework,
        data=t.data,
        tensor=t.tensor,
        pipeline=t.pipeline,
        virtual=t.virtual,
        context=t.context,
        expert=t.expert,
        expert_tensor=t.expert_tensor,
        sharding=category.sharding,
        shard=shard,
        sequence_parallel=True,
        micro_batch=t.micro_batch,
        schedule=schedule,
        recompute=mode.recompute,
        recompute_ops=mode.ops,
        offload=category.offload,
        precision=precision,
        graphs="partial" if category.framework == "megatron" and moe else "none",  # advised by MW-A135
        overlap_expert=category.framework == "megatron",  # its 1F1B hides the all-to-all of one micro-batch in the next
    )


def one(columns: Strategy, row: int, mode: Mode) -> Strategy:
    """Row `row` of a record of columns as a strategy of plain numbers, under a recompute mode."""
    values: dict[str, Any] = {name: int(getattr(columns, name)[row]) for name in (*Table._fields, "shard")}
    whole = values["data"] * values["context"]
    if values["shard"] >= whole:
        values["shard"] = 0
    return replace(
        columns,
        **values,
        recompute=mode.recompute,
        recompute_ops=mode.ops,
        sequence_parallel=values["tensor"] > 1,
        overlap_expert=columns.overlap_expert and values["expert"] > 1,
    )
