"""`auto`: the algorithm that the planner's cost model says is the fastest here, for this payload.

The model is `formulas.collectives.choose_algorithm`; what it needs to know of this group, `LinkCost`, is measured
once, when a group first asks, and agreed between the ranks so that all choose alike. `tell` sets it without measuring.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist

from meshwright.formulas.collectives import all_reduce_costs
from meshwright.gradsync.allreduce import direct, recursive_doubling
from meshwright.gradsync.peers import Peers

PROBES = 15  # rounds per figure: the median of them counts
PROBE_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class LinkCost:
    """What a message costs in this group: seconds per round, bytes/s while all send, seconds per further message."""

    latency: float
    bandwidth: float
    gap: float
    latency_inner: float | None = None
    bandwidth_inner: float | None = None


_known: dict[tuple[str, str], LinkCost] = {}


def tell(group: dist.ProcessGroup, device: torch.device, cost: LinkCost) -> None:
    """Use this cost for the group instead of measuring it; every rank must say the same."""
    _known[group.group_name, device.type] = cost


def choose(peers: Peers, payload: int, device: torch.device) -> str:
    """Name of the fastest algorithm for `payload` bytes; the first call of a group measures its links."""
    key = (peers.group.group_name, device.type)
    if key not in _known:
        _known[key] = measure(Peers(peers.group), device)  # peers of its own: a probe is not the caller's traffic
    costs = predicted(_known[key], payload, peers.size, peers.local)
    return min(costs, key=costs.__getitem__)


def predicted(cost: LinkCost, payload: float, ranks: int, local: int) -> dict[str, float]:
    """Seconds of each algorithm by the planner's model."""
    return all_reduce_costs(
        float(payload), ranks, cost.latency, cost.bandwidth,
        local=local, latency_inner=cost.latency_inner, bandwidth_inner=cost.bandwidth_inner, gap=cost.gap,
    )  # fmt: skip


def measure(peers: Peers, device: torch.device) -> LinkCost:
    """Time small and large exchanges while all ranks are at it; the slowest rank's figures are everybody's."""
    small = torch.zeros(peers.size, device=device)
    large = torch.zeros(PROBE_BYTES // 4, device=device)
    theirs = torch.empty_like(large)
    right, left = (peers.rank + 1) % peers.size, (peers.rank - 1) % peers.size

    def message() -> None:
        peers.exchange([(small[:1], right)], [(theirs[:1], left)])

    def payload() -> None:
        peers.exchange_combine((large, right), (theirs, left), _add)

    def fan() -> None:
        direct.all_gather(peers, list(small.split(1)))

    latency = _median(message, device)
    whole = _median(payload, device, PROBES // 3)
    spread = _median(fan, device)
    figures = torch.tensor([latency, whole, spread], dtype=torch.float64, device=device)
    recursive_doubling.all_reduce(peers, figures, lambda a, b: torch.maximum(a, b, out=a))
    latency, whole, spread = figures.tolist()
    gap = max(spread - latency, 0.0) / max(peers.size - 2, 1)
    return LinkCost(latency, PROBE_BYTES / max(whole - latency, 1e-9), gap)


def _add(into: torch.Tensor, other: torch.Tensor) -> None:
    into.add_(other)


def _median(action: Callable[[], None], device: torch.device, rounds: int = PROBES) -> float:
    action()
    seconds = []
    for _ in range(rounds):
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        began = time.perf_counter()
        action()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)
