"""Exact parameter counts of the parts of a model, one small formula per part.

Each counts trainable parameters, weights and (where asked) biases. The parts follow the way tensor parallelism splits
a block, so that sums over them give both the total and what one rank holds; `engine.params` walks a model.
"""

from __future__ import annotations

from typing import Any

from meshwright.formulas.numeric import Count
from meshwright.formulas.registry import formula

VASWANI = "Vaswani et al. 2017, Attention Is All You Need, arXiv:1706.03762, section 3"
DEEPSEEK_V2 = "DeepSeek-AI 2024, DeepSeek-V2, arXiv:2405.04434, section 2.1.2, equations 9-19 (appendix C)"
DEEPSEEK_V3 = "DeepSeek-AI 2024, DeepSeek-V3, arXiv:2412.19437, section 2.2, equations 21-23"
MAMBA1 = "Gu and Dao 2023, Mamba, arXiv:2312.00752, section 3.4 and algorithm 2"
MAMBA2 = "Dao and Gu 2024, Transformers are SSMs, arXiv:2405.21060, section 7 (architecture) and figure 6"
DELTANET = "Yang et al. 2024, Gated Delta Networks, arXiv:2412.06464, section 3.4"
SHAZEER = "Shazeer 2020, GLU Variants Improve Transformer, arXiv:2002.05202, equation 6"
GSHARD = "Lepikhin et al. 2020, GShard, arXiv:2006.16668, section 2.2"
KORTHIKANTI = "Narayanan et al. 2021, Megatron-LM at scale, arXiv:2104.04473, equation 2 (section 5.1)"


@formula("params.linear", source=VASWANI, equation="in * out + [out]")
def linear_params(inputs: Count, outputs: Count, bias: Any = False) -> Count:
    """Parameters of a matrix `inputs × outputs`, with a bias of `outputs` if `bias`.

    Parameters
    ----------
    inputs, outputs : count [dimensionless]
        Widths of the linear map.
    bias : bool
        Whether a vector of `outputs` is added.

    Notes
    -----
    Assumes a dense map. Ignores low-rank adapters and quantisation scales.

    References
    ----------
    Vaswani et al. 2017.

    Examples
    --------
    >>> linear_params(768, 3072, bias=True)
    2362368
    """
    return inputs * outputs + outputs * bias


@formula("params.norm", source="Ba 2016, arXiv:1607.06450, equation 4; Zhang 2019, arXiv:1910.07467, equation 4",
         equation="vectors * width")  # fmt: skip
def norm_params(width: Count, vectors: Count = 1) -> Count:
    """Parameters of a normalisation: a gain (RMSNorm, 1 vector), gain and bias (LayerNorm, 2), or none (0).

    Parameters
    ----------
    width : count [dimensionless]
        Features normalised together.
    vectors : count [dimensionless]
        Learned vectors of that width.

    Notes
    -----
    Ignores running statistics (buffers, not parameters).

    References
    ----------
    Ba et al. 2016, equation 4; Zhang and Sennrich 2019, equation 4.

    Examples
    --------
    >>> norm_params(4096), norm_params(4096, vectors=2)
    (4096, 8192)
    """
    return width * vectors


@formula("params.attention_in", source=VASWANI + "; grouped: Ainslie et al. 2023, arXiv:2305.13245, section 2.2",
         equation="h (q + k + v + gate) + [q + gate + v] + [k]")  # fmt: skip
def attention_in_params(
    hidden: Count, q_width: Count, k_width: Count, v_width: Count,
    gate_width: Count = 0, bias: Any = False, key_bias: Any = None,
) -> Count:  # fmt: skip
    """Parameters of the query, key and value projections (column-parallel under tensor parallelism).

    Parameters
    ----------
    hidden : count [dimensionless]
        Model width.
    q_width, k_width, v_width : count [dimensionless]
        Widths of all query heads, all key heads, all value heads.
    gate_width : count [dimensionless]
        Width of an output gate computed with the queries (Qwen3-Next), 0 if none.
    bias, key_bias : bool
        Whether the projections carry biases; `key_bias` None means as `bias`.

    Notes
    -----
    Assumes one projection from the residual width; rotary embeddings have no parameters.

    References
    ----------
    Vaswani et al. 2017, section 3.2.2; Ainslie et al. 2023.

    Examples
    --------
    >>> attention_in_params(4096, 4096, 1024, 1024)
    25165824
    """
    key_bias = bias if key_bias is None else key_bias
    wide = q_width + gate_width + v_width
    return hidden * (wide + k_width) + wide * bias + k_width * key_bias


@formula("params.attention_out", source=VASWANI, equation="heads * v_dim * h")
def attention_out_params(hidden: Count, heads: Count, v_dim: Count) -> Count:
    """Weights of the output projection (row-parallel); its bias, if any, is `hidden` more and held by every rank.

    Parameters
    ----------
    hidden, heads, v_dim : count [dimensionless]
        Model width, query heads, value width per head.

    Notes
    -----
    Ignores the bias, which tensor parallelism does not split.

    References
    ----------
    Vaswani et al. 2017, section 3.2.2.

    Examples
    --------
    >>> attention_out_params(4096, 32, 128)
    16777216
    """
    return heads * v_dim * hidden


@formula("params.mla_down", source=DEEPSEEK_V2, equation="h q_rank + h (kv_rank + rope) [+ biases]")
def mla_down_params(hidden: Count, q_rank: Count, kv_rank: Count, rope_dim: Count, bias: Any = False) -> Count:
    """Down-projections of multi-head latent attention into the query and key/value latents.

    Parameters
    ----------
    hidden, q_rank, kv_rank, rope_dim : count [dimensionless]
        Model width, query rank (0: queries are not compressed), key/value rank, shared rotary key width.
    bias : bool
        Whether the down-projections carry biases.

    Notes
    -----
    Ignores the norms on the latents (`q_rank + kv_rank` gains), counted with `params.norm`.
    The latents are shared by all heads, so tensor parallelism does not split these matrices.

    References
    ----------
    DeepSeek-V2, equations 9, 12, 15.

    Examples
    --------
    >>> mla_down_params(7168, 1536, 512, 64)
    15138816
    """
    width = q_rank + kv_rank + rope_dim
    return hidden * width + width * bias


@formula("params.mla_up", source=DEEPSEEK_V2, equation="q_in heads (nope + rope) + kv_rank heads (nope + v)")
def mla_up_params(q_in: Count, kv_rank: Count, heads: Count, nope_dim: Count, rope_dim: Count, v_dim: Count) -> Count:
    """Up-projections of multi-head latent attention, split by heads.

    Parameters
    ----------
    q_in : count [dimensionless]
        Width the queries are projected from: the query rank, or the model width where queries are not compressed.
    kv_rank, heads, nope_dim, rope_dim, v_dim : count [dimensionless]
        Key/value rank, heads, non-rotary and rotary widths of a query, width of a value.

    Notes
    -----
    Assumes no biases, as in every published MLA model.

    References
    ----------
    DeepSeek-V2, equations 10, 13, 14, 16.

    Examples
    --------
    >>> mla_up_params(1536, 512, 128, 128, 64, 128)
    54525952
    """
    return q_in * heads * (nope_dim + rope_dim) + kv_rank * heads * (nope_dim + v_dim)


@formula("params.linear_attention", source=DELTANET,
         equation="h (2 K + V [+ V gate] [+ 2 H_v]) + V h + conv (2 K + V) + [2 H_v]")  # fmt: skip
def linear_attention_params(
    hidden: Count, key_width: Count, value_width: Count, value_heads: Count,
    conv_kernel: Count = 0, gate: Any = False, decay: Any = False,
) -> Count:  # fmt: skip
    """Matrices of a linear-attention or gated-delta mixer, all split by heads.

    Parameters
    ----------
    hidden, key_width, value_width, value_heads : count [dimensionless]
        Model width, widths of all keys and of all values, number of value heads.
    conv_kernel : count [dimensionless]
        Taps of the depthwise convolution over queries, keys and values; 0 if none.
    gate : bool
        Whether an output gate as wide as the values is computed.
    decay : bool
        Whether per-head alpha and beta are computed (with A_log and dt_bias): the gated delta rule.

    Notes
    -----
    Assumes convolutions without bias. Ignores the output norm, counted with `params.norm`.

    References
    ----------
    Yang et al. 2024; Qin et al. 2024 (lightning attention, arXiv:2405.17381).

    Examples
    --------
    >>> linear_attention_params(2048, 2048, 4096, 32, conv_kernel=4, gate=True, decay=True)
    33718336
    """
    mixed = 2 * key_width + value_width
    projections = hidden * (mixed + value_width * gate + 2 * value_heads * decay) + value_width * hidden
    return projections + conv_kernel * mixed + 2 * value_heads * decay


@formula("params.mamba1", source=MAMBA1, equation="2 h I + c I + [I] + I (R + 2 N) + R I + I + I N + I + I h")
def mamba1_params(
    hidden: Count, inner: Count, state: Count, dt_rank: Count, conv_kernel: Count, conv_bias: Any, proj_bias: Any
) -> Count:
    """Parameters of a Mamba-1 mixer that tensor parallelism splits over channels.

    Parameters
    ----------
    hidden, inner, state, dt_rank, conv_kernel : count [dimensionless]
        Model width, channels, state per channel, rank of the step size, taps of the convolution.
    conv_bias, proj_bias : bool
        Biases of the convolution and of the input projection (the output projection's bias is `hidden` more).

    Notes
    -----
    The step projection always has a bias. Ignores Jamba's norms on dt, B and C (`dt_rank + 2 state`).

    References
    ----------
    Gu and Dao 2023, algorithm 2.

    Examples
    --------
    >>> mamba1_params(768, 1536, 16, 48, 4, True, False)
    3770880
    """
    in_out = hidden * 2 * inner + 2 * inner * proj_bias + inner * hidden
    conv = conv_kernel * inner + inner * conv_bias
    scan = inner * (dt_rank + 2 * state) + dt_rank * inner + inner + inner * state + inner
    return in_out + conv + scan


@formula("params.mamba2", source=MAMBA2, equation="h (2 I + 2 G N + H) + (c + [1]) (I + 2 G N) + 3 H + [I] + I h")
def mamba2_params(
    hidden: Count, inner: Count, state: Count, heads: Count, groups: Count, conv_kernel: Count,
    conv_bias: Any, proj_bias: Any, gated_norm: Any,
) -> Count:  # fmt: skip
    """Parameters of a Mamba-2 mixer, split by heads and groups.

    Parameters
    ----------
    hidden, inner, state, heads, groups, conv_kernel : count [dimensionless]
        Model width, channels (heads × head width), state, heads, groups that share B and C, taps of the convolution.
    conv_bias, proj_bias : bool
        Biases of the convolution and of the input projection (the output projection's bias is `hidden` more).
    gated_norm : bool
        Whether the output is normalised (a gain of `inner`).

    Notes
    -----
    A_log, D and dt_bias are one number per head each.

    References
    ----------
    Dao and Gu 2024, section 7.

    Examples
    --------
    >>> mamba2_params(4096, 8192, 128, 128, 8, 4, True, False, True)
    109635968
    """
    mixed = inner + 2 * groups * state
    wide = inner + mixed + heads
    conv = conv_kernel * mixed + mixed * conv_bias
    return hidden * wide + wide * proj_bias + conv + 3 * heads + inner * gated_norm + inner * hidden


@formula("params.mlp", source=VASWANI + "; gated: " + SHAZEER, equation="(in + 1) h w + [in w], in = 2 if gated else 1")
def mlp_params(hidden: Count, width: Count, gated: Any = True, bias: Any = False) -> Count:
    """Parameters of a feed-forward layer, without the bias of its output (`hidden`, not split by tensor parallelism).

    Parameters
    ----------
    hidden, width : count [dimensionless]
        Model width and inner width.
    gated : bool
        Two input matrices (SwiGLU, GeGLU) instead of one.
    bias : bool
        Whether the input matrices carry biases.

    Notes
    -----
    Ignores the output bias, counted apart because every rank keeps it whole.

    References
    ----------
    Vaswani et al. 2017, equation 2; Shazeer 2020, equation 6.

    Examples
    --------
    >>> mlp_params(4096, 14336)
    176160768
    """
    inputs = 1 + gated
    return (inputs + 1) * hidden * width + inputs * width * bias


@formula("params.experts", source=GSHARD, equation="E ((in + 1) h w + [in w + h])")
def experts_params(hidden: Count, experts: Count, width: Count, gated: Any = True, bias: Any = False) -> Count:
    """Parameters of `experts` feed-forward layers, biases of their outputs included.

    Parameters
    ----------
    hidden, experts, width : count [dimensionless]
        Width of the experts' input, number of experts counted (all, or top-k for the active ones), inner width.
    gated, bias : bool
        As in `params.mlp`; `bias` includes the output bias.

    Notes
    -----
    Ignores router and shared experts.

    References
    ----------
    Lepikhin et al. 2020.

    Examples
    --------
    >>> experts_params(4096, 8, 14336)
    1409286144
    """
    inputs = 1 + gated
    return experts * ((inputs + 1) * hidden * width + (inputs * width + hidden) * bias)


@formula("params.mtp", source=DEEPSEEK_V3, equation="2 h + 2 h h + h")
def mtp_params(hidden: Count) -> Count:
    """Parameters of one multi-token-prediction module besides its block.

    Parameters
    ----------
    hidden : count [dimensionless]
        Model width.

    Notes
    -----
    Two RMSNorms on the inputs, the projection of their concatenation, and the norm before the head. Embedding and head
    are shared with the main model and not counted. Add one block of the model.

    References
    ----------
    DeepSeek-V3, equation 21.

    Examples
    --------
    >>> mtp_params(7168)
    102781952
    """
    return 2 * hidden + 2 * hidden * hidden + hidden


@formula("params.megatron_2021", source=KORTHIKANTI, equation="P = 12 l h^2 (1 + 13/(12 h) + (V + s)/(12 l h))")
def megatron_params(layers: Count, hidden: Count, vocab: Count, seq_len: Count) -> Count:
    """Closed form for a GPT: biases, layer norms, learned positions, tied embedding, MLP four times as wide.

    Parameters
    ----------
    layers, hidden, vocab, seq_len : count [dimensionless]
        Depth, width, vocabulary, rows of the position table.

    Notes
    -----
    Exact but for the final layer norm (2 h), which the paper leaves out.

    References
    ----------
    Narayanan et al. 2021, equation 2.

    Examples
    --------
    >>> round(megatron_params(96, 12288, 51200, 2048) / 1e9, 1)
    174.6
    """
    return 12 * layers * hidden**2 * (1 + 13 / (12 * hidden) + (vocab + seq_len) / (12 * layers * hidden))
