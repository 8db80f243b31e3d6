"""The model that Megatron's arguments describe."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from meshwright.messages import N_, Text
from meshwright.spec.model import Attention, Block, Mlp, ModelSpec, Moe, MultiLatentAttention, NormKind

# Vocabularies that a tokenizer's name fixes.
VOCABULARIES = {"GPT2BPETokenizer": 50257}
MOST = 100_000  # layers
Values = Mapping[str, Any]


def model_of(values: Values, assumed: list[Text]) -> ModelSpec | None:
    """The model, or None where layers, width, heads or vocabulary are not given."""
    layers, hidden, heads = (values.get(n) for n in ("--num-layers", "--hidden-size", "--num-attention-heads"))
    vocab = values.get("--padded-vocab-size") or values.get("--vocab-size")
    vocab = vocab or VOCABULARIES.get(str(values.get("--tokenizer-type")))
    if not (layers and hidden and heads and vocab) or layers > MOST or hidden < heads:
        return None
    norm: NormKind = "rms" if values.get("--normalization") == "RMSNorm" else "layer"
    mixer = _mixer(values, hidden, heads)
    pattern = moe_layers(values, layers)
    dense = Block(mixer=mixer, mlp=_mlp(values, hidden), norm=norm)
    blocks = [dense] if not all(pattern) else []
    if any(pattern):
        blocks.append(Block(mixer=mixer, mlp=_moe(values, hidden), norm=norm))
    kind = values.get("--position-embedding-type", "learned_absolute")
    learned = kind == "learned_absolute" and not values.get("--use-rotary-position-embeddings")
    assumed.append(Text(N_("the model is the one that the arguments describe: {layers} layers of {hidden}"),
                        layers=layers, hidden=hidden))  # fmt: skip
    return ModelSpec(
        name="megatron-arguments", family="megatron", hidden=hidden, vocab=vocab, blocks=tuple(blocks),
        pattern=tuple(len(blocks) - 1 if sparse else 0 for sparse in pattern),
        tied_embeddings=not values.get("--untie-embeddings-and-output-weights"),
        learned_positions=(values.get("--max-position-embeddings") or 0) if learned else 0, final_norm=norm,
        mtp_layers=values.get("--mtp-num-layers") or 0, max_positions=values.get("--max-position-embeddings"),
        source="arguments of Megatron-LM",
    )  # fmt: skip


def _mixer(values: Values, hidden: int, heads: int) -> Attention | MultiLatentAttention:
    bias = not values.get("--disable-bias-linear")
    if values.get("--multi-latent-attention"):
        return MultiLatentAttention(
            heads=heads, q_rank=values.get("--q-lora-rank"), kv_rank=values.get("--kv-lora-rank") or 32,
            nope_dim=values.get("--qk-head-dim") or 128, rope_dim=values.get("--qk-pos-emb-head-dim") or 64,
            v_dim=values.get("--v-head-dim") or 128, bias=bias,
        )  # fmt: skip
    grouped = values.get("--group-query-attention")
    return Attention(
        heads=heads, kv_heads=(values.get("--num-query-groups") or 1) if grouped else heads,
        head_dim=values.get("--kv-channels") or hidden // heads, qkv_bias=bias or bool(values.get("--add-qkv-bias")),
        out_bias=bias, qk_norm="head" if values.get("--qk-layernorm") else "none",
    )  # fmt: skip


def _gated(values: Values) -> bool:
    return bool(values.get("--swiglu") or values.get("--quick-geglu"))


def ffn_width(values: Values, hidden: int) -> int:
    """Width of the MLP; Megatron's default is 4 h, and two thirds of it in multiples of 64 where it is gated."""
    given = values.get("--ffn-hidden-size")
    return int(given) if given else int(8 * hidden / 3 / 64) * 64 if values.get("--swiglu") else 4 * hidden


def _mlp(values: Values, hidden: int) -> Mlp:
    activation = "silu" if values.get("--swiglu") else "gelu"
    bias = not values.get("--disable-bias-linear")
    return Mlp(width=ffn_width(values, hidden), gated=_gated(values), bias=bias, activation=activation)


def _moe(values: Values, hidden: int) -> Moe:
    experts = values["--num-experts"]
    return Moe(
        experts=experts, top_k=min(values.get("--moe-router-topk") or 2, experts),
        width=values.get("--moe-ffn-hidden-size") or ffn_width(values, hidden), gated=_gated(values),
        bias=not values.get("--disable-bias-linear"),
        activation="silu" if values.get("--swiglu") else "gelu",
        shared_width=values.get("--moe-shared-expert-intermediate-size") or 0,
        router_groups=values.get("--moe-router-num-groups") or 1,
        router_top_groups=values.get("--moe-router-group-topk") or 1,
    )  # fmt: skip


def moe_layers(values: Values, layers: int) -> list[bool]:
    """Which layers have experts: every n-th, or a pattern such as `([0]*3+[1]*58)`."""
    if not values.get("--num-experts"):
        return [False] * layers
    said = str(values.get("--moe-layer-freq") or 1).strip()
    if said.isdecimal() and int(said[:6]) > 0:
        return [index % int(said[:6]) == 0 for index in range(layers)]
    pattern = list_sum(said)
    return [bool(item) for item in pattern] if pattern and len(pattern) == layers else [True] * layers


def list_sum(text: str) -> list[int] | None:
    """A sum and product of lists of whole numbers, which Megatron evaluates as Python; here it is only read."""
    if len(text) > 5000:
        return None
    try:
        found = _part(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return found if isinstance(found, list) else None


def _part(node: ast.AST) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and 0 <= node.value <= MOST:
        return node.value
    if isinstance(node, ast.List):
        items = [_part(item) for item in node.elts]
        return items if all(isinstance(item, int) for item in items) else None
    if isinstance(node, ast.BinOp):
        left, right = _part(node.left), _part(node.right)
        if isinstance(node.op, ast.Add) and isinstance(left, list) and isinstance(right, list):
            return left + right
        if isinstance(node.op, ast.Mult) and isinstance(left, list) and isinstance(right, int):
            return left * right if len(left) * right <= MOST else None
        if isinstance(node.op, ast.Mult) and isinstance(left, int) and isinstance(right, list):
            return right * left if len(right) * left <= MOST else None
    return None
