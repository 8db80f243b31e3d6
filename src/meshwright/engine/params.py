"""Parameters of a model by block and by part, with the way each part is split.

`tensor`: divided by tensor parallelism; `replicated`: whole on every tensor-parallel rank; `expert`: divided by
expert parallelism and expert tensor parallelism. Exact to the last parameter for every block kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from meshwright.formulas import params as f
from meshwright.spec.model import (
    Attention,
    Block,
    LinearAttention,
    Mamba1,
    Mamba2,
    Mixer,
    Mlp,
    ModelSpec,
    Moe,
    MultiLatentAttention,
    NormKind,
)

Split = Literal["tensor", "replicated", "expert"]
NORM_VECTORS: dict[NormKind, int] = {"rms": 1, "layer": 2, "layer-no-bias": 1, "none": 0}


@dataclass(frozen=True, slots=True)
class Part:
    """A named group of parameters of a block that are split the same way."""

    name: str  # e.g. mixer.in, mixer.out, mlp.in_out, moe.experts, norms
    params: int
    split: Split

    @property
    def group(self) -> str:
        """mixer, cross, mlp, moe, norms or extra."""
        return self.name.split(".", 1)[0]


@dataclass(frozen=True, slots=True)
class BlockParams:
    """Parameters of one block: how they split, and by name."""

    tensor_sharded: int
    replicated: int
    expert: int  # all experts
    expert_active: int  # the experts one token visits
    parts: tuple[Part, ...]

    @property
    def total(self) -> int:
        """All parameters."""
        return self.tensor_sharded + self.replicated + self.expert

    @property
    def active(self) -> int:
        """Parameters one token uses."""
        return self.tensor_sharded + self.replicated + self.expert_active

    def group(self, name: str) -> int:
        """Parameters of the parts of group `name` (mixer, cross, mlp, moe, norms, extra)."""
        return sum(p.params for p in self.parts if p.group == name)


@dataclass(frozen=True, slots=True)
class ModelParams:
    """Parameters of a whole model. `total` leaves multi-token prediction out, as published totals do."""

    total: int
    active: int
    embedding: int  # token table
    positions: int
    embedding_norm: int
    head: int  # own matrix of the head: 0 when tied
    head_matrix: int  # matrix the head multiplies by, tied or not
    head_bias: int
    final_norm: int
    extra_first: int
    extra_last: int
    blocks: tuple[BlockParams, ...]  # one per block kind
    mtp: int
    mtp_active: int

    @property
    def total_with_mtp(self) -> int:
        """All trainable parameters while multi-token prediction is trained."""
        return self.total + self.mtp

    @property
    def first(self) -> int:
        """Parameters that live with the first pipeline stage besides its blocks."""
        return self.embedding + self.positions + self.embedding_norm + self.extra_first

    @property
    def last(self) -> int:
        """Parameters that live with the last pipeline stage besides its blocks (a tied head is a copy there)."""
        return self.head + self.head_bias + self.final_norm + self.extra_last

    @property
    def non_embedding(self) -> int:
        """Total without token table, positions and head."""
        return self.total - self.embedding - self.positions - self.head


def _attention(a: Attention, hidden: int, name: str) -> Iterator[Part]:
    gate = a.heads * a.v_dim if a.output_gate else 0
    weights = f.attention_in_params(hidden, a.q_width, a.k_width, a.v_width, gate, a.qkv_bias, a.key_bias)
    yield Part(f"{name}.in", weights, "tensor")
    yield Part(f"{name}.out", f.attention_out_params(hidden, a.heads, a.v_dim), "tensor")
    if a.out_bias:
        yield Part(f"{name}.out_bias", hidden, "replicated")
    vectors = 2 if a.qk_norm_bias else 1
    if a.qk_norm == "head":
        yield Part(f"{name}.qk_norm", f.norm_params(2 * a.head_dim, vectors), "replicated")
    elif a.qk_norm == "full":
        yield Part(f"{name}.qk_norm", f.norm_params(a.q_width + a.k_width, vectors), "tensor")
    if a.sinks:
        yield Part(f"{name}.sinks", a.heads, "tensor")
    if a.extra_params:
        yield Part(f"{name}.extra", a.extra_params, "replicated")


def _latent(a: MultiLatentAttention, hidden: int, name: str) -> Iterator[Part]:
    rank = a.q_rank or 0
    yield Part(f"{name}.down", f.mla_down_params(hidden, rank, a.kv_rank, a.rope_dim, a.bias), "replicated")
    yield Part(f"{name}.latent_norm", f.norm_params(rank + a.kv_rank), "replicated")
    up = f.mla_up_params(a.q_rank or hidden, a.kv_rank, a.heads, a.nope_dim, a.rope_dim, a.v_dim)
    yield Part(f"{name}.up", up, "tensor")
    yield Part(f"{name}.out", f.attention_out_params(hidden, a.heads, a.v_dim), "tensor")
    if a.bias:
        yield Part(f"{name}.out_bias", hidden, "replicated")
    if a.extra_params:
        yield Part(f"{name}.extra", a.extra_params, "replicated")


def _linear(a: LinearAttention, hidden: int, name: str) -> Iterator[Part]:
    keys, values = a.key_heads * a.key_dim, a.value_heads * a.value_dim
    weights = f.linear_attention_params(hidden, keys, values, a.value_heads, a.conv_kernel, a.gate, a.decay)
    yield Part(f"{name}.in_out", weights, "tensor")
    if a.full_norm:
        yield Part(f"{name}.out_norm", f.norm_params(values), "tensor")
    elif a.out_norm:
        yield Part(f"{name}.out_norm", f.norm_params(a.value_dim), "replicated")
    if a.extra_params:
        yield Part(f"{name}.extra", a.extra_params, "replicated")


def _mamba2(m: Mamba2, hidden: int, name: str) -> Iterator[Part]:
    weights = f.mamba2_params(
        hidden, m.inner, m.state, m.heads, m.groups, m.conv_kernel, m.conv_bias, m.proj_bias, m.gated_norm
    )
    yield Part(f"{name}.in_out", weights, "tensor")
    if m.proj_bias if m.out_bias is None else m.out_bias:
        yield Part(f"{name}.out_bias", hidden, "replicated")


def _mamba1(m: Mamba1, hidden: int, name: str) -> Iterator[Part]:
    weights = f.mamba1_params(hidden, m.inner, m.state, m.dt_rank, m.conv_kernel, m.conv_bias, m.proj_bias)
    yield Part(f"{name}.in_out", weights, "tensor")
    if m.proj_bias:
        yield Part(f"{name}.out_bias", hidden, "replicated")
    if m.inner_norms:
        yield Part(f"{name}.inner_norms", f.norm_params(m.dt_rank + 2 * m.state), "replicated")


def mixer_parts(mixer: Mixer | None, hidden: int, name: str = "mixer") -> Iterator[Part]:
    """The parts of a mixer of any kind."""
    match mixer:
        case Attention():
            yield from _attention(mixer, hidden, name)
        case MultiLatentAttention():
            yield from _latent(mixer, hidden, name)
        case LinearAttention():
            yield from _linear(mixer, hidden, name)
        case Mamba2():
            yield from _mamba2(mixer, hidden, name)
        case Mamba1():
            yield from _mamba1(mixer, hidden, name)


def mlp_parts(mlp: Mlp | Moe | None, hidden: int) -> Iterator[Part]:
    """The parts of a dense MLP or of a mixture of experts (router, shared expert, experts)."""
    match mlp:
        case Mlp():
            yield Part("mlp.in_out", f.mlp_params(hidden, mlp.width, mlp.gated, mlp.bias), "tensor")
            if mlp.bias:
                yield Part("mlp.out_bias", hidden, "replicated")
        case Moe():
            yield Part("moe.router", f.linear_params(hidden, mlp.experts, mlp.router_bias), "replicated")
            if mlp.shared_width:
                yield Part("moe.shared", f.mlp_params(hidden, mlp.shared_width, mlp.gated, mlp.shared_bias), "tensor")
                if mlp.shared_bias:
                    yield Part("moe.shared_bias", hidden * mlp.shared_count, "replicated")
            if mlp.shared_gate:
                yield Part("moe.shared_gate", hidden, "replicated")
            inner = mlp.latent or hidden
            if mlp.latent:
                yield Part("moe.latent", 2 * f.linear_params(hidden, mlp.latent), "replicated")
            experts = f.experts_params(inner, mlp.experts, mlp.width, mlp.gated, mlp.bias)
            yield Part("moe.experts", experts, "expert")
            if mlp.extra_params:
                yield Part("moe.extra", mlp.extra_params, "replicated")


def _block_parts(block: Block, hidden: int) -> Iterator[Part]:
    yield from mixer_parts(block.mixer, hidden)
    yield from mixer_parts(block.cross, hidden, "cross")
    yield from mlp_parts(block.mlp, hidden)
    norms = f.norm_params(hidden, block.norms * NORM_VECTORS[block.norm])
    if norms:
        yield Part("norms.hidden", norms, "replicated")
    if block.extra_params:
        yield Part("extra.block", block.extra_params, "replicated")


@lru_cache(maxsize=4096)
def params_of_block(block: Block, hidden: int) -> BlockParams:
    """Parameters of `block` at model width `hidden`."""
    parts = tuple(p for p in _block_parts(block, hidden) if p.params)
    split = {kind: sum(p.params for p in parts if p.split == kind) for kind in ("tensor", "replicated", "expert")}
    active = 0
    if isinstance(block.mlp, Moe):
        m = block.mlp
        active = f.experts_params(m.latent or hidden, m.top_k, m.width, m.gated, m.bias)
    return BlockParams(split["tensor"], split["replicated"], split["expert"], active, parts)


def block_params(model: ModelSpec, block: int | Block) -> BlockParams:
    """Parameters of one block of `model`: a block, or the index of a block kind."""
    return params_of_block(model.blocks[block] if isinstance(block, int) else block, model.hidden)


def embedding_width(model: ModelSpec) -> int:
    """Width of the token embedding."""
    return model.hidden if model.embedding_width is None else model.embedding_width


@lru_cache(maxsize=1024)
def model_params(model: ModelSpec) -> ModelParams:
    """Parameters of `model`: total, active per token, and every part."""
    width = embedding_width(model)
    kinds = tuple(params_of_block(b, model.hidden) for b in model.blocks)
    table = f.linear_params(model.vocab, width)
    positions = f.linear_params(model.learned_positions, model.position_width or model.hidden)
    embedding_norm = f.norm_params(width, NORM_VECTORS[model.embedding_norm])
    head = table if model.has_head and not model.tied_embeddings else 0
    head_bias = model.vocab if model.has_head and model.head_bias else 0
    final_norm = f.norm_params(model.hidden, NORM_VECTORS[model.final_norm])
    first = sum(e.params for e in model.extras if e.where == "first")
    last = sum(e.params for e in model.extras if e.where == "last")
    outside = table + positions + embedding_norm + head + head_bias + final_norm + first + last
    mtp_kind = kinds[model.pattern[-1]] if model.mtp_layers else None
    own = f.mtp_params(model.hidden)
    return ModelParams(
        total=outside + sum(kinds[k].total for k in model.pattern),
        active=outside + sum(kinds[k].active for k in model.pattern),
        embedding=table,
        positions=positions,
        embedding_norm=embedding_norm,
        head=head,
        head_matrix=table if model.has_head else 0,
        head_bias=head_bias,
        final_norm=final_norm,
        extra_first=first,
        extra_last=last,
        blocks=kinds,
        mtp=model.mtp_layers * (mtp_kind.total + own) if mtp_kind else 0,
        mtp_active=model.mtp_layers * (mtp_kind.active + own) if mtp_kind else 0,
    )
