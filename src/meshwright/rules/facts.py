"""Sizes of a model that rules ask for again and again, computed once per model."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from meshwright.formulas import params as formula
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
)


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Distinct sizes over all blocks (empty where the model has none of a kind), and rough weight counts."""

    layers: int
    hidden: int
    vocab: int
    heads: tuple[int, ...]  # softmax attention, MLA and cross attention
    kv_heads: tuple[int, ...]  # MLA has none: its latent is shared
    dense_widths: tuple[int, ...]  # dense and shared-expert MLPs
    experts: tuple[int, ...]
    expert_widths: tuple[int, ...]
    top_k: int
    mamba2: tuple[tuple[int, int], ...]  # heads, groups
    mamba1_widths: tuple[int, ...]
    linear_heads: tuple[int, ...]
    latent_attention: bool
    weights: float  # in matrices; norms, biases and small vectors left out
    expert_weights: float  # the share of `weights` that expert parallelism divides
    active_weights: float  # what one token multiplies with

    @property
    def head_gcd(self) -> int:
        """What tensor parallelism must divide; 0 where there is no softmax attention."""
        return math.gcd(*self.heads)

    @property
    def dense_gcd(self) -> int:
        """Greatest common divisor of the dense MLP widths."""
        return math.gcd(*self.dense_widths)

    @property
    def expert_gcd(self) -> int:
        """Greatest common divisor of the numbers of experts."""
        return math.gcd(*self.experts)


def distinct(values: Iterable[int]) -> tuple[int, ...]:
    """Sorted, each once."""
    return tuple(sorted(set(values)))


def mixer_weights(hidden: int, mixer: Mixer | None) -> float:
    """Weights in the matrices of a token mixer."""
    match mixer:
        case Attention():
            inside = formula.attention_in_params(hidden, mixer.q_width, mixer.k_width, mixer.v_width)
            return inside + formula.attention_out_params(hidden, mixer.heads, mixer.v_dim)
        case MultiLatentAttention(heads=heads, q_rank=q_rank, kv_rank=kv_rank):
            down = formula.mla_down_params(hidden, q_rank or 0, kv_rank, mixer.rope_dim)
            up = formula.mla_up_params(q_rank or hidden, kv_rank, heads, mixer.nope_dim, mixer.rope_dim, mixer.v_dim)
            return down + up + formula.attention_out_params(hidden, heads, mixer.v_dim)
        case LinearAttention():
            keys, values = mixer.key_heads * mixer.key_dim, mixer.value_heads * mixer.value_dim
            return formula.linear_attention_params(hidden, keys, values, mixer.value_heads, gate=mixer.gate)
        case Mamba2():
            return formula.mamba2_params(
                hidden, mixer.inner, mixer.state, mixer.heads, mixer.groups, mixer.conv_kernel, False, False, False
            )
        case Mamba1():
            return formula.mamba1_params(
                hidden, mixer.inner, mixer.state, mixer.dt_rank, mixer.conv_kernel, False, False
            )
    return 0


def block_weights(hidden: int, block: Block) -> tuple[float, float, float]:
    """Weights of a block: outside experts, in all experts, in the experts of one token."""
    outside = mixer_weights(hidden, block.mixer) + mixer_weights(hidden, block.cross)
    mlp = block.mlp
    if isinstance(mlp, Mlp):
        return outside + formula.mlp_params(hidden, mlp.width, mlp.gated), 0, 0
    if isinstance(mlp, Moe):
        outside += hidden * mlp.experts + formula.mlp_params(hidden, mlp.shared_width, mlp.gated)
        every = formula.experts_params(hidden, mlp.experts, mlp.width, mlp.gated)
        return outside, every, every * mlp.top_k / mlp.experts
    return outside, 0, 0


@lru_cache(maxsize=64)
def facts_of(model: ModelSpec) -> ModelFacts:
    """The facts of `model`."""
    mixers = [m for b in model.blocks for m in (b.mixer, b.cross) if m is not None]
    softmax = [m for m in mixers if isinstance(m, Attention)]
    latent = [m for m in mixers if isinstance(m, MultiLatentAttention)]
    state_space = [m for m in mixers if isinstance(m, Mamba2)]
    moes = [b.mlp for b in model.blocks if isinstance(b.mlp, Moe)]
    dense = [b.mlp.width for b in model.blocks if isinstance(b.mlp, Mlp)] + [m.shared_width for m in moes]
    counted = [(model.count(i), block_weights(model.hidden, b)) for i, b in enumerate(model.blocks)]
    tables = model.vocab * model.hidden * (1 if model.tied_embeddings or not model.has_head else 2)
    outside = sum(n * w[0] for n, w in counted) + tables
    experts = sum(n * w[1] for n, w in counted)
    head = model.vocab * model.hidden * model.has_head
    return ModelFacts(
        layers=model.layers,
        hidden=model.hidden,
        vocab=model.vocab,
        heads=distinct([m.heads for m in softmax] + [m.heads for m in latent]),
        kv_heads=distinct(m.kv_heads for m in softmax),
        dense_widths=distinct(w for w in dense if w),
        experts=distinct(m.experts for m in moes),
        expert_widths=distinct(m.width for m in moes),
        top_k=max((m.top_k for m in moes), default=0),
        mamba2=tuple(sorted({(m.heads, m.groups) for m in state_space})),
        mamba1_widths=distinct(m.inner for m in mixers if isinstance(m, Mamba1)),
        linear_heads=distinct(
            h for m in mixers if isinstance(m, LinearAttention) for h in (m.key_heads, m.value_heads)
        ),
        latent_attention=bool(latent),
        weights=outside + experts,
        expert_weights=experts,
        active_weights=outside - tables + head + sum(n * w[2] for n, w in counted),
    )
