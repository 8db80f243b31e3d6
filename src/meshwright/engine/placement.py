"""Where the groups of a strategy lie on the topology: how many of their ranks share a node, and what each can send.

Ranks are numbered as every framework numbers them: tensor fastest, then context, data, pipeline. A group is then
`size` ranks a `stride` apart, and the node (or rack, or slice) boundaries decide the rest. This is what tells
12.5 from 100 GB/s on the same hardware: eight ranks of one group in a node own eight network cards; one rank per
node owns one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from meshwright.formulas.numeric import maximum, minimum, where
from meshwright.formulas.torus import axis_bandwidth, axis_hops
from meshwright.messages import N_, Text
from meshwright.spec.cluster import Cluster
from meshwright.spec.plan import GroupPlacement
from meshwright.spec.strategy import Strategy

MESHES = ("nvlink-mesh", "xgmi-mesh", "roce-mesh")  # links between pairs of devices, no switch


@dataclass(frozen=True, slots=True)
class Group:
    """One communicator of a strategy as it lies on the cluster (the slowest of its kind, where they differ)."""

    name: str  # tensor, context, data, shard, replica, expert, expert_tensor, expert_data, pipeline
    ranks: Any  # members
    stride: Any  # distance between neighbouring members in global ranks
    local: Any  # members inside one scale-up domain
    domains: Any  # scale-up domains the communicator spans
    scale_up_bandwidth: Any  # per rank inside the domain  [B/s per direction]
    scale_out_bandwidth: Any  # what one rank can send off its domain while all ranks of the node do  [B/s]
    scattered_bandwidth: Any  # the same for all-to-all traffic, which leaves the pod more often  [B/s]
    bridged: (
        Any  # False where members of one node reach each other only over PCIe although the devices have a faster link
    )
    hops: Any = 0  # torus: the way a shard travels in an all-gather  [hops]


@lru_cache(maxsize=256)
def usable_domain(cluster: Cluster) -> int:
    """Devices of one scale-up domain that a job uses.

    A node is taken whole. Of a rack-scale domain (NVL72) schedulers hand out the largest equal segment that divides
    the job, 64 of 72 for 2,048 devices, so that groups of a power of two do not straddle racks. Where devices have
    a link to a partner only (bridge) or none, the domain is the node, over PCIe.
    """
    domain = max(cluster.domain_size, min(cluster.node_size, cluster.devices))
    if cluster.domain_size <= cluster.node_size or cluster.devices <= domain or cluster.torus:
        return domain
    step = cluster.node_size
    for segment in range(domain - domain % step, domain // 2, -step):
        if cluster.devices % segment == 0:
            return segment
    return domain


def members_per_block(ranks: Any, stride: Any, block: int, world: Any) -> tuple[Any, Any]:
    """Members of a group inside one block of `block` consecutive ranks, and blocks spanned, for the worst group.

    Groups of `ranks` members `stride` apart tile the `world`. Exact for any sizes; where groups differ, the one
    over most blocks counts, with its least populated block.
    """
    if any(isinstance(v, np.ndarray) for v in (ranks, stride, world)):
        return _members_columns(ranks, stride, block, world)
    return _members_scalar(int(ranks), int(stride), block, int(world))


@lru_cache(maxsize=65536)
def _members_scalar(ranks: int, stride: int, block: int, world: int) -> tuple[int, int]:
    extent = ranks * stride
    if world <= block or block % extent == 0:
        return ranks, 1
    if stride % block == 0:
        return 1, ranks
    if block % stride == 0 and extent % block == 0:
        return block // stride, extent // block
    usable = world - world % extent or extent
    blocks = np.arange(usable).reshape(-1, ranks, stride).transpose(0, 2, 1).reshape(-1, ranks) // block
    new = np.diff(blocks, axis=1) != 0
    spanned = 1 + new.sum(axis=1)
    worst = blocks[spanned == spanned.max()]
    first = np.concatenate([np.ones((len(worst), 1), bool), np.diff(worst, axis=1) != 0], axis=1)
    runs = np.diff(np.append(np.flatnonzero(first.ravel()), first.size))
    return int(runs.min()), int(spanned.max())


def _members_columns(ranks: Any, stride: Any, block: int, world: Any) -> tuple[Any, Any]:
    """As `_members_scalar`, the three even cases by masks and the odd ones one by one."""
    ranks, stride, world = (np.asarray(v, dtype=np.int64) for v in np.broadcast_arrays(ranks, stride, world))
    extent = ranks * stride
    within = (world <= block) | (block % extent == 0)
    apart = stride % block == 0
    dense = (block % stride == 0) & (extent % block == 0)
    local = np.where(within, ranks, np.where(apart, 1, block // stride))
    spanned = np.where(within, 1, np.where(apart, ranks, extent // block))
    odd = np.flatnonzero(~(within | apart | dense))
    if len(odd):
        rows, inverse = np.unique(np.stack([ranks, stride, world], axis=1)[odd], axis=0, return_inverse=True)
        found = np.array([_members_scalar(int(n), int(s), block, int(w)) for n, s, w in rows], dtype=np.int64)
        local[odd], spanned[odd] = found[inverse.reshape(-1)].T
    return local, spanned


def place(cluster: Cluster, strategy: Strategy) -> dict[str, Group]:
    """Every group of `strategy` placed on `cluster`; groups of one rank are present with `ranks` 1."""
    tensor, context, data = strategy.tensor, strategy.context, strategy.data
    replicas = data * context
    model = tensor * replicas
    world = model * strategy.pipeline
    expert, expert_tensor = strategy.expert, strategy.expert_tensor
    shard = where(strategy.shard > 0, strategy.shard, replicas) if _is_column(strategy.shard) else strategy.shard_group
    inner = expert * expert_tensor
    shapes = (
        ("tensor", tensor, 1),
        ("context", context, tensor),
        ("data", replicas, tensor),
        ("shard", shard, tensor),
        ("replica", maximum(replicas // shard, 1), tensor * shard),
        ("expert", expert, expert_tensor),
        ("expert_tensor", expert_tensor, 1),
        ("expert_data", maximum(model // inner, 1), inner),
        ("pipeline", strategy.pipeline, model),
    )
    if any(_is_column(v) for v in (tensor, context, data, strategy.pipeline, expert, expert_tensor, shard)):
        return {name: _place_group(cluster, name, ranks, stride, world) for name, ranks, stride in shapes}
    return {name: _place_cached(cluster, name, ranks, stride, world) for name, ranks, stride in shapes}


def _is_column(value: Any) -> bool:
    return isinstance(value, np.ndarray)


def _place_group(cluster: Cluster, name: str, ranks: Any, stride: Any, world: Any) -> Group:
    domain = usable_domain(cluster)
    local, domains = members_per_block(ranks, stride, domain, world)
    nic = cluster.nic_bandwidth
    scale_out, scattered = nic, nic
    if cluster.pod_size and cluster.oversubscription > 1.0:
        scale_out, scattered = _beyond_pod(cluster, ranks, stride, local, world)
    bandwidth, bridged, hops = _scale_up(cluster, ranks, stride, local, world)
    return Group(name, ranks, stride, local, domains, bandwidth, scale_out, scattered, bridged, hops)


_place_cached = lru_cache(maxsize=65536)(_place_group)


def _beyond_pod(cluster: Cluster, ranks: Any, stride: Any, local: Any, world: Any) -> tuple[Any, Any]:
    """Rates of a rank in a group that leaves its pod, for ring or tree neighbours and for scattered traffic.

    A ring leaves the pod once per pod on every rail, so of m nodes of the group in a pod one sends over the thin
    uplinks: m/oversubscription of the card's rate, at most all of it. All-to-all traffic leaves in proportion.
    """
    assert cluster.pod_size is not None
    nic, thin = cluster.nic_bandwidth, cluster.oversubscription
    inside, pods = members_per_block(ranks, stride, cluster.pod_size, world)
    neighbours = nic * minimum(1.0, maximum(inside // local, 1) / thin)
    scattered = nic / maximum(1.0, thin * (ranks - inside) / ranks)
    return where(pods > 1, neighbours, nic), where(pods > 1, scattered, nic)


def _scale_up(cluster: Cluster, ranks: Any, stride: Any, local: Any, world: Any) -> tuple[Any, Any, Any]:
    """Bandwidth of a rank inside its domain, whether it is the devices' own link, and torus hops."""
    if cluster.torus:
        bandwidth, hops = _torus_axes(cluster, ranks, stride)
        return bandwidth, True, hops
    if 1 < cluster.domain_size < min(cluster.node_size, cluster.devices) and cluster.link != "pcie":
        _, pairs = members_per_block(ranks, stride, cluster.domain_size, world)
        host = minimum(cluster.accelerator.host_bandwidth, cluster.link_bandwidth)
        return where(pairs > 1, host, cluster.link_bandwidth), pairs == 1, 0
    if cluster.link in MESHES:
        pairs = cluster.accelerator.link_pair_bandwidth * maximum(local - 1, 1)
        return minimum(cluster.link_bandwidth, pairs), True, 0
    return cluster.link_bandwidth, True, 0


def _torus_axes(cluster: Cluster, ranks: Any, stride: Any) -> tuple[Any, Any]:
    """Sum of the axes' bandwidths and of the hops for the part of a group inside its slice.

    Mesh dimensions take the slice's axes in order, fastest first; an axis taken whole closes to a ring where the
    hardware does that: from 16 chips on a 2-D torus, at multiples of 4 on a 3-D one.
    """
    link = cluster.accelerator.link_pair_bandwidth
    bandwidth: Any = 0.0
    hops: Any = 0.0
    before = 1
    for size in cluster.torus:
        taken = maximum(minimum(stride * ranks, before * size) // maximum(stride, before), 1)
        closes = size >= 16 if len(cluster.torus) == 2 else size > 2 and size % 4 == 0
        wrapped = (taken == size) & closes
        used = taken > 1
        bandwidth = bandwidth + where(used, axis_bandwidth(link, wrapped), 0.0)
        hops = hops + where(used, axis_hops(taken, wrapped), 0.0)
        before *= size
    return maximum(bandwidth, link), hops


# --- in words --------------------------------------------------------------------------------------------------

LINK_NAMES = {
    "nvswitch": "NVLink", "nvlink-mesh": "NVLink", "xgmi-mesh": "xGMI", "roce-mesh": "RoCE", "pcie": "PCIe",
    "torus": "ICI", "neuronlink": "NeuronLink",
}  # fmt: skip
FABRIC_NAMES = {
    "infiniband": "InfiniBand", "roce": "RoCE", "efa": "EFA", "tcpx": "TCPX", "tcpxo": "TCPXO",
    "ethernet": "Ethernet", "slingshot": "Slingshot", "omnipath": "Omni-Path", "dcn": "DCN",
}  # fmt: skip


def describe(cluster: Cluster, strategy: Strategy) -> tuple[GroupPlacement, ...]:
    """Placement of each group with more than one rank, in words; `shard` only where it is not all of `data`."""
    groups = place(cluster, strategy)
    shown = []
    for name, group in groups.items():
        if group.ranks == 1 or (name == "shard" and group.ranks == groups["data"].ranks):
            continue
        if name in ("expert", "expert_tensor", "expert_data") and groups["expert"].ranks == 1:
            continue
        shown.append(_describe_group(cluster, group))
    return tuple(shown)


def _describe_group(cluster: Cluster, group: Group) -> GroupPlacement:
    inside = group.domains == 1
    link = LINK_NAMES.get(cluster.link, cluster.link) if group.bridged else "PCIe"
    fabric = FABRIC_NAMES.get(cluster.fabric, cluster.fabric)
    return GroupPlacement(
        group=group.name,
        ranks=int(group.ranks),
        ranks_per_domain=int(group.local),
        domains=int(group.domains),
        link=link if inside else fabric,
        bandwidth=float(group.scale_up_bandwidth if inside else group.scale_out_bandwidth),
        text=_sentence(cluster, group, link, fabric),
    )


def _sentence(cluster: Cluster, group: Group, link: str, fabric: str) -> Text:
    ranks, local, domains = int(group.ranks), int(group.local), int(group.domains)
    rate = f"{group.scale_out_bandwidth * 8e-9:g}"
    if domains == 1:
        if cluster.torus:
            return Text(N_("{ranks} chips inside one slice, over ICI"), ranks=ranks)
        if cluster.domain_size > cluster.node_size:
            return Text(N_("{ranks} ranks inside one {link} rack"), ranks=ranks, link=link)
        return Text(N_("{ranks} ranks inside one node, over {link}"), ranks=ranks, link=link)
    values = {"ranks": ranks, "domains": domains, "local": local, "rate": rate, "fabric": fabric}
    if local * domains != ranks:
        return Text(
            N_("{ranks} ranks straddle {domains} nodes unevenly, down to {local} in one: {rate} Gb/s of {fabric} each"),
            **values,
        )
    if group.name == "pipeline":
        if local == 1:
            return Text(
                N_("{ranks} stages over {domains} nodes: each rank sends to the next over {rate} Gb/s of {fabric}"),
                **values,
            )
        return Text(
            N_("{ranks} stages over {domains} nodes, {local} per node: between nodes {rate} Gb/s of {fabric} per rank"),
            **values,
        )
    if cluster.torus:
        return Text(
            N_("{ranks} chips over {domains} slices, {local} per slice: {rate} Gb/s of {fabric} each between slices"),
            **values,
        )
    if cluster.domain_size > cluster.node_size:
        return Text(
            N_("{ranks} ranks over {domains} racks, {local} per rack: between racks each has {rate} Gb/s of {fabric}"),
            **values,
        )
    if local == 1:
        return Text(
            N_("{ranks} ranks over {domains} nodes, one rank per node: each has its own {rate} Gb/s of {fabric}"),
            **values,
        )
    return Text(
        N_(
            "{ranks} ranks over {domains} nodes, {local} per node: each node sends on {local} x {rate} Gb/s of {fabric}"
        ),
        **values,
    )
