"""Bytes kept for the backward pass: Korthikanti et al.'s closed forms, logits, micro-batches in flight."""

from __future__ import annotations

from meshwright.formulas.numeric import Bytes, Count, Fraction, maximum, minimum, where
from meshwright.formulas.registry import formula

KORTHIKANTI = "Korthikanti et al. 2022, Reducing Activation Recomputation in Large Transformer Models, arXiv 2205.05198"


@formula("memory.activations.plain", source=KORTHIKANTI, equation="(1): sbh (34 + 5as/h)")
def layer_plain(s: Count, b: Count, h: Count, a: Count, byte: Bytes = 1) -> Bytes:
    """Activations of one layer without any parallelism.

    Parameters
    ----------
    s, b, h, a : sequence length, micro-batch, hidden size, attention heads
    byte : one byte, carries the unit

    Notes
    -----
    Equation 1: attention 11sbh + 5as²b, MLP 19sbh, two layer norms 4sbh.
    Assumes 16-bit values, 1-byte dropout masks, h→4h→h MLP with GeLU, materialised softmax.

    Examples
    --------
    >>> layer_plain(2048, 1, 12288, 96) / (2048 * 12288)
    114.0
    """
    return s * b * h * (34 + 5 * a * s / h) * byte


@formula("memory.activations.tensor", source=KORTHIKANTI, equation="(2): sbh (10 + 24/t + 5as/(ht))")
def layer_tensor(s: Count, b: Count, h: Count, a: Count, t: Count, byte: Bytes = 1) -> Bytes:
    """Activations of one layer under tensor parallelism: norms, dropouts and block inputs are kept whole.

    Parameters
    ----------
    s, b, h, a, t : sequence length, micro-batch, hidden size, attention heads, tensor-parallel degree
    byte : one byte, carries the unit

    Notes
    -----
    Equation 2. The 10 are two norm inputs (4), the inputs of QKV and of the MLP (4), two dropout masks (2).

    Examples
    --------
    >>> layer_tensor(2048, 1, 12288, 96, 8) / (2048 * 12288)
    23.0
    """
    return s * b * h * (10 + 24 / t + 5 * a * s / (h * t)) * byte


@formula("memory.activations.sequence", source=KORTHIKANTI, equation="(4): sbh/t (34 + 5as/h)")
def layer_sequence(s: Count, b: Count, h: Count, a: Count, t: Count, byte: Bytes = 1) -> Bytes:
    """Activations of one layer under tensor plus sequence parallelism: everything is divided by t.

    Parameters
    ----------
    s, b, h, a, t : sequence length, micro-batch, hidden size, attention heads, tensor-parallel degree
    byte : one byte, carries the unit

    Notes
    -----
    Equation 4. Ignores the gathered input, which is gathered again in the backward pass.

    Examples
    --------
    >>> layer_sequence(2048, 1, 12288, 96, 8) / (2048 * 12288)
    14.25
    """
    return s * b * h / t * (34 + 5 * a * s / h) * byte


@formula("memory.activations.selective", source=KORTHIKANTI, equation="table 2: sbh (10 + 24/t), and (6): 34 sbh/t")
def layer_selective(s: Count, b: Count, h: Count, t: Count, sequence_parallel: bool = True, byte: Bytes = 1) -> Bytes:
    """Activations of one layer when the attention core is recomputed (or fused: flash attention).

    Parameters
    ----------
    s, b, h, t : sequence length, micro-batch, hidden size, tensor-parallel degree
    sequence_parallel : sequence parallelism beside tensor parallelism
    byte : one byte, carries the unit

    Notes
    -----
    Equation 6 (per layer) with sequence parallelism, table 2 without. Drops the 5as²b terms.

    Examples
    --------
    >>> layer_selective(2048, 1, 12288, 8) / (2048 * 12288)
    4.25
    >>> layer_selective(2048, 1, 12288, 8, sequence_parallel=False) / (2048 * 12288)
    13.0
    """
    return s * b * h * (34 / t if sequence_parallel else 10 + 24 / t) * byte


@formula("memory.activations.full", source=KORTHIKANTI, equation="table 2: 2 sbh")
def layer_full(s: Count, b: Count, h: Count, shards: Count = 1, element: Bytes = 2) -> Bytes:
    """What full recomputation keeps of one layer: its input.

    Parameters
    ----------
    s, b, h : sequence length, micro-batch, hidden size
    shards : ranks the input is divided over (t with sequence parallelism or distributed saving, else 1)
    element : bytes per value

    Examples
    --------
    >>> layer_full(2048, 1, 12288) / (2048 * 12288)
    2.0
    """
    return s * b * h * element / shards


@formula("memory.activations.ends", source=KORTHIKANTI, equation="section 4.3: sbh p/t + [p=1] 4sbh/t (1 + v/h)")
def first_stage_extra(s: Count, b: Count, h: Count, t: Count, p: Count, v: Count, byte: Bytes = 1) -> Bytes:
    """Activations of the first stage outside layers: embedding dropout, and norm, output layer and logits when p = 1.

    Parameters
    ----------
    s, b, h, t : sequence length, micro-batch, hidden size, tensor-parallel degree
    p, v : pipeline stages, vocabulary
    byte : one byte, carries the unit

    Notes
    -----
    Section 4.3 with sequence parallelism: p micro-batches of a 1-byte mask; final norm 2sbh/t, output layer input
    2sbh/t, fp32 logits 4sbv/t.

    Examples
    --------
    >>> first_stage_extra(2048, 1, 1024, 1, 1, 51200) / (2048 * 1024)
    205.0
    """
    ends = 4 * (1 + v / h)
    return s * b * h / t * (p + where(p == 1, ends, 0 * ends)) * byte


@formula("memory.activations.total", source=KORTHIKANTI, equation="(5): L layer; interleaved L (1 + (p-1)/(pm))")
def first_stage_layers(layers: Count, p: Count, chunks: Count, layer: Bytes) -> Bytes:
    """Block activations of the first pipeline stage in 1F1B, interleaved with `chunks` model chunks.

    Parameters
    ----------
    layers : layers of the whole model
    p, chunks : pipeline stages; model chunks per stage (1: not interleaved)
    layer : activations of one layer and micro-batch

    Notes
    -----
    Equation 5: p micro-batches of L/p layers. Section 4.2.3: interleaving multiplies by 1 + (p-1)/(pm).

    Examples
    --------
    >>> first_stage_layers(96, 8, 3, 1.0)
    124.0
    """
    more = (p - 1) / (p * chunks)
    return layers * layer * (1 + where(chunks > 1, more, 0 * more))


@formula(
    "memory.activations.softmax", source=KORTHIKANTI + ", section 4.1; Megatron-LM issue 965", equation="5 a s² b/t"
)
def materialised_attention(s: Count, b: Count, a: Count, t: Count = 1, dropout: bool = True, byte: Bytes = 1) -> Bytes:
    """What unfused attention keeps: softmax output, dropout mask and dropout output.

    Parameters
    ----------
    s, b, a, t : sequence length, micro-batch, attention heads, tensor-parallel degree
    dropout : attention dropout is applied (adds the 1-byte mask and a second 16-bit copy)
    byte : one byte, carries the unit

    Examples
    --------
    >>> materialised_attention(4096, 1, 32) / 2**20
    2560.0
    """
    return a * s * s * b / t * (5 if dropout else 2) * byte


@formula(
    "memory.logits.copy", source="NVIDIA-NeMo/Automodel pull 2336: one fp32 copy of the logits", equation="N v/t 4"
)
def logits_copy(tokens: Count, vocabulary: Count, t: Count = 1, element: Bytes = 4) -> Bytes:
    """One copy of the logits of `tokens` tokens.

    Parameters
    ----------
    tokens : tokens of the micro-batch on this rank
    vocabulary : (padded) vocabulary
    t : ranks the vocabulary is divided over
    element : bytes per logit

    Examples
    --------
    >>> round(logits_copy(4096, 151936) / 2**30, 2)
    2.32
    """
    return tokens * vocabulary / t * element


@formula(
    "memory.logits.loss",
    source="Megatron-LM vocab_parallel_cross_entropy; PyTorch F.cross_entropy; see docstring",
    equation="N v/t c",
)
def logits_and_loss(
    tokens: Count, vocabulary: Count, t: Count = 1, per_logit: Bytes = 6, live: Fraction = 1.0
) -> Bytes:
    """Peak of logits, fp32 copies and their gradient around the loss.

    Parameters
    ----------
    tokens : tokens of the micro-batch on this rank
    vocabulary : (padded) vocabulary
    t : ranks the vocabulary is divided over
    per_logit : bytes alive per logit at the peak
    live : share of the tokens alive at once (chunked loss: one over the chunks)

    Notes
    -----
    Megatron's vocabulary-parallel loss: 16-bit logits and one fp32 buffer reused in place: 6. Unfused PyTorch:
    16-bit logits 2, saved log-softmax 4, its gradient 4, the gradient of the fp32 logits 4: 14; compiled: 8.

    Examples
    --------
    >>> logits_and_loss(4096, 50304) / 1e9
    1.236271104
    """
    return tokens * vocabulary / t * per_logit * live


@formula("pipeline.in_flight.gpipe", source="Huang et al. 2019, GPipe, arXiv 1811.06965", equation="m")
def in_flight_gpipe(micro_batches: Count) -> Count:
    """Micro-batches whose activations a GPipe stage holds: all of them.

    Parameters
    ----------
    micro_batches : micro-batches per step and pipeline

    Examples
    --------
    >>> in_flight_gpipe(12)
    12
    """
    return micro_batches


@formula(
    "pipeline.in_flight.1f1b", source="Narayanan et al. 2021, arXiv 2104.04473, section 2.2.1", equation="min(m, p - i)"
)
def in_flight_1f1b(micro_batches: Count, p: Count, stage: Count) -> Count:
    """Micro-batches whose activations stage `stage` holds in 1F1B.

    Parameters
    ----------
    micro_batches : micro-batches per step and pipeline
    p : pipeline stages
    stage : stage, from 0

    Examples
    --------
    >>> [in_flight_1f1b(32, 4, i) for i in range(4)]
    [4, 3, 2, 1]
    """
    return minimum(micro_batches, p - stage)


@formula(
    "pipeline.in_flight.interleaved",
    source="Megatron-LM schedules.py, forward_backward_pipelining_with_interleaving",
    equation="min(mv, 2(p - i - 1) + (v - 1)g + 1)",
)
def in_flight_interleaved(micro_batches: Count, p: Count, stage: Count, chunks: Count, group: Count = 0) -> Count:
    """Chunk passes (one micro-batch through one model chunk) that a stage holds in interleaved 1F1B.

    Parameters
    ----------
    micro_batches : micro-batches per step and pipeline
    p : pipeline stages
    stage : stage, from 0
    chunks : model chunks per stage
    group : micro-batches that pass one chunk before the next chunk's turn; 0 for `p`, Megatron's default

    Notes
    -----
    Warm-up passes plus the one in progress. Stage 0: pv + p - 1 passes of L/(pv) layers, which is
    Korthikanti's L (1 + (p-1)/(pv)).

    Examples
    --------
    >>> in_flight_interleaved(64, 8, 0, 3)
    31
    """
    return minimum(micro_batches * chunks, 2 * (p - stage - 1) + (chunks - 1) * where(group > 0, group, p) + 1)


@formula(
    "pipeline.interleaved_group",
    source="Megatron-LM --microbatch-group-size-per-virtual-pipeline-stage, schedules.py",
    equation="p if p | m, else min(m, 2p - 1)",
)
def interleaved_group(micro_batches: Count, p: Count) -> Count:
    """Micro-batches that an interleaved schedule sends through one model chunk before the next chunk's turn.

    Parameters
    ----------
    micro_batches : micro-batches per step and pipeline
    p : pipeline stages

    Notes
    -----
    As many as stages, when they divide the micro-batches. Megatron takes no last group smaller than `p`, so that the
    rest joins a group, which then has less than twice as many. Fewer micro-batches than stages: groups of `p`.

    Examples
    --------
    >>> interleaved_group(8, 4), interleaved_group(5, 4), interleaved_group(6, 4)
    (4, 5, 6)
    """
    return where((micro_batches % p == 0) | (micro_batches < p), p, minimum(micro_batches, 2 * p - 1))


@formula(
    "pipeline.in_flight.zero_bubble",
    source="Qi et al. 2023, Zero Bubble Pipeline Parallelism, arXiv 2401.10241, section 2.3",
    equation="min(m, p)",
)
def in_flight_zero_bubble(micro_batches: Count, p: Count) -> Count:
    """Micro-batches a ZB-H1 stage holds: p - i before their backward, and up to i waiting for the weight gradient.

    Parameters
    ----------
    micro_batches : micro-batches per step and pipeline
    p : pipeline stages

    Notes
    -----
    Upper bound: counts a waiting micro-batch whole, though only the inputs of its matrix products remain. ZB-V holds
    p micro-batches of a whole stage too, as 2p passes of half a stage.

    Examples
    --------
    >>> in_flight_zero_bubble(32, 8)
    8
    """
    return minimum(micro_batches, p)


@formula(
    "pipeline.in_flight.dualpipe", source="DeepSeek-V3 report, arXiv 2412.19437, table 2", equation="min(m, p + 1)"
)
def in_flight_dualpipe(micro_batches: Count, p: Count) -> Count:
    """Micro-batches a DualPipe rank holds over its two stages together: p + 1 (and the parameters twice).

    Parameters
    ----------
    micro_batches : micro-batches per step and pipeline
    p : pipeline ranks

    Examples
    --------
    >>> in_flight_dualpipe(64, 16)
    17
    """
    return minimum(micro_batches, p + 1)


@formula(
    "pipeline.in_flight.chunk",
    source="Megatron-LM schedules.py, get_model_chunk_id",
    equation="⌊n/pv⌋p + clip(n mod pv - cp, 0, p)",
)
def passes_of_chunk(passes: Count, p: Count, chunks: Count, chunk: Count) -> Count:
    """How many of the first `passes` chunk passes of an interleaved schedule go through model chunk `chunk`.

    Parameters
    ----------
    passes : chunk passes in order of issue
    p : pipeline stages (micro-batches per group)
    chunks, chunk : model chunks per stage, and the chunk asked for (from 0)

    Examples
    --------
    >>> [passes_of_chunk(31, 8, 3, c) for c in range(3)]
    [15, 8, 8]
    """
    whole = passes // (p * chunks)
    rest = passes - whole * (p * chunks)
    return whole * p + minimum(maximum(rest - chunk * p, 0), p)
