"""The GPT line and its contemporaries: learned positions, biases, layer norms, parallel blocks, ALiBi."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from meshwright.catalog.hf.build import assemble, head_counts
from meshwright.catalog.hf.view import Config
from meshwright.messages import N_, Text
from meshwright.spec.model import Attention, Block, Extra, Mlp, ModelSpec


def _inner(c: Config, hidden: int) -> int:
    """`n_inner` and its kin, where null or absent means four times the model width."""
    return int(c.count("intermediate_size", lambda: 4 * hidden))


def gpt2(c: Config) -> ModelSpec:
    """GPT-2, and GPT-BigCode (multi-query)."""
    big = c.family == "gpt_bigcode"
    hidden, layers = c.hidden(), c.layers()
    shared = big and c.flag("multi_query", True)
    n = c.heads(12)
    c.divides(n, hidden, "num_attention_heads", "hidden_size")
    positions = c.positions(1024) or 0
    mixer = Attention(heads=n, kv_heads=1 if shared else n, head_dim=hidden // n, qkv_bias=True, out_bias=True)
    activation = c.word("hidden_act", "gelu_pytorch_tanh" if big else "gelu_new")
    mlp = Mlp(width=_inner(c, hidden), gated=False, bias=True, activation=activation)
    return assemble(
        c, [Block(mixer=mixer, mlp=mlp, norm="layer")] * layers,
        vocab=c.vocab(50257), learned_positions=positions, final_norm="layer",
        tied_embeddings=c.flag("tie_word_embeddings", True), max_positions=positions,
    )  # fmt: skip


def gpt_neo(c: Config) -> ModelSpec:
    """GPT-Neo: global and local attention in turn."""
    hidden, layers, n = c.hidden(), c.layers(), c.heads(16)
    c.divides(n, hidden, "num_attention_heads", "hidden_size")
    kinds = c.words("attention_layers", layers) or _expand(c, layers)
    window = c.count("window_size", 256)
    mlp = Mlp(width=_inner(c, hidden), gated=False, bias=True, activation=c.word("hidden_act", "gelu_new"))
    blocks = [
        Block(
            mixer=Attention(heads=n, kv_heads=n, head_dim=hidden // n, out_bias=True,
                            window=window if kind == "local" else None),
            mlp=mlp, norm="layer",
        )
        for kind in kinds
    ]  # fmt: skip
    positions = c.positions(2048) or 0
    return assemble(
        c, blocks, vocab=c.vocab(50257), learned_positions=positions, final_norm="layer",
        tied_embeddings=c.flag("tie_word_embeddings", True), max_positions=positions,
    )  # fmt: skip


def _expand(c: Config, layers: int) -> list[str]:
    kinds: list[str] = []
    for item in c.items("attention_types") or [[["global", "local"], max(1, layers // 2)]]:
        if not (isinstance(item, list) and len(item) == 2 and isinstance(item[0], list)):
            c.fail("attention_types", Text(N_("'attention_types' must hold [[kinds], repeats] pairs")))
        kinds += [str(k) for k in item[0]] * c.check("attention_types", item[1], high=10**4)
    if len(kinds) != layers:
        c.fail(
            "attention_types",
            Text(N_("'attention_types' lists {have} layers, the model has {need}"), have=len(kinds), need=layers),
        )
    return kinds


def gpt_neox(c: Config) -> ModelSpec:
    """GPT-NeoX and Pythia: parallel attention and MLP with a norm each."""
    bias = c.flag("attention_bias", True)
    mixer = Attention(**head_counts(c, 64, None, None), qkv_bias=bias, out_bias=bias)
    mlp = Mlp(width=c.width(24576), gated=False, bias=True, activation=c.word("hidden_act", "gelu"))
    parallel = c.flag("use_parallel_residual", True)
    return assemble(
        c, [Block(mixer=mixer, mlp=mlp, norm="layer", parallel=parallel)] * c.layers(),
        vocab=c.vocab(50432), tied_embeddings=c.flag("tie_word_embeddings", False), final_norm="layer",
        max_positions=c.positions(2048),
    )  # fmt: skip


def gptj(c: Config) -> ModelSpec:
    """GPT-J and CodeGen: one norm, attention without biases, head with one."""
    hidden = c.hidden()
    mixer = Attention(**head_counts(c, 16, None, None))
    mlp = Mlp(width=_inner(c, hidden), gated=False, bias=True, activation=c.word("hidden_act", "gelu_new"))
    return assemble(
        c, [Block(mixer=mixer, mlp=mlp, norm="layer", norms=1, parallel=True)] * c.layers(),
        vocab=c.vocab(50400), tied_embeddings=c.flag("tie_word_embeddings", False), head_bias=True, final_norm="layer",
        max_positions=c.positions(2048),
    )  # fmt: skip


def bloom(c: Config) -> ModelSpec:
    """BLOOM: ALiBi, a norm after the embedding."""
    hidden = c.hidden()
    mixer = Attention(**head_counts(c, 8, None, None), qkv_bias=True, out_bias=True)
    mlp = Mlp(width=4 * hidden, gated=False, bias=True, activation="gelu")
    return assemble(
        c, [Block(mixer=mixer, mlp=mlp, norm="layer")] * c.layers(),
        vocab=c.vocab(250880), tied_embeddings=c.flag("tie_word_embeddings", True), embedding_norm="layer",
        final_norm="layer", max_positions=c.count("seq_length", None) if c.has("seq_length") else None,
    )  # fmt: skip


def opt(c: Config) -> ModelSpec:
    """OPT: positions offset by two, and an embedding narrower than the model in the 350M."""
    hidden = c.hidden()
    bias = c.flag("enable_bias", True)
    affine = c.flag("layer_norm_elementwise_affine", True)
    norm: Any = "layer" if affine else "none"
    width = c.count("word_embed_proj_dim", lambda: hidden)
    before = c.flag("do_layer_norm_before", True) and not c.flag("_remove_final_layer_norm", lambda: False)
    mixer = Attention(**head_counts(c, 12, None, None), qkv_bias=bias, out_bias=bias)
    mlp = Mlp(width=c.width(3072), gated=False, bias=bias, activation=c.word("hidden_act", "relu"))
    positions = c.positions(2048) or 0
    extras = () if width == hidden else (
        Extra(name="project_in", params=width * hidden, flops_per_token=2 * width * hidden),
        Extra(name="project_out", params=width * hidden, where="last", flops_per_token=2 * width * hidden),
    )  # fmt: skip
    return assemble(
        c, [Block(mixer=mixer, mlp=mlp, norm=norm)] * c.layers(),
        vocab=c.vocab(50272), tied_embeddings=c.flag("tie_word_embeddings", True), learned_positions=positions + 2,
        embedding_width=None if width == hidden else width, final_norm=norm if before else "none", extras=extras,
        max_positions=positions,
    )  # fmt: skip


def falcon(c: Config) -> ModelSpec:
    """Falcon: parallel blocks; multi-query (7B) or grouped queries with two norms (40B, 180B)."""
    hidden, n = c.hidden(), c.heads(71)
    c.divides(n, hidden, "num_attention_heads", "hidden_size")
    new = c.flag("new_decoder_architecture", False)
    if new:
        kv = c.count("num_key_value_heads", lambda: n, high=10**5)
        c.divides(kv, n, "num_kv_heads", "num_attention_heads")
    else:
        kv = 1 if c.flag("multi_query", True) else n
    bias, parallel = c.flag("bias", False), c.flag("parallel_attn", True)
    norms = 2 if not parallel else c.count("num_ln_in_parallel_attn", lambda: 2 if new else 1, high=2)
    mixer = Attention(heads=n, kv_heads=kv, head_dim=hidden // n, qkv_bias=bias, out_bias=bias)
    mlp = Mlp(width=_inner(c, hidden), gated=False, bias=bias, activation=c.word("hidden_act", "gelu"))
    return assemble(
        c, [Block(mixer=mixer, mlp=mlp, norm="layer", norms=norms, parallel=parallel)] * c.layers(),
        vocab=c.vocab(65024), tied_embeddings=c.flag("tie_word_embeddings", True), final_norm="layer",
        max_positions=c.positions(2048),
    )  # fmt: skip


def mpt(c: Config) -> ModelSpec:
    """MPT: ALiBi, no biases anywhere, norms included."""
    hidden = c.hidden()
    mixer = Attention(**head_counts(c, 16, None, None))
    mlp = Mlp(width=4 * hidden, gated=False, activation="gelu")
    return assemble(
        c, [Block(mixer=mixer, mlp=mlp, norm="layer-no-bias")] * c.layers(),
        vocab=c.vocab(50368), tied_embeddings=c.flag("tie_word_embeddings", True), final_norm="layer-no-bias",
        max_positions=c.positions(2048),
    )  # fmt: skip


def biogpt(c: Config) -> ModelSpec:
    """BioGPT (learned positions, offset by two) and XGLM (sinusoidal positions)."""
    xglm = c.family == "xglm"
    mixer = Attention(**head_counts(c, 16, None, None), qkv_bias=True, out_bias=True)
    mlp = Mlp(width=c.width(4096), gated=False, bias=True, activation=c.word("hidden_act", "gelu"))
    positions = c.positions(2048 if xglm else 1024) or 0
    return assemble(
        c, [Block(mixer=mixer, mlp=mlp, norm="layer")] * c.layers(),
        vocab=c.vocab(256008 if xglm else 42384), tied_embeddings=c.flag("tie_word_embeddings", True),
        learned_positions=0 if xglm else positions + 2, final_norm="layer", max_positions=positions,
    )  # fmt: skip


READERS: dict[str, Callable[[Config], ModelSpec]] = {
    "gpt2": gpt2,
    "gpt_bigcode": gpt2,
    "gpt_neo": gpt_neo,
    "gpt_neox": gpt_neox,
    "gptj": gptj,
    "codegen": gptj,
    "bloom": bloom,
    "opt": opt,
    "falcon": falcon,
    "mpt": mpt,
    "biogpt": biogpt,
    "xglm": biogpt,
}
