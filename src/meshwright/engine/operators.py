"""One walk over a block: every operator with its shape, every tensor kept for the backward pass, every collective.

Memory and time read the same list, so they cannot disagree about what a block is. All counts are per rank and
per micro-batch; degrees may be numbers or numpy columns. Categories (fused attention, sequence parallelism) are
plain values that choose which operators exist.

Sources: Korthikanti et al. 2022 (arXiv 2205.05198) section 4 for the saved tensors of attention and MLP;
Megatron-LM `--recompute-modules` for the names of the selective recompute groups.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from meshwright.formulas.numeric import maximum
from meshwright.spec.model import (
    Attention,
    Block,
    LinearAttention,
    Mamba1,
    Mamba2,
    Mlp,
    ModelSpec,
    Moe,
    MultiLatentAttention,
)

RECOMPUTE_GROUPS = ("core_attn", "layernorm", "mlp", "mlp_act", "moe", "moe_act", "shared_experts", "mla_up_proj")


class Shape(NamedTuple):
    """What a block's cost depends on. Degrees are numbers or columns, the rest are plain categories."""

    micro_batch: Any
    seq_len: int
    tensor: Any = 1
    context: Any = 1
    expert: Any = 1
    expert_tensor: Any = 1
    sequence_parallel: bool = True
    element: int = 2  # bytes of an activation element
    fused_attention: bool = True
    fused_elementwise: bool = True  # norms and activations keep only their input
    dropout: bool = False
    copied_output: bool = False  # attention's output is kept in a second layout
    expert_imbalance: Any = 1.0
    dispatch_element: float = 2.0  # bytes per element in the expert dispatch (1 for fp8)
    dispatcher: str = "deepep"  # what carries tokens to experts

    @property
    def tokens(self) -> Any:
        """Tokens of one rank of the context group, whole over the tensor group."""
        return self.micro_batch * self.seq_len / self.context

    @property
    def shard_tokens(self) -> Any:
        """Tokens per rank where the sequence is split over the tensor group too."""
        return self.tokens / self.tensor if self.sequence_parallel else self.tokens


class Operator(NamedTuple):
    """One kernel. `kind` selects its cost function; bytes and FLOPs are of the forward pass."""

    name: str
    part: str  # branch of the time tree: attention, mlp, moe, mixer, norm
    kind: str  # matmul, grouped_matmul, attention, batched_matmul, scan, or bytes moved: memory, permute, loss
    m: Any = 0  # rows (per group for grouped_matmul)
    n: Any = 0
    k: Any = 0
    batch: Any = 1
    flops: Any = 0  # attention and scan
    traffic: Any = 0  # memory, attention and scan: bytes read and written
    backward_ratio: float = 2.0  # backward over forward, in FLOPs (attention, scan) or bytes (memory)
    group: str = ""  # recompute group that runs it again
    low_precision: bool = False  # runs in fp8/fp4 under such a recipe
    ring: Any = 1  # ranks of the context group whose keys pass by one after the other


class Saved(NamedTuple):
    """A tensor kept from forward to backward, and the recompute groups that free it."""

    name: str
    bytes: Any
    freed_by: tuple[str, ...] = ()


class Collective(NamedTuple):
    """One collective of the forward pass; `backward` lists what the backward pass adds."""

    name: str
    group: str  # tensor, context, expert, expert_tensor
    operation: str
    payload: Any
    phase: str = "forward"  # forward (repeated under full recompute) or backward
    behind: str = ""  # part whose compute can hide it
    recompute_group: str = ""  # repeated when this group is recomputed


class Walk(NamedTuple):
    """Everything one block does."""

    operators: tuple[Operator, ...]
    saved: tuple[Saved, ...]
    collectives: tuple[Collective, ...]

    def then(self, other: Walk) -> Walk:
        """This walk followed by another."""
        return Walk(self.operators + other.operators, self.saved + other.saved, self.collectives + other.collectives)


class _Tape:
    """Collects while a walk is written down; becomes a `Walk`."""

    __slots__ = ("collectives", "operators", "saved")

    def __init__(self) -> None:
        self.operators: list[Operator] = []
        self.saved: list[Saved] = []
        self.collectives: list[Collective] = []

    def matmul(self, name: str, part: str, m: Any, n: Any, k: Any, group: str = "", low: bool = True) -> None:
        self.operators.append(Operator(name, part, "matmul", m, n, k, group=group, low_precision=low))

    def memory(
        self, name: str, part: str, traffic: Any, group: str = "", ratio: float = 1.5, kind: str = "memory"
    ) -> None:
        self.operators.append(Operator(name, part, kind, traffic=traffic, group=group, backward_ratio=ratio))

    def keep(self, name: str, size: Any, *freed_by: str) -> None:
        self.saved.append(Saved(name, size, freed_by))

    def walk(self) -> Walk:
        return Walk(tuple(self.operators), tuple(self.saved), tuple(self.collectives))


def keys_per_query(seq_len: float, window: int | None, causal: bool) -> float:
    """Mean number of keys a query attends to: s, (s+1)/2 when causal, less under a sliding window.

    >>> keys_per_query(4, None, True)  # 1, 2, 3, 4
    2.5
    >>> keys_per_query(4, 2, True)  # 1, 2, 2, 2
    1.75
    """
    if not causal:
        return float(seq_len if window is None else min(seq_len, 2 * window))
    if window is None or window >= seq_len:
        return (seq_len + 1) / 2
    return window - window * (window - 1) / (2 * seq_len)


def _norm(tape: _Tape, name: str, part: str, elements: Any, shape: Shape, *, group: str = "layernorm") -> None:
    """A norm over `elements` values: keeps its input; unfused ones also keep the fp32 copy and the normalised value."""
    width = shape.element
    passes = 2 if shape.fused_elementwise else 6
    tape.memory(name, part, passes * width * elements, group)
    tape.keep(f"{name}.input", width * elements)
    if not shape.fused_elementwise:
        tape.keep(f"{name}.fp32", 4 * elements, group)


def _residual(tape: _Tape, name: str, elements: Any, shape: Shape) -> None:
    """Bias, dropout and residual add; dropout keeps a one-byte mask."""
    tape.memory(name, "norm", 3 * shape.element * elements, ratio=0.7)
    if shape.dropout:
        tape.keep(f"{name}.mask", elements)


def _gather_scatter(tape: _Tape, part: str, hidden: int, shape: Shape, *, group: str = "") -> None:
    """Tensor-parallel communication of one column-then-row pair of matrices, forward and backward.

    With sequence parallelism an all-gather in and a reduce-scatter out (and their transposes in the backward pass),
    else one all-reduce each way: same bytes (Korthikanti 2022, section 4.2.2). The second gather of the input that
    the weight gradient needs is issued behind the data-gradient product.
    """
    payload = shape.tokens * hidden * shape.element
    add = tape.collectives.append
    if shape.sequence_parallel:
        add(Collective(f"{part}.gather", "tensor", "all_gather", payload, recompute_group=group))
        add(Collective(f"{part}.scatter", "tensor", "reduce_scatter", payload, recompute_group=group))
        add(Collective(f"{part}.gather_grad", "tensor", "all_gather", payload, phase="backward"))
        add(Collective(f"{part}.scatter_grad", "tensor", "reduce_scatter", payload, phase="backward"))
        add(Collective(f"{part}.regather", "tensor", "all_gather", payload, phase="backward", behind=part))
    else:
        add(Collective(f"{part}.reduce", "tensor", "all_reduce", payload, recompute_group=group))
        add(Collective(f"{part}.reduce_grad", "tensor", "all_reduce", payload, phase="backward"))


def _core_attention(
    tape: _Tape, shape: Shape, *, heads: Any, kv_heads: Any, qk_dim: int, v_dim: int, causal: bool, window: int | None
) -> None:
    """softmax(QKᵀ)V for `heads` local heads: one fused kernel, or five passes over the score matrix."""
    tokens, width = shape.tokens, shape.element
    q, k, v = heads * qk_dim, kv_heads * qk_dim, kv_heads * v_dim
    seq = shape.seq_len
    if shape.fused_attention:
        keys = keys_per_query(seq, window, causal)
        tape.operators.append(
            Operator(
                "attention.core",
                "attention",
                "attention",
                m=tokens,
                n=qk_dim + v_dim,
                k=keys,
                batch=heads,
                flops=2 * tokens * keys * heads * (qk_dim + v_dim),
                traffic=width * tokens * (q + k + v + heads * v_dim),
                backward_ratio=2.5,
                group="core_attn",
                ring=shape.context,
            )
        )
        tape.keep("attention.logsumexp", 4 * tokens * heads, "core_attn")
        if shape.copied_output:
            tape.keep("attention.output_copy", width * tokens * heads * v_dim, "core_attn")
    else:
        scores = tokens * seq * heads
        matrices = shape.micro_batch * heads
        rows = seq / shape.context
        add = tape.operators.append
        add(Operator("attention.scores", "attention", "batched_matmul", rows, seq, qk_dim, matrices, group="core_attn"))
        tape.memory("attention.softmax", "attention", 2 * width * scores, "core_attn")
        if shape.dropout:
            tape.memory("attention.dropout", "attention", (2 * width + 1) * scores, "core_attn", ratio=1.0)
        add(Operator("attention.values", "attention", "batched_matmul", rows, v_dim, seq, matrices, group="core_attn"))
        tape.keep("attention.softmax", width * scores, "core_attn")
        if shape.dropout:
            tape.keep("attention.mask", scores, "core_attn")
            tape.keep("attention.dropout", width * scores, "core_attn")
    _context_exchange(tape, shape, (k + v) * width * tokens)


def _context_exchange(tape: _Tape, shape: Shape, local_kv: Any) -> None:
    """Ring attention: keys and values visit every rank of the context group behind the attention kernel.

    Forward passes K and V once round the ring, backward passes K, V and their gradients (Liu et al. 2023,
    arXiv 2310.01889).
    """
    if isinstance(shape.context, int) and shape.context == 1:
        return
    whole = local_kv * shape.context
    add = tape.collectives.append
    add(Collective("attention.ring", "context", "all_gather", whole, behind="attention", recompute_group="core_attn"))
    add(Collective("attention.ring_grad", "context", "all_gather", 2 * whole, phase="backward", behind="attention"))


def _attention(tape: _Tape, mixer: Attention, hidden: int, shape: Shape) -> None:
    tokens, width = shape.tokens, shape.element
    heads = mixer.heads / shape.tensor
    kv_heads = maximum(mixer.kv_heads / shape.tensor, 1)
    q, kv = heads * mixer.head_dim, kv_heads * (mixer.head_dim + mixer.v_dim)
    out = heads * mixer.v_dim
    gate = q if mixer.output_gate else 0
    tape.matmul("attention.qkv", "attention", tokens, q + gate + kv, hidden)
    tape.keep("attention.qkv.input", width * shape.shard_tokens * hidden, "layernorm")
    if mixer.qk_norm != "none":
        _norm(tape, "attention.qk_norm", "attention", tokens * (q + kv_heads * mixer.head_dim), shape)
    tape.memory("attention.rope", "attention", 2 * width * tokens * (q + kv_heads * mixer.head_dim), ratio=1.0)
    tape.keep("attention.q", width * tokens * q)
    tape.keep("attention.kv", width * tokens * kv)
    _core_attention(
        tape,
        shape,
        heads=heads,
        kv_heads=kv_heads,
        qk_dim=mixer.head_dim,
        v_dim=mixer.v_dim,
        causal=mixer.causal,
        window=mixer.window,
    )
    if mixer.output_gate:
        tape.memory("attention.gate", "attention", 3 * width * tokens * out)
        tape.keep("attention.gate", 2 * width * tokens * out)
    tape.matmul("attention.out", "attention", tokens, hidden, out)
    tape.keep("attention.out.input", width * tokens * out)
    _gather_scatter(tape, "attention", hidden, shape)


def _latent_attention(tape: _Tape, mixer: MultiLatentAttention, hidden: int, shape: Shape) -> None:
    """MLA: down-projections run on the sequence shard with replicated weights, up-projections are split by heads."""
    tokens, shard, width = shape.tokens, shape.shard_tokens, shape.element
    heads = mixer.heads / shape.tensor
    tape.keep("attention.down.input", width * shard * hidden, "layernorm")
    if mixer.q_rank is None:
        tape.matmul("attention.q", "attention", tokens, heads * mixer.qk_dim, hidden)
    else:
        tape.matmul("attention.q_down", "attention", shard, mixer.q_rank, hidden)
        _norm(tape, "attention.q_norm", "attention", shard * mixer.q_rank, shape, group="mla_up_proj")
        tape.matmul("attention.q_up", "attention", tokens, heads * mixer.qk_dim, mixer.q_rank, "mla_up_proj")
        tape.keep("attention.q_up.input", width * shard * mixer.q_rank, "mla_up_proj")
    tape.matmul("attention.kv_down", "attention", shard, mixer.kv_rank + mixer.rope_dim, hidden)
    _norm(tape, "attention.kv_norm", "attention", shard * mixer.kv_rank, shape, group="mla_up_proj")
    up = heads * (mixer.nope_dim + mixer.v_dim)
    tape.matmul("attention.kv_up", "attention", tokens, up, mixer.kv_rank, "mla_up_proj")
    tape.keep("attention.kv_up.input", width * shard * mixer.kv_rank, "mla_up_proj")
    # Assembling queries and keys from their rotary and plain parts copies both ("MLA assembly").
    assembled = tokens * heads * (2 * mixer.qk_dim + mixer.v_dim)
    tape.memory("attention.assemble", "attention", 2 * width * assembled, "mla_up_proj", ratio=1.0)
    tape.keep("attention.qkv", width * assembled, "mla_up_proj")
    _core_attention(
        tape,
        shape,
        heads=heads,
        kv_heads=heads,
        qk_dim=mixer.qk_dim,
        v_dim=mixer.v_dim,
        causal=mixer.causal,
        window=None,
    )
    tape.matmul("attention.out", "attention", tokens, hidden, heads * mixer.v_dim)
    tape.keep("attention.out.input", width * tokens * heads * mixer.v_dim)
    _gather_scatter(tape, "attention", hidden, shape)


def _scan_mixer(
    tape: _Tape,
    hidden: int,
    shape: Shape,
    *,
    projected: Any,
    conv: Any,
    inner: Any,
    scan_flops: Any,
    extra_kept: Any = 0,
) -> None:
    """Body of state-space and linear-attention mixers: in-projection, short convolution, chunked scan, gate, out.

    `projected` is the width after the in-projection, `conv` what passes the convolution, `inner` the width of the
    scan's output, all per rank.
    """
    tokens, width = shape.tokens, shape.element
    tape.matmul("mixer.in", "mixer", tokens, projected, hidden)
    tape.keep("mixer.in.input", width * shape.shard_tokens * hidden, "layernorm")
    tape.memory("mixer.conv", "mixer", 2 * width * tokens * conv, "layernorm", ratio=2.0)
    tape.keep("mixer.conv.input", width * tokens * projected)
    tape.operators.append(
        Operator(
            "mixer.scan",
            "mixer",
            "scan",
            flops=tokens * scan_flops,
            traffic=3 * width * tokens * (conv + inner),
            backward_ratio=2.5,
            group="core_attn",
        )
    )
    tape.keep("mixer.scan.input", width * tokens * (conv + extra_kept))
    tape.memory("mixer.gate", "mixer", 4 * width * tokens * inner, ratio=1.5)
    tape.keep("mixer.scan.output", width * tokens * inner)
    tape.matmul("mixer.out", "mixer", tokens, hidden, inner)
    tape.keep("mixer.out.input", width * tokens * inner, "layernorm")
    _gather_scatter(tape, "mixer", hidden, shape)


def _mamba2(tape: _Tape, mixer: Mamba2, hidden: int, shape: Shape) -> None:
    """State space duality (Dao and Gu 2024, arXiv 2405.21060, section 6): quadratic inside chunks, linear between."""
    t = shape.tensor
    inner, groups, heads = mixer.inner / t, maximum(mixer.groups / t, 1), mixer.heads / t
    head_dim = mixer.inner / mixer.heads
    conv = inner + 2 * groups * mixer.state
    inside = 2 * mixer.chunk * (groups * mixer.state + inner) / 2
    between = 2 * 2 * heads * head_dim * mixer.state
    _scan_mixer(
        tape,
        hidden,
        shape,
        projected=inner + conv + heads,
        conv=conv,
        inner=inner,
        scan_flops=inside + between,
        extra_kept=2 * heads,
    )


def _mamba1(tape: _Tape, mixer: Mamba1, hidden: int, shape: Shape) -> None:
    """Selective scan (Gu and Dao 2023, arXiv 2312.00752): about 9 operations per channel and state."""
    inner = mixer.inner / shape.tensor
    small = mixer.dt_rank + 2 * mixer.state
    tape.matmul("mixer.x_proj", "mixer", shape.tokens, small, inner)
    tape.matmul("mixer.dt_proj", "mixer", shape.tokens, inner, mixer.dt_rank)
    _scan_mixer(
        tape,
        hidden,
        shape,
        projected=2 * inner,
        conv=inner,
        inner=inner,
        scan_flops=9 * inner * mixer.state,
        extra_kept=inner + small,
    )


def _linear_attention(tape: _Tape, mixer: LinearAttention, hidden: int, shape: Shape) -> None:
    """Chunked linear attention: C·(dk + dv) inside a chunk and 2·dk·dv for the state, per value head."""
    t = shape.tensor
    qk = 2 * mixer.key_heads * mixer.key_dim / t
    values = mixer.value_heads * mixer.value_dim / t
    heads = mixer.value_heads / t
    inside = 2 * mixer.chunk * heads * (mixer.key_dim + mixer.value_dim) / 2
    between = 2 * 2 * heads * mixer.key_dim * mixer.value_dim
    extra = (values if mixer.gate else 0) + (2 * heads if mixer.decay else 0)
    _scan_mixer(
        tape,
        hidden,
        shape,
        projected=qk + values + extra,
        conv=qk + values,
        inner=values,
        scan_flops=inside + between,
        extra_kept=2 * heads,
    )


def _feed_forward(
    tape: _Tape,
    part: str,
    tokens: Any,
    kept_tokens: Any,
    hidden: int,
    width: Any,
    gated: bool,
    shape: Shape,
    group: str,
) -> None:
    """Two (or, gated, three) matrices with an activation; `width` is per rank."""
    size = shape.element
    fan = 2 if gated else 1
    act = "mlp_act" if part == "mlp" else "moe_act"
    tape.matmul(f"{part}.in", part, tokens, fan * width, hidden, group)
    tape.keep(f"{part}.in.input", size * kept_tokens * hidden, "layernorm", group)
    # Unfused SwiGLU keeps silu(gate) as well, an operand of the product.
    tape.memory(f"{part}.activation", part, (fan + 1) * size * tokens * width, act)
    tape.keep(f"{part}.activation.input", size * tokens * fan * width, group)
    if gated and not shape.fused_elementwise:
        tape.keep(f"{part}.activation.silu", size * tokens * width, group, act)
    tape.matmul(f"{part}.out", part, tokens, hidden, width, group)
    tape.keep(f"{part}.out.input", size * tokens * width, act, group)


def _mlp(tape: _Tape, mlp: Mlp, hidden: int, shape: Shape) -> None:
    width = mlp.width / shape.tensor
    _feed_forward(tape, "mlp", shape.tokens, shape.shard_tokens, hidden, width, mlp.gated, shape, "mlp")
    _gather_scatter(tape, "mlp", hidden, shape, group="mlp")


def _moe(tape: _Tape, moe: Moe, hidden: int, shape: Shape) -> None:
    """Router, dispatch, grouped experts, combine, shared experts.

    A rank routes `top_k` copies of its tokens; in balance it also receives that many. Experts are split over
    `expert` ranks and each expert's width over `expert_tensor` ranks, which gather each other's tokens.
    """
    size, shard = shape.element, shape.shard_tokens
    routed = shard * moe.top_k
    etp = shape.expert_tensor
    received = routed * etp * shape.expert_imbalance
    local_experts = moe.experts / shape.expert
    inner = moe.latent or hidden  # width of the routed experts' input (Nemotron's latent experts project down first)
    fan = 2 if moe.gated else 1
    width = moe.width / etp
    tape.matmul("moe.router", "moe", shard, moe.experts, hidden, "moe", low=False)
    tape.memory("moe.topk", "moe", 4 * 6 * shard * moe.experts, "moe", ratio=1.0)
    tape.keep("moe.router", 2 * 4 * shard * moe.experts, "moe")
    tape.keep("moe.input", size * shard * hidden, "layernorm")
    if moe.latent:
        tape.matmul("moe.latent", "moe", shard, 2 * moe.latent, hidden, "moe")
    tape.memory("moe.permute", "moe", 2 * size * (routed + received) * inner, "moe", ratio=1.0, kind="permute")
    add = tape.operators.append
    rows = received / local_experts
    add(
        Operator(
            "moe.in", "moe", "grouped_matmul", rows, fan * width, inner, local_experts, group="moe", low_precision=True
        )
    )
    tape.keep("moe.in.input", size * received * inner, "moe")
    tape.memory("moe.activation", "moe", (fan + 1) * size * received * width, "moe_act")
    tape.keep("moe.activation.input", size * received * fan * width, "moe")
    add(
        Operator("moe.out", "moe", "grouped_matmul", rows, inner, width, local_experts, group="moe", low_precision=True)
    )
    tape.keep("moe.out.input", size * received * width, "moe_act", "moe")
    tape.memory("moe.unpermute", "moe", 2 * size * (routed + received) * inner, "moe", ratio=1.0, kind="permute")
    _dispatch(tape, inner, shape, routed)
    if moe.shared_width:
        shared = moe.shared_width / shape.tensor
        _feed_forward(tape, "shared", shape.tokens, 0 * shard, hidden, shared, moe.gated, shape, "shared_experts")
        _gather_scatter(tape, "shared", hidden, shape, group="shared_experts")


def _dispatch(tape: _Tape, hidden: int, shape: Shape, routed: Any) -> None:
    """Expert-parallel all-to-all out and back, forward and backward; expert-tensor gather and scatter inside."""
    out = routed * hidden * shape.dispatch_element
    back = routed * hidden * shape.element
    add = tape.collectives.append
    add(Collective("moe.dispatch", "expert", "all_to_all", out, behind="moe", recompute_group="moe"))
    add(Collective("moe.combine", "expert", "all_to_all", back, behind="moe", recompute_group="moe"))
    add(Collective("moe.combine_grad", "expert", "all_to_all", out, phase="backward", behind="moe"))
    add(Collective("moe.dispatch_grad", "expert", "all_to_all", back, phase="backward", behind="moe"))
    if not (isinstance(shape.expert_tensor, int) and shape.expert_tensor == 1):
        whole = back * shape.expert_tensor
        for phase in ("forward", "backward"):
            add(Collective(f"moe.gather_{phase}", "expert_tensor", "all_gather", whole, phase=phase))
            add(Collective(f"moe.scatter_{phase}", "expert_tensor", "reduce_scatter", whole, phase=phase))


_MIXERS: dict[type, Callable[..., None]] = {
    Attention: _attention,
    MultiLatentAttention: _latent_attention,
    LinearAttention: _linear_attention,
    Mamba1: _mamba1,
    Mamba2: _mamba2,
}
_MLPS: dict[type, Callable[..., None]] = {Mlp: _mlp, Moe: _moe}


def block_walk(model: ModelSpec, block: Block, shape: Shape, only: str = "") -> Walk:
    """Walk one block: norms, mixer, cross attention, MLP and residual adds in execution order.

    `only` walks the experts (`moe`) or everything else (`rest`): the rest does not depend on expert parallelism.
    """
    tape = _Tape()
    rows = shape.shard_tokens * model.hidden
    norms = block.norms if block.norm != "none" else 0
    parts = [part for part in (block.mixer, block.cross, block.mlp) if part is not None]
    for index, part in enumerate(parts):
        if only and (only == "moe") != isinstance(part, Moe):
            continue
        own = norms // len(parts) + (1 if index < norms % len(parts) else 0)
        for copy in range(own):
            _norm(tape, f"norm.{index}.{copy}", "norm", rows, shape)
        table = _MLPS if type(part) in _MLPS else _MIXERS
        table[type(part)](tape, part, model.hidden, shape)
        _residual(tape, f"residual.{index}", rows, shape)
    return tape.walk()


def block_input_bytes(model: ModelSpec, shape: Shape) -> Any:
    """Bytes of a block's input, all that full recompute keeps. [B]"""
    return shape.element * shape.shard_tokens * model.hidden


def saved_bytes(walk: Walk, groups: tuple[str, ...]) -> Any:
    """Bytes one block keeps per micro-batch when the recompute `groups` free theirs. [B]"""
    if not groups:
        return sum(s.bytes for s in walk.saved)
    freed = frozenset(groups)
    return sum(s.bytes for s in walk.saved if freed.isdisjoint(s.freed_by))


def head_walk(model: ModelSpec, shape: Shape, vocab: Any) -> Walk:
    """Final norm, logits and cross entropy on the last stage; `vocab` is padded, split over the tensor group.

    The tensors kept here (logits and loss) are counted by `engine.memory`, which knows the loss implementation.
    """
    tape = _Tape()
    if model.final_norm != "none":
        _norm(tape, "norm.final", "norm", shape.shard_tokens * model.hidden, shape)
    if model.has_head:
        local = vocab / shape.tensor
        tape.matmul("head.logits", "head", shape.tokens, local, model.hidden, low=False)
        # fp32 cast, max, exp and sum, normalise: about four passes over fp32 logits (vocabulary-parallel loss).
        tape.memory("head.loss", "loss", 4 * 4 * shape.tokens * local, ratio=0.5, kind="loss")
        payload = shape.tokens * model.hidden * shape.element
        if shape.sequence_parallel:
            tape.collectives.append(Collective("head.gather", "tensor", "all_gather", payload))
        backward = "reduce_scatter" if shape.sequence_parallel else "all_reduce"
        tape.collectives.append(Collective("head.scatter_grad", "tensor", backward, payload, phase="backward"))
    return tape.walk()


def embedding_walk(model: ModelSpec, shape: Shape) -> Walk:
    """Token embedding on the first stage: lookup, vocabulary-parallel reduction, dropout."""
    tape = _Tape()
    rows = shape.tokens * model.hidden
    tape.memory("embedding.lookup", "embedding", 2 * shape.element * rows, ratio=3.0)
    operation = "reduce_scatter" if shape.sequence_parallel else "all_reduce"
    tape.collectives.append(Collective("embedding.reduce", "tensor", operation, rows * shape.element))
    if shape.sequence_parallel:
        gather = Collective("embedding.gather_grad", "tensor", "all_gather", rows * shape.element, phase="backward")
        tape.collectives.append(gather)
    if shape.dropout:
        tape.keep("embedding.mask", shape.shard_tokens * model.hidden)
    return tape.walk()


__all__ = [
    "Collective", "Operator", "RECOMPUTE_GROUPS", "Saved", "Shape", "Walk", "block_input_bytes", "block_walk",
    "embedding_walk", "head_walk", "keys_per_query", "saved_bytes",
]  # fmt: skip
