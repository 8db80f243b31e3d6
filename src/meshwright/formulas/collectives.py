"""Collectives on one communicator: bytes on the wire, and the time of each algorithm (the ideal layer).

`payload` is the whole tensor: what every rank ends with (all-reduce, all-gather) or starts with (reduce-scatter,
all-to-all). `latency` is paid per step, `bandwidth` is what one rank can send while it receives as much.
Measured efficiency is not here: `engine.communication` multiplies these shapes by fitted constants.
"""

from __future__ import annotations

import math
from typing import Any

from meshwright.formulas.numeric import (
    Bytes,
    BytesPerSecond,
    Count,
    Seconds,
    SqrtCost,
    ceil,
    log2,
    maximum,
    sqrt,
    where,
)
from meshwright.formulas.registry import formula

NCCL_TESTS = "NVIDIA/nccl-tests doc/PERFORMANCE.md"
THAKUR = "Thakur, Rabenseifner, Gropp 2005, Optimization of Collective Communication Operations in MPICH"
SANDERS = "Sanders, Speck, Traff 2009, Two-tree algorithms for full bandwidth broadcast, reduction and scan"


# --- bytes on the wire, bus bandwidth --------------------------------------------------------------------------


@formula("comm.wire.all_reduce", source=NCCL_TESTS, equation="x = 2 (p-1)/p S")
def all_reduce_wire_bytes(payload: Bytes, ranks: Count) -> Bytes:
    """Bytes each rank sends in a bandwidth-optimal all-reduce.

    Parameters
    ----------
    payload : bytes of the tensor
    ranks : members of the group

    Notes
    -----
    Assumes: no reduction in the switch (which needs only `payload`).

    Examples
    --------
    >>> all_reduce_wire_bytes(800.0, 4)
    1200.0
    """
    return payload * (2.0 * (ranks - 1) / ranks)


@formula("comm.wire.all_gather", source=NCCL_TESTS, equation="x = (p-1)/p S")
def all_gather_wire_bytes(payload: Bytes, ranks: Count) -> Bytes:
    """Bytes each rank sends in an all-gather, reduce-scatter or all-to-all of `payload` bytes in total.

    Parameters
    ----------
    payload : bytes of the gathered tensor (all-gather), the input (reduce-scatter), or one rank's buffer (all-to-all)
    ranks : members of the group

    Examples
    --------
    >>> all_gather_wire_bytes(800.0, 4)
    600.0
    """
    return payload * ((ranks - 1) / ranks)


@formula("comm.wire.double_tree", source=SANDERS, equation="x = S (p = 2), 2 S (p > 2)")
def double_tree_wire_bytes(payload: Bytes, ranks: Count) -> Bytes:
    """Most bytes one rank sends in a double binary tree all-reduce.

    Parameters
    ----------
    payload : bytes of the tensor
    ranks : members of the group

    Notes
    -----
    Inner rank of one tree: half up, two halves down; leaf of the other: half up. On two ranks each is the root
    of one tree and sends half up and half down, which is why bus bandwidth over two nodes can reach twice the
    network card's rate (NVIDIA/nccl#209) and not over three.

    Examples
    --------
    >>> double_tree_wire_bytes(8.0, 2), double_tree_wire_bytes(8.0, 16)
    (8.0, 16.0)
    """
    return payload * where(ranks > 2, 2.0, ranks - 1.0)


def bus_factor(operation: str, ranks: Any) -> Any:
    """Wire bytes over payload, as nccl-tests defines bus bandwidth of `operation`."""
    if operation == "all_reduce":
        return 2.0 * (ranks - 1) / ranks
    if operation in ("all_gather", "reduce_scatter", "all_to_all"):
        return (ranks - 1) / ranks
    return 1.0


@formula("comm.bus_bandwidth", source=NCCL_TESTS, equation="busbw = S/t * factor")
def bus_bandwidth(payload: Bytes, seconds: Seconds, factor: Count) -> BytesPerSecond:
    """Bus bandwidth as nccl-tests prints it.

    Parameters
    ----------
    payload : bytes of the test (nccl-tests column `size`)
    seconds : time of one call
    factor : `bus_factor(operation, ranks)`

    Notes
    -----
    Not a wire speed: reduction in the switch or a two-node tree can exceed the link.

    Examples
    --------
    >>> round(bus_bandwidth(17179869184, 62648e-6, bus_factor("all_reduce", 8)) / 1e9, 1)
    479.9
    """
    return payload * factor / seconds


@formula("comm.time_from_bus_bandwidth", source=NCCL_TESTS, equation="t = S factor / busbw")
def time_from_bus_bandwidth(payload: Bytes, bandwidth: BytesPerSecond, factor: Count) -> Seconds:
    """Time of a collective whose bus bandwidth is known.

    Parameters
    ----------
    payload : bytes of the test
    bandwidth : bus bandwidth
    factor : `bus_factor(operation, ranks)`

    Examples
    --------
    >>> round(time_from_bus_bandwidth(2.0**30, 200e9, bus_factor("all_gather", 8)) * 1e3, 3)
    4.698
    """
    return payload * factor / bandwidth


@formula("comm.card_rate", source="stas00/ml-engineering network/README.md", equation="r = busbw (k-1)/(n-1)")
def card_rate(bandwidth: BytesPerSecond, ranks: Count, domains: Count) -> BytesPerSecond:
    """Rate of one network card behind the bus bandwidth of a hierarchical collective, one card per rank.

    Parameters
    ----------
    bandwidth : bus bandwidth
    ranks : members
    domains : nodes they lie on

    Examples
    --------
    >>> round(card_rate(377.34, 32, 4), 1)
    36.5
    """
    return bandwidth * ((domains - 1) / (ranks - 1))


# --- all-reduce ------------------------------------------------------------------------------------------------


@formula("comm.all_reduce.ring", source=THAKUR, equation="t = 2(p-1) a + 2(p-1)/p S/B")
def ring_all_reduce(payload: Bytes, ranks: Count, latency: Seconds, bandwidth: BytesPerSecond) -> Seconds:
    """Ring all-reduce: a reduce-scatter round the ring, then an all-gather.

    Parameters
    ----------
    payload : bytes of the tensor
    ranks : members of the ring
    latency : seconds per step
    bandwidth : bytes/s one rank sends to its neighbour

    Notes
    -----
    Ignores: the reduction itself, kernel launch.

    Examples
    --------
    >>> ring_all_reduce(8e9, 8, 0.0, 100e9)
    0.14
    """
    return 2.0 * (ranks - 1) * latency + payload * (2.0 * (ranks - 1) / ranks) / bandwidth


@formula(
    "comm.all_reduce.recursive_doubling",
    source=THAKUR,
    equation="t = log2(p) (a + S/B), two more steps if p is not 2^m",
)
def recursive_doubling_all_reduce(payload: Bytes, ranks: Count, latency: Seconds, bandwidth: BytesPerSecond) -> Seconds:
    """Recursive doubling: log2(p) exchanges of the whole tensor; best for small messages.

    Parameters
    ----------
    payload : bytes of the tensor
    ranks : members; what exceeds a power of two folds into a neighbour first and is sent the result last
    latency : seconds per step
    bandwidth : bytes/s of an exchange, both ways at once

    Examples
    --------
    >>> recursive_doubling_all_reduce(1e9, 8, 0.0, 1e9), recursive_doubling_all_reduce(1e9, 6, 0.0, 1e9)
    (3.0, 4.0)
    """
    return (_log2_floor(ranks) + _fold_steps(ranks)) * (latency + payload / bandwidth)


@formula(
    "comm.all_reduce.halving_doubling",
    source=THAKUR,
    equation="t = 2 log2(q) a + 2(q-1)/q S/B [+ 2(a + S/B) if p > q], q = 2^floor(log2 p)",
)
def halving_doubling_all_reduce(payload: Bytes, ranks: Count, latency: Seconds, bandwidth: BytesPerSecond) -> Seconds:
    """Recursive halving (reduce-scatter), then doubling (all-gather): Rabenseifner's algorithm.

    Parameters
    ----------
    payload : bytes of the tensor
    ranks : members; what exceeds a power of two folds into a neighbour first and is sent the result last
    latency : seconds per step
    bandwidth : bytes/s of an exchange, both ways at once

    Examples
    --------
    >>> halving_doubling_all_reduce(8e9, 8, 0.0, 100e9) == ring_all_reduce(8e9, 8, 0.0, 100e9)
    True
    """
    steps = _log2_floor(ranks)
    square = 2.0**steps
    core = 2.0 * steps * latency + payload * (2.0 * (square - 1) / square) / bandwidth
    return core + _fold_steps(ranks) * (latency + payload / bandwidth)


@formula("comm.all_reduce.binary_tree", source=THAKUR, equation="t = 2 (floor(log2 p) + ceil(S/c) - 1) (a + c/B)")
def binary_tree_all_reduce(
    payload: Bytes, ranks: Count, latency: Seconds, bandwidth: BytesPerSecond, chunk: Bytes
) -> Seconds:
    """One binary tree, pipelined in chunks: reduce to the root, then broadcast.

    Parameters
    ----------
    payload : bytes of the tensor
    ranks : members of the tree
    latency : seconds per step
    bandwidth : bytes/s of one tree edge
    chunk : bytes per message; the payload itself means no pipelining

    Notes
    -----
    Depth is floor(log2 p). Ignores: that an inner rank may share one port between its two children.

    Examples
    --------
    >>> binary_tree_all_reduce(8.0, 8, 0.0, 1.0, 1.0), binary_tree_all_reduce(8.0, 1, 1.0, 1.0, 1.0)
    (20.0, 0.0)
    """
    steps = 2.0 * (_log2_floor(ranks) + ceil(payload / chunk) - 1.0)
    return where(ranks > 1, steps, 0.0 * steps) * (latency + chunk / bandwidth)


@formula(
    "comm.all_reduce.double_tree", source=SANDERS, equation="t = 2 ceil(log2 p) a + x/B, x = S (p = 2), 2 S (p > 2)"
)
def double_tree_all_reduce(payload: Bytes, ranks: Count, latency: Seconds, bandwidth: BytesPerSecond) -> Seconds:
    """Double binary tree: each tree carries half, every rank is inner in at most one; full bandwidth, log latency.

    Parameters
    ----------
    payload : bytes of the tensor
    ranks : members of the trees
    latency : seconds per step
    bandwidth : bytes/s one rank can send

    Notes
    -----
    Ignores: filling of the pipeline (see `pipelined_time`).

    Examples
    --------
    >>> double_tree_all_reduce(8e9, 64, 1e-6, 100e9)
    0.16001200000000002
    """
    return 2.0 * ceil(log2(ranks)) * latency + payload * where(ranks > 2, 2.0, ranks - 1.0) / bandwidth


@formula(
    "comm.all_reduce.torus_2d",
    source="Mikami et al. 2018, arXiv 1811.05233, section 2.2",
    equation="t = 2(a-1) l + 2(a-1)/a S/Bx + 2(b-1) l + 2(b-1)/b S/(a By)",
)
def torus_2d_all_reduce(
    payload: Bytes,
    columns: Count,
    rows: Count,
    latency: Seconds,
    bandwidth_x: BytesPerSecond,
    bandwidth_y: BytesPerSecond,
) -> Seconds:
    """Two-dimensional ring: reduce-scatter along x, all-reduce of the share along y, all-gather along x.

    Parameters
    ----------
    payload : bytes of the tensor
    columns, rows : ranks along x and along y
    latency : seconds per step
    bandwidth_x, bandwidth_y : bytes/s one rank sends along each

    Examples
    --------
    >>> torus_2d_all_reduce(8e9, 8, 1, 0.0, 100e9, 100e9) == ring_all_reduce(8e9, 8, 0.0, 100e9)
    True
    """
    along_x = 2.0 * (columns - 1) * latency + payload * (2.0 * (columns - 1) / columns) / bandwidth_x
    along_y = 2.0 * (rows - 1) * latency + payload * (2.0 * (rows - 1) / rows / columns) / bandwidth_y
    return along_x + along_y


@formula(
    "comm.all_reduce.hierarchical",
    source="stas00/ml-engineering network/README.md, inter-node speed requirements",
    equation="t = 2(g-1) ai + 2(g-1)/g S/Bi + 2(k-1) ao + 2(k-1)/k S/(g Bo)",
)
def hierarchical_all_reduce(
    payload: Bytes,
    local: Count,
    domains: Count,
    latency_inner: Seconds,
    bandwidth_inner: BytesPerSecond,
    latency_outer: Seconds,
    bandwidth_outer: BytesPerSecond,
) -> Seconds:
    """Reduce-scatter in the node, all-reduce across nodes on every rail, all-gather in the node; phases in sequence.

    Parameters
    ----------
    payload : bytes of the tensor
    local : ranks per node
    domains : nodes
    latency_inner, bandwidth_inner : per step, and per rank, inside the node
    latency_outer, bandwidth_outer : per step, and per rank (its network card), between nodes

    Notes
    -----
    Upper bound; phases pipelined against each other give at best `hierarchical_all_reduce_bound`.

    Examples
    --------
    >>> round(hierarchical_all_reduce(2.0**32, 8, 4, 0.0, 682e9, 0.0, 50e9) * 1e3, 1)
    27.1
    """
    inner = 2.0 * (local - 1) * latency_inner + payload * (2.0 * (local - 1) / local) / bandwidth_inner
    outer = 2.0 * (domains - 1) * latency_outer + payload * (2.0 * (domains - 1) / domains / local) / bandwidth_outer
    return inner + outer


@formula(
    "comm.all_reduce.hierarchical_bound",
    source="stas00/ml-engineering network/README.md, inter-node speed requirements",
    equation="t >= max(2(g-1)/g S/Bi, 2(k-1)/k S/(g Bo))",
)
def hierarchical_all_reduce_bound(
    payload: Bytes,
    local: Count,
    domains: Count,
    bandwidth_inner: BytesPerSecond,
    bandwidth_outer: BytesPerSecond,
) -> Seconds:
    """What a hierarchical all-reduce cannot beat: the busier of the two wires.

    Parameters
    ----------
    payload : bytes of the tensor
    local : ranks per node
    domains : nodes
    bandwidth_inner, bandwidth_outer : bytes/s per rank inside and between nodes

    Examples
    --------
    >>> round(hierarchical_all_reduce_bound(2.0**32, 8, 4, 900e9, 50e9) * 1e3, 1)
    16.1
    """
    return maximum(
        payload * (2.0 * (local - 1) / local) / bandwidth_inner,
        payload * (2.0 * (domains - 1) / domains / local) / bandwidth_outer,
    )


@formula(
    "comm.all_reduce.in_switch",
    source="Klenk et al. 2020, ISCA, An in-network architecture for shared-memory multiprocessor collectives",
    equation="t = a + S/B",
)
def in_switch_all_reduce(payload: Bytes, latency: Seconds, bandwidth: BytesPerSecond) -> Seconds:
    """Reduction in the switch (NVLink SHARP, InfiniBand SHARP): each rank sends its tensor once, receives it once.

    Parameters
    ----------
    payload : bytes of the tensor
    latency : seconds, independent of the number of ranks
    bandwidth : bytes/s of a rank to the switch

    Examples
    --------
    >>> in_switch_all_reduce(4.5e9, 0.0, 450e9)
    0.01
    """
    return latency + payload / bandwidth


@formula(
    "comm.all_reduce.direct",
    source="Culler et al. 1993, LogP: towards a realistic model of parallel computation (gap between messages)",
    equation="t = 2 (a + (p-2) g) + 2(p-1)/p S/B",
)
def direct_all_reduce(
    payload: Bytes, ranks: Count, latency: Seconds, bandwidth: BytesPerSecond, gap: Seconds
) -> Seconds:
    """Every rank collects its share from all others at once, then sends the sum to all: ring bytes in two rounds.

    Parameters
    ----------
    payload : bytes of the tensor
    ranks : members
    latency : seconds of a message
    bandwidth : bytes/s one rank sends while it receives as much
    gap : seconds between two messages that one rank starts

    Notes
    -----
    Assumes: every pair talks at full rate (a switch, one machine). Ignores: incast.

    Examples
    --------
    >>> direct_all_reduce(8e9, 8, 0.0, 100e9, 0.0) == ring_all_reduce(8e9, 8, 0.0, 100e9)
    True
    """
    rounds = 2.0 * (latency + maximum(ranks - 2, 0) * gap)
    return where(ranks > 1, rounds, 0.0) + payload * (2.0 * (ranks - 1) / ranks) / bandwidth


# --- all-gather, reduce-scatter, broadcast, point to point -----------------------------------------------------


@formula("comm.all_gather.ring", source=THAKUR, equation="t = (p-1) a + (p-1)/p S/B")
def ring_all_gather(payload: Bytes, ranks: Count, latency: Seconds, bandwidth: BytesPerSecond) -> Seconds:
    """Ring all-gather; a ring reduce-scatter takes the same time.

    Parameters
    ----------
    payload : bytes of the gathered tensor
    ranks : members of the ring
    latency : seconds per step
    bandwidth : bytes/s one rank sends to its neighbour

    Examples
    --------
    >>> ring_all_gather(8e9, 8, 0.0, 100e9)
    0.07
    """
    return (ranks - 1) * latency + payload * ((ranks - 1) / ranks) / bandwidth


@formula(
    "comm.all_gather.pat",
    source="Jeaugey 2025, arXiv 2506.20252, PAT: a new algorithm for all-gather and reduce-scatter",
    equation="t = ceil(log2 p) a + (p-1)/p S/B",
)
def pat_all_gather(payload: Bytes, ranks: Count, latency: Seconds, bandwidth: BytesPerSecond) -> Seconds:
    """Parallel aggregated trees: all-gather (or reduce-scatter) with logarithmic latency.

    Parameters
    ----------
    payload : bytes of the gathered tensor
    ranks : members; NCCL uses it by default only with one rank per node
    latency : seconds per step
    bandwidth : bytes/s one rank sends

    Notes
    -----
    Ignores: the linear phase when buffers cannot hold the aggregated messages.

    Examples
    --------
    >>> pat_all_gather(8e9, 8, 1.0, 100e9)
    3.07
    """
    return ceil(log2(ranks)) * latency + payload * ((ranks - 1) / ranks) / bandwidth


@formula("comm.broadcast.chain", source=THAKUR, equation="t = (p-2 + ceil(S/c)) (a + c/B)")
def chain_broadcast(payload: Bytes, ranks: Count, latency: Seconds, bandwidth: BytesPerSecond, chunk: Bytes) -> Seconds:
    """Broadcast down a chain in chunks (what NCCL's ring broadcast does).

    Parameters
    ----------
    payload : bytes of the tensor
    ranks : members of the chain
    latency : seconds per step
    bandwidth : bytes/s one rank sends to its neighbour
    chunk : bytes per message

    Examples
    --------
    >>> chain_broadcast(8.0, 4, 0.0, 1.0, 1.0)
    10.0
    """
    steps = ranks - 2.0 + ceil(payload / chunk)
    return where(ranks > 1, steps, 0.0 * steps) * (latency + chunk / bandwidth)


@formula("comm.point_to_point", source="Hockney 1994, The communication challenge for MPP", equation="t = a + S/B")
def point_to_point(payload: Bytes, latency: Seconds, bandwidth: BytesPerSecond) -> Seconds:
    """One message between two ranks.

    Parameters
    ----------
    payload : bytes of the message
    latency : seconds
    bandwidth : bytes/s

    Examples
    --------
    >>> point_to_point(50e6, 0.0, 50e9)
    0.001
    """
    return latency + payload / bandwidth


@formula("comm.pipelined", source=SANDERS, equation="t = a + x/B + d sqrt(x);  optimum chunk: d = 2 sqrt(a/B)")
def pipelined_time(wire: Bytes, latency: Seconds, bandwidth: BytesPerSecond, sqrt_cost: SqrtCost) -> Seconds:
    """Time of `wire` bytes through a pipeline of chunks: latency, wire time, and filling, which grows with sqrt(x).

    Parameters
    ----------
    wire : bytes one rank sends
    latency : seconds until the first byte arrives
    bandwidth : asymptotic bytes/s
    sqrt_cost : seconds per sqrt(byte); with the best chunk size 2 sqrt(latency/bandwidth)

    Notes
    -----
    n steps of latency a and chunk c: (n + x/c)(a + c/B); the best c gives (sqrt(n a) + sqrt(x/B))^2. Measured
    nccl-tests sweeps follow it with 4-9 % mean error where latency + x/B alone leaves 13-22 %.

    Examples
    --------
    >>> round(pipelined_time(1e9, 16e-6, 498e9, 7.7e-9) * 1e3, 3)
    2.268
    """
    return latency + wire / bandwidth + sqrt_cost * sqrt(wire)


# --- choice ----------------------------------------------------------------------------------------------------


def all_reduce_costs(
    payload: float,
    ranks: int,
    latency: float,
    bandwidth: float,
    *,
    local: int = 1,
    latency_inner: float | None = None,
    bandwidth_inner: float | None = None,
    in_switch_bandwidth: float | None = None,
    gap: float | None = None,
    reduction: float = 0.0,
) -> dict[str, float]:
    """Ideal seconds of every all-reduce algorithm that can run on this group.

    `latency` and `bandwidth` are those of the slow link. With a `gap` between messages, every pair can talk at full
    rate and the direct algorithm joins in. With `local` > 1 ranks per node and `bandwidth_inner`, the hierarchical
    and the two-dimensional algorithm (nodes by local ranks) join in. `reduction`: seconds to add a byte (Thakur's
    gamma), 0 where adding overlaps with the messages.
    """
    costs = {
        "ring": ring_all_reduce(payload, ranks, latency, bandwidth),
        "recursive_doubling": recursive_doubling_all_reduce(payload, ranks, latency, bandwidth),
        "halving_doubling": halving_doubling_all_reduce(payload, ranks, latency, bandwidth),
        "double_tree": double_tree_all_reduce(payload, ranks, latency, bandwidth)
        + pipelined_fill(payload, ranks, latency, bandwidth),
    }
    best_chunk = _best_tree_chunk(payload, ranks, latency, bandwidth)
    costs["binary_tree"] = binary_tree_all_reduce(payload, ranks, latency, bandwidth, best_chunk)
    if local > 1 and ranks % local == 0 and bandwidth_inner:
        inner = latency if latency_inner is None else latency_inner
        costs["hierarchical"] = hierarchical_all_reduce(
            payload, local, ranks // local, inner, bandwidth_inner, latency, bandwidth
        )
    columns = near_square_columns(ranks)
    if columns > 1:
        costs["torus_2d"] = torus_2d_all_reduce(payload, columns, ranks // columns, latency, bandwidth, bandwidth)
    if gap is not None:
        costs["direct"] = direct_all_reduce(payload, ranks, latency, bandwidth, gap)
    share, steps = (ranks - 1) / ranks, math.ceil(math.log2(max(ranks, 1)))
    added = {"recursive_doubling": float(steps), "binary_tree": 2.0, "double_tree": 2.0}  # payloads a rank adds
    for name in costs:
        costs[name] += payload * reduction * added.get(name, share)
    if in_switch_bandwidth:
        costs["in_switch"] = in_switch_all_reduce(payload, latency, in_switch_bandwidth)
    return costs


def choose_algorithm(
    payload: float, ranks: int, latency: float, bandwidth: float, **link: Any
) -> tuple[str, dict[str, float]]:
    """The fastest all-reduce algorithm, and the seconds of all candidates; keywords as `all_reduce_costs`."""
    costs = all_reduce_costs(payload, ranks, latency, bandwidth, **link)
    return min(costs, key=costs.__getitem__), costs


def pipelined_fill(payload: float, ranks: int, latency: float, bandwidth: float) -> float:
    """Seconds a double tree spends filling its pipeline with the best chunk size: 2 sqrt(2 log2(p) a x/B)."""
    if ranks < 2:
        return 0.0
    depth = 2.0 * math.ceil(math.log2(ranks))
    return 2.0 * math.sqrt(depth * latency * double_tree_wire_bytes(payload, ranks) / bandwidth)


def _best_tree_chunk(payload: float, ranks: int, latency: float, bandwidth: float) -> float:
    depth = max(1, ranks.bit_length() - 1)
    chunk = math.sqrt(payload * latency * bandwidth / max(1, depth - 1)) if depth > 1 else payload
    return min(payload, max(chunk, 1.0)) or 1.0


def near_square_columns(ranks: int) -> int:
    """Columns of the most nearly square grid of all `ranks`: the largest divisor up to the root, 1 for a prime.

    >>> near_square_columns(12), near_square_columns(7)
    (3, 1)
    """
    return next(columns for columns in range(math.isqrt(ranks), 0, -1) if ranks % columns == 0)


def _log2_floor(ranks: Any) -> Any:
    if isinstance(ranks, int):
        return ranks.bit_length() - 1
    log = log2(ranks)
    return log // 1


def _fold_steps(ranks: Any) -> Any:
    """Two more steps when `ranks` is not a power of two."""
    return where(2.0 ** _log2_floor(ranks) < ranks, 2.0, 0.0)
