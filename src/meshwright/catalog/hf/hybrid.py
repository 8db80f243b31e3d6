"""State-space models, linear attention, and hybrids of either with softmax attention."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from meshwright.catalog.hf.build import LINEAR, assemble, experts, head_counts, routing_groups
from meshwright.catalog.hf.moe import sparse_layers
from meshwright.catalog.hf.view import REQUIRED, Config
from meshwright.messages import N_, Text
from meshwright.spec.model import Attention, Block, LinearAttention, Mamba1, Mamba2, Mlp, ModelSpec, Moe


def _mixers(kinds: Sequence[str], full: Attention, linear: Any) -> list[Any]:
    return [linear if kind in LINEAR else full for kind in kinds]


def _rank(c: Config, key: str, hidden: int) -> int:
    """Rank of Mamba's step size; `"auto"` or absent: a sixteenth of the width, rounded up."""
    if c.raw(key) == "auto":
        return -(-hidden // 16)
    return int(c.count(key, lambda: -(-hidden // 16)))


def mamba(c: Config) -> ModelSpec:
    """Mamba and Falcon-Mamba."""
    hidden = c.hidden()
    mixer = Mamba1(
        inner=c.count("expand", 2, high=1000) * hidden, state=c.count("state_size", 16),
        dt_rank=_rank(c, "time_step_rank", hidden), conv_kernel=c.count("conv_kernel", 4),
        conv_bias=c.flag("use_conv_bias", True), proj_bias=c.flag("use_bias", False),
    )  # fmt: skip
    return assemble(
        c, [Block(mixer=mixer, mlp=None, norms=1)] * c.layers(),
        vocab=c.vocab(50280), tied_embeddings=c.flag("tie_word_embeddings", True),
    )  # fmt: skip


def mamba2(c: Config) -> ModelSpec:
    """Mamba-2."""
    hidden = c.hidden()
    heads = c.count("num_attention_heads", c.essential(128), high=10**5)
    width, expand = c.count("head_dim", 64), c.count("expand", 2, high=1000)
    if heads * width != expand * hidden:
        c.fail(
            "num_heads",
            Text(N_("num_heads × head_dim = {got}, but expand × hidden_size = {need}"), got=heads * width,
                 need=expand * hidden),
            Text(N_("use num_heads = {heads}"), heads=max(1, expand * hidden // width)),
        )  # fmt: skip
    groups = c.count("n_groups", 8)
    c.divides(groups, heads, "n_groups", "num_heads")
    mixer = Mamba2(
        inner=heads * width, state=c.count("state_size", 128), heads=heads, groups=groups,
        conv_kernel=c.count("conv_kernel", 4), chunk=c.count("chunk_size", 256),
        conv_bias=c.flag("use_conv_bias", True), proj_bias=c.flag("use_bias", False),
    )  # fmt: skip
    return assemble(
        c, [Block(mixer=mixer, mlp=None, norms=1)] * c.layers(),
        vocab=c.vocab(32768), tied_embeddings=c.flag("tie_word_embeddings", False),
    )  # fmt: skip


def jamba(c: Config) -> ModelSpec:
    """Jamba: Mamba-1 with attention in every eighth layer, experts in every other."""
    hidden, layers = c.hidden(), c.layers()
    full = Attention(**head_counts(c, 32, 8, None))
    bias = c.flag("mamba_proj_bias", False)
    mixer = Mamba1(
        inner=c.count("mamba_expand", 2, high=1000) * hidden, state=c.count("mamba_d_state", 16),
        dt_rank=_rank(c, "mamba_dt_rank", hidden) if c.has("mamba_dt_rank") else -(-hidden // 16),
        conv_kernel=c.count("mamba_d_conv", 4), conv_bias=c.flag("mamba_conv_bias", True), proj_bias=bias,
        inner_norms=True,
    )  # fmt: skip
    width, activation = c.width(14336), c.word("hidden_act", "silu")
    dense = Mlp(width=width, activation=activation)
    moe: Mlp | Moe = experts(c, count=16, top_k=2, width=width, width_key="intermediate_size", activation=activation)
    if isinstance(moe, Moe) and moe.experts == 1:
        moe = dense
    every, offset = c.count("attn_layer_period", 8), c.count("attn_layer_offset", 4, low=0)
    routed, start = c.count("expert_layer_period", 2), c.count("expert_layer_offset", 1, low=0)
    blocks = [
        Block(mixer=full if i % every == offset else mixer, mlp=moe if i % routed == start else dense)
        for i in range(layers)
    ]
    return assemble(
        c, blocks, vocab=c.vocab(65536), tied_embeddings=c.flag("tie_word_embeddings", False),
        max_positions=c.positions(262144),
    )  # fmt: skip


def _ssd(c: Config, hidden: int) -> Mamba2:
    """The Mamba-2 mixer of Bamba and Granite hybrids."""
    heads, inner = c.count("mamba_n_heads", 128), c.count("mamba_expand", 2, high=1000) * hidden
    c.divides(heads, inner, "mamba_n_heads", "mamba_expand × hidden_size")
    groups = c.count("mamba_n_groups", 1)
    c.divides(groups, heads, "mamba_n_groups", "mamba_n_heads")
    return Mamba2(
        inner=inner, state=c.count("mamba_d_state", 256), heads=heads, groups=groups,
        conv_kernel=c.count("mamba_d_conv", 4), chunk=c.count("mamba_chunk_size", 256),
        conv_bias=c.flag("mamba_conv_bias", True), proj_bias=c.flag("mamba_proj_bias", False),
    )  # fmt: skip


def bamba(c: Config) -> ModelSpec:
    """Bamba: Mamba-2 with attention in the listed layers."""
    layers = c.layers()
    bias = c.flag("attention_bias", False)
    full = Attention(**head_counts(c, 32, 8, None), qkv_bias=bias, out_bias=bias)
    linear = _ssd(c, c.hidden())
    mlp = Mlp(width=c.width(14336), bias=c.flag("mlp_bias", False), activation=c.word("hidden_act", "silu"))
    chosen = c.items("attn_layer_indices") or ()
    blocks = [Block(mixer=full if i in chosen else linear, mlp=mlp) for i in range(layers)]
    return assemble(
        c, blocks, vocab=c.vocab(128000), tied_embeddings=c.flag("tie_word_embeddings", False),
        max_positions=c.positions(262144),
    )  # fmt: skip


def granite_hybrid(c: Config) -> ModelSpec:
    """Granite 4: Mamba-2 and attention by layer; experts plus a shared MLP, or the shared MLP alone."""
    layers = c.layers()
    bias = c.flag("attention_bias", False)
    full = Attention(**head_counts(c, 32, None, None), qkv_bias=bias, out_bias=bias)
    kinds = c.words("layer_types", layers) or ["linear_attention"] * layers
    linear = _ssd(c, c.hidden()) if any(k in LINEAR for k in kinds) else None
    shared, activation = c.count("shared_intermediate_size", 1024, low=0), c.word("hidden_act", "silu")
    mlp: Mlp | Moe
    if c.raw("num_experts") == 0:
        mlp = Mlp(width=shared, activation=activation)
    else:
        mlp = experts(
            c, count=c.essential(8), top_k=c.essential(2), width=c.essential(11008), width_key="intermediate_size",
            shared=shared, activation=activation,
        )  # fmt: skip
    return assemble(
        c, [Block(mixer=mixer, mlp=mlp) for mixer in _mixers(kinds, full, linear)],
        vocab=c.vocab(32000), tied_embeddings=c.flag("tie_word_embeddings", False), max_positions=c.positions(2048),
    )  # fmt: skip


LETTERS = {"M": "linear_attention", "*": "full_attention", "-": "mlp", "E": "moe"}


def _letters(c: Config) -> list[str]:
    """Layers of a Nemotron-H: named one by one, or as a string of M (Mamba-2), * (attention), - (MLP), E (experts)."""
    kinds = c.words("layer_types")
    if kinds is None:
        pattern = c.word("hybrid_override_pattern", REQUIRED)
        unknown = sorted(set(pattern) - set(LETTERS))
        if unknown:
            c.fail(
                "hybrid_override_pattern",
                Text(N_("'{letter}' is not a layer kind; use M (Mamba-2), * (attention), - (MLP), E (experts)"),
                     letter=unknown[0]),
            )  # fmt: skip
        kinds = [LETTERS[letter] for letter in pattern]
    given = c.count("num_hidden_layers", len(kinds) or 1, high=10**4) if c.has("num_hidden_layers") else len(kinds)
    if not kinds or given != len(kinds):
        c.fail("num_hidden_layers", Text(N_("{given} layers, but the pattern lists {have}"), given=given,
                                         have=len(kinds)))  # fmt: skip
    return kinds


def nemotron_h(c: Config) -> ModelSpec:
    """Nemotron-H: each layer is one thing only: Mamba-2, attention, MLP or experts."""
    kinds = _letters(c)
    mlp_bias, use_bias = c.flag("mlp_bias", False), c.flag("use_bias", False)
    activation = c.word("hidden_act", "relu2")
    blocks: dict[str, Block] = {}
    if "full_attention" in kinds or "attention" in kinds:
        n = c.heads(32)
        kv = c.count("num_key_value_heads", 8, high=10**5)
        c.divides(kv, n, "num_key_value_heads", "num_attention_heads")
        dim = c.count("attention_head_dim", 128) if c.has("attention_head_dim") else c.count("head_dim", 128)
        full = Attention(heads=n, kv_heads=kv, head_dim=dim)  # the class has no biases here, whatever the config says
        blocks["full_attention"] = blocks["attention"] = Block(mixer=full, mlp=None, norms=1)
    if any(k in LINEAR for k in kinds):
        heads, groups = c.count("mamba_num_heads", 128), c.count("n_groups", 8)
        c.divides(groups, heads, "n_groups", "mamba_num_heads")
        linear = Mamba2(
            inner=heads * c.count("mamba_head_dim", 64), state=c.count("state_size", 128), heads=heads, groups=groups,
            conv_kernel=c.count("conv_kernel", 4), chunk=c.count("chunk_size", 128),
            conv_bias=c.flag("use_conv_bias", True), proj_bias=use_bias,
        )  # fmt: skip
        blocks.update(dict.fromkeys(LINEAR, Block(mixer=linear, mlp=None, norms=1)))
    if "mlp" in kinds:
        mlp = Mlp(width=c.width(21504), gated=False, bias=mlp_bias, activation=activation)
        blocks["mlp"] = Block(mixer=None, mlp=mlp, norms=1)
    if "moe" in kinds:
        moe = experts(
            c, count=8, top_k=2, width=7688, shared=c.count("moe_shared_expert_intermediate_size", 7688, low=0),
            gated=False, activation=activation, shared_bias=mlp_bias,
            latent=c.count("moe_latent_size", lambda: None), **routing_groups(c, 1, 1),
        )  # fmt: skip
        blocks["moe"] = Block(mixer=None, mlp=moe, norms=1)
    for kind in kinds:
        if kind not in blocks:
            c.fail("layers_block_type", Text(N_("'{kind}' is not a layer kind of this family"), kind=kind))
    return assemble(
        c, [blocks[kind] for kind in kinds],
        vocab=c.vocab(131072), tied_embeddings=c.flag("tie_word_embeddings", False), max_positions=c.positions(4096),
    )  # fmt: skip


def qwen3_next(c: Config) -> ModelSpec:
    """Qwen3-Next and Qwen3.5: gated delta net in three layers of four, gated attention in the fourth."""
    layers = c.layers()
    next_, dense_only = c.family == "qwen3_next", c.family == "qwen3_5_text"
    bias = c.flag("attention_bias", False)
    kv = 4 if dense_only else 2
    full = Attention(
        **head_counts(c, 16, kv, 256), qkv_bias=bias, out_bias=bias, qk_norm="head", output_gate=True,
    )  # fmt: skip
    keys, values = c.count("linear_num_key_heads", 16), c.count("linear_num_value_heads", 32)
    c.divides(keys, values, "linear_num_key_heads", "linear_num_value_heads")
    linear = LinearAttention(
        key_heads=keys, key_dim=c.count("linear_key_head_dim", 128), value_heads=values,
        value_dim=c.count("linear_value_head_dim", 128), conv_kernel=c.count("linear_conv_kernel_dim", 4), gate=True,
        decay=True, delta=True, out_norm=True,
    )  # fmt: skip
    every = c.count("full_attention_interval", lambda: 4)
    kinds = c.words("layer_types", layers) or [
        "linear_attention" if (i + 1) % every else "full_attention" for i in range(layers)
    ]
    activation = c.word("hidden_act", "silu")
    if dense_only:
        mlps: list[Mlp | Moe] = [Mlp(width=c.width(12288), activation=activation)] * layers
    else:
        moe = experts(
            c, count=c.essential(512 if next_ else 256), top_k=c.essential(10 if next_ else 8),
            width=c.essential(512), shared=c.count("shared_expert_intermediate_size", c.essential(512)),
            shared_gate=True, activation=activation,
        )  # fmt: skip
        sparse = sparse_layers(c, layers) if next_ else [True] * layers
        dense = Mlp(width=1 if all(sparse) else c.width(5632), activation=activation)
        mlps = [moe if s else dense for s in sparse]
    blocks = [
        Block(mixer=mixer, mlp=mlp) for mixer, mlp in zip(_mixers(kinds, full, linear), mlps, strict=True)
    ]  # fmt: skip
    return assemble(
        c, blocks, vocab=c.vocab(151936 if next_ else 248320), tied_embeddings=c.flag("tie_word_embeddings", False),
        max_positions=c.positions(32768),
    )  # fmt: skip


def minimax(c: Config) -> ModelSpec:
    """MiniMax-Text-01: lightning attention and softmax attention by layer, experts everywhere."""
    layers = c.layers()
    counts = head_counts(c, 32, 8, None)
    full = Attention(**counts)
    linear = LinearAttention(
        key_heads=counts["heads"], key_dim=counts["head_dim"], value_heads=counts["heads"],
        value_dim=counts["head_dim"], gate=True, full_norm=True, chunk=c.count("block_size", 256),
    )  # fmt: skip
    kinds = c.words("layer_types", layers) or [
        "full_attention" if (i + 1) % 2 else "linear_attention" for i in range(layers)
    ]
    moe = experts(
        c, count=c.essential(8), top_k=c.essential(2), width=c.essential(14336), width_key="intermediate_size",
        activation=c.word("hidden_act", "silu"),
    )  # fmt: skip
    return assemble(
        c, [Block(mixer=mixer, mlp=moe) for mixer in _mixers(kinds, full, linear)],
        vocab=c.vocab(32000), tied_embeddings=c.flag("tie_word_embeddings", False), max_positions=c.positions(131072),
    )  # fmt: skip


READERS: dict[str, Callable[[Config], ModelSpec]] = {
    "mamba": mamba,
    "falcon_mamba": mamba,
    "mamba2": mamba2,
    "jamba": jamba,
    "bamba": bamba,
    "granitemoehybrid": granite_hybrid,
    "nemotron_h": nemotron_h,
    "qwen3_next": qwen3_next,
    "qwen3_5_text": qwen3_next,
    "qwen3_5_moe_text": qwen3_next,
    "minimax": minimax,
}
