"""How long one kernel takes: matrix multiplications by shape, fused attention, memory-bound passes."""

from __future__ import annotations

from meshwright.formulas.numeric import Bytes, BytesPerSecond, Count, Flops, FlopsPerSecond, Seconds, ceil, maximum
from meshwright.formulas.registry import formula


@formula(
    "roofline.time",
    source="Williams, Waterman, Patterson 2009, Roofline",
    equation="t = max(F / P, Q / B)",
)
def roofline_time(flops: Flops, traffic: Bytes, peak: FlopsPerSecond, bandwidth: BytesPerSecond) -> Seconds:
    """Time of a kernel that is bound either by arithmetic or by memory traffic.

    Parameters
    ----------
    flops : work of the kernel. [FLOP]
    traffic : bytes read and written in device memory. [B]
    peak : achievable arithmetic rate. [FLOP/s]
    bandwidth : achievable memory bandwidth. [B/s]

    Notes
    -----
    Assumes: arithmetic and traffic overlap perfectly. Ignores: caches, launch.

    References
    ----------
    Williams, Waterman, Patterson 2009, "Roofline: an insightful visual performance model".

    Examples
    --------
    >>> roofline_time(1e12, 1e9, 1e14, 1e12)
    0.01
    """
    return maximum(flops / peak, traffic / bandwidth)


@formula("roofline.matmul.flops", source="definition", equation="F = 2 m n k b")
def matmul_flops(m: Count, n: Count, k: Count, batch: Count = 1) -> Flops:
    """Floating-point operations of `batch` products of an m×k by a k×n matrix (a multiply-add counts two).

    Examples
    --------
    >>> matmul_flops(2, 3, 4)
    48
    """
    return 2 * m * n * k * batch


@formula(
    "roofline.matmul.wave_utilisation",
    source="NVIDIA Matrix Multiplication Background User's Guide, tile and wave quantisation",
    equation="u = m n b / (waves · units · tile_m · tile_n), waves = ceil(tiles / units)",
)
def wave_utilisation(m: Count, n: Count, batch: Count, tile_m: Count, tile_n: Count, units: Count) -> Count:
    """Share of the compute units' slots that does useful work when the output is cut in tiles and run in waves.

    Parameters
    ----------
    m, n, batch : rows, columns and number of output matrices. [1]
    tile_m, tile_n : output tile of one thread block (or cluster). [1]
    units : tiles in flight at once. [1]

    Notes
    -----
    Assumes: one tile per unit at a time, all tiles take equally long. Ignores: split-k and stream-k.

    Examples
    --------
    >>> wave_utilisation(256, 128 * 108, 1, 256, 128, 108)
    1.0
    >>> wave_utilisation(256, 128 * 109, 1, 256, 128, 108)  # one tile too many costs a whole wave
    0.5046296296296297
    """
    tiles = ceil(m / tile_m) * ceil(n / tile_n) * batch
    waves = ceil(tiles / units)
    return (m * n * batch) / (waves * units * (tile_m * tile_n))


@formula(
    "roofline.matmul.time",
    source="tile/wave quantisation (NVIDIA matrix multiplication guide), prologue ramp in k, roofline",
    equation="t = max(2 m n k b / (P u) · (1 + k0 / k), Q / B)",
)
def matmul_time(
    flops: Flops,
    traffic: Bytes,
    k: Count,
    utilisation: Count,
    peak: FlopsPerSecond,
    bandwidth: BytesPerSecond,
    k_ramp: Count,
) -> Seconds:
    """Time of a matrix multiplication on a device, launch excluded.

    Parameters
    ----------
    flops : 2·m·n·k·batch. [FLOP]
    traffic : operands and result, once each. [B]
    k : inner dimension. [1]
    utilisation : `wave_utilisation` of the output. [1]
    peak : best measured arithmetic rate. [FLOP/s]
    bandwidth : achievable memory bandwidth. [B/s]
    k_ramp : inner length that prologue and epilogue of a tile are worth. [1]

    Examples
    --------
    >>> matmul_time(2e12, 1e6, 1000, 1.0, 1e14, 1e12, 0)
    0.02
    """
    return maximum(flops * (1 + k_ramp / k) / (peak * utilisation), traffic / bandwidth)
