"""What one checkpoint of a strategy holds, and how long it takes to copy, write and read."""

from __future__ import annotations

from typing import NamedTuple

from meshwright.catalog.failures import common
from meshwright.engine.params import model_params
from meshwright.engine.software import software
from meshwright.engine.stages import StageClass, stage_classes
from meshwright.engine.states import StateBytes, rank_params, state_bytes
from meshwright.formulas.checkpoint import checkpoint_bytes, transfer_time
from meshwright.formulas.memory_states import bytes_per_value, expert_data_parallel
from meshwright.spec.cluster import Cluster
from meshwright.spec.plan import Problem
from meshwright.spec.resilience import Storage
from meshwright.spec.strategy import Strategy


class Sizes(NamedTuple):
    """Bytes of one checkpoint."""

    per_parameter: float
    total: float
    weights: float  # the weights alone, in the type of training
    rank: float  # of the rank that writes most
    on_device: float  # of those, what has to be copied from the device
    host: float  # of one host
    hook: float  # of the total: state of gradient hooks, which every rank has of its own


class Times(NamedTuple):
    """Seconds of one checkpoint."""

    copy: float  # device to host
    write: float
    read: float
    peer: float  # to the memory of another node
    limited_by: str  # storage, or nodes
    overhead: float  # agreement over all ranks before anything is copied

    @property
    def stall(self) -> float:
        """Time that even an asynchronous save stops the run."""
        return self.overhead + self.copy


def saved_states(strategy: Strategy, per: StateBytes) -> StateBytes:
    """Bytes per parameter that go into a checkpoint: never gradients; weights where they are not a gathered copy."""
    gathered = strategy.framework in ("fsdp", "jax")
    return per._replace(weight=0.0 if gathered else per.weight, gradient=0.0)


def sizes(problem: Problem, strategy: Strategy, hook_bytes: float = 0.0) -> Sizes:
    """Bytes of a checkpoint: every state once, however many ranks hold it; `hook_bytes` per gradient on every rank.

    State of gradient hooks (error feedback) differs from rank to rank, so that each rank's is kept.
    """
    model, cluster, job = problem.model, problem.cluster, problem.job
    stack = software(job.software, strategy.framework)
    per = saved_states(
        strategy,
        state_bytes(strategy.framework, strategy.precision, job.optimizer, stack.gradient_bytes, model.hidden),
    )
    each = per.weight + per.master + per.moments
    whole = model_params(model)
    tables = whole.embedding + whole.head
    total = checkpoint_bytes(whole.total_with_mtp, per.weight, per.master, per.moments)
    total += (per.table_moments - per.moments) * tables
    stages = stage_classes(model, strategy.pipeline, strategy.virtual, strategy.layers_per_stage, strategy.schedule)
    ranks = [_of_rank(problem, strategy, stage, per, hook_bytes) for stage in stages]
    of_stage = strategy.devices / strategy.pipeline
    hook = sum(r.hook * of_stage * s.stages_in_class for r, s in zip(ranks, stages, strict=True))
    rank = max(ranks)
    on_node = min(cluster.node_size, cluster.devices)
    return Sizes(
        per_parameter=each,
        total=float(total + hook),
        weights=float(whole.total_with_mtp * bytes_per_value(strategy.precision)),
        rank=rank.whole,
        on_device=rank.on_device,
        # Of the ranks that write weights for all replicas, a host has those of one tensor-parallel group.
        host=(rank.whole - rank.alone) * on_node + rank.alone * min(on_node, strategy.tensor),
        hook=float(hook),
    )


class _Rank(NamedTuple):
    """Bytes that the busiest rank of a stage writes."""

    whole: float
    on_device: float
    hook: float
    alone: float  # of the whole: weights that it writes for all replicas


def _of_rank(problem: Problem, strategy: Strategy, stage: StageClass, per: StateBytes, hook_bytes: float) -> _Rank:
    params = rank_params(problem.model, strategy, stage)
    copies = strategy.data * strategy.context
    experts = expert_data_parallel(copies, strategy.tensor, strategy.expert, strategy.expert_tensor)
    share = params.dense / copies + params.expert / experts
    first = strategy.framework == "deepspeed" and strategy.sharding != "zero3"
    weight = per.weight * (params.total if first else share)
    other = (per.master + per.moments) * share + (per.table_moments - per.moments) * params.tables / copies
    own = hook_bytes * params.total
    copied = _copied(strategy, weight, other)
    return _Rank(float(weight + other + own), float(own + copied), float(own), float(weight if first else 0.0))


def _copied(strategy: Strategy, weight: float, other: float) -> float:
    """What lies on the device: offloaded states are on the host already."""
    if strategy.offload == "parameters" or (strategy.offload == "optimizer" and strategy.framework in ("fsdp", "jax")):
        return 0.0
    return weight if strategy.offload == "optimizer" else weight + other


def times(cluster: Cluster, of: Sizes, storage: Storage) -> Times:
    """Seconds to copy, write and read a checkpoint, and to hand a node's share to another node.

    The node with most to write may be slower than all of them together.
    """
    link = cluster.accelerator.host_bandwidth * common()["copy_efficiency"]
    nodes = cluster.nodes
    card = cluster.nic_bandwidth * min(cluster.node_size, cluster.devices)
    return Times(
        copy=of.on_device / link,
        write=max(transfer_time(of.total, storage.write, nodes, storage.node_write), of.host / storage.node_write),
        read=transfer_time(of.total, storage.read, nodes, storage.node_read),
        peer=of.host / card if card else 0.0,
        limited_by="storage" if of.total / storage.write >= of.host / storage.node_write else "nodes",
        overhead=common()["save_overhead"],
    )
