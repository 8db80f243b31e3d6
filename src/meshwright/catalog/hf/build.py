"""What readers of families share: attention heads, windows by layer, experts, and putting a ModelSpec together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from meshwright.catalog.hf.view import Config, Default
from meshwright.messages import N_, Text
from meshwright.spec.model import Attention, Block, ModelSpec, Moe

SLIDING = ("sliding_attention", "chunked_attention", "local", "swa")
LINEAR = ("linear_attention", "mamba", "mamba2", "lightning_attention")


def head_counts(c: Config, heads: int, kv: int | None, head_dim: int | None) -> dict[str, Any]:
    """Query heads, key/value heads and head width. `kv` None: as many as query heads; `head_dim` None: hidden/heads."""
    hidden, n = c.hidden(), c.heads(heads)
    kv_default: Default = (lambda: n) if kv is None else kv
    if c.raw("num_key_value_heads") is None and c.has("num_key_value_heads"):
        kv_default = lambda: n  # noqa: E731  an explicit null means multi-head
    groups = c.count("num_key_value_heads", kv_default, high=10**5)
    c.divides(groups, n, "num_key_value_heads", "num_attention_heads")

    def derived() -> int:
        c.divides(n, hidden, "num_attention_heads", "hidden_size")
        return hidden // n

    dim_default: Default = derived if head_dim is None or c.has("head_dim") else head_dim
    return {"heads": n, "kv_heads": groups, "head_dim": c.count("head_dim", dim_default, high=10**5)}


def windows(c: Config, layers: int, window: int | None, every: int = 0) -> list[int | None]:
    """Window of each layer: from `layer_types` where given, else every layer but each `every`-th (0: all, 1: none)."""
    kinds = c.words("layer_types", layers)
    if window is None:
        return [None] * layers
    if kinds is not None:
        return [window if kind in SLIDING else None for kind in kinds]
    return [None if every and (i + 1) % every == 0 else window for i in range(layers)]


def experts(c: Config, *, count: Default, top_k: Default, width: Default, width_key: str = "moe_intermediate_size",
            shared: int = 0, **more: Any) -> Moe:  # fmt: skip
    """The routed part of a mixture of experts."""
    total = c.count("num_experts", count, high=10**5)
    chosen = c.count("num_experts_per_tok", top_k, high=10**5)
    if chosen > total:
        c.fail(
            c.spelled("num_experts_per_tok"),
            Text(N_("a token cannot visit {top_k} of {experts} experts"), top_k=chosen, experts=total),
            Text(N_("use at most {experts}"), experts=total),
        )
    return Moe(experts=total, top_k=chosen, width=c.count(width_key, width), shared_width=shared, **more)


def routing_groups(c: Config, groups: int | None, top: int | None) -> dict[str, Any]:
    """Groups of node-limited routing (DeepSeek) as fields of Moe."""
    n = c.count("n_group", groups, high=10**5) if groups or c.raw("n_group") else 1
    k = c.count("topk_group", top, high=10**5) if top or c.raw("topk_group") else 1
    return {"router_groups": n, "router_top_groups": min(k, n)}


def assemble(c: Config, blocks: Sequence[Block], **fields: Any) -> ModelSpec:
    """A ModelSpec from one Block per layer (equal ones become one kind)."""
    kinds = tuple(dict.fromkeys(blocks))
    index = {block: i for i, block in enumerate(kinds)}
    fields.setdefault("vocab", 0)
    return ModelSpec(
        name=c.data.get("_name_or_path") or c.family if isinstance(c.data.get("_name_or_path", ""), str) else c.family,
        family=c.family,
        hidden=c.hidden(),
        blocks=kinds,
        pattern=tuple(index[block] for block in blocks),
        assumed=tuple((key, _shown(value)) for key, value in c.assumed.items()),
        **fields,
    )


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)


def with_windows(attention: dict[str, Any], spans: Sequence[int | None]) -> list[Attention]:
    """One Attention per layer, alike but for the window."""
    return [Attention(window=span, **attention) for span in spans]
