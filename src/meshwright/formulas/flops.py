"""Floating-point operations per token of the parts of a model, and the closed forms papers use for the whole.

One multiply-add counts as two operations. Everything is forward work unless the name says otherwise; backward is twice
the forward of every matrix product. Conventions that differ between sources are in a function's name or argument.
"""

from __future__ import annotations

from typing import Any

from meshwright.formulas.numeric import Count, Flops, minimum
from meshwright.formulas.registry import formula

KAPLAN = "Kaplan et al. 2020, Scaling Laws for Neural Language Models, arXiv:2001.08361, section 2.1, table 1"
CHOWDHERY = "Chowdhery et al. 2022, PaLM, arXiv:2204.02311, appendix B"
NARAYANAN = "Narayanan et al. 2021, Megatron-LM at scale, arXiv:2104.04473, equation 3 and appendix"
DAO = "Dao 2023, FlashAttention-2, arXiv:2307.08691, section 4.1"
MAMBA1 = "Gu and Dao 2023, Mamba, arXiv:2312.00752, section 3.3 and appendix D"
MAMBA2 = "Dao and Gu 2024, Transformers are SSMs, arXiv:2405.21060, section 6"
DELTA = "Yang et al. 2024, Parallelizing Linear Transformers with the Delta Rule, arXiv:2406.06484, section 3"
LIGHTNING = "Qin et al. 2024, Lightning Attention-2, arXiv:2401.04658, section 3"


@formula("flops.linear", source=KAPLAN, equation="2 * parameters")
def linear_flops(parameters: Count) -> Flops:
    """Forward FLOPs per token of matrices with `parameters` entries, each used once per token.

    Parameters
    ----------
    parameters : count [dimensionless]
        Entries of the matrices (without biases).

    Notes
    -----
    Assumes every entry meets every token once. Ignores biases, norms and activation functions.

    References
    ----------
    Kaplan et al. 2020, table 1.

    Examples
    --------
    >>> linear_flops(16777216)
    33554432
    """
    return 2 * parameters


@formula("flops.attended_full", source=CHOWDHERY, equation="s, or min(s, w) in a window")
def attended_full(seq_len: Count, window: Any = None) -> Count:
    """Keys each query is counted to meet when masking is not credited (the MFU convention of PaLM).

    Parameters
    ----------
    seq_len : tokens
        Length of the sequence.
    window : tokens or None
        Sliding window, where there is one.

    Notes
    -----
    Counts masked products as work. A window is credited, since no kernel computes outside it.

    References
    ----------
    Chowdhery et al. 2022, appendix B.

    Examples
    --------
    >>> attended_full(8192), attended_full(8192, window=4096)
    (8192, 4096)
    """
    return seq_len if window is None else minimum(seq_len, window)


@formula("flops.attended_causal", source=DAO, equation="(s + 1)/2; in a window w <= s: w - w (w - 1)/(2 s)")
def attended_causal(seq_len: Count, window: Any = None) -> Count:
    """Keys each query meets on average under a causal mask, exactly.

    Parameters
    ----------
    seq_len : tokens
        Length of the sequence.
    window : tokens or None
        Sliding window, the query's own position included.

    Notes
    -----
    Query i of 1..s meets min(i, w) keys; the mean over i. FlashAttention reports s/2, which leaves out the diagonal.

    References
    ----------
    Dao 2023, section 4.1.

    Examples
    --------
    >>> attended_causal(8192), attended_causal(4, window=2)
    (4096.5, 1.75)
    """
    w = seq_len if window is None else minimum(seq_len, window)
    return w - w * (w - 1) / (2 * seq_len)


@formula("flops.attention_core", source=CHOWDHERY, equation="2 heads (qk + v) attended")
def attention_core_flops(attended: Count, heads: Count, qk_dim: Count, v_dim: Count) -> Flops:
    """Forward FLOPs per token of QK^T and of the product with V.

    Parameters
    ----------
    attended : tokens
        Keys each query meets (`flops.attended_full` or `flops.attended_causal`).
    heads, qk_dim, v_dim : count [dimensionless]
        Query heads, width of a query or key, width of a value.

    Notes
    -----
    Ignores softmax and scaling. Grouped queries change nothing here: every query head meets all keys.

    References
    ----------
    Chowdhery et al. 2022, appendix B (6 L H Q T per token for forward and backward of each product).

    Examples
    --------
    >>> attention_core_flops(8192, 32, 128, 128)
    134217728
    """
    return 2 * heads * (qk_dim + v_dim) * attended


@formula("flops.mamba2_scan", source=MAMBA2, equation="2 C G N + 2 C I + 4 N I")
def mamba2_scan_flops(inner: Count, state: Count, groups: Count, chunk: Count) -> Flops:
    """Forward FLOPs per token of the state-space-dual scan in chunks.

    Parameters
    ----------
    inner, state, groups, chunk : count [dimensionless]
        Channels (heads × head width), state size, groups that share B and C, length of a chunk.

    Notes
    -----
    Inside a chunk: C B^T per group (2 C G N) and its product with X (2 C I), masked products counted; between chunks:
    states from inputs and outputs from states (2 N I each). Ignores the recurrence over chunks and the gating.

    References
    ----------
    Dao and Gu 2024, section 6 (blocks 1-4 of the decomposition).

    Examples
    --------
    >>> mamba2_scan_flops(8192, 128, 8, 256)
    8912896
    """
    return 2 * chunk * groups * state + 2 * chunk * inner + 4 * state * inner


@formula("flops.mamba1_scan", source=MAMBA1, equation="9 I N")
def mamba1_scan_flops(inner: Count, state: Count) -> Flops:
    """Forward FLOPs per token of the selective scan (vector work, no matrix products).

    Parameters
    ----------
    inner, state : count [dimensionless]
        Channels and state size per channel.

    Notes
    -----
    Per channel and state: discretising A and B (about 4), the recurrence (2), the read-out (2), the input scaling (1).
    Ignores the exponential's own cost.

    References
    ----------
    Gu and Dao 2023, algorithm 2.

    Examples
    --------
    >>> mamba1_scan_flops(8192, 16)
    1179648
    """
    return 9 * inner * state


@formula("flops.linear_attention", source=LIGHTNING + "; delta rule: " + DELTA,
         equation="2 H (C (k + v) + 2 k v) [+ 2 H (C (2 k + v) + k v)]")  # fmt: skip
def linear_attention_flops(heads: Count, key_dim: Count, value_dim: Count, chunk: Count, delta: Any = False) -> Flops:
    """Forward FLOPs per token of chunked linear attention, with the delta rule's extra work where asked.

    Parameters
    ----------
    heads, key_dim, value_dim, chunk : count [dimensionless]
        Value heads, width of a key, width of a value, length of a chunk.
    delta : bool
        Gated delta rule: K K^T, the two triangular solves as products, and the correction of the state.

    Notes
    -----
    Masked products inside a chunk are counted. Ignores the inversion of the C × C triangle.

    References
    ----------
    Qin et al. 2024; Yang et al. 2024.

    Examples
    --------
    >>> linear_attention_flops(32, 128, 128, 64)
    3145728
    """
    plain = chunk * (key_dim + value_dim) + 2 * key_dim * value_dim
    correction = chunk * (2 * key_dim + value_dim) + key_dim * value_dim
    return 2 * heads * (plain + correction * delta)


@formula("flops.convolution", source="depthwise convolution, Gu and Dao 2023, arXiv:2312.00752, figure 3",
         equation="2 taps channels")  # fmt: skip
def convolution_flops(channels: Count, taps: Count) -> Flops:
    """Forward FLOPs per token of a depthwise convolution.

    Parameters
    ----------
    channels, taps : count [dimensionless]
        Channels and taps of the kernel.

    Notes
    -----
    Ignores its bias.

    References
    ----------
    Gu and Dao 2023.

    Examples
    --------
    >>> convolution_flops(10240, 4)
    81920
    """
    return 2 * taps * channels


@formula("flops.training", source=KAPLAN + "; recompute: Korthikanti et al. 2022, arXiv:2205.05198, section 5",
         equation="3 forward + recomputed")  # fmt: skip
def training_flops(forward: Flops, recomputed: Flops = 0) -> Flops:
    """FLOPs of forward and backward; `recomputed` (forward work done again) belongs to hardware FLOPs, not model FLOPs.

    Parameters
    ----------
    forward : FLOP
        Forward work.
    recomputed : FLOP
        Forward work repeated in the backward pass; 0 for model FLOPs.

    Notes
    -----
    Assumes both operands of every product need a gradient. Ignores FlashAttention's own recompute of the scores.

    References
    ----------
    Kaplan et al. 2020, section 2.1.

    Examples
    --------
    >>> training_flops(2.0)
    6.0
    """
    return 3 * forward + recomputed


@formula("flops.6n", source=KAPLAN, equation="6 N")
def six_n_flops(parameters: Count) -> Flops:
    """Training FLOPs per token by the rule of thumb 6 N: no attention term.

    Parameters
    ----------
    parameters : count [dimensionless]
        N: non-embedding parameters in the paper; many sources take all parameters, or the active ones.

    Notes
    -----
    Ignores attention scores, which exceed a tenth once the sequence nears the model width.

    References
    ----------
    Kaplan et al. 2020, equation 2.2 (C_forward = 2 N) times three.

    Examples
    --------
    >>> six_n_flops(175e9)
    1050000000000.0
    """
    return 6 * parameters


@formula("flops.palm", source=CHOWDHERY, equation="6 N + 12 L H Q T")
def palm_flops(parameters: Count, layers: Count, heads: Count, head_dim: Count, seq_len: Count) -> Flops:
    """Training FLOPs per token as PaLM counts them for MFU: full (not causal) attention, recompute not credited.

    Parameters
    ----------
    parameters : count [dimensionless]
        N, without the token table that is only looked up.
    layers, heads, head_dim : count [dimensionless]
        L, H, Q.
    seq_len : tokens
        T.

    Notes
    -----
    Assumes values as wide as keys. The paper subtracts embeddings from N.

    References
    ----------
    Chowdhery et al. 2022, appendix B.

    Examples
    --------
    >>> round(palm_flops(540e9, 118, 48, 256, 2048) / (6 * 540e9), 3)
    1.011
    """
    return 6 * parameters + 12 * layers * heads * head_dim * seq_len


@formula("flops.megatron_2021_model", source=NARAYANAN, equation="72 s l h^2 (1 + s/(6 h) + V/(12 l h))")
def megatron_model_flops(layers: Count, hidden: Count, seq_len: Count, vocab: Count) -> Flops:
    """Model FLOPs of one GPT sequence, forward and backward, nothing recomputed (Korthikanti 2022, equation 7).

    Parameters
    ----------
    layers, hidden, seq_len, vocab : count [dimensionless]
        l, h, s, V. The MLP is four times as wide as the model, attention multi-head.

    Notes
    -----
    Counts attention in full (not causal) and the logits. Ignores everything that is not a matrix product.

    References
    ----------
    Narayanan et al. 2021, appendix; Korthikanti et al. 2022, equation 7.

    Examples
    --------
    >>> round(megatron_model_flops(96, 12288, 2048, 51200) / 2048 / 1e12, 3)
    1.076
    """
    return 72 * seq_len * layers * hidden**2 * (1 + seq_len / (6 * hidden) + vocab / (12 * layers * hidden))


@formula("flops.megatron_2021_hardware", source=NARAYANAN, equation="96 s l h^2 (1 + s/(6 h) + V/(16 l h))")
def megatron_hardware_flops(layers: Count, hidden: Count, seq_len: Count, vocab: Count) -> Flops:
    """Hardware FLOPs of one GPT sequence with full recompute of every layer.

    Parameters
    ----------
    layers, hidden, seq_len, vocab : count [dimensionless]
        l, h, s, V.

    Notes
    -----
    Four forward equivalents per layer, three for the logits. Attention counted in full.

    References
    ----------
    Narayanan et al. 2021, equation 3.

    Examples
    --------
    >>> round(megatron_hardware_flops(96, 12288, 2048, 51200) / 2048 / 1e12, 3)
    1.434
    """
    return 96 * seq_len * layers * hidden**2 * (1 + seq_len / (6 * hidden) + vocab / (16 * layers * hidden))
