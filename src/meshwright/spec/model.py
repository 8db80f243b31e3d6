"""What a model is, as far as planning needs: a stack of blocks, each a mixer and an MLP, with exact widths.

Counts are of the unsharded model. Every optional part that costs parameters is a field, so that
`formulas.params` can be exact to the last parameter.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from meshwright.messages import N_, Text

NormKind = Literal["rms", "layer", "layer-no-bias", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Softmax attention: MHA (`kv_heads == heads`), GQA, MQA (`kv_heads == 1`); sliding when `window` is set."""

    heads: int
    kv_heads: int
    head_dim: int
    v_head_dim: int | None = None
    window: int | None = None
    causal: bool = True
    qkv_bias: bool = False
    out_bias: bool = False
    qk_norm: Literal["none", "head", "full"] = "none"  # head: a vector of head_dim for q and for k; full: all heads
    qk_norm_bias: bool = False
    key_bias: bool | None = None  # where keys differ from queries and values (Whisper: False); None: as qkv_bias
    sinks: bool = False  # one learned logit per head (GPT-OSS)
    output_gate: bool = False  # q projection twice as wide, sigmoid gate on the output (Qwen3-Next)
    extra_params: int = 0  # e.g. T5 relative position table

    @property
    def q_width(self) -> int:
        """Width of the query projection of all heads."""
        return self.heads * self.head_dim

    @property
    def k_width(self) -> int:
        """Width of the key projection of all key/value heads."""
        return self.kv_heads * self.head_dim

    @property
    def v_dim(self) -> int:
        """Per-head width of the values."""
        return self.head_dim if self.v_head_dim is None else self.v_head_dim

    @property
    def v_width(self) -> int:
        """Width of the value projection of all key/value heads."""
        return self.kv_heads * self.v_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiLatentAttention:
    """MLA of DeepSeek-V2/V3: low-rank queries (optional) and a shared key/value latent."""

    heads: int
    q_rank: int | None
    kv_rank: int
    nope_dim: int
    rope_dim: int
    v_dim: int
    causal: bool = True
    bias: bool = False
    extra_params: int = 0  # held whole by every tensor-parallel rank (e.g. the indexer of sparse attention)

    @property
    def qk_dim(self) -> int:
        """Per-head width of queries and keys."""
        return self.nope_dim + self.rope_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearAttention:
    """Linear or gated-delta attention: state of `key_dim × value_dim` per value head, cost linear in sequence."""

    key_heads: int
    key_dim: int
    value_heads: int
    value_dim: int
    conv_kernel: int = 0
    gate: bool = False  # output gate projection as wide as the values
    decay: bool = False  # per-head beta and alpha projections plus A_log and dt_bias (gated delta net)
    out_norm: bool = False
    full_norm: bool = False  # the output norm spans all value heads (lightning attention), not one head
    delta: bool = False  # delta rule (corrects the state before writing): more work per chunk
    chunk: int = 64
    extra_params: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba2:
    """Mamba-2 (state space duality) mixer."""

    inner: int
    state: int
    heads: int
    groups: int
    conv_kernel: int = 4
    chunk: int = 256
    conv_bias: bool = True
    proj_bias: bool = False
    out_bias: bool | None = None  # None: as proj_bias
    gated_norm: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba1:
    """Mamba-1 selective scan mixer (Jamba)."""

    inner: int
    state: int
    dt_rank: int
    conv_kernel: int = 4
    conv_bias: bool = True
    proj_bias: bool = False
    inner_norms: bool = False  # Jamba normalises dt, B and C (weights dt_rank + 2 state)


Mixer: TypeAlias = Attention | MultiLatentAttention | LinearAttention | Mamba2 | Mamba1


@dataclass(frozen=True, slots=True, kw_only=True)
class Mlp:
    """Dense feed-forward: two matrices, or three when `gated` (SwiGLU-like)."""

    width: int
    gated: bool = True
    bias: bool = False
    activation: str = "silu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Moe:
    """Mixture of experts: `top_k` of `experts` MLPs of `width` a token, plus shared experts of total `shared_width`."""

    experts: int
    top_k: int
    width: int
    gated: bool = True
    bias: bool = False
    activation: str = "silu"
    shared_width: int = 0
    shared_count: int = 1  # shared experts that `shared_width` sums over
    shared_bias: bool = False
    shared_gate: bool = False  # hidden→1 gate on the shared expert (Qwen2-MoE)
    router_bias: bool = False
    router_groups: int = 1  # expert groups of node-limited routing
    router_top_groups: int = 1  # groups a token may reach
    latent: int | None = None  # width of the routed experts' input where it is not `hidden`
    extra_params: int = 0  # held whole by every tensor-parallel rank


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One residual layer. `mixer` or `mlp` may be absent (Nemotron-H alternates them)."""

    mixer: Mixer | None
    mlp: Mlp | Moe | None
    cross: Attention | None = None
    norm: NormKind = "rms"
    norms: int = 2  # norms of hidden width inside the block
    parallel: bool = False  # attention and MLP read the same input (GPT-J, Falcon)
    extra_params: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Extra:
    """Parameters outside blocks, embedding and head, e.g. a patch embedding; held by the first or last stage."""

    name: str
    params: int
    where: Literal["first", "last"] = "first"
    flops_per_token: int = 0  # forward


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """A model as planning sees it. `pattern[i]` is the index into `blocks` of layer i."""

    name: str
    family: str
    hidden: int
    vocab: int
    blocks: tuple[Block, ...]
    pattern: tuple[int, ...]
    tied_embeddings: bool = False
    embedding_width: int | None = None  # token embedding width where it is not `hidden`
    learned_positions: int = 0  # rows of a learned position table
    position_width: int | None = None
    embedding_norm: NormKind = "none"
    final_norm: NormKind = "rms"
    has_head: bool = True
    head_bias: bool = False
    encoder_layers: int = 0  # leading layers of `pattern` that form an encoder (T5)
    mtp_layers: int = 0  # multi-token-prediction modules at the end, each one block of the last kind
    max_positions: int | None = None
    extras: tuple[Extra, ...] = ()
    source: str = ""
    basis: str = ""
    notes: tuple[str, ...] = field(default=())
    assumed: tuple[tuple[str, str], ...] = ()  # keys the source left out, and the family default that was taken
    remarks: tuple[Text, ...] = ()  # what else the reader of a plan must know about where the model came from

    @property
    def assumptions(self) -> tuple[Text, ...]:
        """One sentence per default that was filled in."""
        template = N_("model: {key} is not given; assumed {value}, the default of family {family}")
        return (*self.remarks, *(Text(template, key=k, value=v, family=self.family) for k, v in self.assumed))

    @property
    def layers(self) -> int:
        """Number of blocks, multi-token-prediction modules not counted."""
        return len(self.pattern)

    @property
    def is_moe(self) -> bool:
        """Whether any block routes tokens to experts."""
        return any(isinstance(b.mlp, Moe) for b in self.blocks)

    @property
    def moe(self) -> Moe | None:
        """The first mixture-of-experts part, if any."""
        return next((b.mlp for b in self.blocks if isinstance(b.mlp, Moe)), None)

    def count(self, block: int) -> int:
        """How many layers are of block kind `block`."""
        return self.pattern.count(block)

    def __hash__(self) -> int:  # cheap: the hot path asks lru_cache thousands of times; equality stays exact
        return hash(self.name)
