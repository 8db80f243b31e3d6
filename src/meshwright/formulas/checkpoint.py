"""Size of a checkpoint, time to write it, bandwidth it asks of storage, copies kept."""

from __future__ import annotations

from meshwright.formulas.numeric import Bytes, BytesPerSecond, Count, Fraction, Seconds, minimum
from meshwright.formulas.registry import formula

STATES = "Rajbhandari et al. 2020, ZeRO, arXiv 1910.02054, section 3; BLOOM (arXiv 2211.05100): 2.3 TB of 176B at 14"


@formula("checkpoint.bytes", source=STATES, equation="P (w + m + k)")
def checkpoint_bytes(params: Count, weight: Bytes = 2, master: Bytes = 4, moments: Bytes = 8) -> Bytes:
    """Bytes that let a run go on as if nothing had happened: weights, master weights, optimizer moments.

    Parameters
    ----------
    params : parameters, all experts counted. [1]
    weight, master, moments : bytes per parameter of each state. [B]

    Notes
    -----
    Gradients are not kept. Ignores counters, random states and the position of the data loader.

    Examples
    --------
    >>> round(checkpoint_bytes(176.247e9) / 2**40, 2)  # BLOOM, in TiB
    2.24
    """
    return params * (weight + master + moments)


@formula("checkpoint.time", source="the slower of storage and what all nodes can send", equation="Q / min(B, N b)")
def transfer_time(size: Bytes, storage: BytesPerSecond, nodes: Count, per_node: BytesPerSecond) -> Seconds:
    """Time in which `nodes` nodes write (or read) `size` bytes together.

    Parameters
    ----------
    size : bytes over all nodes, Q. [B]
    storage : what storage takes from all, B. [B/s]
    nodes : nodes that take part, N. [1]
    per_node : what one node can send, b. [B/s]

    Notes
    -----
    Assumes: all nodes write alike, in large blocks; metadata is not the limit.

    Examples
    --------
    >>> round(transfer_time(5.67e12, 2e12, 2048, 50e9), 1)  # Llama 3 405B to 2 TB/s
    2.8
    >>> round(transfer_time(2.3e12, 57.5e9, 48, 12.5e9))  # BLOOM
    40
    """
    return size / minimum(storage, nodes * per_node)


@formula("checkpoint.bandwidth", source="from d/τ at Young's interval, sqrt(2 d / M) = x", equation="2 Q / (x² M)")
def bandwidth_for_loss(size: Bytes, mtti: Seconds, loss: Fraction) -> BytesPerSecond:
    """Bandwidth at which blocking checkpoints at the best interval cost a share `loss` of the time, failures included.

    Parameters
    ----------
    size : bytes of a checkpoint, Q. [B]
    mtti : mean time to interrupt, M. [s]
    loss : share of time given up for checkpoints and repeated work, restarts apart, x. [1]

    Examples
    --------
    >>> round(bandwidth_for_loss(5.67e12, 3.09 * 3600, 0.05) / 1e9)  # GB/s for Llama 3 405B to lose 5 %
    408
    """
    return 2 * size / (loss * loss * mtti)
