"""Multi-head latent attention: DeepSeek-V2 and V3, and the families that took it over (Kimi-K2, GLM-4 MoE Lite)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from meshwright.catalog.hf.build import assemble, experts, routing_groups
from meshwright.catalog.hf.view import Config
from meshwright.spec.model import Block, Mlp, ModelSpec, MultiLatentAttention


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """Defaults of a family's class."""

    vocab: int
    heads: int
    width: int
    moe_width: int
    experts: int
    top_k: int | None
    shared: int
    q_rank: int | None = 1536
    nope: int = 128
    v: int = 128
    groups: int | None = None
    top_groups: int | None = None
    dense: int = 0
    mtp: int = 0
    positions: int = 4096


V3 = Defaults(
    vocab=129280, heads=128, width=18432, moe_width=2048, experts=256, top_k=8, shared=1, groups=8, top_groups=4,
    dense=3, mtp=1,
)  # fmt: skip
FAMILIES: dict[str, Defaults] = {
    "deepseek_v2": Defaults(vocab=102400, heads=32, width=11008, moe_width=1407, experts=64, top_k=None, shared=2,
                            positions=2048),
    "deepseek_v3": V3,
    "kimi_k2": V3,
    "glm4_moe_lite": Defaults(
        vocab=154880, heads=20, width=10240, moe_width=1536, experts=64, top_k=4, shared=1, q_rank=768, nope=192, v=256,
        groups=1, top_groups=1, dense=1, positions=202752,
    ),
}  # fmt: skip


def read(c: Config) -> ModelSpec:
    """A model with latent attention, dense leading layers and routed ones after them."""
    d = FAMILIES[c.family]
    layers = c.layers()
    mixer = MultiLatentAttention(
        heads=c.heads(d.heads),
        q_rank=c.count("q_lora_rank", d.q_rank, nullable=True),
        kv_rank=c.count("kv_lora_rank", 512),
        nope_dim=c.count("qk_nope_head_dim", d.nope),
        rope_dim=c.count("qk_rope_head_dim", 64),
        v_dim=c.count("v_head_dim", d.v),
        bias=c.flag("attention_bias", False),
    )
    bias = c.flag("mlp_bias", lambda: False) if c.family == "deepseek_v2" else False
    activation = c.word("hidden_act", "silu")
    first = c.count("first_k_dense_replace", d.dense, low=0)
    kinds = c.words("mlp_layer_types", layers) or ["dense" if i < first else "sparse" for i in range(layers)]
    dense = Mlp(width=c.width(d.width), bias=bias, activation=activation)
    blocks: dict[str, Block] = {"dense": Block(mixer=mixer, mlp=dense)}
    if any(kind != "dense" for kind in kinds):
        wide = c.count("moe_intermediate_size", c.essential(d.moe_width))
        moe = experts(
            c, count=c.essential(d.experts), top_k=c.essential(d.top_k or 1), width=wide,
            shared=c.count("n_shared_experts", lambda: d.shared, low=0) * wide, activation=activation,
            **routing_groups(c, d.groups, d.top_groups),
        )  # fmt: skip
        blocks["sparse"] = Block(mixer=mixer, mlp=moe)
    return assemble(
        c, [blocks["dense" if kind == "dense" else "sparse"] for kind in kinds],
        vocab=c.vocab(d.vocab), tied_embeddings=c.flag("tie_word_embeddings", False),
        mtp_layers=c.count("num_nextn_predict_layers", d.mtp or (lambda: 0), low=0, high=100),
        max_positions=c.positions(d.positions),
    )  # fmt: skip


READERS: dict[str, Callable[[Config], ModelSpec]] = dict.fromkeys(FAMILIES, read)
