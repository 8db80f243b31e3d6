"""Seconds of the optimizer update: memory-bound on the device, or over the host link when offloaded."""

from __future__ import annotations

from typing import Any

from meshwright.engine.states import RankParams, StateBytes, shards
from meshwright.formulas.numeric import Bytes, BytesPerSecond, Count, Seconds, maximum
from meshwright.formulas.registry import formula
from meshwright.spec.strategy import Strategy


@formula(
    "optimizer.update",
    source="definition: every state read and written once, gradients read twice (norm, update)",
    equation="t = P (2 G + 2 (M + K) + W) / B",
)
def update_time(
    params: Count, gradient: Bytes, master_and_moments: Bytes, weight: Bytes, bandwidth: BytesPerSecond
) -> Seconds:
    """Time of a fused optimizer step that is bound by memory.

    Parameters
    ----------
    params : parameters this rank updates. [1]
    gradient, master_and_moments, weight : bytes per parameter of each state. [B]
    bandwidth : achievable memory bandwidth. [B/s]

    Examples
    --------
    >>> update_time(1e9, 4, 12, 2, 1e12)
    0.034
    """
    return params * (2 * gradient + 2 * master_and_moments + weight) / bandwidth


def optimizer_seconds(
    params: RankParams,
    strategy: Strategy,
    states: StateBytes,
    memory_bandwidth: float,
    host_link: float,
    host_memory_bandwidth: float,
) -> Any:
    """Update time of one rank's shard; `host_memory_bandwidth` is the rank's share of its host's. [s]"""
    by = shards(strategy)
    mine = params.dense / by.moments[0] + params.expert / by.moments[1]
    kept = states.master + states.moments
    if strategy.offload in ("optimizer", "parameters"):
        moved = mine * (states.gradient + 2.0) / host_link
        return moved + update_time(mine, states.gradient, kept, 2.0, host_memory_bandwidth)
    return maximum(update_time(mine, states.gradient, kept, states.weight, memory_bandwidth), 0.0)
