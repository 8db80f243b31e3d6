"""Mixtures of experts with ordinary attention."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from meshwright.catalog.hf.build import assemble, experts, head_counts, routing_groups, windows, with_windows
from meshwright.catalog.hf.view import Config
from meshwright.spec.model import Block, Mlp, ModelSpec, Moe, NormKind


def _stack(attention: dict[str, Any], spans: Sequence[int | None], mlps: Sequence[Mlp | Moe], norm: NormKind = "rms",
           **block: Any) -> list[Block]:  # fmt: skip
    mixers = with_windows(attention, spans)
    return [Block(mixer=mixer, mlp=mlp, norm=norm, **block) for mixer, mlp in zip(mixers, mlps, strict=True)]


def _window(c: Config, default: int | None = None) -> int | None:
    value = c.count("sliding_window", lambda: default, low=0, high=10**9, nullable=True)
    return value or None


def mixtral(c: Config) -> ModelSpec:
    """Mixtral, PhiMoE, OLMoE, FlexOLMo, MiniMax-M2: every layer routed, no shared expert."""
    phi, olmo, m2 = c.family == "phimoe", c.family in ("olmoe", "flex_olmo"), c.family == "minimax_m2"
    flex = c.family == "flex_olmo"
    layers = c.layers()
    heads, kv = (48, 8) if m2 else (32, 32) if flex else (16, 16) if olmo else (32, 8)
    total, top = (256, 8) if m2 else (7, 5) if flex else (64, 8) if olmo else (16, 2) if phi else (8, 2)
    width = 1536 if m2 else 11008 if flex else 2048 if olmo else 6400 if phi else 14336
    bias = c.flag("attention_bias", False) if phi or olmo else False
    attention: dict[str, Any] = {
        **head_counts(c, heads, kv, 128 if m2 else None),
        "qkv_bias": bias,
        "out_bias": bias,
        "qk_norm": "full" if olmo or m2 else "none",
    }
    moe = experts(
        c, count=c.essential(total), top_k=c.essential(top), width=c.essential(width), width_key="intermediate_size",
        activation=c.word("hidden_act", "silu"),
    )  # fmt: skip
    norm: NormKind = "layer" if phi else "rms"
    vocab = 200064 if m2 else 100352 if flex else 50304 if olmo else 32064 if phi else 32000
    return assemble(
        c, _stack(attention, [_window(c)] * layers, [moe] * layers, norm),
        vocab=c.vocab(vocab), tied_embeddings=c.flag("tie_word_embeddings", False), final_norm=norm,
        head_bias=phi and c.flag("lm_head_bias", False),
        max_positions=c.positions(196608 if m2 else 4096 if olmo else 131072),
    )  # fmt: skip


def sparse_layers(c: Config, layers: int) -> list[bool]:
    """Which layers are routed, by Qwen's `decoder_sparse_step` and `mlp_only_layers`."""
    step = c.count("decoder_sparse_step", 1, low=0)
    only = set(c.items("mlp_only_layers") or ())
    return [i not in only and step > 0 and (i + 1) % step == 0 for i in range(layers)]


def qwen_moe(c: Config) -> ModelSpec:
    """Qwen2-MoE (shared expert with a gate) and Qwen3-MoE."""
    two = c.family == "qwen2_moe"
    layers = c.layers()
    bias = c.flag("qkv_bias", True) if two else c.flag("attention_bias", False)
    attention: dict[str, Any] = {
        **head_counts(c, 16 if two else 32, 16 if two else 4, None),
        "qkv_bias": bias,
        "out_bias": bias and not two,
        "qk_norm": "none" if two else "head",
    }
    sparse = sparse_layers(c, layers)
    moe = experts(
        c, count=c.essential(60 if two else 128), top_k=c.essential(4 if two else 8),
        width=c.essential(1408 if two else 768),
        shared=c.count("shared_expert_intermediate_size", c.essential(5632)) if two else 0, shared_gate=two,
        activation=c.word("hidden_act", "silu"),
    )  # fmt: skip
    dense = Mlp(width=1 if all(sparse) else c.width(5632 if two else 6144), activation=moe.activation)
    use = c.flag("use_sliding_window", False)
    spans = windows(c, layers, _window(c, 4096) if use else None)
    if two and use and c.raw("layer_types") is None:
        full = c.count("max_window_layers", 28, low=0)
        spans = [span if i >= full else None for i, span in enumerate(spans)]
    return assemble(
        c, _stack(attention, spans, [moe if s else dense for s in sparse]),
        vocab=c.vocab(151936), tied_embeddings=c.flag("tie_word_embeddings", False), max_positions=c.positions(32768),
    )  # fmt: skip


def granite_moe(c: Config) -> ModelSpec:
    """GraniteMoE, with or without a shared expert."""
    layers = c.layers()
    bias = c.flag("attention_bias", False)
    attention: dict[str, Any] = {**head_counts(c, 32, None, None), "qkv_bias": bias, "out_bias": bias}
    shared = c.count("shared_intermediate_size", 0, low=0) if c.family == "granitemoeshared" else 0
    moe = experts(
        c, count=c.essential(8), top_k=c.essential(2), width=c.essential(11008), width_key="intermediate_size",
        shared=shared, activation=c.word("hidden_act", "silu"),
    )  # fmt: skip
    return assemble(
        c, _stack(attention, [None] * layers, [moe] * layers),
        vocab=c.vocab(32000), tied_embeddings=c.flag("tie_word_embeddings", False), max_positions=c.positions(2048),
    )  # fmt: skip


def gpt_oss(c: Config) -> ModelSpec:
    """GPT-OSS: biases everywhere, attention sinks, windows in every other layer."""
    layers = c.layers()
    bias = c.flag("attention_bias", True)
    attention: dict[str, Any] = {**head_counts(c, 64, 8, 64), "qkv_bias": bias, "out_bias": bias, "sinks": True}
    moe = experts(
        c, count=c.essential(128), top_k=c.essential(4), width=c.essential(2880), width_key="intermediate_size",
        bias=True, router_bias=True, activation=c.word("hidden_act", "silu"),
    )  # fmt: skip
    spans = windows(c, layers, c.count("sliding_window", 128, high=10**9, nullable=True), every=2)
    return assemble(
        c, _stack(attention, spans, [moe] * layers),
        vocab=c.vocab(201088), tied_embeddings=c.flag("tie_word_embeddings", False),
        max_positions=c.positions(131072),
    )  # fmt: skip


def llama4(c: Config) -> ModelSpec:
    """Llama 4 text: routed layers with a shared expert, dense ones between them, chunked attention."""
    layers = c.layers()
    bias = c.flag("attention_bias", False)
    attention: dict[str, Any] = {**head_counts(c, 40, 8, 128), "qkv_bias": bias, "out_bias": bias}
    step = c.count("interleave_moe_layer_step", 1)
    given = c.items("moe_layers")
    routed = set(given) if given is not None else set(range(step - 1, layers, step))
    width = c.width(8192)
    moe = experts(
        c, count=c.essential(16), top_k=c.essential(1), width=width, width_key="intermediate_size", shared=width,
        activation=c.word("hidden_act", "silu"),
    )  # fmt: skip
    everywhere = all(i in routed for i in range(layers))
    dense = Mlp(width=1 if everywhere else c.count("intermediate_size_mlp", 16384), activation=moe.activation)
    chunk = c.count("attention_chunk_size", 8192, high=10**9, nullable=True)
    every = c.count("no_rope_layer_interval", 4)
    rope = c.items("no_rope_layers") or [int((i + 1) % every != 0) for i in range(layers)]
    kinds = c.words("layer_types", layers)
    local = [kind != "full_attention" for kind in kinds] if kinds else [bool(r) for r in rope]
    spans = [chunk if on else None for on in local] if len(local) == layers else windows(c, layers, chunk, every)
    return assemble(
        c, _stack(attention, spans, [moe if i in routed else dense for i in range(layers)]),
        vocab=c.vocab(202048), tied_embeddings=c.flag("tie_word_embeddings", False),
        max_positions=c.positions(131072),
    )  # fmt: skip


def glm4_moe(c: Config) -> ModelSpec:
    """GLM-4.5: leading dense layers, shared expert, multi-token prediction."""
    layers, hidden, n = c.layers(), c.hidden(), c.heads(96)
    counts = {
        "heads": n,
        "kv_heads": c.count("num_key_value_heads", c.essential(8), high=10**5),
        "head_dim": c.count("head_dim", lambda: max(1, hidden // n)),  # the class rounds down
    }
    c.divides(counts["kv_heads"], n, "num_key_value_heads", "num_attention_heads")
    attention: dict[str, Any] = {
        **counts,
        "qkv_bias": c.flag("attention_bias", False),
        "qk_norm": "head" if c.flag("use_qk_norm", False) else "none",
    }
    wide = c.count("moe_intermediate_size", c.essential(1408))
    moe = experts(
        c, count=c.essential(128), top_k=c.essential(8), width=wide,
        shared=c.count("n_shared_experts", 1, low=0) * wide, activation=c.word("hidden_act", "silu"),
        **routing_groups(c, 1, 1),
    )  # fmt: skip
    first = c.count("first_k_dense_replace", 1, low=0)
    dense = Mlp(width=c.width(10944), activation=moe.activation)
    return assemble(
        c, _stack(attention, [None] * layers, [dense if i < first else moe for i in range(layers)]),
        vocab=c.vocab(151552), tied_embeddings=c.flag("tie_word_embeddings", False),
        mtp_layers=c.count("num_nextn_predict_layers", 1, low=0, high=100), max_positions=c.positions(131072),
    )  # fmt: skip


def ernie_moe(c: Config) -> ModelSpec:
    """ERNIE 4.5 MoE: routed between a first and a last layer, with a learned correction of the router."""
    layers = c.layers()
    bias = c.flag("use_bias", False)
    attention: dict[str, Any] = {**head_counts(c, 20, 4, None), "qkv_bias": bias, "out_bias": bias}
    wide = c.count("moe_intermediate_size", c.essential(1536))
    total = c.count("num_experts", c.essential(64), high=10**5)
    moe = experts(
        c, count=total, top_k=c.essential(6), width=wide, shared=c.count("moe_num_shared_experts", 2, low=0) * wide,
        shared_count=c.count("moe_num_shared_experts", 2, low=0) and 1, shared_bias=bias, extra_params=total,
        activation=c.word("hidden_act", "silu"),
    )  # fmt: skip
    start, end = c.count("moe_layer_start_index", 1, low=0), c.count("moe_layer_end_index", layers - 1, low=-1)
    step, last = c.count("moe_layer_interval", 1), layers - 1 if end == -1 else end
    dense = Mlp(width=c.width(12288), bias=bias, activation=moe.activation)
    mlps = [moe if (i + 1) % step == 0 and start <= i <= last else dense for i in range(layers)]
    return assemble(
        c, _stack(attention, [None] * layers, mlps),
        vocab=c.vocab(103424), head_bias=bias, tied_embeddings=c.flag("tie_word_embeddings", True),
        max_positions=c.positions(131072),
    )  # fmt: skip


def hunyuan_moe(c: Config) -> ModelSpec:
    """Hunyuan v1 MoE: a shared MLP as wide as an expert; counts may differ by layer."""
    layers = c.layers()
    bias = c.flag("attention_bias", False)
    attention: dict[str, Any] = {
        **head_counts(c, 32, None, None), "qkv_bias": bias, "out_bias": bias, "qk_norm": "head",
    }  # fmt: skip
    width, activation = c.width(11008), c.word("hidden_act", "silu")

    def by_layer(key: str) -> list[int]:
        value = c.raw(key)
        values = value if isinstance(value, list) else [c.count(key, c.essential(1), high=10**5)] * layers
        return [c.check(key, v, high=10**5) for v in values[:layers]] + [1] * (layers - len(values))

    mlps = [
        Moe(experts=e, top_k=min(k, e), width=width, shared_width=width, activation=activation)
        for e, k in zip(by_layer("num_experts"), by_layer("num_experts_per_tok"), strict=True)
    ]
    return assemble(
        c, _stack(attention, [None] * layers, mlps),
        vocab=c.vocab(290943), tied_embeddings=c.flag("tie_word_embeddings", False), max_positions=c.positions(2048),
    )  # fmt: skip


def dbrx(c: Config) -> ModelSpec:
    """DBRX: attention and experts described in nested tables."""
    hidden, layers, n = c.hidden(), c.layers(), c.heads(16)
    c.divides(n, hidden, "n_heads", "d_model")
    kv = c.sub("attn_config").count("num_key_value_heads", 1, high=10**5)
    c.divides(kv, n, "kv_n_heads", "n_heads")
    f = c.sub("ffn_config")
    moe = experts(f, count=4, top_k=1, width=3584, width_key="ffn_hidden_size")
    attention: dict[str, Any] = {"heads": n, "kv_heads": kv, "head_dim": hidden // n}
    return assemble(
        c, _stack(attention, [None] * layers, [moe] * layers, "layer-no-bias"),
        vocab=c.vocab(32000), tied_embeddings=c.flag("tie_word_embeddings", False), final_norm="layer-no-bias",
        max_positions=c.positions(2048),
    )  # fmt: skip


READERS: dict[str, Callable[[Config], ModelSpec]] = {
    "mixtral": mixtral,
    "phimoe": mixtral,
    "olmoe": mixtral,
    "flex_olmo": mixtral,
    "minimax_m2": mixtral,
    "qwen2_moe": qwen_moe,
    "qwen3_moe": qwen_moe,
    "granitemoe": granite_moe,
    "granitemoeshared": granite_moe,
    "gpt_oss": gpt_oss,
    "llama4_text": llama4,
    "glm4_moe": glm4_moe,
    "ernie4_5_moe": ernie_moe,
    "hunyuan_v1_moe": hunyuan_moe,
    "dbrx": dbrx,
}
