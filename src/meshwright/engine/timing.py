"""Seconds of a step for one strategy or a table of them. The order: shapes → blocks → stages → step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from meshwright.catalog.constants import constants, remembers_constants
from meshwright.engine.activations import (
    BlockActivations,
    copied_output,
    every_other_matmul,
    recompute_groups,
    stored_and_transient,
)
from meshwright.engine.block import BlockCost, Host, Overlap, Recompute, TimedWalk, cost_of, time_walk
from meshwright.engine.communication import Network, collective_time, expert_all_to_all_time, network
from meshwright.engine.kernels import LOW_PRECISION, Rates, rates
from meshwright.engine.operators import (
    Collective,
    Shape,
    block_input_bytes,
    block_walk,
    embedding_walk,
    head_walk,
)
from meshwright.engine.placement import Group
from meshwright.engine.software import Software, software
from meshwright.engine.stages import StageClass, stage_classes
from meshwright.engine.states import padded_vocab, rank_params, state_bytes
from meshwright.engine.step import GradientTraffic, StageTime, Step, assemble, stage_time
from meshwright.engine.traffic import gradient_traffic
from meshwright.engine.update import optimizer_seconds
from meshwright.formulas.moe import busiest_rank
from meshwright.formulas.numeric import maximum
from meshwright.spec.cluster import Cluster
from meshwright.spec.job import Job
from meshwright.spec.model import Block, ModelSpec, Moe
from meshwright.spec.strategy import Strategy


class Setting(NamedTuple):
    """Everything that does not vary over strategies of one framework and precision."""

    model: ModelSpec
    cluster: Cluster
    job: Job
    software: Software
    network: Network
    rates: Rates
    host_memory_bandwidth: float  # of one host, all sockets  [B/s]
    router_spread: float  # standard deviation of an expert's load over its mean


class Blocks(NamedTuple):
    """Costs of every block kind, and of head and embedding, for one shape."""

    kinds: tuple[BlockCost, ...]
    head: BlockCost
    embedding: BlockCost
    activations: BlockActivations


def setting(model: ModelSpec, cluster: Cluster, job: Job, framework: str, precision: str) -> Setting:
    """Resolve what all strategies of one framework and precision share."""
    profile = software(job.software, framework)
    known = constants("kernels", "default")
    r = rates(cluster.accelerator, precision, profile.attention_kernel, profile.cast_bytes)
    return Setting(
        model, cluster, job, profile, network(cluster), r, known["host_memory_bandwidth"], known["router_spread"]
    )


def shape_of(s: Setting, strategy: Strategy) -> Shape:
    """The shape a block is walked with."""
    low = strategy.precision in LOW_PRECISION
    tensor = strategy.tensor
    alone = isinstance(tensor, int) and tensor == 1
    return Shape(
        micro_batch=strategy.micro_batch,
        seq_len=s.job.seq_len,
        tensor=tensor,
        context=strategy.context,
        expert=strategy.expert,
        expert_tensor=strategy.expert_tensor,
        sequence_parallel=strategy.sequence_parallel and not alone,
        element=4 if strategy.precision in ("fp32", "tf32") else 2,
        fused_attention=s.software.fused_attention,
        fused_elementwise=s.software.fused_elementwise,
        dropout=s.job.dropout or s.software.dropout,
        copied_output=copied_output(s.cluster.accelerator, s.software),
        expert_imbalance=_imbalance(s, strategy),
        dispatch_element=1.0 + 4 / 128 if low and s.software.dispatch_bytes < 2 else 2.0,
        dispatcher=s.software.dispatcher if strategy.dispatcher == "auto" else strategy.dispatcher,
    )


def _imbalance(s: Setting, strategy: Strategy) -> Any:
    """Tokens of the busiest expert rank over the mean: stated in the job, or modelled from the spread of the router."""
    if s.job.expert_imbalance is not None:
        return s.job.expert_imbalance
    moe = s.model.moe
    if moe is None:
        return 1.0
    return busiest_rank(strategy.expert, moe.experts / strategy.expert, s.router_spread)


def collective_timer(
    s: Setting, shape: Shape, groups: dict[str, Group], moe: Moe | None
) -> Callable[[Collective], Any]:
    """What times the collectives of a block with that MLP. [s]"""

    def seconds(c: Collective) -> Any:
        if c.group == "expert" and moe is not None and c.operation == "all_to_all":
            size = c.payload / (shape.shard_tokens * moe.top_k * s.model.hidden)
            return expert_all_to_all_time(
                s.network,
                groups["expert"],
                shape.shard_tokens,
                moe.top_k,
                s.model.hidden,
                size,
                max_nodes=moe.router_top_groups if moe.router_groups > 1 else None,
                kernel=shape.dispatcher,
            )
        return collective_time(s.network, groups[c.group], c.operation, c.payload)

    return seconds


class TimedBlocks(NamedTuple):
    """Timed walks of every block kind, of head and embedding, for one shape."""

    shape: Shape
    kinds: tuple[TimedWalk, ...]
    head: TimedWalk
    embedding: TimedWalk


def _without_experts(shape: Shape) -> Shape:
    """The shape of what does not depend on expert parallelism, so that all its degrees share it."""
    return shape._replace(expert=1, expert_tensor=1, expert_imbalance=1.0)


def _timed_kind(s: Setting, shape: Shape, groups: dict[str, Group], block: Block, only: str = "") -> TimedWalk:
    moe = block.mlp if isinstance(block.mlp, Moe) else None
    return time_walk(block_walk(s.model, block, shape, only), s.rates, collective_timer(s, shape, groups, moe))


def _timed_ends(s: Setting, shape: Shape, groups: dict[str, Group], vocab: Any) -> tuple[TimedWalk, TimedWalk]:
    timer = collective_timer(s, shape, groups, None)
    head = time_walk(head_walk(s.model, shape, vocab), s.rates, timer)
    return head, time_walk(embedding_walk(s.model, shape), s.rates, timer)


def timed_blocks(s: Setting, strategy: Strategy, groups: dict[str, Group]) -> TimedBlocks:
    """Walk and time every block kind, the head and the embedding; recompute and overlap come later."""
    shape = shape_of(s, strategy)
    kinds = tuple(_timed_kind(s, shape, groups, block) for block in s.model.blocks)
    return TimedBlocks(shape, kinds, *_timed_ends(s, shape, groups, padded_vocab(s.model, strategy)))


def blocks_of(s: Setting, strategy: Strategy, groups: dict[str, Group], timed: TimedBlocks | None = None) -> Blocks:
    """Cost of every block kind, the head and the embedding; `timed` when their walks were timed before."""
    timed = timed or timed_blocks(s, strategy, groups)
    overlap = Overlap(strategy.overlap_tensor, strategy.overlap_expert)
    chosen = Recompute(strategy.recompute, recompute_groups(strategy), every_other_matmul(strategy))
    block_input = block_input_bytes(s.model, timed.shape)
    launch = Host(
        s.cluster.accelerator.host_launch or s.rates.host_launch,
        s.software.host_kernels,
        s.software.moe_kernels,
        s.software.grouped_launches,
        s.software.grouped_launches * (s.software.low_launches if s.rates.casts else 1.0),
        strategy.graphs,
    )
    kept = [stored_and_transient(t.walk, timed.shape, block_input, strategy) for t in timed.kinds]
    return Blocks(
        kinds=tuple(cost_of(t, launch, chosen, overlap) for t in timed.kinds),
        head=cost_of(timed.head, launch, Recompute(), overlap),
        embedding=cost_of(timed.embedding, launch, Recompute(), overlap),
        activations=BlockActivations(tuple(k[0] for k in kept), tuple(k[1] for k in kept)),
    )


class _Shared(NamedTuple):
    """What identifies the timing of a walk besides its shape."""

    model: ModelSpec
    cluster: Cluster
    job: Job
    framework: str
    precision: str
    tensor: Group
    context: Group

    def setting(self) -> Setting:
        """The setting these belong to."""
        return setting(self.model, self.cluster, self.job, self.framework, self.precision)


def blocks_once(s: Setting, strategy: Strategy, groups: dict[str, Group]) -> Blocks:
    """`blocks_of` for one strategy; timed walks are remembered: strategies of one shape share them."""
    shape = shape_of(s, strategy)
    plain = _without_experts(shape)
    known = _Shared(
        s.model, s.cluster, s.job, strategy.framework, strategy.precision, groups["tensor"], groups["context"]
    )
    kinds = []
    for n, block in enumerate(s.model.blocks):
        timed = _rest_once(known, plain, n)
        if isinstance(block.mlp, Moe):
            timed = timed.then(_moe_once(known, shape, groups["expert"], groups["expert_tensor"], n))
        kinds.append(timed)
    ends = _ends_once(known, plain, padded_vocab(s.model, strategy))
    return blocks_of(s, strategy, groups, TimedBlocks(shape, tuple(kinds), *ends))


@remembers_constants(maxsize=4096)
def _moe_once(known: _Shared, shape: Shape, expert: Group, expert_tensor: Group, kind: int) -> TimedWalk:
    groups = {"tensor": known.tensor, "context": known.context, "expert": expert, "expert_tensor": expert_tensor}
    return _timed_kind(known.setting(), shape, groups, known.model.blocks[kind], "moe")


@remembers_constants(maxsize=4096)
def _rest_once(known: _Shared, shape: Shape, kind: int) -> TimedWalk:
    groups = {"tensor": known.tensor, "context": known.context}
    return _timed_kind(known.setting(), shape, groups, known.model.blocks[kind], "rest")


@remembers_constants(maxsize=4096)
def _ends_once(known: _Shared, shape: Shape, vocab: int) -> tuple[TimedWalk, TimedWalk]:
    return _timed_ends(known.setting(), shape, {"tensor": known.tensor, "context": known.context}, vocab)


class Layout(NamedTuple):
    """One stage class with what its states cost: traffic and optimizer update."""

    stage: StageClass
    traffic: GradientTraffic
    optimizer: Any


def stages_of(model: ModelSpec, strategy: Strategy) -> tuple[StageClass, ...]:
    """Stage classes of the strategy's pipeline, whose degrees must be plain numbers."""
    return stage_classes(model, strategy.pipeline, strategy.virtual, strategy.layers_per_stage, str(strategy.schedule))


def layout_of(s: Setting, strategy: Strategy, stage: StageClass, groups: dict[str, Group]) -> Layout:
    """State traffic and optimizer time of one stage class."""
    params = rank_params(s.model, strategy, stage)
    hybrid = bool(strategy.shard if isinstance(strategy.shard, int) else np.any(strategy.shard))
    traffic = gradient_traffic(
        s.network,
        groups,
        params,
        sharding=strategy.sharding,
        framework=strategy.framework,
        layers=stage.layers,
        software=s.software,
        weight_bytes=s.rates.element,
        hybrid=hybrid,
        pipelined=stage.pipeline > 1,
    )
    states = state_bytes(
        strategy.framework, strategy.precision, s.job.optimizer, s.software.gradient_bytes, s.model.hidden
    )
    host_share = s.host_memory_bandwidth / s.cluster.node_size
    device = s.cluster.accelerator
    update = optimizer_seconds(params, strategy, states, s.rates.memory, device.host_bandwidth, host_share)
    return Layout(stage, traffic, update)


def step_of(
    s: Setting,
    strategy: Strategy,
    micro_batches: Any,
    kinds: list[tuple[Any, Any, Any, Any]],
    head: tuple[Any, Any],
    embedding: tuple[Any, Any],
    layouts: list[Layout],
    send: Any,
) -> Step:
    """Assemble a step. `kinds` holds forward, backward and, of each, launch-bound seconds per block kind."""
    mtp_kind = s.model.pattern[-1]
    forward, backward = [k[0] for k in kinds], [k[1] for k in kinds]
    times = [stage_time(x.stage, forward, backward, head, embedding, mtp_kind) for x in layouts]
    waits: list[StageTime] = []
    optimizer: Any = 0.0
    for x in layouts:
        idle = [x.stage.share * sum(n * k[i] for n, k in zip(x.stage.counts, kinds, strict=True)) for i in (2, 3)]
        waits.append(StageTime(*idle))
        optimizer = maximum(optimizer, x.optimizer)
    return assemble(
        micro_batches=micro_batches,
        pipeline=strategy.pipeline,
        virtual=strategy.virtual,
        schedule=strategy.schedule,
        stages=[x.stage for x in layouts],
        times=times,
        waits=waits,
        traffic=[x.traffic for x in layouts],
        send=send,
        optimizer=optimizer,
        software=s.software,
        overlap_reduce=strategy.overlap_grad_reduce and s.software.overlap_grad_reduce,
        overlap_gather=strategy.overlap_param_gather and s.software.overlap_param_gather,
        contention=s.rates.contention,
        data_time=s.job.data_time,
    )


def send_time(s: Setting, strategy: Strategy, groups: dict[str, Group]) -> Any:
    """One activation hop between pipeline stages; the tensor group splits it and gathers it again inside the node."""
    if "pipeline" not in groups:
        return 0.0
    tokens = strategy.micro_batch * s.job.seq_len / strategy.context
    payload = tokens * s.model.hidden * s.rates.element / strategy.tensor
    return collective_time(s.network, groups["pipeline"], "p2p", payload)
