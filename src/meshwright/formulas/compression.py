"""Bytes that compressed gradients put on the wire, per rank; the dense rival is `collectives.all_reduce_wire_bytes`.

A compressor whose messages can be added (half precision, random-k, PowerSGD) rides on an all-reduce; one whose
messages cannot (top-k, int8, signs) is gathered, which grows with the number of ranks, or goes in two shots.
"""

from __future__ import annotations

from meshwright.formulas.collectives import all_reduce_wire_bytes
from meshwright.formulas.numeric import Bytes, Count, ceil
from meshwright.formulas.registry import formula

DGC = "Lin et al. 2018, arXiv 1712.01887, Deep gradient compression"
POWERSGD = "Vogels et al. 2019, arXiv 1905.13727, PowerSGD, algorithm 1"
BLOCKWISE = "Dettmers et al. 2022, arXiv 2110.02861, 8-bit optimizers via block-wise quantization"
ONE_BIT_ADAM = "Tang et al. 2021, arXiv 2102.02888, 1-bit Adam, section 3 (gather, average, gather)"


@formula("compress.wire.gathered_pairs", source=DGC, equation="x = (p-1) k (v + i)")
def gathered_pairs_wire_bytes(kept: Count, ranks: Count, value: Bytes = 4.0, index: Bytes = 4.0) -> Bytes:
    """Bytes each rank sends when all gather each other's `kept` values with their indices (top-k).

    Parameters
    ----------
    kept : values per rank
    ranks : members of the group
    value, index : bytes of a value and of its index

    Examples
    --------
    >>> gathered_pairs_wire_bytes(1000, 4)
    24000.0
    """
    return (ranks - 1.0) * kept * (value + index)


@formula("compress.wire.block_quantised", source=BLOCKWISE, equation="n bits/8 + ceil(n/block) scale")
def block_quantised_bytes(elements: Count, bits: Count, block: Count, scale: Bytes = 4.0, byte: Bytes = 1.0) -> Bytes:
    """Bytes of a tensor quantised in blocks, each with a scale of its own.

    Parameters
    ----------
    elements : of the tensor
    bits : per element
    block : elements that share a scale
    scale : bytes of a scale
    byte : one byte, for units

    Examples
    --------
    >>> block_quantised_bytes(1024, 8, 256)
    1040.0
    """
    return elements * bits / 8.0 * byte + ceil(elements / block) * scale


@formula("compress.wire.gathered", source=DGC, equation="x = (p-1) m")
def gathered_wire_bytes(message: Bytes, ranks: Count) -> Bytes:
    """Bytes each rank sends when all gather each other's message and add for themselves.

    Parameters
    ----------
    message : bytes of one rank's message
    ranks : members of the group

    Examples
    --------
    >>> gathered_wire_bytes(1040.0, 8) > all_reduce_wire_bytes(4 * 1024.0, 8)
    True
    """
    return (ranks - 1.0) * message


@formula("compress.wire.two_shot", source=ONE_BIT_ADAM, equation="x = 2 (p-1)/p m")
def two_shot_wire_bytes(message: Bytes, ranks: Count) -> Bytes:
    """Bytes each rank sends when shares are collected, added, compressed again and gathered.

    Parameters
    ----------
    message : bytes of one rank's compressed tensor
    ranks : members of the group

    Examples
    --------
    >>> two_shot_wire_bytes(1040.0, 4)
    1560.0
    """
    return all_reduce_wire_bytes(message, ranks)


def low_rank_pays(rows: int, columns: int, rank: int, least_ratio: float = 2.0) -> bool:
    """Whether a matrix is worth its two factors: (n+m) r c < n m.

    Parameters
    ----------
    rows, columns : of the gradient as a matrix
    rank : of the approximation
    least_ratio : how many times smaller the factors have to be

    Examples
    --------
    >>> low_rank_pays(64, 64, 4), low_rank_pays(8, 8, 4)
    (True, False)
    """
    return (rows + columns) * rank * least_ratio < rows * columns


@formula("compress.wire.powersgd", source=POWERSGD, equation="x = 2 (p-1)/p (n+m) r b")
def low_rank_wire_bytes(rows: Count, columns: Count, rank: Count, ranks: Count, element: Bytes = 4.0) -> Bytes:
    """Bytes each rank sends for the two factors of one matrix, each all-reduced.

    Parameters
    ----------
    rows, columns : of the gradient as a matrix
    rank : of the approximation
    ranks : members of the group
    element : bytes of a value

    Examples
    --------
    >>> low_rank_wire_bytes(1000, 500, 4, 2)
    24000.0
    """
    return all_reduce_wire_bytes((rows + columns) * rank * element, ranks)
