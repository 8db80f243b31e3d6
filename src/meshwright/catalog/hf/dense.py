"""Dense decoders that differ from Llama only by a few switches: one Recipe per family.

A recipe holds the defaults of the family's class in transformers 5.24 and the switches of its modelling code.
A switch is a constant, or `(key, default)` where the config decides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from meshwright.catalog.hf.build import assemble, head_counts, windows
from meshwright.catalog.hf.view import Config
from meshwright.spec.model import Attention, Block, Mlp, ModelSpec, NormKind

Switch = bool | tuple[str, bool]
NONE: Switch = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Defaults and switches of one family."""

    vocab: int
    heads: int
    width: int
    kv: int | None = None
    head_dim: int | None = None
    positions: int = 2048
    activation: str = "silu"
    gated: bool = True
    norm: NormKind = "rms"
    norms: int = 2
    parallel: bool = False
    tied: bool = False
    qkv_bias: Switch = False
    out_bias: Switch = False
    mlp_bias: Switch = False
    head_bias: Switch = False
    qk_norm: Literal["none", "head", "full"] = "none"
    qk_norm_if: Switch = True  # where the config switches `qk_norm` on
    qk_norm_bias: bool = False
    window: int | None = None  # default of `sliding_window`
    window_if: Switch = True
    every: int = 0  # each `every`-th layer attends in full
    every_key: str = ""  # where the config says so
    block_extra: int = 0


ATTENTION = ("attention_bias", False)
MLP = ("mlp_bias", False)
LLAMA = Recipe(vocab=32000, heads=32, width=11008, qkv_bias=ATTENTION, out_bias=ATTENTION, mlp_bias=MLP)
BIASED = Recipe(
    vocab=51200, heads=32, width=8192, activation="gelu_new", gated=False, norm="layer",
    qkv_bias=True, out_bias=True, mlp_bias=True,
)  # fmt: skip
QWEN2 = Recipe(
    vocab=151936, heads=32, kv=32, width=22016, positions=32768, qkv_bias=True,
    window=4096, window_if=("use_sliding_window", False),
)  # fmt: skip
GEMMA = Recipe(
    vocab=256000, heads=16, kv=16, head_dim=256, width=24576, positions=8192, activation="gelu_pytorch_tanh", tied=True,
    qkv_bias=ATTENTION, out_bias=ATTENTION,
)  # fmt: skip
COHERE = Recipe(
    vocab=256000, heads=64, width=22528, positions=8192, norm="layer-no-bias", norms=1, parallel=True, tied=True,
    qkv_bias=ATTENTION, out_bias=ATTENTION,
)  # fmt: skip
OLMO2 = replace(LLAMA, vocab=50304, mlp_bias=NONE, qk_norm="full")

RECIPES: dict[str, Recipe] = {
    "llama": LLAMA,
    "granite": LLAMA,
    "mistral": Recipe(vocab=32000, heads=32, kv=8, width=14336, positions=131072, window=4096),
    "ministral3": Recipe(vocab=131072, heads=32, kv=8, head_dim=128, width=14336, positions=262144),
    "qwen2": QWEN2,
    "qwen3": replace(QWEN2, head_dim=128, qkv_bias=ATTENTION, out_bias=ATTENTION, qk_norm="head"),
    "gemma": GEMMA,
    "gemma2": replace(GEMMA, heads=8, kv=4, width=9216, norms=4, window=4096, every=2),
    "gemma3_text": replace(
        GEMMA, vocab=262208, heads=8, kv=4, width=9216, positions=131072, norms=4, qk_norm="head", window=4096,
        every=6, every_key="sliding_window_pattern",
    ),
    "phi": replace(BIASED, norms=1, parallel=True, head_bias=True, qk_norm="head", qk_norm_if=("qk_layernorm", False),
                   qk_norm_bias=True),
    "phi3": Recipe(vocab=32064, heads=32, width=8192, positions=4096),
    "olmo": replace(LLAMA, vocab=50304, mlp_bias=NONE, norm="none"),
    "olmo2": OLMO2,
    "olmo3": replace(OLMO2, window=4096, every=4),
    "cohere": replace(COHERE, qk_norm="full", qk_norm_if=("use_qk_norm", False)),
    "cohere2": replace(COHERE, window=4096, every=4, every_key="sliding_window_pattern"),
    "stablelm": Recipe(
        vocab=50304, heads=32, kv=32, width=6912, positions=4096, norm="layer", qkv_bias=("use_qkv_bias", False),
        qk_norm="full", qk_norm_if=("qk_layernorm", False),
    ),
    "starcoder2": Recipe(
        vocab=49152, heads=24, kv=2, width=12288, positions=4096, activation="gelu_pytorch_tanh", gated=False,
        norm="layer", tied=True, qkv_bias=("use_bias", True), out_bias=("use_bias", True), mlp_bias=("use_bias", True),
    ),
    "nemotron": Recipe(
        vocab=256000, heads=48, width=24576, positions=4096, activation="relu2", gated=False, norm="layer",
        qkv_bias=ATTENTION, out_bias=ATTENTION, mlp_bias=MLP,
    ),
    "glm": Recipe(vocab=151552, heads=32, kv=2, head_dim=128, width=13696, positions=131072,
                  qkv_bias=("attention_bias", True)),
    "glm4": Recipe(vocab=151552, heads=32, kv=2, head_dim=128, width=13696, positions=131072, norms=4,
                   qkv_bias=("attention_bias", True)),
    "exaone4": Recipe(vocab=102400, heads=32, kv=32, width=16384, qk_norm="head", window=4096, every=4,
                      every_key="sliding_window_pattern"),
    "ernie4_5": Recipe(
        vocab=103424, heads=16, kv=2, head_dim=128, width=3072, positions=131072, tied=True,
        qkv_bias=("use_bias", False), out_bias=("use_bias", False), mlp_bias=("use_bias", False),
    ),
    "smollm3": Recipe(
        vocab=128256, heads=16, kv=4, width=11008, positions=32768, tied=True, qkv_bias=ATTENTION, out_bias=ATTENTION,
        mlp_bias=MLP, window=4096, window_if=("use_sliding_window", False),
    ),
    "seed_oss": Recipe(
        vocab=155136, heads=80, kv=8, head_dim=128, width=27648, positions=524288, qkv_bias=("attention_bias", True),
        out_bias=("attention_out_bias", False), mlp_bias=MLP,
    ),
    "arcee": replace(LLAMA, width=18432, positions=4096, activation="relu2", gated=False),
    "helium": Recipe(vocab=48000, heads=20, kv=20, head_dim=128, width=7040, positions=4096, qkv_bias=ATTENTION,
                     mlp_bias=MLP),
    "persimmon": Recipe(
        vocab=262144, heads=64, width=16384, positions=16384, activation="relu2", gated=False, norm="layer",
        qkv_bias=True, out_bias=True, mlp_bias=True, qk_norm="head", qk_norm_if=("qk_layernorm", True),
        qk_norm_bias=True,
    ),
    "hunyuan_v1_dense": replace(LLAMA, vocab=290943, mlp_bias=NONE, qk_norm="head"),
    "apertus": Recipe(
        vocab=131072, heads=32, width=14336, positions=65536, activation="xielu", gated=False, qkv_bias=ATTENTION,
        out_bias=ATTENTION, qk_norm="head", block_extra=2,
    ),
}  # fmt: skip


def _on(c: Config, switch: Switch) -> bool:
    return switch if isinstance(switch, bool) else c.flag(*switch)


def _windows(c: Config, r: Recipe, layers: int) -> list[int | None]:
    if r.window is None and c.raw("sliding_window") is None:
        return [None] * layers
    if not _on(c, r.window_if):
        return [None] * layers
    window = c.count("sliding_window", r.window, high=10**9, nullable=True)
    every = c.count(r.every_key, lambda: r.every, high=1000) if r.every_key else r.every
    spans = windows(c, layers, window, every)
    if c.has("max_window_layers") and c.raw("layer_types") is None:  # Qwen: the layers below keep full attention
        full = c.count("max_window_layers", 0, low=0)
        spans = [span if i >= full else None for i, span in enumerate(spans)]
    return spans


def read(c: Config, recipe: Recipe | None = None) -> ModelSpec:
    """A dense decoder by its family's recipe."""
    r = recipe or RECIPES[c.family]
    layers = c.layers()
    attention: dict[str, Any] = {
        **head_counts(c, r.heads, r.kv, r.head_dim),
        "qkv_bias": _on(c, r.qkv_bias),
        "out_bias": _on(c, r.out_bias),
        "qk_norm": r.qk_norm if r.qk_norm != "none" and _on(c, r.qk_norm_if) else "none",
        "qk_norm_bias": r.qk_norm_bias,
    }
    mlp = Mlp(
        width=c.width(r.width), gated=r.gated, bias=_on(c, r.mlp_bias), activation=c.word("hidden_act", r.activation)
    )
    parallel = r.parallel
    norms = r.norms
    if c.family == "stablelm" and c.flag("use_parallel_residual", False):
        parallel, norms = True, 1
    blocks = [
        Block(mixer=Attention(window=span, **attention), mlp=mlp, norm=r.norm, norms=norms, parallel=parallel,
              extra_params=r.block_extra)
        for span in _windows(c, r, layers)
    ]  # fmt: skip
    return assemble(
        c, blocks,
        vocab=c.vocab(r.vocab),
        tied_embeddings=c.flag("tie_word_embeddings", r.tied),
        final_norm=r.norm,
        head_bias=_on(c, r.head_bias),
        max_positions=c.positions(r.positions),
    )  # fmt: skip


READERS: dict[str, Callable[[Config], ModelSpec]] = dict.fromkeys(RECIPES, read)
