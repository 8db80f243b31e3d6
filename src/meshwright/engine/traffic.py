"""The collectives that keep a rank's states in step with the other data-parallel replicas."""

from __future__ import annotations

from typing import Any

from meshwright.engine.communication import Network, collective_time
from meshwright.engine.placement import Group
from meshwright.engine.software import Software
from meshwright.engine.states import RankParams
from meshwright.engine.step import GradientTraffic
from meshwright.formulas.numeric import ceil, maximum


def gradient_traffic(
    network: Network,
    groups: dict[str, Group],
    params: RankParams,
    *,
    sharding: str,
    framework: str,
    layers: int,
    software: Software,
    weight_bytes: float,
    hybrid: bool,
    pipelined: bool,
) -> GradientTraffic:
    """Seconds of state collectives of one stage.

    `none`: all-reduce of gradients. `zero1`: reduce-scatter, then all-gather of updated weights. `zero2`: gradients
    reduced every micro-batch. `zero3`: weights gathered before forward and backward of every micro-batch; PyTorch
    keeps them gathered, and gradients unreduced, between the micro-batches of a pipeline, so there once a step.
    Experts are replicated over fewer ranks and use their own groups.
    """
    by_unit = sharding == "zero3" or (framework == "fsdp" and sharding == "zero2")
    bucket = maximum(software.bucket_elements, software.bucket_per_rank * groups["data"].ranks)
    pieces = float(max(layers, 1)) if by_unit else maximum(ceil(params.total / bucket), 1)
    reduce_bytes = software.reduce_bytes

    def both(operation: str, dense_group: str, size: float) -> Any:
        seconds = pieces * collective_time(network, groups[dense_group], operation, params.dense * size / pieces)
        if not (isinstance(params.expert, int | float) and params.expert == 0):
            payload = params.expert * size / pieces
            seconds = seconds + pieces * collective_time(network, groups["expert_data"], operation, payload)
        return seconds

    zero: Any = 0.0 * params.dense
    shard = "shard" if hybrid else "data"
    if sharding == "none":
        reduce = both("all_reduce", "data", reduce_bytes)
        return GradientTraffic(zero, zero, reduce, False, False, pieces)
    gather = both("all_gather", shard, weight_bytes)
    if software.gather_by_broadcast and sharding == "zero1":
        owners = groups[shard].ranks
        gather = owners * collective_time(network, groups[shard], "broadcast", params.total * weight_bytes / owners)
    reduce = both("reduce_scatter", shard, reduce_bytes)
    if hybrid:
        # Replicas of a shard add up what their own group reduced; experts were reduced over all their replicas above.
        slice_bytes = params.dense * reduce_bytes / (groups["shard"].ranks * pieces)
        reduce = reduce + pieces * collective_time(network, groups["replica"], "all_reduce", slice_bytes)
    if sharding == "zero3":
        again = zero if pipelined else gather
        return GradientTraffic(gather, again, reduce, not pipelined, not pipelined, pieces)
    return GradientTraffic(gather, zero, reduce, False, sharding == "zero2" and not pipelined, pieces)
