"""Collectives on a TPU torus (ICI): ideal times after the scaling book (jax-ml/scaling-book, chapter Sharding).

`bandwidth` is the sum over the axes used of what one axis carries both ways (two links per axis and chip):
`axis_bandwidth(link, wrapped)` per axis. `hops` is the longest way a shard travels.
"""

from __future__ import annotations

from meshwright.formulas.numeric import Bytes, BytesPerSecond, Count, Seconds, maximum, where
from meshwright.formulas.registry import formula

BOOK = "jax-ml/scaling-book, sharding.md"


@formula("comm.torus.axis_bandwidth", source=BOOK, equation="W = 2 w with wrap-around, w without")
def axis_bandwidth(link: BytesPerSecond, wrapped: Count) -> BytesPerSecond:
    """What one torus axis brings to a chip in an all-gather.

    Parameters
    ----------
    link : bytes/s of one link, one way
    wrapped : whether the axis closes to a ring

    Notes
    -----
    Without wrap-around the far end receives everything over one link: about half.

    Examples
    --------
    >>> axis_bandwidth(45e9, True), axis_bandwidth(45e9, False)
    (90000000000.0, 45000000000.0)
    """
    return link * where(wrapped, 2.0, 1.0)


@formula("comm.torus.axis_hops", source=BOOK, equation="hops = X/2 with wrap-around, X-1 without")
def axis_hops(size: Count, wrapped: Count) -> Count:
    """Hops a shard travels along one axis of an all-gather.

    Parameters
    ----------
    size : chips along the axis
    wrapped : whether the axis closes to a ring

    Examples
    --------
    >>> axis_hops(16, True), axis_hops(4, False)
    (8.0, 3.0)
    """
    return where(wrapped, size / 2.0, size - 1.0)


@formula("comm.torus.all_gather", source=BOOK, equation="t = max(T_hop sum(hops), V / sum(W))")
def torus_all_gather(payload: Bytes, hops: Count, hop_latency: Seconds, bandwidth: BytesPerSecond) -> Seconds:
    """All-gather (or reduce-scatter) over one or several torus axes.

    Parameters
    ----------
    payload : bytes of the gathered array (its shard over the other axes)
    hops : sum of the hops over the axes
    hop_latency : seconds per hop, about 1e-6
    bandwidth : sum of the axes' bandwidths

    Notes
    -----
    Independent of the axis size while bandwidth-bound.

    Examples
    --------
    >>> round(torus_all_gather(2048 * 8192 * 2, 2, 1e-6, 90e9) * 1e6)
    373
    """
    return maximum(hops * hop_latency, payload / bandwidth)


@formula("comm.torus.all_reduce", source=BOOK, equation="t = 2 t_all_gather")
def torus_all_reduce(payload: Bytes, hops: Count, hop_latency: Seconds, bandwidth: BytesPerSecond) -> Seconds:
    """All-reduce over torus axes: a reduce-scatter and an all-gather.

    Parameters
    ----------
    payload, hops, hop_latency, bandwidth : as `torus_all_gather`

    Examples
    --------
    >>> round(torus_all_reduce(1024 * 4096 * 2, 2, 1e-6, 90e9) * 1e6)
    186
    """
    return 2.0 * maximum(hops * hop_latency, payload / bandwidth)


@formula("comm.torus.all_to_all", source=BOOK, equation="t = max(T_hop sum(hops), V / (4 sum(W)))")
def torus_all_to_all(payload: Bytes, hops: Count, hop_latency: Seconds, bandwidth: BytesPerSecond) -> Seconds:
    """All-to-all over a bidirectional ring: a quarter of an all-gather of the same array.

    Parameters
    ----------
    payload : bytes of the whole array over the axes (all ranks' buffers together)
    hops, hop_latency, bandwidth : as `torus_all_gather`

    Examples
    --------
    >>> round(torus_all_to_all(4 * 90e9, 2, 1e-6, 90e9), 3)
    1.0
    """
    return maximum(hops * hop_latency, payload / (4.0 * bandwidth))


@formula("comm.torus.send", source=BOOK, equation="t = hops T_hop + V / (links w)")
def torus_send(payload: Bytes, hops: Count, hop_latency: Seconds, links: Count, link: BytesPerSecond) -> Seconds:
    """One message between two chips of a torus, split over the links that lead there.

    Parameters
    ----------
    payload : bytes
    hops : length of the way
    hop_latency : seconds per hop
    links : links of the sender that lead towards the receiver
    link : bytes/s of one link, one way

    Examples
    --------
    >>> round(torus_send(8 * 128 * 8192 * 2, 6, 1e-6, 2, 45e9) * 1e6)
    192
    """
    return hops * hop_latency + payload / (links * link)


@formula(
    "comm.torus.bisection",
    source="docs.cloud.google.com/tpu/docs/v5e",
    equation="bisection = rows * (2 if wrapped else 1) * w",
)
def torus_bisection(rows: Count, wrapped: Count, link: BytesPerSecond) -> BytesPerSecond:
    """Bandwidth, one way, across the middle of a torus cut along its longest axis.

    Parameters
    ----------
    rows : links cut per seam (product of the other axes)
    wrapped : whether the cut axis closes to a ring
    link : bytes/s of one link, one way

    Examples
    --------
    >>> torus_bisection(16, True, 50e9)
    1600000000000.0
    """
    return rows * where(wrapped, 2.0, 1.0) * link
