"""MW-P1xx: where the groups of the mesh lie on the wires, in numbers of this cluster.

Ranks are laid out with tensor innermost, then context, data, pipeline outermost (Megatron's `tp-cp-ep-dp-pp`, and
the mesh order of torchtitan and MaxText); expert groups take consecutive ranks.
"""

from __future__ import annotations

import math

from meshwright.messages import N_, Text
from meshwright.rules.base import RuleContext, Said, rule
from meshwright.rules.nearest import by_value, divisors, listed, nearest_divisors
from meshwright.units import show

SLOW_LINK = 100e9  # between PCIe 5 x16 (63 GB/s) and the slowest NVLink of the catalogue (150 GB/s)  [B/s]
MESH_LINKS = ("nvlink-mesh", "xgmi-mesh", "roce-mesh")


def speeds(c: RuleContext) -> dict[str, str]:
    """Scale-up and scale-out rates of one device, for a sentence."""
    return {"link": show(c.cluster.link_bandwidth, "B/s"), "nic": show(c.cluster.nic_bandwidth, "B/s")}


def ring_bandwidth(c: RuleContext, ranks: int, stride: int) -> float:
    """What a rank gets in a ring of `ranks` devices `stride` apart. [B/s per direction]

    Off the domain the members inside one domain share its ring and add up their network cards, up to the inner link:
    eight members on a node with eight cards get eight times what a lone member gets.
    """
    k = c.cluster
    span = ranks * stride
    if span <= k.domain_size:
        return k.link_bandwidth
    if span <= k.node_size:  # bridged pairs in a PCIe node
        return min(k.link_bandwidth, k.accelerator.host_bandwidth)
    return min(k.link_bandwidth, k.nic_bandwidth * max(k.domain_size // stride, 1))


def scales_out(c: RuleContext) -> bool:
    """Whether the cluster has more than one scale-up domain."""
    return c.cluster.devices > c.cluster.domain_size


@rule(
    "MW-P101",
    severity="warning",
    title=N_("Tensor parallelism stays inside the scale-up domain"),
    reason=N_("Tensor parallelism communicates in every layer and can hide little of it; outside the domain it shares "
              "the network cards and pays their latency in every layer."),
    fix=N_("Lower tensor parallelism to the size of the domain and use pipeline, context or sharded data parallelism "
           "for the rest."),
    condition="tensor <= domain_size",
    source="Narayanan et al. 2021, arXiv:2104.04473, section 3.2, takeaway 1",
    where="tensor",
    applies=scales_out,
    violated=lambda c: c.strategy.tensor > c.cluster.domain_size,
)  # fmt: skip
def tensor_outside(c: RuleContext) -> Said:
    tensor, domain = c.strategy.tensor, c.cluster.domain_size
    inside = max(d for d in divisors(tensor) if d <= domain)
    message = Text(
        N_("tensor {tensor} spans {domains} domains of {domain} devices: at best {reached} per device instead of "
           "{link}, with the latency of the network in every layer"),
        tensor=tensor, domains=-(-tensor // domain), domain=domain, link=show(c.cluster.link_bandwidth, "B/s"),
        reached=show(ring_bandwidth(c, tensor, 1), "B/s"),
    )  # fmt: skip
    fix = Text(
        N_("tensor = {inside}, with {factor} times as much pipeline or data parallelism"),
        inside=inside, factor=tensor // inside,
    )  # fmt: skip
    return message, fix, {"legal": [inside]}


@rule(
    "MW-P102",
    severity="warning",
    title=N_("Tensor groups do not straddle domains"),
    reason=N_("A group that does not divide the domain begins in one and ends in the next, and the whole group then "
              "waits for the network."),
    fix=N_("Use a tensor degree that divides the domain."),
    condition="domain_size % tensor == 0",
    source="Narayanan et al. 2021, arXiv:2104.04473, section 3.2",
    where="tensor",
    applies=scales_out,
    violated=lambda c: by_value(
        c.strategy.tensor, lambda t: (t <= c.cluster.domain_size) & (c.cluster.domain_size % t != 0)
    ),
)  # fmt: skip
def tensor_straddles(c: RuleContext) -> Said:
    tensor, domain = c.strategy.tensor, c.cluster.domain_size
    legal = nearest_divisors(math.gcd(domain, c.facts.head_gcd), tensor)
    message = Text(
        N_("tensor {tensor} does not divide the domain of {domain} devices: some groups leave it, "
           "where a device has {nic} instead of {link}"),
        tensor=tensor, domain=domain, **speeds(c),
    )  # fmt: skip
    return message, Text(N_("tensor = {legal}"), legal=listed(legal)), {"legal": legal}


@rule(
    "MW-P103",
    severity="warning",
    title=N_("Expert groups stay inside the scale-up domain"),
    reason=N_("Every MoE layer sends each token to its experts and back, four times per step and layer with the "
              "backward "
              "pass; the part that leaves the domain runs at the rate of the network card."),
    fix=N_("Lower expert parallelism to what the domain holds, or limit each token to few nodes (group-limited "
           "routing)."),
    condition="expert * expert_tensor <= domain_size",
    source="Rajbhandari et al. 2022, arXiv:2201.05596; DeepSeek-V3, arXiv:2412.19437, section 3.2.2",
    where="expert",
    applies=lambda c: bool(c.facts.experts) and scales_out(c),
    violated=lambda c: (c.strategy.expert > 1) & (c.strategy.expert * c.strategy.expert_tensor > c.cluster.domain_size),
)  # fmt: skip
def expert_outside(c: RuleContext) -> Said:
    s, domain = c.strategy, c.cluster.domain_size
    span = s.expert * s.expert_tensor
    inside = [d for d in divisors(s.expert) if d * s.expert_tensor <= domain] or [1]
    away = 1 - domain / span
    sent = c.tokens / s.tensor * c.facts.top_k * c.facts.hidden * 2 * away
    message = Text(
        N_("expert groups span {span} devices, the domain {domain}: about {away:.0%} of the routed tokens, {sent} per "
           "device, layer and exchange, leave it at {nic} instead of {link}"),
        span=span, domain=domain, away=away, sent=show(sent, "B"), **speeds(c),
    )  # fmt: skip
    return message, Text(N_("expert = {inside}"), inside=inside[-1]), {"legal": [inside[-1]], "span": span}


@rule(
    "MW-P104",
    severity="advice",
    title=N_("Context groups that leave the scale-up domain must hide their exchange"),
    reason=N_("Ring attention passes keys and values around while it computes; outside the domain that hides "
              "only if the "
              "sequence part of each rank is long."),
    fix=N_("Keep tensor × context inside the domain where it can be."),
    condition="tensor * context <= domain_size",
    source="Liu et al. 2023, arXiv:2310.01889, section 3 (block size at least peak / bandwidth)",
    where="context",
    applies=scales_out,
    violated=lambda c: (c.strategy.context > 1) & (c.strategy.tensor * c.strategy.context > c.cluster.domain_size),
)  # fmt: skip
def context_outside(c: RuleContext) -> Said:
    s, device = c.strategy, c.cluster.accelerator
    peak = device.peak_flops.get("bf16") or max(device.peak_flops.values())
    nic = c.cluster.nic_bandwidth
    message = Text(
        N_("tensor {tensor} × context {context} spans more than the domain of {domain}: each rank holds "
           "{tokens:.0f} tokens; "
           "at {nic} a ring hides behind attention from about {need:.0f}"),
        tensor=s.tensor, context=s.context, domain=c.cluster.domain_size, tokens=c.tokens,
        need=peak / nic if nic else math.inf, nic=show(nic, "B/s"),
    )  # fmt: skip
    return message, None, {}


@rule(
    "MW-P105",
    severity="advice",
    title=N_("A pipeline inside one scale-up domain"),
    reason=N_("A pipeline sends little and suits slow links; within one domain tensor or sharded data "
              "parallelism uses the "
              "fast links and has no bubble."),
    fix=N_("Replace the pipeline by tensor or sharded data parallelism (ZeRO, FSDP)."),
    condition="pipeline == 1 where all devices share a domain",
    source="Narayanan et al. 2021, arXiv:2104.04473, section 3.2",
    where="pipeline",
    applies=lambda c: not scales_out(c) and c.cluster.link_bandwidth >= SLOW_LINK,
    violated=lambda c: c.strategy.pipeline > 1,
)  # fmt: skip
def pipeline_inside(c: RuleContext) -> Said:
    message = Text(
        N_("pipeline {pipeline} on {devices} devices that all reach each other at {link}"),
        pipeline=c.strategy.pipeline, devices=c.cluster.devices, link=show(c.cluster.link_bandwidth, "B/s"),
    )  # fmt: skip
    return message, None, {}


@rule(
    "MW-P106",
    severity="warning",
    title=N_("Hybrid shard groups fill the scale-up domain"),
    reason=N_("Hybrid sharding pays when gathers stay on the fast links: a shard group (times tensor) of just "
              "the domain. "
              "Larger groups gather over the network, smaller ones waste memory."),
    fix=N_("Use a shard size of the domain divided by tensor."),
    condition="shard * tensor == domain_size with hybrid sharding",
    source="Zhao et al. 2023, arXiv:2304.11277, section 3.2.2; deepspeedai/DeepSpeed#6889",
    where="shard",
    applies=lambda c: scales_out(c) and c.strategy.sharding in ("zero2", "zero3"),
    violated=lambda c: (c.strategy.shard != 0)
    & (c.strategy.shard != c.strategy.data * c.strategy.context)
    & (c.strategy.shard * c.strategy.tensor != c.cluster.domain_size),
)  # fmt: skip
def shard_domain(c: RuleContext) -> Said:
    s, domain = c.strategy, c.cluster.domain_size
    size = max(domain // s.tensor, 1)
    legal = nearest_divisors(math.gcd(size, s.data * s.context), size, 1)
    message = Text(
        N_("shard groups span {span} devices (shard {shard} × tensor {tensor}), the domain {domain}"),
        span=s.shard * s.tensor, shard=s.shard, tensor=s.tensor, domain=domain,
    )  # fmt: skip
    return message, Text(N_("shard = {legal}"), legal=listed(legal)), {"legal": legal}


@rule(
    "MW-P107",
    severity="warning",
    title=N_("Tensor parallelism needs a fast link"),
    reason=N_("Over PCIe the collectives of every layer take about as long as the arithmetic they serve: the "
              "same code ran at "
              "half the rate on a node without NVLink."),
    fix=N_("Prefer pipeline parallelism or ZeRO on nodes without NVLink."),
    condition="tensor == 1 on links slower than 100 GB/s",
    source="InternLM/InternLM#22 (93 against 188 TFLOP/s per device)",
    where="tensor",
    applies=lambda c: c.cluster.link == "pcie" or c.cluster.link_bandwidth < SLOW_LINK,
    violated=lambda c: c.strategy.tensor > 1,
)  # fmt: skip
def tensor_pcie(c: RuleContext) -> Said:
    message = Text(
        N_("tensor {tensor} over {kind} at {link} per device"),
        tensor=c.strategy.tensor, kind=c.cluster.link, link=show(c.cluster.link_bandwidth, "B/s"),
    )  # fmt: skip
    return message, None, {"legal": [1]}


@rule(
    "MW-P108",
    severity="warning",
    title=N_("On a mesh of links a small group uses few of them"),
    reason=N_("Without a switch each pair of devices has its own link: a group of n reaches n - 1 links of the "
              "device, the "
              "rest idle. On MI300X a pair gets 64 of 448 GB/s."),
    fix=N_("Use the whole node for tensor parallelism, or leave it at 1."),
    condition="tensor in (1, domain_size) on a full mesh",
    source="shared facts: MI300X measured all-reduce 48 GB/s on two devices against 313 GB/s on eight (ml-engineering)",
    where="tensor",
    applies=lambda c: c.cluster.link in MESH_LINKS,
    violated=lambda c: (c.strategy.tensor > 1) & (c.strategy.tensor < c.cluster.domain_size),
)  # fmt: skip
def tensor_mesh(c: RuleContext) -> Said:
    tensor, device = c.strategy.tensor, c.cluster.accelerator
    reached = min((tensor - 1) * device.link_pair_bandwidth, c.cluster.link_bandwidth)
    message = Text(
        N_("tensor {tensor} on {device} reaches {reached} of {link} per device"),
        tensor=tensor, device=device.name, reached=show(reached, "B/s"), link=show(c.cluster.link_bandwidth, "B/s"),
    )  # fmt: skip
    return message, None, {"legal": [1, c.cluster.domain_size], "bandwidth": reached}


@rule(
    "MW-P109",
    severity="warning",
    title=N_("Nodes are filled"),
    reason=N_("A partly used node shares its network cards unevenly, and groups straddle nodes."),
    fix=N_("Use a multiple of the devices of a node."),
    condition="devices % node_size == 0",
    source="definition",
    where="devices",
    violated=lambda c: c.cluster.devices > c.cluster.node_size and c.cluster.devices % c.cluster.node_size != 0,
)
def nodes_filled(c: RuleContext) -> Said:
    size, devices = c.cluster.node_size, c.cluster.devices
    legal = [devices // size * size, -(-devices // size) * size]
    message = Text(N_("{devices} devices on nodes of {size}"), devices=devices, size=size)
    return message, Text(N_("devices = {legal}"), legal=listed(legal)), {"legal": legal}


def whole_axes(torus: tuple[int, ...]) -> list[int]:
    """Sizes of groups made of whole torus axes."""
    sizes = {1}
    for axis in torus:
        sizes |= {s * axis for s in sizes}
    return sorted(sizes)


@rule(
    "MW-P110",
    severity="advice",
    title=N_("Tensor groups cover whole axes of the torus"),
    reason=N_(
        "Only a whole axis has its wrap-around link; a part of one is a line, on which a ring runs at half the rate."
    ),
    fix=N_("Use a tensor degree that is a product of whole axes."),
    condition="tensor is a product of whole torus axes",
    source="jax-ml/scaling-book, chapter on TPUs (wrap-around links on full axes)",
    where="tensor",
    applies=lambda c: bool(c.cluster.torus),
    violated=lambda c: c.strategy.tensor not in whole_axes(c.cluster.torus),
)
def torus_axes(c: RuleContext) -> Said:
    legal = whole_axes(c.cluster.torus)
    message = Text(
        N_("tensor {tensor} on a torus of {torus}"), tensor=c.strategy.tensor, torus="×".join(map(str, c.cluster.torus))
    )
    return message, Text(N_("tensor = {legal}"), legal=listed(legal)), {"legal": legal}
