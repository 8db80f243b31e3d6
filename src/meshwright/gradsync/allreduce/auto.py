"""`auto`: the algorithm that the planner's cost model says is the fastest here, for this payload.

The model is `formulas.collectives.all_reduce_costs`. What it has to know of a group, `LinkCost`, is measured when the
group first asks and agreed between the ranks, so that all choose alike; `tell` gives it instead. As in the planner,
ideal curves are then multiplied by measured constants: `calibrate` times the algorithms once and keeps, for each, how
far the model is off at a few sizes.
"""

from __future__ import annotations

import bisect
import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import torch
import torch.distributed as dist

from meshwright.formulas.collectives import all_reduce_costs
from meshwright.gradsync.allreduce import direct, recursive_doubling
from meshwright.gradsync.peers import Peers

PROBES = 15  # rounds per figure: the median of them counts
PROBE_BYTES = 4 << 20
SIZES = (1 << 10, 1 << 14, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26)  # bytes at which `calibrate` times


@dataclass(frozen=True, slots=True)
class LinkCost:
    """What messages cost in a group.

    `latency`: seconds per round; `bandwidth`: bytes/s of a rank while all send; `gap`: seconds per further message at
    once; `reduction`: seconds to add a byte. `off`: per algorithm, (bytes, measured over modelled) in rising order.
    """

    latency: float
    bandwidth: float
    gap: float
    reduction: float = 0.0
    latency_inner: float | None = None
    bandwidth_inner: float | None = None
    off: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)


_known: dict[tuple[str, str], LinkCost] = {}
_chosen: dict[tuple[str, str, int, int, int], str] = {}  # weighing takes longer than a small message


def tell(group: dist.ProcessGroup, device: torch.device, cost: LinkCost) -> None:
    """Use this cost for the group instead of measuring it; every rank must say the same."""
    _chosen.clear()
    _known[group.group_name, device.type] = cost


def cost_of(peers: Peers, device: torch.device) -> LinkCost:
    """What is known of the group; the first call measures."""
    key = (peers.group.group_name, device.type)
    if key not in _known:
        _known[key] = measure(Peers(peers.group), device)  # peers of its own: a probe is not the caller's traffic
    return _known[key]


def choose(peers: Peers, payload: int, device: torch.device) -> str:
    """Name of the fastest algorithm for `payload` bytes."""
    key = (peers.group.group_name, device.type, payload, peers.size, peers.local)
    if key not in _chosen:
        costs = predicted(cost_of(peers, device), payload, peers.size, peers.local)
        _chosen[key] = min(costs, key=costs.__getitem__)
    return _chosen[key]


def predicted(cost: LinkCost, payload: float, ranks: int, local: int) -> dict[str, float]:
    """Seconds of each algorithm: the planner's model, times what calibration found it to be off."""
    ideal = all_reduce_costs(
        float(payload), ranks, cost.latency, cost.bandwidth, local=local, latency_inner=cost.latency_inner,
        bandwidth_inner=cost.bandwidth_inner or cost.bandwidth, gap=cost.gap, reduction=cost.reduction,
    )  # fmt: skip
    return {name: seconds * _factor(cost.off.get(name, ()), payload) for name, seconds in ideal.items()}


def _factor(points: Sequence[tuple[float, float]], payload: float) -> float:
    """Interpolated over the logarithm of the payload, constant outside."""
    if not points:
        return 1.0
    at = bisect.bisect_left([p for p, _ in points], payload)
    if at == 0 or at == len(points):
        return points[min(at, len(points) - 1)][1]
    (low, before), (high, after) = points[at - 1], points[at]
    share = math.log(payload / low) / math.log(high / low)
    return before ** (1 - share) * after**share


def calibrate(
    group: dist.ProcessGroup | None = None,
    *,
    device: torch.device | None = None,
    local: int | None = None,
    sizes: Iterable[int] = SIZES,
    seconds: float = 0.15,
) -> LinkCost:
    """Time every algorithm of the model at `sizes` bytes and correct the model of this group; every rank calls it.

    About `seconds` per size and algorithm. Worth it once per run where the links are unlike the model, for example
    when several ranks share a CPU core.
    """
    from meshwright.gradsync.allreduce import ALGORITHMS

    device = device if device is not None else torch.device("cpu")
    peers = Peers(group, local=local)
    cost = replace(cost_of(peers, device), off={})
    names = [n for n in predicted(cost, 1.0, peers.size, peers.local) if n in ALGORITHMS]
    sizes = sorted(sizes)
    times: dict[str, dict[int, list[float]]] = {n: {s: [] for s in sizes} for n in names}
    for size in sizes:
        flat = torch.zeros(size // 4, device=device)
        for name in names * 3:  # interleaved: a disturbance hits all alike
            action = partial(ALGORITHMS[name], peers, flat, _add)
            times[name][size].append(_block(peers, action, device, seconds / 3))
    flat_times = torch.tensor([min(times[n][s]) for n in names for s in sizes], dtype=torch.float64, device=device)
    recursive_doubling.all_reduce(peers, flat_times, _larger)
    slowest = iter(flat_times.tolist())
    off = {}
    for name in names:
        off[name] = [(float(s), next(slowest) / predicted(cost, s, peers.size, peers.local)[name]) for s in sizes]
    tell(peers.group, device, replace(cost, off=off))
    return cost_of(peers, device)


def _block(peers: Peers, action: Callable[[], None], device: torch.device, seconds: float) -> float:
    """Mean seconds of `action` over a block whose length all ranks know: it follows from the first call's model."""
    began = time.perf_counter()
    action()
    _settle(device)
    once = torch.tensor([time.perf_counter() - began], dtype=torch.float64, device=device)
    recursive_doubling.all_reduce(peers, once, _larger)
    count = max(1, min(20, round(seconds / max(once.item(), 1e-6))))
    began = time.perf_counter()
    for _ in range(count):
        action()
    _settle(device)
    return (time.perf_counter() - began) / count


def measure(peers: Peers, device: torch.device) -> LinkCost:
    """Time small and large exchanges while all ranks are at it; the slowest rank's figures are everybody's."""
    small = torch.zeros(peers.size, device=device)
    large, theirs = torch.zeros(PROBE_BYTES // 4, device=device), torch.zeros(PROBE_BYTES // 4, device=device)
    right, left = (peers.rank + 1) % peers.size, (peers.rank - 1) % peers.size
    latency = _median(lambda: peers.exchange([(small[:1], right)], [(theirs[:1], left)]), device)
    whole = _median(lambda: peers.exchange([(large, right)], [(theirs, left)]), device, PROBES // 3)
    spread = _median(lambda: direct.all_gather(peers, small.split(1)), device)
    adding = _median(lambda: _add(large, theirs), device, PROBES // 3)
    figures = torch.tensor([latency, whole, spread, adding], dtype=torch.float64, device=device)
    recursive_doubling.all_reduce(peers, figures, _larger)
    latency, whole, spread, adding = figures.tolist()
    gap = max(spread - latency, 0.0) / max(peers.size - 2, 1)
    return LinkCost(latency, PROBE_BYTES / max(whole - latency, 1e-9), gap, adding / PROBE_BYTES)


def _add(into: torch.Tensor, other: torch.Tensor) -> None:
    into.add_(other)


def _larger(into: torch.Tensor, other: torch.Tensor) -> None:
    torch.maximum(into, other, out=into)


def _settle(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _median(action: Callable[[], None], device: torch.device, rounds: int = PROBES) -> float:
    action()
    seconds = []
    for _ in range(rounds):
        _settle(device)
        began = time.perf_counter()
        action()
        _settle(device)
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)
