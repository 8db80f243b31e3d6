"""MW-A1xx: when each parallelism is right and when it is not, in numbers of this model and cluster.

These look at one strategy (numbers, not columns). Rules of stage `estimate` need the finished estimate and are asked
by `rules.check.advise`.
"""

from __future__ import annotations

import math

from meshwright.formulas.memory_activations import layer_full, layer_selective
from meshwright.formulas.memory_states import megatron_states
from meshwright.glossary import Label
from meshwright.messages import N_, Text
from meshwright.rules.base import RuleContext, Said, rule
from meshwright.rules.nearest import divisors
from meshwright.rules.placement import ring_bandwidth
from meshwright.rules.precision import PEAK_OF, device_has
from meshwright.spec.estimate import Estimate, Term
from meshwright.units import show

KORTHIKANTI = "Korthikanti et al. 2022, arXiv:2205.05198"
NARROW_HIDDEN = 1024  # columns per rank below which a matrix no longer fills a device
SMALL_TOKENS = 2048  # rows below which a matrix no longer fills a device
BUBBLE_LIMIT = 0.10
EXPOSED_LIMIT = 0.15
LOGITS_LIMIT = 0.075  # of the device's memory, for all fp32 copies of the logits
LONG_SEQUENCE = 32768
SHORT_PART = 4096
STRAGGLERS = 256  # devices from which unsynchronised pauses add up
GPU_FRAMEWORKS = ("megatron", "fsdp", "deepspeed")


def rate(c: RuleContext) -> float:
    """What the device's matrix units reach in the strategy's precision. [FLOP/s]"""
    device, kind = c.cluster.accelerator, PEAK_OF.get(c.strategy.precision, "bf16")
    peak = device.peak_flops.get(kind) or max(device.peak_flops.values())
    return peak * (device.matmul_ceiling.get(kind) or 1.0)


def rank_weights(c: RuleContext) -> float:
    """Weights of one rank before sharding, roughly: the mean over pipeline stages."""
    f, s = c.facts, c.strategy
    experts = f.expert_weights / (s.expert * s.expert_tensor)
    return ((f.weights - f.expert_weights) / s.tensor + experts) / s.pipeline


@rule(
    "MW-A101",
    severity="advice",
    stage="memory-free",
    title=N_("Tensor parallelism leaves narrow matrices"),
    reason=N_("Each rank multiplies by a slice of hidden / tensor columns; narrow slices no longer fill the "
              "device while the "
              "communication stays the same."),
    fix=N_("Lower tensor parallelism and let pipeline or sharded data parallelism carry the memory."),
    condition="hidden / tensor >= 1024",
    source="NVIDIA Matrix Multiplication Background User's Guide; Narayanan et al. 2021, arXiv:2104.04473, section 3.2",
    where="tensor",
    violated=lambda c: c.strategy.tensor > 1 and c.facts.hidden / c.strategy.tensor < NARROW_HIDDEN,
)  # fmt: skip
def narrow(c: RuleContext) -> Said:
    tensor, hidden = c.strategy.tensor, c.facts.hidden
    wide = max([d for d in divisors(tensor) if hidden / d >= NARROW_HIDDEN], default=1)
    message = Text(
        N_("hidden {hidden} / tensor {tensor} = {slice:.0f} columns per rank"),
        hidden=hidden, tensor=tensor, slice=hidden / tensor,
    )  # fmt: skip
    return message, Text(N_("tensor = {tensor} keeps {slice:.0f}"), tensor=wide, slice=hidden / wide), {"legal": [wide]}


def plain_bytes(c: RuleContext) -> float:
    """Rough peak with ZeRO-1 and neither tensor nor pipeline parallelism, one sequence per micro-batch."""
    f, part = c.facts, c.job.seq_len / c.strategy.context
    states = megatron_states(f.weights, c.cluster.devices)
    return states + f.layers * layer_selective(part, 1, f.hidden, 1) + 6 * part * f.vocab


@rule(
    "MW-A102",
    severity="advice",
    stage="memory-free",
    title=N_("Data parallelism with ZeRO-1 alone would fit"),
    reason=N_("Splitting a model costs communication in every layer or a bubble; a model that fits whole, with "
              "its optimizer "
              "states sharded, needs neither."),
    fix=N_("Try tensor = 1 and pipeline = 1 with ZeRO-1."),
    condition="tensor == 1 and pipeline == 1 where the model fits so",
    source="Rajbhandari et al. 2020, arXiv:1910.02054, section 5.1; " + KORTHIKANTI + ", equation 6",
    where="tensor",
    frameworks=("megatron", "deepspeed"),
    applies=lambda c: not c.facts.experts,
    violated=lambda c: c.strategy.tensor * c.strategy.pipeline > 1
    and c.job.global_batch * c.strategy.context % c.cluster.devices == 0
    and plain_bytes(c) < 0.8 * c.cluster.accelerator.memory_usable_bytes,
)  # fmt: skip
def plain_fits(c: RuleContext) -> Said:
    message = Text(
        N_("{model} with ZeRO-1 over {devices} devices takes about {need} of {have}: tensor {tensor} and pipeline "
           "{pipeline} are not needed for memory"),
        model=c.model.name, devices=c.cluster.devices, need=show(plain_bytes(c), "B"),
        have=show(c.cluster.accelerator.memory_usable_bytes, "B"),
        tensor=c.strategy.tensor, pipeline=c.strategy.pipeline,
    )  # fmt: skip
    return message, None, {"bytes": plain_bytes(c)}


@rule(
    "MW-A103",
    severity="advice",
    stage="memory-free",
    title=N_("Optimizer states are held by every data-parallel rank"),
    reason=N_("Sharding them over data parallelism (ZeRO-1) costs no extra traffic: a reduce-scatter and an "
              "all-gather move "
              "what the all-reduce moved."),
    fix=N_("Use sharding = zero1 (zero2 with FSDP)."),
    condition="sharding != none with data > 1",
    source="Rajbhandari et al. 2020, arXiv:1910.02054, section 7.2.1",
    where="sharding",
    violated=lambda c: c.strategy.sharding == "none" and c.strategy.data * c.strategy.context > 1,
)  # fmt: skip
def unsharded(c: RuleContext) -> Said:
    ranks = c.strategy.data * c.strategy.context
    saved = 12 * rank_weights(c) * (1 - 1 / ranks)
    message = Text(
        N_("with Adam, ZeRO-1 over {ranks} ranks would free about {saved} per device"),
        ranks=ranks, saved=show(saved, "B"),
    )  # fmt: skip
    return message, None, {"bytes": saved}


def gather_times(c: RuleContext) -> tuple[float, float]:
    """Seconds of ZeRO-3 traffic and of arithmetic per micro-batch on one device."""
    s, shard = c.strategy, c.shard
    reduce_bytes = 4 if s.framework == "fsdp" else 2
    moved = rank_weights(c) * (2 * 2 + reduce_bytes) * (shard - 1) / shard
    bandwidth = ring_bandwidth(c, shard, s.tensor)
    passes = 8 if s.recompute == "full" else 6
    arithmetic = passes * c.facts.active_weights / (s.tensor * s.pipeline) * c.tokens / rate(c)
    return moved / bandwidth if bandwidth else math.inf, arithmetic


def gather_bound(c: RuleContext) -> bool:
    """Whether gathering parameters takes longer than the arithmetic it could hide behind."""
    moved, arithmetic = gather_times(c)
    return c.shard > 1 and math.isfinite(moved) and moved > arithmetic


@rule(
    "MW-A104",
    severity="advice",
    stage="memory-free",
    title=N_("Gathering ZeRO-3 parameters takes longer than computing"),
    reason=N_("Parameters are gathered for the forward and the backward pass and gradients scattered, once per "
              "micro-batch, "
              "whatever the number of tokens; adding devices does not shorten it."),
    fix=N_("Keep shard groups inside the node (HYBRID_SHARD, hpZ), use ZeRO-2, or give each device more tokens."),
    condition="time of gathers and reduce-scatter < time of arithmetic, per micro-batch",
    source="deepspeedai/DeepSpeed#6889 and #5770; Rajbhandari et al. 2020, arXiv:1910.02054, section 7.2.2",
    where="sharding",
    applies=lambda c: c.strategy.sharding == "zero3",
    violated=gather_bound,
)  # fmt: skip
def zero3_slow(c: RuleContext) -> Said:
    s = c.strategy
    moved, arithmetic = gather_times(c)
    ridge = c.tokens * moved / arithmetic
    message = Text(
        N_("per micro-batch {moved} of gathers at {bandwidth} against {arithmetic} of arithmetic: {tokens:.0f} "
           "tokens per "
           "device, {ridge:.0f} would balance"),
        moved=show(moved, "s"), bandwidth=show(ring_bandwidth(c, c.shard, s.tensor), "B/s"),
        arithmetic=show(arithmetic, "s"), tokens=c.tokens, ridge=ridge,
    )  # fmt: skip
    size = max(c.cluster.domain_size // s.tensor, 1)
    data = {"seconds": moved, "arithmetic": arithmetic, "tokens": ridge}
    if size < c.shard and (s.data * s.context) % size == 0:
        copy = 2 * rank_weights(c) / size
        fix = Text(
            N_("shard = {size} keeps gathers inside the domain, for {copy} of parameters per device"),
            size=size, copy=show(copy, "B"),
        )  # fmt: skip
        return message, fix, data | {"shard": size, "copy_bytes": copy}
    return message, None, data


@rule(
    "MW-A105",
    severity="advice",
    stage="memory-free",
    title=N_("Few tokens per micro-batch and device"),
    reason=N_("Matrices with few rows do not fill the device, and every kernel and collective pays its latency."),
    fix=N_("Raise the micro-batch where memory allows."),
    condition="micro_batch * seq_len / context >= 2048",
    source="NVIDIA Matrix Multiplication Background User's Guide",
    where="micro_batch",
    violated=lambda c: c.tokens < SMALL_TOKENS and c.micro_batches > 1,
)
def tokens_few(c: RuleContext) -> Said:
    s = c.strategy
    legal = [m for m in divisors(c.job.global_batch // s.data) if m > s.micro_batch] or [s.micro_batch]
    wanted = next((m for m in legal if m * c.job.seq_len / s.context >= SMALL_TOKENS), legal[-1])
    message = Text(
        N_("micro-batch {micro} × sequence {length} / context {context} = {tokens:.0f} tokens"),
        micro=s.micro_batch, length=c.job.seq_len, context=s.context, tokens=c.tokens,
    )  # fmt: skip
    return message, Text(N_("micro_batch = {micro}"), micro=wanted), {"legal": [wanted]}


# Idle share of a schedule is weight · (p - 1) / (chunks · m) of the busy time; with backward twice as long as forward
# and its two halves equal: zero-bubble H1 leaves (f + b - w) of (f + b) = 1/3.
INTERLEAVED = ("megatron", "fsdp")  # frameworks with an interleaved schedule
BUBBLE_WEIGHT = {"1f1b": 1.0, "gpipe": 1.0, "interleaved": 1.0, "zb-h1": 1 / 3}


def bubble_share(c: RuleContext, micro_batches: float) -> float:
    """Idle share of the step from the closed form of the schedule."""
    s = c.strategy
    idle = BUBBLE_WEIGHT[s.schedule] * (s.pipeline - 1) / (s.virtual * micro_batches)
    return idle / (1 + idle)


@rule(
    "MW-A106",
    severity="advice",
    stage="memory-free",
    title=N_("The pipeline bubble is large"),
    reason=N_("Filling and draining the pipeline costs (pipeline - 1) / (chunks × micro-batches) of the busy time."),
    fix=N_(
        "Use more micro-batches (a smaller micro-batch or less data parallelism), interleaving, or a shorter pipeline."
    ),
    condition="bubble <= 10% of the step",
    source="Narayanan et al. 2021, arXiv:2104.04473, section 2.2; Qi et al. 2024, arXiv:2401.10241",
    where="pipeline",
    applies=lambda c: c.strategy.schedule in BUBBLE_WEIGHT,
    violated=lambda c: (
        c.micro_batches >= 1 and c.strategy.pipeline > 1 and bubble_share(c, c.micro_batches) > BUBBLE_LIMIT
    ),
)
def bubble(c: RuleContext) -> Said:
    s, m = c.strategy, c.micro_batches
    ratio = BUBBLE_LIMIT / (1 - BUBBLE_LIMIT)
    idle = BUBBLE_WEIGHT[s.schedule] * (s.pipeline - 1)
    need = math.ceil(idle / (s.virtual * ratio) - 1e-9)
    if s.virtual > 1:  # interleaving takes micro-batches in groups of the pipeline (MW-C202)
        need = -(-need // s.pipeline) * s.pipeline
    message = Text(
        N_("pipeline {pipeline} with {chunks} chunks and {count} micro-batches idles {share:.0%} of its time when "
           "stages are equal"),
        pipeline=s.pipeline, chunks=s.virtual, count=m, share=bubble_share(c, m),
    )  # fmt: skip
    values = {"need": need, "batch": need * c.replicas_batch, "limit": BUBBLE_LIMIT}
    chunks = even_chunks(c, math.ceil(idle / (m * ratio) - 1e-9))
    if chunks:
        fix = Text(
            N_("{need} micro-batches bring it to {limit:.0%} or less (global batch {batch} with this mesh); so do "
               "{chunks} chunks"),
            chunks=chunks, **values,
        )  # fmt: skip
    else:
        fix = Text(
            N_("{need} micro-batches bring it to {limit:.0%} or less (global batch {batch} with this mesh)"), **values
        )
    return message, fix, {"share": bubble_share(c, m), "micro_batches": need}


def even_chunks(c: RuleContext, least: int) -> int:
    """The fewest chunks per rank, at least `least`, that hold equally many layers; 0 where interleaving cannot."""
    s, layers = c.strategy, c.facts.layers
    if s.framework not in INTERLEAVED or c.micro_batches % s.pipeline:
        return 0
    return next((v for v in range(least, layers // s.pipeline + 1) if layers % (s.pipeline * v) == 0), 0)


@rule(
    "MW-A107",
    severity="advice",
    stage="memory-free",
    title=N_("Context parallelism on short sequences"),
    reason=N_("Context parallelism pays when attention or activations of one sequence do not fit; on short "
              "sequences it only "
              "takes ranks from data parallelism."),
    fix=N_("Lower the context degree and raise data parallelism."),
    condition="seq_len / context >= 4096",
    source="Llama Team 2024, arXiv:2407.21783, section 3.3.2 (context parallelism for 128k tokens)",
    where="context",
    violated=lambda c: c.strategy.context > 1 and c.job.seq_len / c.strategy.context < SHORT_PART,
)  # fmt: skip
def context_short(c: RuleContext) -> Said:
    s, length = c.strategy, c.job.seq_len
    enough = max([d for d in divisors(s.context) if length / d >= SHORT_PART], default=1)
    message = Text(
        N_("sequence {length} / context {context} = {part:.0f} tokens per rank"),
        length=length, context=s.context, part=length / s.context,
    )  # fmt: skip
    return message, Text(N_("context = {context}"), context=enough), {"legal": [enough]}


@rule(
    "MW-A108",
    severity="advice",
    stage="memory-free",
    title=N_("Sequence parallelism is free with tensor parallelism"),
    reason=N_(
        "It divides the activations of norms, dropout and residuals too, and moves the same bytes: an "
        "all-gather and a "
        "reduce-scatter in place of each all-reduce."
    ),
    fix=N_("Turn sequence_parallel on."),
    condition="sequence_parallel with tensor > 1",
    source=KORTHIKANTI + ", section 4.2.2",
    where="sequence_parallel",
    violated=lambda c: c.strategy.tensor > 1 and not c.strategy.sequence_parallel,
)
def sequence_parallel_free(c: RuleContext) -> Said:
    s, f = c.strategy, c.facts
    part = c.job.seq_len / s.context
    whole = layer_selective(part, s.micro_batch, f.hidden, s.tensor, False)
    split = layer_selective(part, s.micro_batch, f.hidden, s.tensor, True)
    message = Text(
        N_("activations of a layer would shrink from about {whole} to {split} per micro-batch"),
        whole=show(whole, "B"), split=show(split, "B"),
    )  # fmt: skip
    return message, None, {"legal": [True]}


@rule(
    "MW-A109",
    severity="advice",
    stage="memory-free",
    title=N_("Experts are better distributed than cut"),
    reason=N_("Cutting small experts over tensor parallelism makes narrow matrices and gathers every token; "
              "whole experts "
              "with an all-to-all keep them wide. Mixtral 8x7B on 16 H100 went from 130 to 236 TFLOP/s so."),
    fix=N_("Use expert parallelism with expert_tensor = 1 and a small tensor degree, and the all-to-all dispatcher."),
    condition="expert_tensor == 1 where expert parallelism is possible",
    source="NVIDIA/Megatron-LM#756",
    where="expert",
    applies=lambda c: bool(c.facts.experts),
    violated=lambda c: c.strategy.expert_tensor > 1 and c.strategy.expert < c.facts.expert_gcd,
)  # fmt: skip
def experts_cut(c: RuleContext) -> Said:
    s, f = c.strategy, c.facts
    ranks = s.data * s.context * s.tensor
    inside = [d for d in divisors(math.gcd(f.expert_gcd, ranks)) if d <= c.cluster.domain_size]
    message = Text(
        N_("experts of width {width} are cut over {etp} ranks: {slice:.0f} columns each"),
        width=min(f.expert_widths), etp=s.expert_tensor, slice=min(f.expert_widths) / s.expert_tensor,
    )  # fmt: skip
    return message, Text(N_("expert = {expert}, expert_tensor = 1"), expert=inside[-1]), {"legal": [inside[-1]]}


@rule(
    "MW-A110",
    severity="advice",
    stage="memory-free",
    title=N_("A long sequence on one rank"),
    reason=N_("Activations grow with the tokens of a rank; context parallelism divides them with attention, and "
              "its exchange "
              "hides well behind attention on long sequences."),
    fix=N_("Try context parallelism (and tensor with sequence parallelism)."),
    condition="seq_len / context < 32768, or context > 1",
    source="Liu et al. 2023, arXiv:2310.01889; Llama Team 2024, arXiv:2407.21783, section 3.3.2",
    where="context",
    applies=lambda c: bool(c.facts.heads) and c.job.seq_len >= LONG_SEQUENCE,
    violated=lambda c: c.strategy.context == 1 and c.job.seq_len / c.strategy.tensor >= LONG_SEQUENCE / 4,
)  # fmt: skip
def sequence_long(c: RuleContext) -> Said:
    s, f = c.strategy, c.facts
    layer = layer_selective(c.job.seq_len, s.micro_batch, f.hidden, s.tensor)
    message = Text(
        N_("{length} tokens per sequence: about {layer} of activations per layer and micro-batch"),
        length=c.job.seq_len, layer=show(layer, "B"),
    )  # fmt: skip
    need = max(2, 2 ** math.ceil(math.log2(c.job.seq_len / LONG_SEQUENCE) + 1))
    return message, Text(N_("context = {context}"), context=need), {"legal": [need]}


@rule(
    "MW-A111",
    severity="advice",
    stage="memory-free",
    title=N_("The device multiplies faster in fp8"),
    reason=N_("FP8 doubles the matrix rate; with casts and the parts left in bf16, wide models gain about a "
              "third. It changes "
              "the numbers, so check the loss."),
    fix=N_("Try precision = fp8 (mxfp8 on Blackwell)."),
    condition="precision is fp8 or narrower where the device and the width allow",
    source="Micikevicius et al. 2022, arXiv:2209.05433; DeepSeek-V3, arXiv:2412.19437, section 3.3",
    where="precision",
    applies=lambda c: c.strategy.framework != "deepspeed",
    violated=lambda c: c.strategy.precision == "bf16"
    and device_has(c, "fp8")
    and c.cluster.accelerator.peak_flops["fp8"] >= 1.5 * c.cluster.accelerator.peak_flops.get("bf16", math.inf)
    and c.facts.hidden >= 4096,
)  # fmt: skip
def fp8_worth(c: RuleContext) -> Said:
    device = c.cluster.accelerator
    message = Text(
        N_("{device} reaches {fp8} in fp8 against {bf16} in bf16, and hidden {hidden} is wide enough"),
        device=device.name, fp8=show(device.peak_flops["fp8"], "FLOP/s"),
        bf16=show(device.peak_flops["bf16"], "FLOP/s"),
        hidden=c.facts.hidden,
    )  # fmt: skip
    legal = "mxfp8" if device_has(c, "mxfp8") else "fp8"
    return message, Text(N_("precision = {legal}"), legal=legal), {"legal": [legal]}


def logits_bytes(c: RuleContext) -> float:
    """One fp32 copy of the logits of a micro-batch on one rank."""
    return 4 * c.tokens * c.facts.vocab / c.strategy.tensor


def logits_copies(c: RuleContext) -> int:
    """Copies alive at once: eager PyTorch keeps up to three, Megatron and XLA reuse one, a fused loss none."""
    if c.strategy.loss in ("fused", "chunked"):
        return 0
    return 1 if c.strategy.framework in ("megatron", "jax") or c.strategy.loss == "compiled" else 3


@rule(
    "MW-A112",
    severity="advice",
    stage="memory-free",
    title=N_("Logits take much memory"),
    reason=N_("The loss holds fp32 copies of tokens × vocabulary, up to three at once in eager PyTorch; batches longer "
              "than planned multiply them first."),
    fix=N_("Use a fused or chunked cross entropy, or split the logits over tensor or context parallelism."),
    condition="copies * tokens * vocab * 4 bytes / tensor <= 7.5% of the device's memory",
    source="NVIDIA-NeMo/Automodel#2336, #2609 and #3907",
    where="micro_batch",
    applies=lambda c: c.model.has_head,
    violated=lambda c: logits_copies(c) * logits_bytes(c) > LOGITS_LIMIT * c.cluster.accelerator.memory_usable_bytes,
)  # fmt: skip
def logits(c: RuleContext) -> Said:
    one = logits_bytes(c)
    message = Text(
        N_("{tokens:.0f} tokens × vocabulary {vocab} × 4 B / tensor {tensor} = {one} per fp32 copy, up to {copies} at "
           "once"),
        tokens=c.tokens, vocab=c.facts.vocab, tensor=c.strategy.tensor, one=show(one, "B"), copies=logits_copies(c),
    )  # fmt: skip
    return message, None, {"bytes": one}


@rule(
    "MW-A113",
    severity="advice",
    stage="memory-free",
    title=N_("Attention scores are materialised here"),
    reason=N_("Fused attention needs 16-bit values and a device from Ampere on; without it each layer keeps "
              "heads × length² "
              "scores, twice, plus a mask."),
    fix=N_("Recompute the attention core (selective), use memory-efficient attention, or shorten the sequence."),
    condition="fused attention available, or attention scores small",
    source=KORTHIKANTI + ", equation 1 (5 a s / h); Dao 2023, arXiv:2307.08691",
    where="recompute",
    applies=lambda c: bool(c.facts.heads) and c.cluster.accelerator.kind == "gpu",
    violated=lambda c: (c.cluster.accelerator.architecture == "volta" or c.strategy.precision in ("fp32", "tf32"))
    and c.strategy.recompute == "none"
    and c.job.seq_len >= 1024,
)  # fmt: skip
def scores(c: RuleContext) -> Said:
    s, f = c.strategy, c.facts
    size = 5 * max(f.heads) / s.tensor * s.micro_batch * c.job.seq_len**2 / s.context
    message = Text(
        N_("about {size} of attention scores per layer and micro-batch on {device} in {precision}"),
        size=show(size, "B"), device=c.cluster.accelerator.name, precision=s.precision,
    )  # fmt: skip
    return message, Text(N_("recompute = selective")), {"bytes": size}


def connections(c: RuleContext) -> str:
    """What CUDA_DEVICE_MAX_CONNECTIONS must be; empty where it does not matter."""
    s, device = c.strategy, c.cluster.accelerator
    if device.vendor.lower() != "nvidia" or device.architecture == "blackwell":
        return ""
    if s.framework == "megatron":
        if s.tensor > 1 or s.context > 1:
            return "1"
        return "unset" if s.data > 1 and s.overlap_grad_reduce else ""
    return "32" if s.framework == "fsdp" and s.tensor > 1 else ""


@rule(
    "MW-A114",
    severity="info",
    stage="memory-free",
    title=N_("CUDA_DEVICE_MAX_CONNECTIONS decides what overlaps"),
    reason=N_("Up to Hopper, Megatron asks for 1 with tensor or context parallelism, so that kernels start in "
              "issue order; "
              "with data parallelism only, 1 keeps gradient communication from overlapping at all; torch FSDP "
              "with tensor "
              "parallelism wants many. Blackwell does not care."),
    fix=N_("Set the variable as stated in the launch script."),
    condition="megatron: 1 if tensor or context > 1, unset otherwise; fsdp with tensor > 1: 16 or 32; blackwell: any",
    source="Megatron-LM arguments.py validate_args; NVIDIA/Megatron-LM#1468 and #5105; pytorch/torchtitan#1147",
    where="environment",
    violated=lambda c: bool(connections(c)),
)  # fmt: skip
def max_connections(c: RuleContext) -> Said:
    s, value = c.strategy, connections(c)
    message = Text(
        N_("{framework} with tensor {tensor} and context {context} on {device}: CUDA_DEVICE_MAX_CONNECTIONS {value}"),
        framework=s.framework, tensor=s.tensor, context=s.context, device=c.cluster.accelerator.name, value=value,
    )  # fmt: skip
    fix = (
        Text(N_("leave CUDA_DEVICE_MAX_CONNECTIONS unset: with 1 the gradient reduction does not overlap"))
        if value == "unset"
        else Text(N_("export CUDA_DEVICE_MAX_CONNECTIONS={value}"), value=value)
    )
    return message, fix, {"value": value}


@rule(
    "MW-A115",
    severity="info",
    stage="memory-free",
    title=N_("Collect Python garbage on all ranks at once"),
    reason=N_("Automatic collection pauses one rank at a time, and every pause stops the whole step; 512 devices "
              "gained about "
              "1.5% by collecting together."),
    fix=N_("gc.disable() and gc.collect() every 50 steps on every rank (Megatron --manual-gc "
           "--manual-gc-interval 50)."),
    condition="manual garbage collection from 256 devices",
    source="pytorch/torchtitan#148 and #696",
    where="environment",
    frameworks=GPU_FRAMEWORKS,
    applies=lambda c: c.cluster.devices >= STRAGGLERS,
    violated=lambda c: True,
)  # fmt: skip
def manual_gc(c: RuleContext) -> Said:
    return Text(N_("{devices} devices wait for the slowest at every step"), devices=c.cluster.devices), None, {}


@rule(
    "MW-A116",
    severity="advice",
    stage="memory-free",
    title=N_("FSDP gathers parameters once per micro-batch of the pipeline"),
    reason=N_("With reshard-after-forward every micro-batch gathers the stage's parameters again; keeping them "
              "gathered for "
              "the step (ZeRO-2) costs memory that the pipeline has already divided."),
    fix=N_("Use sharding = zero2 (reshard_after_forward = False) with a pipeline."),
    condition="sharding != zero3 with pipeline > 1",
    source="torchtitan parallelism.fsdp_reshard_after_forward (default: not with a pipeline)",
    where="sharding",
    frameworks=("fsdp",),
    applies=lambda c: c.strategy.sharding == "zero3",
    violated=lambda c: c.strategy.pipeline > 1 and c.micro_batches > 1,
)  # fmt: skip
def zero3_pipeline(c: RuleContext) -> Said:
    message = Text(
        N_("{count} micro-batches gather {weights} each, twice"),
        count=c.micro_batches, weights=show(2 * rank_weights(c), "B"),
    )  # fmt: skip
    return message, None, {"legal": ["zero2"]}


@rule(
    "MW-A117",
    severity="advice",
    stage="memory-free",
    title=N_("Gradient reduction is not overlapped"),
    reason=N_("Without overlap the whole reduction follows the backward pass."),
    fix=N_("Turn overlap_grad_reduce on."),
    condition="overlap_grad_reduce with data > 1",
    source="Li et al. 2020, arXiv:2006.15704, section 3.2.3",
    where="overlap_grad_reduce",
    violated=lambda c: c.strategy.data > 1 and not c.strategy.overlap_grad_reduce,
)
def overlap_off(c: RuleContext) -> Said:
    ranks = c.strategy.data * c.strategy.context
    moved = 2 * 2 * rank_weights(c) * (ranks - 1) / ranks
    bandwidth = ring_bandwidth(c, ranks, c.strategy.tensor)
    message = Text(
        N_("about {moved} per device and step are reduced in the open, {time} at {bandwidth}"),
        moved=show(moved, "B"), bandwidth=show(bandwidth, "B/s"),
        time=show(moved / bandwidth, "s") if bandwidth else "?",
    )  # fmt: skip
    return message, None, {"bytes": moved}


@rule(
    "MW-A118",
    severity="info",
    stage="memory-free",
    title=N_("The expert all-to-all is counted as overlapped"),
    reason=N_(
        "The estimate hides the all-to-all of one micro-batch behind the compute of another; the framework does so only"
        " when told to."
    ),
    fix=N_("Run with --overlap-moe-expert-parallel-comm, or estimate with overlap_expert off."),
    condition="not overlap_expert or expert == 1",
    source="Megatron-LM --overlap-moe-expert-parallel-comm; DeepSeek-V3 report, arXiv:2412.19437, section 3.2.1",
    where="overlap_expert",
    frameworks=("megatron",),
    applies=lambda c: c.model.is_moe,
    violated=lambda c: bool(c.strategy.overlap_expert) and c.strategy.expert > 1,
)
def all_to_all_overlapped(c: RuleContext) -> Said:
    message = Text(
        N_("expert {expert}: dispatch and combine are taken to run behind compute"), expert=c.strategy.expert
    )
    return message, None, {"expert": c.strategy.expert}


@rule(
    "MW-A135",
    severity="info",
    stage="memory-free",
    title=N_("CUDA graphs are counted"),
    reason=N_(
        "A layer of experts issues hundreds of kernels; launched one by one the device waits for the host between them."
        " The estimate replays all but the experts from CUDA graphs, which the framework does only when told to."
    ),
    fix=N_(
        "Run with --enable-cuda-graph --cuda-graph-scope attn moe_router moe_preprocess, or estimate with graphs none."
    ),
    condition="graphs == none",
    source="NVIDIA Megatron-Bridge performance recipes 26.02 (CUDA graph scope attn, moe_router, moe_preprocess)",
    where="graphs",
    frameworks=("megatron",),
    applies=lambda c: c.model.is_moe,
    violated=lambda c: c.strategy.graphs != "none",
)
def graphs_counted(c: RuleContext) -> Said:
    return Text(N_("CUDA graphs {what}"), what=c.strategy.graphs), None, {"graphs": c.strategy.graphs}


@rule(
    "MW-A119",
    severity="advice",
    stage="memory-free",
    title=N_("The sequence is longer than the model was made for"),
    reason=N_("A position table has no rows for such positions; rotary positions need rescaling and further training."),
    fix=N_("Shorten the sequence, or extend the model's positions first."),
    condition="seq_len <= max_positions",
    source="max_position_embeddings of the model's configuration",
    where="seq_len",
    applies=lambda c: c.model.max_positions is not None and c.job.seq_len > c.model.max_positions,
    violated=lambda c: True,
)
def positions_exceeded(c: RuleContext) -> Said:
    most = c.model.max_positions
    message = Text(
        N_("sequence {seq_len} is longer than the {positions} positions of {model}"),
        seq_len=c.job.seq_len, positions=most, model=c.model.name,
    )  # fmt: skip
    return message, None, {"legal": [most]}


# ---- with an estimate


def found(estimate: Estimate | None) -> Estimate:
    """The estimate; rules of stage `estimate` are asked only with one."""
    assert estimate is not None
    return estimate


def communication(c: RuleContext) -> list[Term]:
    """Exposed communication by kind (`tensor_comm`, `data_comm`, …), the largest first."""
    return sorted((t for t in found(c.estimate).time.children if t.name.endswith("_comm")), key=lambda t: -t.value)


def exposed_share(c: RuleContext) -> float:
    """Share of the step spent in communication that nothing hides."""
    step = found(c.estimate).step_seconds
    return sum(t.value for t in communication(c)) / step if step > 0 else 0.0


@rule(
    "MW-A131",
    severity="advice",
    stage="estimate",
    title=N_("Much communication is exposed"),
    reason=N_(
        "Devices wait while nothing hides the transfer; the largest part names the parallelism to reduce "
        "or to place "
        "on faster links."
    ),
    fix=N_("Reduce the parallelism that communicates most, or give it more work to hide behind."),
    condition="exposed communication <= 15% of the step",
    source="derived from the estimate",
    where="time",
    violated=lambda c: exposed_share(c) > EXPOSED_LIMIT,
)
def exposed(c: RuleContext) -> Said:
    largest = communication(c)[0]
    message = Text(
        N_("{share:.0%} of the step is exposed communication, most of it {name} with {time}"),
        share=exposed_share(c), name=Label(f"step.{largest.name}"), time=show(largest.value, "s"),
    )  # fmt: skip
    return message, None, {"share": exposed_share(c), "largest": largest.name}


def selective_extra(c: RuleContext) -> float:
    """What selective recomputation keeps beyond full recomputation, on the first stage. [B]"""
    s, f = c.strategy, c.facts
    part, micro = c.job.seq_len / s.context, s.micro_batch
    per_layer = layer_selective(part, micro, f.hidden, s.tensor, bool(s.sequence_parallel)) - layer_full(
        part, micro, f.hidden, s.tensor if s.sequence_parallel else 1
    )
    return f.layers / s.pipeline * per_layer * min(s.pipeline, c.micro_batches)


@rule(
    "MW-A132",
    severity="advice",
    stage="estimate",
    title=N_("Full recomputation where selective would fit"),
    reason=N_(
        "Full recomputation repeats the whole forward pass, a third more arithmetic; selective repeats attention only."
    ),
    fix=N_("Use recompute = selective."),
    condition="recompute != full where selective fits",
    source=KORTHIKANTI + ", section 5; NVIDIA/Megatron-LM#1031",
    where="recompute",
    applies=lambda c: c.strategy.recompute == "full" and bool(c.facts.heads) and c.strategy.framework != "deepspeed",
    violated=lambda c: found(c.estimate).peak_bytes + selective_extra(c) < 0.95 * found(c.estimate).capacity_bytes,
)
def recompute_full(c: RuleContext) -> Said:
    e = found(c.estimate)
    message = Text(
        N_("{free} are free, selective recomputation needs about {extra} of them and saves about a quarter of "
           "the arithmetic"),
        free=show(e.capacity_bytes - e.peak_bytes, "B"), extra=show(selective_extra(c), "B"),
    )  # fmt: skip
    return message, Text(N_("recompute = selective")), {"legal": ["selective"], "bytes": selective_extra(c)}


@rule(
    "MW-A133",
    severity="advice",
    stage="estimate",
    title=N_("Memory is tight: keep the allocator from fragmenting"),
    reason=N_("PyTorch reserves more than it allocates when sizes vary; expandable segments return most of that."),
    fix=N_("Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True and keep batches at one length."),
    condition="verdict FITS, or expandable segments",
    source="PyTorch notes, CUDA memory management; deepspeedai/DeepSpeedExamples#172",
    where="environment",
    frameworks=GPU_FRAMEWORKS,
    applies=lambda c: c.cluster.accelerator.kind == "gpu",
    violated=lambda c: found(c.estimate).verdict == "TIGHT",
)
def tight(c: RuleContext) -> Said:
    e = found(c.estimate)
    message = Text(
        N_("the peak {peak} is within the error of the limit {limit}"),
        peak=show(e.peak_bytes, "B"), limit=show(e.capacity_bytes, "B"),
    )  # fmt: skip
    return message, None, {}


def relief(c: RuleContext) -> tuple[Text, dict[str, str]]:
    """The cheapest change that has not been made yet and frees memory."""
    s = c.strategy
    if s.recompute == "none":
        return Text(N_("recompute = selective, then full")), {"recompute": "selective"}
    if s.tensor > 1 and not s.sequence_parallel:
        return Text(N_("sequence_parallel on")), {"sequence_parallel": "true"}
    if s.sharding == "none":
        return Text(N_("shard the optimizer (zero1; zero2 with FSDP)")), {"sharding": "zero1"}
    if s.micro_batch > 1:
        return Text(N_("micro_batch = {micro}"), micro=s.micro_batch // 2), {"micro_batch": str(s.micro_batch // 2)}
    if s.recompute == "selective":
        return Text(N_("recompute = full")), {"recompute": "full"}
    if s.sharding in ("zero1", "zero2") and s.framework in ("fsdp", "deepspeed") and s.pipeline == 1:
        return Text(N_("sharding = zero3")), {"sharding": "zero3"}
    return Text(N_("more tensor or pipeline parallelism, more devices, or offload")), {"tensor": str(2 * s.tensor)}


@rule(
    "MW-A134",
    severity="advice",
    stage="estimate",
    title=N_("The strategy does not fit: what to change first"),
    reason=N_("Changes are tried in the order of what they cost: recomputing attention, sharding, smaller "
              "micro-batches, full "
              "recomputation, then more model parallelism."),
    fix=N_("Free memory in the order of cost."),
    condition="peak <= capacity",
    source=KORTHIKANTI + "; Rajbhandari et al. 2020, arXiv:1910.02054",
    where="memory",
    violated=lambda c: (e := found(c.estimate)).verdict == "OVER" and e.peak_bytes > e.capacity_bytes,
)  # fmt: skip
def over(c: RuleContext) -> Said:
    e = found(c.estimate)
    largest = max(e.memory.children, key=lambda t: t.value, default=e.memory)
    message = Text(
        N_("stage {stage} needs {peak}, {over} above the limit; most of it {name} with {value}"),
        stage=e.peak_stage, peak=show(e.peak_bytes, "B"), over=show(e.peak_bytes - e.capacity_bytes, "B"),
        name=Label(f"device.{largest.name}"), value=show(largest.value, "B"),
    )  # fmt: skip
    fix, data = relief(c)
    return message, fix, {"try": data}


def host_over(c: RuleContext) -> bool:
    """Whether what is offloaded is more than a host has."""
    e = found(c.estimate)
    offloads = c.strategy.offload != "none"
    return offloads and e.host_capacity_bytes is not None and e.host_bytes > e.host_capacity_bytes


@rule(
    "MW-A136",
    severity="advice",
    stage="estimate",
    title=N_("The host holds what is offloaded"),
    reason=N_("Offloading moves parameters, fp32 gradients, master weights and optimizer states of all devices "
              "of a node "
              "into one host: about 18 bytes a parameter with ZeRO-3 and Adam. While starting it can be more."),
    fix=N_("Use more nodes, more memory per host, offload to NVMe, or keep the optimizer on the devices (8-bit, "
           "bf16)."),
    condition="host bytes <= host memory",
    source="deepspeedai/DeepSpeed#912; axolotl-ai-cloud/axolotl#1439",
    where="memory",
    violated=host_over,
)  # fmt: skip
def offloaded_too_much(c: RuleContext) -> Said:
    e = found(c.estimate)
    have = e.host_capacity_bytes or 1.0
    message = Text(
        N_("each host needs {need} for what is offloaded, and has {have}"),
        need=show(e.host_bytes, "B"), have=show(have, "B"),
    )  # fmt: skip
    nodes = -(-e.host_bytes * c.cluster.nodes // have)
    fix = Text(N_("at least {count} nodes, or less on the host"), count=int(nodes))
    return message, fix, {"need": e.host_bytes, "have": have}
