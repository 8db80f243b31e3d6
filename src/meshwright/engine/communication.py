"""Time of a collective on a placed group: the algorithms' shapes times measured constants.

Each algorithm that can run on the group is one curve: latency + wire bytes / bus bandwidth + d sqrt(wire bytes);
the library takes the quickest. Inside a domain: ring by a latency and a bandwidth protocol, and reduction in the
switch. Across domains: a ring whose slowest hop decides, and a pipelined double tree (all-reduce). A torus has its
own forms. Constants come from `catalog.fits`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from meshwright.catalog.fits import ExpertKernelFit, FabricFit, InSwitchFit, LinkFit, OperationFit, load_fits
from meshwright.engine.placement import Group, usable_domain
from meshwright.errors import UnknownNameError
from meshwright.formulas.all_to_all import dispatch_bytes, expected_distinct_places, expert_all_to_all, off_rank_share
from meshwright.formulas.collectives import bus_factor, pipelined_time
from meshwright.formulas.numeric import ceil, log2, maximum, minimum, where
from meshwright.formulas.torus import torus_all_gather, torus_all_reduce, torus_all_to_all, torus_send
from meshwright.spec.cluster import Cluster

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "p2p")
KERNELS = ("deepep", "alltoall")
INTERACTIVE_LIMIT = 16384  # curves kept per cluster


@dataclass(frozen=True, slots=True)
class Curve:
    """One algorithm on one group: seconds = latency + wire/bandwidth + sqrt_cost sqrt(wire), wire = payload*factor."""

    algorithm: str
    latency: Any
    factor: Any
    bandwidth: Any
    sqrt_cost: Any = 0.0


@dataclass(frozen=True, slots=True)
class Link:
    """A link's constants with the rank tables spelled out: `table[n]` for n ranks, the last entry beyond."""

    fit: LinkFit
    efficiency: Mapping[str, tuple[float, ...]]
    in_switch: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Network:
    """Resolved constants for one cluster; `provenance` says where each came from."""

    cluster: Cluster
    link: Link
    host_link: Link  # PCIe, for ranks of a node that have no faster link between them
    fabric: FabricFit
    pair_bandwidth: float  # between two devices of a domain  [B/s]
    provenance: tuple[tuple[str, str, str], ...]  # (part, fit id, basis)
    curves: dict[Any, tuple[Curve, ...]] = field(default_factory=dict, compare=False)


@lru_cache(maxsize=256)
def network(cluster: Cluster) -> Network:
    """The constants that hold on `cluster`."""
    fits = load_fits()
    architecture = cluster.accelerator.architecture
    return build_network(
        cluster,
        fits.link(cluster.link, architecture),
        fits.fabric(cluster.fabric, architecture),
        fits.link("pcie", architecture),
    )


def build_network(cluster: Cluster, link: LinkFit, fabric: FabricFit, host_link: LinkFit) -> Network:
    """A network from given fits (calibration tries its own)."""
    size = min(usable_domain(cluster), 1024)
    pair = cluster.accelerator.link_pair_bandwidth or cluster.link_bandwidth
    if cluster.link in ("nvswitch", "pcie"):
        pair = cluster.link_bandwidth
    provenance = [(f"link.{name}", link.id, op.basis) for name, op in link.operations.items()]
    if link.in_switch:
        provenance.append(("link.in_switch", link.id, link.in_switch.basis))
    provenance.append(("fabric", fabric.id, fabric.basis))
    return Network(
        cluster=cluster,
        link=_tabulate(link, size),
        host_link=_tabulate(host_link, min(size, 64)),
        fabric=fabric,
        pair_bandwidth=pair,
        provenance=tuple(provenance),
    )


def _tabulate(fit: LinkFit, size: int) -> Link:
    tables = {
        name: _table(op.efficiency_by_ranks or {size: op.efficiency}, size) for name, op in fit.operations.items()
    }
    switch = _table(fit.in_switch.efficiency_by_ranks, size) if fit.in_switch else ()
    return Link(fit, tables, switch)


def _table(by_ranks: Mapping[int, float], size: int) -> tuple[float, ...]:
    """Efficiency for 0..size ranks: linear in log(ranks) between the measured counts, flat beyond them."""
    known = sorted(by_ranks)
    grid = np.log(np.maximum(np.arange(size + 1), 1))
    return tuple(float(v) for v in np.interp(grid, np.log(known), [by_ranks[k] for k in known]))


def _at(table: tuple[float, ...], ranks: Any) -> Any:
    last = len(table) - 1
    if isinstance(ranks, np.ndarray):
        return np.asarray(table)[np.minimum(ranks, last).astype(np.int64)]
    return table[int(ranks) if ranks < last else last]


# --- the public question ---------------------------------------------------------------------------------------


def collective_time(network: Network, group: Group, operation: str, payload: Any) -> Any:
    """Seconds of one collective.

    `payload`: the full tensor (all_reduce, all_gather, reduce_scatter); what one rank holds for all ranks, its own
    part included (all_to_all); the message (broadcast, p2p). One rank, or nothing to send, takes no time.
    """
    ranks = group.ranks
    if not isinstance(ranks, np.ndarray) and not isinstance(payload, np.ndarray):
        if ranks <= 1 or payload <= 0:
            return 0.0
        if network.cluster.torus:
            return _torus_time(network, group, operation, payload)
        best = None
        for c in _curves_cached(network, group, operation):
            t = pipelined_time(payload * c.factor, c.latency, c.bandwidth, c.sqrt_cost)
            if best is None or t < best:
                best = t
        return best
    if network.cluster.torus:
        best = _torus_time(network, group, operation, payload)
    else:
        times = [
            pipelined_time(payload * c.factor, c.latency, c.bandwidth, c.sqrt_cost)
            for c in _curves_cached(network, group, operation)
        ]
        best = times[0]
        for t in times[1:]:
            best = minimum(best, t)
    return np.where((np.asarray(ranks) > 1) & (np.asarray(payload) > 0), best, 0.0)


def algorithm_costs(network: Network, group: Group, operation: str, payload: float) -> dict[str, float]:
    """Seconds of every algorithm considered for one collective (torus: one entry); empty for one rank."""
    if group.ranks <= 1 or payload <= 0:
        return {}
    if network.cluster.torus:
        return {"torus": _torus_time(network, group, operation, payload)}
    return {
        c.algorithm: pipelined_time(payload * c.factor, c.latency, c.bandwidth, c.sqrt_cost)
        for c in _curves_cached(network, group, operation)
    }


def _curves_cached(network: Network, group: Group, operation: str) -> tuple[Curve, ...]:
    key = (
        operation, group.ranks, group.local, group.domains, group.scale_up_bandwidth, group.scale_out_bandwidth,
        group.scattered_bandwidth, group.bridged,
    )  # fmt: skip
    try:
        found = network.curves.get(key)
    except TypeError:  # columns: not worth keeping
        return _curves(network, group, operation)
    if found is None:
        if len(network.curves) > INTERACTIVE_LIMIT:
            network.curves.clear()
        found = network.curves[key] = _curves(network, group, operation)
    return found


def _curves(network: Network, group: Group, operation: str) -> tuple[Curve, ...]:
    if operation not in OPERATIONS:
        raise UnknownNameError("collective", operation, OPERATIONS)
    if isinstance(group.bridged, np.ndarray):
        own = _curves_over(network, network.link, group, operation)
        host = _curves_over(network, network.host_link, group, operation)
        blank = Curve("none", np.inf, 1.0, 1.0)
        masked = [_masked(c, group.bridged) for c in own] + [_masked(c, ~group.bridged) for c in host]
        return tuple(masked) or (blank,)
    return _curves_over(network, network.link if group.bridged else network.host_link, group, operation)


def _masked(curve: Curve, keep: Any) -> Curve:
    return Curve(curve.algorithm, np.where(keep, curve.latency, np.inf), curve.factor, curve.bandwidth, curve.sqrt_cost)


def _curves_over(network: Network, link: Link, group: Group, operation: str) -> tuple[Curve, ...]:
    domains = group.domains
    if isinstance(domains, np.ndarray):
        inside = domains == 1
        return tuple(
            [_masked(c, inside) for c in _inside(network, link, group, operation)]
            + [_masked(c, ~inside) for c in _across(network, link, group, operation)]
        )
    return (_inside if domains == 1 else _across)(network, link, group, operation)


# --- inside one domain -----------------------------------------------------------------------------------------


def _ring_steps(operation: str, ranks: Any) -> Any:
    if operation == "all_reduce":
        return 2.0 * (ranks - 1)
    return 1.0 if operation == "p2p" else ranks - 1.0


def _inside(network: Network, link: Link, group: Group, operation: str) -> tuple[Curve, ...]:
    fit = link.fit
    op: OperationFit = fit.operations[operation]
    ranks = group.ranks
    bandwidth = (
        minimum(network.pair_bandwidth, group.scale_up_bandwidth) if operation == "p2p" else group.scale_up_bandwidth
    )
    steps = _ring_steps(operation, ranks)
    factor = bus_factor(operation, ranks)
    efficiency = _at(link.efficiency[operation], ranks)
    curves = [
        Curve("ring", op.latency + steps * fit.hop_latency, factor, bandwidth * efficiency),
        Curve("low-latency", op.fast_latency + steps * fit.fast_hop_latency, factor, bandwidth * op.fast_efficiency),
    ]
    if fit.in_switch and operation == "all_reduce":
        switch = _in_switch(link, fit.in_switch, ranks, bandwidth)
        if switch:
            curves.append(switch)
    return tuple(curves)


def _in_switch(link: Link, fit: InSwitchFit, ranks: Any, bandwidth: float) -> Curve | None:
    latency = fit.latency + fit.latency_per_rank * ranks
    rate = bandwidth * _at(link.in_switch, ranks)
    if isinstance(ranks, np.ndarray):
        return Curve("in-switch", np.where(ranks >= fit.min_ranks, latency, np.inf), 1.0, rate)
    return Curve("in-switch", latency, 1.0, rate) if ranks >= fit.min_ranks else None


# --- across domains --------------------------------------------------------------------------------------------


def _across(network: Network, link: Link, group: Group, operation: str) -> tuple[Curve, ...]:
    if operation == "p2p":
        fabric = network.fabric
        rate = group.scale_out_bandwidth * fabric.point_to_point_efficiency
        latency = link.fit.operations["p2p"].fast_latency + fabric.hop_latency
        return (Curve("p2p", latency, 1.0, rate),)
    if operation == "all_to_all":
        return (_scattered(network, link, group),)
    ring = _ring_across(network, link, group, operation)
    if operation == "all_reduce":
        tree = _tree_across(network, link, group)
        if isinstance(group.domains, np.ndarray):
            return _masked(ring, group.domains > 2), tree
        return (ring, tree) if group.domains > 2 else (tree,)  # on two nodes the tree has fewer bytes and steps
    return ring, _low_latency_ring(network, link, group, ring, operation)


def _ring_across(network: Network, link: Link, group: Group, operation: str) -> Curve:
    """A ring over all ranks: inner hops over the link, one per node and rail over the fabric; the slowest decides."""
    fit, fabric = link.fit, network.fabric
    op = fit.operations[operation]
    local, domains = group.local, group.domains
    outer_steps = _ring_steps(operation, domains)
    inner_steps = maximum(_ring_steps(operation, group.ranks) - outer_steps, 0.0)
    latency = op.latency + inner_steps * fit.hop_latency + outer_steps * fabric.ring_hop_latency
    cards = local * group.scale_out_bandwidth * fabric.ring_efficiency
    bandwidth = minimum(cards, _inner_bandwidth(link, group, operation))
    return Curve("ring", latency, bus_factor(operation, group.ranks), bandwidth)


def _inner_bandwidth(link: Link, group: Group, operation: str) -> Any:
    """Bus bandwidth inside the node, unlimited where the group has one rank there."""
    rate = group.scale_up_bandwidth * _at(link.efficiency[operation], group.local)
    return where(group.local > 1, rate, 1e30)


def _low_latency_ring(network: Network, link: Link, group: Group, ring: Curve, operation: str) -> Curve:
    """The ring by the latency protocol: quicker steps, half the bandwidth (flags travel with the data)."""
    fit = link.fit
    outer_steps = _ring_steps(operation, group.domains)
    inner_steps = maximum(_ring_steps(operation, group.ranks) - outer_steps, 0.0)
    latency = fit.operations[operation].fast_latency + inner_steps * fit.fast_hop_latency
    latency = latency + outer_steps * network.fabric.hop_latency
    return Curve("low-latency", latency, ring.factor, ring.bandwidth * 0.5)


def _tree_across(network: Network, link: Link, group: Group) -> Curve:
    """Double tree over the nodes, a chain or the switch inside: log latency, pipelined (the sqrt term).

    Two nodes: each card carries S/local once; more: twice that (`formulas.collectives.double_tree_wire_bytes`).
    """
    fit, fabric = link.fit, network.fabric
    local, domains = group.local, group.domains
    depth = ceil(log2(maximum(domains, 2)))
    wire = where(domains > 2, 2.0, 1.0) / local  # bytes per card and byte of payload
    crowded = min(fabric.tree_efficiency, fabric.ring_efficiency)  # inner nodes load a card as a ring does
    card = group.scale_out_bandwidth * where(domains > 2, crowded, fabric.tree_efficiency)
    latency = fit.operations["all_reduce"].fast_latency + 2.0 * (local - 1) * fit.fast_hop_latency
    latency = latency + 2.0 * depth * fabric.hop_latency
    inner = _inner_bandwidth(link, group, "all_reduce") / (2.0 * maximum(local - 1, 1) / local)
    if fit.in_switch:
        switch = group.scale_up_bandwidth * _at(link.in_switch, local)
        inner = where(local >= fit.in_switch.min_ranks, maximum(switch, inner), inner)
    payload_rate = minimum(card / wire, inner)
    fill = fabric.tree_pipelining * (depth * fabric.hop_latency / group.scale_out_bandwidth) ** 0.5
    return Curve("tree", latency, wire, payload_rate * wire, fill)


def _scattered(network: Network, link: Link, group: Group) -> Curve:
    """All-to-all: every rank to every rank; what stays in the node and what leaves it go at once."""
    fit, fabric = link.fit, network.fabric
    op = fit.operations["all_to_all"]
    ranks, local = group.ranks, group.local
    outside = (ranks - local) / ranks
    inside = (local - 1.0) / ranks
    rate = group.scattered_bandwidth * fabric.all_to_all_efficiency
    inner = group.scale_up_bandwidth * _at(link.efficiency["all_to_all"], local)
    seconds_per_byte = maximum(outside / rate, inside / inner)
    latency = op.latency + fabric.hop_latency + (ranks - 1.0) * fit.fast_hop_latency
    return Curve("pairwise", latency, 1.0, 1.0 / maximum(seconds_per_byte, 1e-30))


# --- torus -----------------------------------------------------------------------------------------------------


def _torus_time(network: Network, group: Group, operation: str, payload: Any) -> Any:
    """Inside the slice over ICI, then between slices over the data-centre network on each chip's share."""
    fit = network.link.fit
    op = fit.operations[operation]
    local, slices = group.local, group.domains
    rate = group.scale_up_bandwidth * op.efficiency
    hops, hop = group.hops, fit.hop_latency
    crossing = operation in ("all_gather", "reduce_scatter", "all_reduce", "broadcast")
    if operation == "p2p":
        inside = torus_send(payload, 1.0, hop, 1.0, network.pair_bandwidth * op.efficiency)
    elif operation == "all_reduce":
        inside = torus_all_reduce(payload, hops, hop, rate)
    elif operation == "all_to_all":
        inside = torus_all_to_all(payload * local, hops, hop, rate)
    else:
        inside = torus_all_gather(payload, hops, hop, rate)
    one_way = where(local > 1, op.latency + inside, 0.0) if crossing else op.latency + inside
    if not isinstance(slices, np.ndarray) and slices == 1:
        return one_way
    return where(slices > 1, _between_slices(network, group, operation, payload, one_way), one_way)


def _between_slices(network: Network, group: Group, operation: str, payload: Any, inside: Any) -> Any:
    fabric = network.fabric
    local, slices = group.local, group.domains
    if operation == "p2p":
        return fabric.hop_latency + payload / (group.scale_out_bandwidth * fabric.point_to_point_efficiency)
    if operation == "all_to_all":
        rate = group.scattered_bandwidth * fabric.all_to_all_efficiency
        return maximum(inside, fabric.hop_latency + payload * ((slices - 1) / slices) / rate)
    rate = group.scale_out_bandwidth * fabric.ring_efficiency
    steps = _ring_steps(operation, slices)
    return inside + steps * fabric.ring_hop_latency + payload / local * bus_factor(operation, slices) / rate


# --- expert parallelism ----------------------------------------------------------------------------------------


def expert_all_to_all_time(
    network: Network,
    group: Group,
    tokens: Any,
    top_k: Any,
    hidden: Any,
    bytes_per_element: Any,
    *,
    max_nodes: Any = None,
    kernel: str = "deepep",
) -> Any:
    """Seconds of one dispatch (or combine) of `tokens` tokens per rank over the expert group.

    `kernel`: "deepep" sends a token once per node and fans it out inside; "alltoall" sends one copy per expert through
    a plain all-to-all; any other expert kernel of the fits folder by its id. `max_nodes`: node-limited routing.
    """
    ranks, local, domains = group.ranks, group.local, group.domains
    if kernel == "alltoall" or network.cluster.torus:
        payload = dispatch_bytes(tokens, top_k, hidden, bytes_per_element)
        return collective_time(network, group, "all_to_all", payload)
    fit = expert_kernel(kernel)
    reach = domains if max_nodes is None else minimum(domains, max_nodes)
    out_share = (domains - 1.0) / domains
    if fit.dedup:
        copies_out = expected_distinct_places(reach, top_k) * out_share
        copies_in = expected_distinct_places(minimum(reach * local, ranks), top_k) * off_rank_share(maximum(local, 1))
    else:
        copies_out = top_k * out_share
        copies_in = top_k * (off_rank_share(ranks) - out_share)
    seconds = expert_all_to_all(
        dispatch_bytes(tokens, copies_out, hidden, bytes_per_element),
        dispatch_bytes(tokens, copies_in, hidden, bytes_per_element),
        fit.latency,
        group.scattered_bandwidth * fit.fabric_efficiency,
        group.scale_up_bandwidth * fit.link_efficiency,
    )
    return where(ranks > 1, seconds, 0.0)


@lru_cache(maxsize=16)
def expert_kernel(kernel: str) -> ExpertKernelFit:
    """The constants of a dispatch/combine kernel."""
    kernels = load_fits().expert_kernels
    if kernel not in kernels:
        raise UnknownNameError("expert kernel", kernel, (*kernels, "alltoall"))
    return kernels[kernel]
