"""Peak memory of one pipeline rank: named parts, peaks by phase, the tree behind them, and the verdict.

The same lines serve one strategy and columns of strategies: degrees and the micro-batch may be columns, categories
(framework, sharding, schedule, recompute, offload, precision) are plain values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from meshwright.catalog.constants import constants
from meshwright.engine.activations import BlockActivations
from meshwright.engine.software import Software, software
from meshwright.engine.stages import StageClass
from meshwright.engine.states import (
    RankParams,
    low_precision_copies,
    model_states,
    padded_vocab,
    rank_params,
    shard_group,
    shards,
    state_bytes,
)
from meshwright.formulas import memory as f
from meshwright.formulas.numeric import maximum, minimum, where
from meshwright.spec.cluster import Accelerator, Cluster
from meshwright.spec.estimate import Certainty, StageMemory, Term, Verdict, total
from meshwright.spec.job import Job
from meshwright.spec.model import ModelSpec
from meshwright.spec.strategy import Strategy

# `backward` is its start, when activations are whole; `backward_end` when gradients are.
PHASES = ("load", "initialise", "forward", "backward", "backward_end", "optimizer", "checkpoint")


class Setting(NamedTuple):
    """What every part is computed from."""

    model: ModelSpec
    cluster: Cluster
    job: Job
    strategy: Strategy
    stage: StageClass
    stack: Software

    @property
    def micro_batches(self) -> Any:
        """Micro-batches per step and pipeline; a fraction where the batch does not divide (a rule rejects it)."""
        return maximum(self.job.global_batch / (self.strategy.data * self.strategy.micro_batch), 1)

    @property
    def tokens(self) -> Any:
        """Tokens of a micro-batch on one context rank."""
        return self.strategy.micro_batch * self.job.seq_len / self.strategy.context

    @property
    def sequence_shards(self) -> Any:
        """Ranks that divide the residual stream."""
        return self.strategy.tensor if self.strategy.sequence_parallel else 1

    @property
    def element(self) -> int:
        """Bytes of an activation value."""
        return int(f.bytes_per_value(self.strategy.precision))


class Fixed(NamedTuple):
    """Parts of a rank that do not depend on the micro-batch, by phase, and what host memory needs to know."""

    alive: dict[str, dict[str, Any]]
    gradients: Any
    flat: Any  # buffers of the optimizer step in one piece
    params: RankParams
    states: dict[str, Any]
    on_host: dict[str, Any]
    context: Any


class Memory(NamedTuple):
    """Memory of one rank, in bytes. What is alive in a phase is `alive[phase]`; its sum is `phases[phase]`."""

    alive: dict[str, dict[str, Any]]
    phases: dict[str, Any]
    allocated: Any  # the largest phase: what the framework's allocator reports
    reserve: Any  # held by the allocator beyond that
    context: Any  # outside the allocator
    peak: Any  # all three: what the device must have
    host: dict[str, Any]  # per rank: offloaded, and the peaks steady, initialise, checkpoint

    @property
    def parts(self) -> dict[str, Any]:
        """Every part at its own largest over the phases (they are not all alive together)."""
        out: dict[str, Any] = {}
        for alive in self.alive.values():
            for name, value in alive.items():
                out[name] = maximum(out[name], value) if name in out else value
        return out | {"reserve": self.reserve, "context": self.context}


def passes(strategy: Strategy, stage: StageClass, micro_batches: Any) -> tuple[Any, ...]:
    """Micro-batches whose activations each model chunk of `stage` holds at the peak."""
    p, s, v = stage.pipeline, stage.index, stage.virtual
    m = micro_batches
    match strategy.schedule:
        case "gpipe":
            return (f.in_flight_gpipe(m),) * v
        case "zb-h1":
            return (f.in_flight_zero_bubble(m, p),) * v
        case "zbv":
            # 2p passes of half a stage together; the first chunk's wait longer the earlier the rank.
            return (minimum(m, maximum(2 * p - 1 - s, 1)), minimum(m, s + 1))
        case "dualpipe":
            return (f.in_flight_dualpipe(m, p) / v,) * v
    if v == 1:
        return (f.in_flight_1f1b(m, p, s),)
    group = f.interleaved_group(m, p)
    count = f.in_flight_interleaved(m, p, s, v, group)
    return tuple(f.passes_of_chunk(count, group, v, c) for c in range(v))


def _activations(x: Setting, stored_by: BlockActivations) -> dict[str, Any]:
    """Stored activations of blocks, embedding and head, and the tensors alive while one block runs backward."""
    model, stage = x.model, x.stage
    flight = passes(x.strategy, stage, x.micro_batches)
    blocks: Any = 0.0
    for held, chunk in zip(flight, stage.chunks, strict=True):
        for count, stored in zip(chunk, stored_by.stored, strict=True):
            if count:
                blocks = blocks + held * count * stored
    transient: Any = 0.0
    for count, extra in zip(stage.counts, stored_by.transient, strict=True):
        if count:
            transient = maximum(transient, extra)
    rows = x.tokens * model.hidden / x.sequence_shards
    ends: Any = 0.0
    if stage.embedding and (x.job.dropout or x.stack.dropout):
        ends = ends + flight[stage.embedding_chunk] * rows
    if stage.head:
        ends = ends + (2 if model.final_norm != "none" else 1) * x.element * rows
    if stage.mtp:
        last = model.pattern[-1]
        blocks = blocks + model.mtp_layers * (stored_by.stored[last] + 3 * x.element * rows)
    if x.strategy.offload == "activations":
        # Blocks' inputs travel to the host; two layers' worth stays for the copies in flight.
        per_layer: Any = 0.0
        for count, stored in zip(stage.counts, stored_by.stored, strict=True):
            per_layer = maximum(per_layer, stored) if count else per_layer
        return {"activations": minimum(blocks, 2 * per_layer), "ends": ends, "transient": transient, "moved": blocks}
    return {"activations": blocks, "ends": ends, "transient": transient, "moved": 0.0}


def _loss(x: Setting) -> str:
    """How the loss is computed: as asked, or as the framework does it by default."""
    if x.strategy.loss != "auto":
        # Megatron's compiled loss is several functions, each with an output of its own.
        jit = x.strategy.loss == "compiled" and x.strategy.framework == "megatron"
        return "jit" if jit else str(x.strategy.loss)
    # Megatron's vocabulary-parallel loss and XLA both reuse one fp32 buffer; eager PyTorch keeps three.
    if x.strategy.framework == "megatron":
        return "inplace"
    return "compiled" if x.strategy.framework == "jax" or x.stack.fused_loss else "plain"


def _logits(x: Setting) -> tuple[Any, Any]:
    """Logits and loss on the rank with the head: peak around the loss, and what waits for backward."""
    if not (x.stage.head and x.model.has_head):
        return 0.0, 0.0
    known = constants("memory", "frameworks")
    per_logit = known[f"loss_{_loss(x)}"]
    heads = 1 + (x.model.mtp_layers if x.stage.mtp else 0)
    vocab, t = padded_vocab(x.model, x.strategy), x.strategy.tensor
    waiting = f.in_flight_gpipe(x.micro_batches) - 1 if x.strategy.schedule == "gpipe" else 0
    saved = f.logits_and_loss(x.tokens, vocab, t, known["loss_saved"]) * (heads - 1 + waiting)
    if x.stack.deferred_logits and x.stage.pipeline > 1:
        saved = saved + f.logits_and_loss(x.tokens, vocab, t, x.element) * x.stack.deferred_logits
    return f.logits_and_loss(x.tokens, vocab, t, per_logit) + saved, saved


class Buffers(NamedTuple):
    """Memory beside states and activations, by when it is alive."""

    forward: dict[str, Any]
    backward: dict[str, Any]
    drain: dict[str, Any]  # at the end of backward, when activations are gone
    optimizer: dict[str, Any]
    always: dict[str, Any]


def _pipeline_and_sequence(x: Setting) -> dict[str, Any]:
    gather = f.sequence_gather(x.tokens, x.model.hidden, x.element)
    shared = x.strategy.sequence_parallel
    out = {"sequence_gather": where(x.strategy.tensor > 1, gather, 0.0 * gather) if shared else 0.0}
    if x.stage.pipeline > 1:
        count = 2 if x.stage.virtual == 1 else 4
        out["pipeline_buffers"] = f.pipeline_buffers(x.tokens, x.model.hidden, x.sequence_shards, count, x.element)
    return out


def _megatron(x: Setting, p: RankParams, group: Any) -> Buffers:
    """Gradients live in one contiguous buffer that is reduced in place, weights are gathered in place."""
    if x.strategy.sharding == "zero3":
        return _fsdp(x, p, group)
    copies = {"low_precision_weights": low_precision_copies(p, x.strategy)}
    if not (x.stack.transformer_engine and x.stack.accumulation_fusion):
        gradient = {"weight_gradient": f.fsdp_gradients(maximum(p.matrix, p.head_unit), x.element, 0.0)}
        return Buffers({}, gradient, gradient, {}, copies)
    # Products add into the buffer, yet autograd is handed an empty gradient of the weight's own size. Transformer
    # Engine keeps one of every shape, from the first step on; the head's, which is Megatron's own, is made each time.
    dummies = {"weight_gradient_placeholders": f.fsdp_gradients(p.shapes, x.element, 0.0)}
    head = {"weight_gradient": f.fsdp_gradients(p.head_unit, x.element, 0.0)}
    return Buffers({}, head, head, {}, copies | dummies)


def _fsdp(x: Setting, p: RankParams, group: Any) -> Buffers:
    """PyTorch: gathered units and gradients of units; with pipelining or ZeRO-2 the gathered weights stay."""
    stack, strategy = x.stack, x.strategy
    if strategy.sharding in ("none", "zero1"):
        buckets = {"buckets": f.ddp_buckets(p.total, stack.gradient_bytes)}
        return Buffers({}, {}, {}, _temporaries(x, p, 1), buckets)
    grads = f.fsdp_gradients(p.unit, 2.0, stack.reduce_bytes)
    head = f.fsdp_gradients(p.head_unit, 2.0, stack.reduce_bytes)
    end = f.fsdp_gradients(maximum(p.end_unit, p.unit), 2.0, stack.reduce_bytes)
    accumulate = x.stage.pipeline
    if strategy.sharding == "zero2" or accumulate > 1:
        whole = {"gathered_units": f.unsharded_states(p.total, 2.0, 0, 0, 0)}
        kept = f.unsynchronised_gradients(p.total, group, max(stack.reduce_bytes, stack.gradient_bytes))
        extra = {"unsynchronised_gradients": kept} if accumulate > 1 else {}
        gradient = {"gradient_units": maximum(grads, head)}
        return Buffers(
            {**whole, **extra},
            {**whole, **extra, **gradient},
            {**whole, **extra, "gradient_units": end},
            {**_temporaries(x, p, group), **extra},
            {},
        )
    gathered = f.fsdp_gathered(p.unit, p.unit, 2.0)
    forward = {"gathered_units": maximum(gathered, p.head_unit * 2.0 + f.fsdp_gathered(p.unit, 0, 2.0, 0))}
    backward = {"gathered_units": gathered, "gradient_units": maximum(grads, head)}
    drain = {"gathered_units": maximum(p.end_unit * 2.0, gathered), "gradient_units": end}
    return Buffers(forward, backward, drain, _temporaries(x, p, group), {})


def _temporaries(x: Setting, p: RankParams, group: Any) -> dict[str, Any]:
    """One fp32 copy while an unfused optimizer runs; fused ones need none."""
    unfused = 0.0 if x.strategy.framework == "megatron" or x.stack.fused_elementwise else 4.0
    return {"optimizer_temporaries": f.foreach_temporaries(p.total, group, unfused)}


def _deepspeed(x: Setting, p: RankParams, group: Any) -> Buffers:
    """Reduce buckets while gradients are made; ZeRO-3 gathers modules; the step upcasts its share of gradients."""
    sharding, bucket = x.strategy.sharding, x.stack.bucket_elements
    ranks = 1 if sharding == "none" else shard_group(x.strategy)
    step = {"optimizer_temporaries": f.foreach_temporaries(p.total, ranks, 4.0)}
    if sharding == "none":
        return Buffers({}, {}, {}, step, {})
    reduce = {"buckets": f.zero_reduce_buckets(p.total, bucket, x.stack.reduce_bytes, 2)}
    if x.strategy.offload != "none":
        step = {"optimizer_temporaries": 0.0 * step["optimizer_temporaries"]}
    if sharding == "zero3":
        unit = maximum(p.unit, p.end_unit)
        # ZeRO-3 allocates its reduce bucket once, at start.
        reduce = {"buckets": f.zero_reduce_buckets(p.total, bucket, x.stack.reduce_bytes, 1)}
        gathered = {"gathered_units": f.zero3_gather(p.total, unit, 5e7, 1e9, 2.0)}
        gradient = {"gradient_units": f.fsdp_gradients(unit, 2.0, 0.0)}
        return Buffers(gathered, {**gathered, **gradient}, {**gathered, **gradient}, step, reduce)
    gather = {"buckets": f.zero_reduce_buckets(p.total, bucket, 2.0, 1)}
    return Buffers({}, reduce, reduce, {**step, **gather}, {})


def _jax(x: Setting, p: RankParams, group: Any) -> Buffers:
    """XLA gathers the layer of a scan step and the next one, and reduces a layer's gradient at a time."""
    gathered = {"gathered_units": f.fsdp_gathered(p.unit, p.unit, 2.0, 0.0)}
    backward = {"gradient_units": f.fsdp_gradients(p.unit, 2.0, 0.0)}
    ends = {"gradient_units": f.fsdp_gradients(maximum(p.end_unit, p.unit), 2.0, 0.0)}
    if x.strategy.sharding in ("none", "zero1"):
        gathered, backward, ends = {}, {}, {}
    return Buffers(gathered, {**gathered, **backward}, {**gathered, **ends}, {}, {})


_BUFFERS: dict[str, Callable[[Setting, RankParams, Any], Buffers]] = {
    "megatron": _megatron,
    "fsdp": _fsdp,
    "deepspeed": _deepspeed,
    "jax": _jax,
}


def _offload(strategy: Strategy, states: Mapping[str, Any], gradient: float) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split states into those on the device and those on the host; `gradient` is bytes per gradient on the device."""
    if strategy.offload not in ("optimizer", "parameters"):
        return dict(states), {}
    moved: tuple[str, ...] = ("main_parameters", "optimizer")
    if strategy.framework == "deepspeed":
        moved += ("gradients",)
        if strategy.offload == "parameters" and strategy.sharding == "zero3":  # stages 1 and 2 ignore offload_param
            moved += ("parameters",)
    elif strategy.framework in ("fsdp", "jax") or strategy.offload == "parameters":
        moved += ("parameters", "gradients")  # the optimizer steps on the host, so its parameters live there
    device = {k: (0.0 * v if k in moved else v) for k, v in states.items()}
    host = {k: v for k, v in states.items() if k in moved}
    if "gradients" in host:
        host["gradients"] = host["gradients"] * (4.0 / gradient)  # the host optimizer works in fp32
    return device, host


def _context(accelerator: Accelerator, strategy: Strategy) -> Any:
    """Driver context and communicator buffers of one process."""
    known = constants("memory", "devices")
    base = known.get(f"context_{accelerator.architecture}", known[f"context_{accelerator.kind}"])
    if accelerator.kind == "tpu":
        return f.context(base, 0.0, 0)
    degrees = (strategy.tensor, strategy.context, strategy.pipeline, strategy.data * strategy.context, strategy.expert)
    groups = sum((degree > 1) * 1 for degree in degrees)
    return f.context(base, known["communicator"], groups)


def stage_memory(
    model: ModelSpec,
    cluster: Cluster,
    job: Job,
    strategy: Strategy,
    stage: StageClass,
    blocks: BlockActivations,
    stack: Software | None = None,
) -> Memory:
    """Memory of one rank of `stage`: every part, the peak of every phase, device and host.

    Parameters
    ----------
    model, cluster, job, strategy : the problem and the strategy (numbers, or columns of equal length)
    stage : which layers the rank holds (`engine.stages`)
    blocks : stored and transient bytes per block kind (`engine.activations.block_activations`)
    stack : software profile; the framework's current one when absent
    """
    stack = stack or software(job.software, strategy.framework)
    x = Setting(model, cluster, job, strategy, stage, stack)
    fixed = fixed_memory(x)
    act = _activations(x, blocks)
    work = _working(x, act, fixed.gradients)
    alive = {name: fixed.alive[name] | work.get(name, {}) for name in PHASES}
    phases = {name: sum(alive[name].values()) for name in PHASES}
    allocated, reserve, peak = peak_of(x, phases, fixed.flat, fixed.context)
    return Memory(alive, phases, allocated, reserve, fixed.context, peak, _host(x, fixed, act))


def fixed_memory(x: Setting) -> Fixed:
    """States and buffers of a rank: all that does not depend on the micro-batch."""
    strategy, stack = x.strategy, x.stack
    params = rank_params(x.model, strategy, x.stage)
    per = state_bytes(strategy.framework, strategy.precision, x.job.optimizer, stack.gradient_bytes, x.model.hidden)
    states = model_states(params, per, shards(strategy))
    if strategy.framework in ("fsdp", "jax") and strategy.sharding in ("zero2", "zero3"):
        states["parameters"] = 0.0 * states["parameters"]  # the 16-bit copy is a buffer, see `_fsdp`
    group = shard_group(strategy) if strategy.sharding in ("zero2", "zero3") else 1
    b = _BUFFERS[strategy.framework](x, params, group)
    device, on_host = _offload(strategy, states, per.gradient)
    gradients = {"gradients": device["gradients"]}
    kept = {k: v for k, v in device.items() if k != "gradients"} | b.always | {"workspace": _workspace(x)}
    # Megatron's gradient buffer always exists. PyTorch frees gradients between steps, but their blocks go back to the
    # allocator, not to the activations: peaks shrink by the gradients too when they are sharded further. XLA holds
    # them only while it accumulates, see `_working`.
    held = {} if strategy.framework == "jax" else gradients
    largest = 4.0 * maximum(params.unit, params.end_unit)
    alive = {
        "load": {"parameters": device["parameters"], "main_parameters": device["main_parameters"], "staging": largest},
        "initialise": kept | (gradients if strategy.framework == "megatron" else {}),
        "forward": kept | held | b.forward,
        "backward": kept | held | b.backward,
        "backward_end": kept | gradients | b.drain,
        "optimizer": kept | gradients | b.optimizer,
        "checkpoint": kept | held | ({"staging": largest} if strategy.sharding == "zero3" else {}),
    }
    # DeepSpeed flattens what it updates; no block that the micro-batches left is large enough for that.
    flat = b.optimizer.get("optimizer_temporaries", 0.0) if strategy.framework == "deepspeed" else 0.0
    context = _context(x.cluster.accelerator, strategy)
    return Fixed(alive, device["gradients"], flat, params, states, on_host, context)


def _workspace(x: Setting) -> float:
    """Workspaces of the matrix libraries, which live in the allocator."""
    device, known = x.cluster.accelerator, constants("memory", "devices")
    if device.kind == "tpu":
        return 0.0
    recent = "" if device.architecture in ("volta", "turing", "ampere", "ada") else "_hopper"
    size = known["workspace_deterministic" if x.stack.deterministic else f"workspace_torch{recent}"]
    if x.strategy.framework != "megatron":
        return float(known["workspaces"] * size)
    if not x.stack.transformer_engine:
        return float(known["workspaces_local"] * size)
    return float(known["workspaces"] * size + known[f"workspace_engine{recent}"])


def _working(x: Setting, act: Mapping[str, Any], gradients: Any) -> dict[str, dict[str, Any]]:
    """Named parts that depend on the micro-batch, by phase."""
    logits, saved = _logits(x)
    kept = {"activations": act["activations"], "end_activations": act["ends"]} | _pipeline_and_sequence(x)
    if x.strategy.framework == "jax":
        kept["gradients"] = where(x.micro_batches > 1, gradients, 0.0 * gradients)
    return {
        "forward": kept | {"logits": logits},
        "backward": kept | {"recompute": act["transient"], "logits": saved},
        "backward_end": {"recompute": act["transient"]},
    }


def peak_of(x: Setting, phases: Mapping[str, Any], flat: Any, context: Any) -> tuple[Any, Any, Any]:
    """Allocated, allocator reserve and whole peak from the bytes of each phase, and those of `flat` buffers."""
    names = iter(phases)
    allocated = phases[next(names)]
    for name in names:
        allocated = maximum(allocated, phases[name])
    fraction = constants("memory", "frameworks")[f"reserve_{x.strategy.framework}"]
    held = maximum(allocated, phases["backward"] + flat) if x.strategy.framework == "deepspeed" else allocated
    reserve = f.allocator_reserve(held, fraction) + (held - allocated)
    return allocated, reserve, allocated + reserve + context


class FixedSums(NamedTuple):
    """What a search keeps of `Fixed`: bytes by phase, the phases that never see a micro-batch folded into one."""

    still: Any
    forward: Any
    backward: Any
    backward_end: Any
    gradients: Any
    flat: Any
    context: Any
    host: Any  # of one host at its peak, activations not counted; 0 where nothing is offloaded


def fixed_sums(x: Setting, fixed: Fixed) -> FixedSums:
    """Fold `Fixed` into sums."""
    sums = {name: sum(parts.values()) for name, parts in fixed.alive.items()}
    still = sums["load"]
    for name in ("initialise", "optimizer", "checkpoint"):
        still = maximum(still, sums[name])
    host: Any = 0.0
    if x.strategy.offload != "none":
        ranks = minimum(x.cluster.node_size, x.cluster.devices)
        on_host = _host(x, fixed, {"moved": 0.0})
        host = ranks * maximum(maximum(on_host["steady"], on_host["initialise"]), on_host["checkpoint"])
    return FixedSums(
        still,
        sums["forward"],
        sums["backward"],
        sums["backward_end"],
        fixed.gradients,
        fixed.flat,
        fixed.context,
        host,
    )


def peak_from_sums(x: Setting, sums: FixedSums, blocks: BlockActivations) -> Any:
    """Peak bytes of a rank, for columns: the same phases as `stage_memory`, unnamed."""
    work = _working(x, _activations(x, blocks), sums.gradients)
    phases = {
        "still": sums.still,
        "forward": sums.forward + sum(work["forward"].values()),
        "backward": sums.backward + sum(work["backward"].values()),
        "backward_end": sums.backward_end + sum(work["backward_end"].values()),
    }
    return peak_of(x, phases, sums.flat, sums.context)[2]


def host_from_sums(x: Setting, sums: FixedSums, blocks: BlockActivations) -> Any:
    """Bytes of one host at its peak, offloaded activations included; 0 where nothing is offloaded."""
    if x.strategy.offload != "activations":
        return sums.host
    return sums.host + minimum(x.cluster.node_size, x.cluster.devices) * _activations(x, blocks)["moved"]


def _host(x: Setting, fixed: Fixed, act: Mapping[str, Any]) -> dict[str, Any]:
    """Host bytes that one rank adds: steady, at initialisation, and while a checkpoint is staged."""
    process = constants("memory", "frameworks")["host_process"]
    moved, states = fixed.on_host, fixed.states
    steady = sum(moved.values()) + act["moved"] + process
    if moved and x.strategy.framework == "deepspeed":
        steady = steady + 2.0 * x.stack.bucket_elements  # pinned staging of one 16-bit bucket
    whole = x.strategy.framework == "deepspeed" and x.strategy.sharding != "zero3"
    build = f.host_initialise(fixed.params.total, 1, 0.0) if whole and moved else 0.0
    # States that live on the host are written from where they are; those on the device are copied out first.
    staged = sum(states[k] for k in ("main_parameters", "optimizer", "parameters") if k not in moved)
    return {
        "offloaded": sum(moved.values()) + act["moved"],
        "steady": steady,
        "initialise": steady + build,
        "checkpoint": steady + staged,
    }


def host_per_node(memory: Memory, cluster: Cluster, phase: str = "steady") -> Any:
    """Host bytes of a node whose ranks are all like this one."""
    return memory.host[phase] * minimum(cluster.node_size, cluster.devices)


# ---------------------------------------------------------------------------------------------- the tree of one stage

_TERMS: dict[str, tuple[Certainty, str, str]] = {
    "parameters": ("exact", "memory.states.one", "states"),
    "gradients": ("exact", "memory.states.one", "states"),
    "main_parameters": ("exact", "memory.states.one", "states"),
    "optimizer": ("exact", "memory.states.one", "states"),
    "activations": ("modelled", "memory.activations.total", "activations"),
    "end_activations": ("modelled", "memory.activations.ends", "activations"),
    "recompute": ("modelled", "", "activations"),
    "logits": ("modelled", "memory.logits.loss", "activations"),
    "gathered_units": ("modelled", "memory.buffers.fsdp_forward", "buffers"),
    "gradient_units": ("modelled", "memory.buffers.fsdp_backward", "buffers"),
    "weight_gradient": ("modelled", "memory.buffers.fsdp_backward", "buffers"),
    "unsynchronised_gradients": ("modelled", "memory.buffers.no_sync", "buffers"),
    "buckets": ("modelled", "memory.buffers.zero_reduce", "buffers"),
    "sequence_gather": ("modelled", "memory.buffers.sequence_gather", "buffers"),
    "pipeline_buffers": ("modelled", "memory.buffers.pipeline", "buffers"),
    "optimizer_temporaries": ("modelled", "memory.temporaries.foreach", "buffers"),
    "low_precision_weights": ("modelled", "memory.states.unsharded", "states"),
    "weight_gradient_placeholders": ("modelled", "memory.buffers.fsdp_backward", "buffers"),
    "staging": ("modelled", "memory.states.unsharded", "buffers"),
    "workspace": ("modelled", "", "buffers"),
}


def peak_phase(memory: Memory) -> str:
    """The phase with the largest peak (numbers only)."""
    return max(PHASES, key=lambda name: memory.phases[name])


def stage_tree(memory: Memory, stage: StageClass, cluster: Cluster) -> StageMemory:
    """The peak of a stage as a tree of named terms that sums to it (numbers only)."""
    phase = peak_phase(memory)
    groups = {"states": [], "activations": [], "buffers": []}  # type: dict[str, list[Term]]
    for name, value in memory.alive[phase].items():
        certainty, formula, group = _TERMS[name]
        if value:
            groups[group].append(Term(name, float(value), "B", certainty, formula))
    children = tuple(total(name, "B", tuple(terms)) for name, terms in groups.items() if terms)
    outside = (
        Term("reserve", float(memory.reserve), "B", "fitted", "memory.reserve"),
        Term("context", float(memory.context), "B", "assumed", "memory.context"),
    )
    device = total("device", "B", (*children, *outside), note=phase)
    return StageMemory(
        stage=stage.index,
        phase=phase,
        device=device,
        host=host_tree(memory, cluster),
        phases={name: float(value) for name, value in memory.phases.items()},
    )


def host_tree(memory: Memory, cluster: Cluster) -> Term:
    """Host memory of one node at its peak: the larger of steady training, initialisation and checkpoint."""
    children = tuple(
        Term(name, float(host_per_node(memory, cluster, name)), "B", "modelled", formula)
        for name, formula in _HOST_TERMS.items()
    )
    return total("host", "B", children, combine="max")


_HOST_TERMS = {
    "steady": "memory.host.offload",
    "initialise": "memory.host.initialise",
    "checkpoint": "memory.host.checkpoint",
}


def stated_error(strategy: Strategy) -> float:
    """Relative error of a predicted peak, from the measured runs of the framework."""
    return float(constants("memory", "frameworks")[f"error_{strategy.framework}"])


def verdict(peak: float, capacity: float, error: float) -> Verdict:
    """FITS, TIGHT when only the stated error stands between peak and limit, or OVER."""
    if peak > capacity:
        return "OVER"
    return "FITS" if peak * (1 + error) <= capacity else "TIGHT"
