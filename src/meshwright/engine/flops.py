"""FLOPs per token of a model by part, under a stated convention.

Conventions: attention counted `full` (masked products credited, the MFU convention of PaLM and Megatron) or `causal`
(exact); the head counted, the embedding look-up not; recompute never counted here. Encoder-decoders count one source
token per target token.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from meshwright.engine.params import Part, embedding_width, params_of_block
from meshwright.formulas import flops as f
from meshwright.spec.model import (
    Attention,
    Block,
    LinearAttention,
    Mamba1,
    Mamba2,
    Mixer,
    ModelSpec,
    Moe,
    MultiLatentAttention,
)

Masking = Literal["full", "causal"]
# Parts of `engine.params` that hold no matrix a token is multiplied by.
_NOT_MATRICES = ("out_bias", "qk_norm", "sinks", "extra", "latent_norm", "out_norm", "inner_norms", "shared_bias")


@dataclass(frozen=True, slots=True)
class FlopsPart:
    """Forward FLOPs per token of one part; `kind` is matrix, attention, scan or convolution."""

    name: str
    forward: float
    kind: Literal["matrix", "attention", "scan", "convolution"]


@dataclass(frozen=True, slots=True)
class ModelFlops:
    """FLOPs per token of a model, all layers and the head."""

    forward: float
    attention: float  # the part of `forward` that grows with the sequence
    parts: tuple[FlopsPart, ...]  # summed over layers
    masking: Masking

    @property
    def training(self) -> float:
        """Forward and backward: model FLOPs per token."""
        return float(f.training_flops(self.forward))


def _core(mixer: Mixer | None, seq_len: float, masking: Masking, name: str) -> Iterator[FlopsPart]:
    match mixer:
        case Attention():
            attended = f.attended_causal if masking == "causal" and mixer.causal else f.attended_full
            flops = f.attention_core_flops(
                attended(seq_len, mixer.window), mixer.heads, mixer.head_dim, mixer.v_dim
            )  # fmt: skip
            yield FlopsPart(f"{name}.core", flops, "attention")
        case MultiLatentAttention():
            keys = f.attended_causal(seq_len) if masking == "causal" and mixer.causal else f.attended_full(seq_len)
            flops = f.attention_core_flops(keys, mixer.heads, mixer.qk_dim, mixer.v_dim)
            yield FlopsPart(f"{name}.core", flops, "attention")
        case LinearAttention():
            flops = f.linear_attention_flops(
                mixer.value_heads, mixer.key_dim, mixer.value_dim, mixer.chunk, mixer.delta
            )  # fmt: skip
            yield FlopsPart(f"{name}.scan", flops, "scan")
            if mixer.conv_kernel:
                mixed = 2 * mixer.key_heads * mixer.key_dim + mixer.value_heads * mixer.value_dim
                yield FlopsPart(f"{name}.conv", f.convolution_flops(mixed, mixer.conv_kernel), "convolution")
        case Mamba2():
            flops = f.mamba2_scan_flops(mixer.inner, mixer.state, mixer.groups, mixer.chunk)
            yield FlopsPart(f"{name}.scan", flops, "scan")
            mixed = mixer.inner + 2 * mixer.groups * mixer.state
            yield FlopsPart(f"{name}.conv", f.convolution_flops(mixed, mixer.conv_kernel), "convolution")
        case Mamba1():
            yield FlopsPart(f"{name}.scan", f.mamba1_scan_flops(mixer.inner, mixer.state), "scan")
            yield FlopsPart(f"{name}.conv", f.convolution_flops(mixer.inner, mixer.conv_kernel), "convolution")


def _entries(part: Part, block: Block, hidden: int) -> int:
    """Matrix entries of `part`: what `engine.params` counts, less biases and vectors."""
    mixer = block.mixer if part.group == "mixer" else block.cross
    mlp = block.mlp
    if part.name.endswith((".in", ".down")):
        match mixer:
            case Attention(qkv_bias=True):
                gate = mixer.heads * mixer.v_dim if mixer.output_gate else 0
                keys = 0 if mixer.key_bias is False else mixer.k_width
                return part.params - mixer.q_width - gate - mixer.v_width - keys
            case MultiLatentAttention(bias=True):
                return part.params - (mixer.q_rank or 0) - mixer.kv_rank - mixer.rope_dim
    if part.name == "mixer.in_out":
        return _recurrent_entries(mixer, part.params, hidden)
    if part.name in ("mlp.in_out", "moe.shared") and mlp is not None:
        width, biased = (mlp.shared_width, mlp.shared_bias) if isinstance(mlp, Moe) else (mlp.width, mlp.bias)
        return part.params - (1 + mlp.gated) * width * biased
    if isinstance(mlp, Moe) and part.name == "moe.router":
        return hidden * mlp.experts
    if isinstance(mlp, Moe) and part.name == "moe.experts":
        return mlp.top_k * (2 + mlp.gated) * (mlp.latent or hidden) * mlp.width
    return part.params


def _recurrent_entries(mixer: Mixer | None, params: int, hidden: int) -> int:
    match mixer:
        case Mamba2():
            mixed = mixer.inner + 2 * mixer.groups * mixer.state
            return hidden * (2 * mixer.inner + mixed + mixer.heads)
        case Mamba1():
            return mixer.inner * (3 * hidden + 2 * mixer.dt_rank + 2 * mixer.state)
        case LinearAttention():
            mixed = 2 * mixer.key_heads * mixer.key_dim + mixer.value_heads * mixer.value_dim
            return params - mixer.conv_kernel * mixed - 2 * mixer.value_heads * mixer.decay
    return params


@lru_cache(maxsize=8192)
def flops_of_block(block: Block, hidden: int, seq_len: float, masking: Masking = "full") -> tuple[FlopsPart, ...]:
    """Forward FLOPs per token of `block` by part, for sequences of `seq_len` tokens."""
    parts = [
        FlopsPart(part.name, float(f.linear_flops(_entries(part, block, hidden))), "matrix")
        for part in params_of_block(block, hidden).parts
        if part.group not in ("norms", "extra") and part.name.split(".", 1)[1] not in _NOT_MATRICES
    ]
    parts += _core(block.mixer, seq_len, masking, "mixer")
    parts += _core(block.cross, seq_len, masking, "cross")
    return tuple(parts)


@lru_cache(maxsize=4096)
def model_flops_per_token(
    model: ModelSpec, seq_len: float, *, masking: Masking = "full", head: bool = True, mtp: bool = False
) -> ModelFlops:
    """FLOPs per token of `model` at `seq_len`; `mtp` adds multi-token-prediction modules (each with its own head)."""
    sums: dict[str, FlopsPart] = {}
    counts = [model.count(k) for k in range(len(model.blocks))]
    modules = model.mtp_layers if mtp else 0
    if modules:
        counts[model.pattern[-1]] += modules
    for block, count in zip(model.blocks, counts, strict=True):
        for part in flops_of_block(block, model.hidden, seq_len, masking):
            before = sums.get(part.name)
            forward = part.forward * count + (before.forward if before else 0)
            sums[part.name] = FlopsPart(part.name, forward, part.kind)
    if modules:
        forward = float(modules * f.linear_flops(2 * model.hidden * model.hidden))
        sums["mtp.projection"] = FlopsPart("mtp.projection", forward, "matrix")
    if head and model.has_head:
        forward = float((1 + modules) * f.linear_flops(embedding_width(model) * model.vocab))
        sums["head"] = FlopsPart("head", forward, "matrix")
    for extra in model.extras:
        if extra.flops_per_token:
            sums[extra.name] = FlopsPart(extra.name, float(extra.flops_per_token), "matrix")
    parts = tuple(sums.values())
    return ModelFlops(
        forward=sum(p.forward for p in parts),
        attention=sum(p.forward for p in parts if p.kind == "attention"),
        parts=parts,
        masking=masking,
    )
