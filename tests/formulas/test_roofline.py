"""Kernel times: roofline, tile and wave quantisation counted tile by tile, the ramp in k."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.formulas.roofline import matmul_flops, matmul_time, roofline_time, wave_utilisation

A100_PEAK, A100_MEMORY = 312e12, 2.039e12  # datasheet, SXM 80 GB


def test_ridge_point_of_an_a100() -> None:
    """Peak over bandwidth, 153 FLOP/B: below it a kernel is bound by memory, above it by arithmetic."""
    ridge = A100_PEAK / A100_MEMORY
    assert ridge == pytest.approx(153.0, abs=0.1)
    traffic = 1e9
    assert roofline_time(0.5 * ridge * traffic, traffic, A100_PEAK, A100_MEMORY) == traffic / A100_MEMORY
    assert roofline_time(2 * ridge * traffic, traffic, A100_PEAK, A100_MEMORY) == pytest.approx(
        2 * traffic / A100_MEMORY
    )


def test_flops_of_a_product_by_counting() -> None:
    m, n, k, batch = 3, 4, 5, 2
    operations = 0
    for _ in range(batch):
        for _ in range(m * n):
            operations += k + k  # k multiplications, k additions into the accumulator
    assert matmul_flops(m, n, k, batch) == operations


def useful_share_by_counting(m: int, n: int, batch: int, tile_m: int, tile_n: int, units: int) -> float:
    """Hand tiles out to units round by round and divide useful elements by element slots."""
    tiles = [(i, j) for _ in range(batch) for i in range(0, m, tile_m) for j in range(0, n, tile_n)]
    rounds = 0
    useful = 0
    while tiles:
        wave, tiles = tiles[:units], tiles[units:]
        rounds += 1
        useful += sum(min(tile_m, m - i) * min(tile_n, n - j) for i, j in wave)
    return useful / (rounds * units * tile_m * tile_n)


@given(
    m=st.integers(1, 700), n=st.integers(1, 700), batch=st.integers(1, 4),
    tile=st.sampled_from([(64, 64), (128, 128), (256, 128)]), units=st.sampled_from([1, 7, 108]),
)  # fmt: skip
def test_waves_by_counting_tiles(m: int, n: int, batch: int, tile: tuple[int, int], units: int) -> None:
    expected = useful_share_by_counting(m, n, batch, *tile, units)
    assert wave_utilisation(m, n, batch, *tile, units) == pytest.approx(expected, rel=1e-12)


def test_nvidia_guide_example_of_wave_quantisation() -> None:
    """NVIDIA guide: with 108 SMs and 256x128 tiles, 109 tiles take twice as long as 108."""

    def seconds(tiles: int) -> float:
        m, n, k = 256, 128 * tiles, 4096
        used = wave_utilisation(m, n, 1, 256, 128, 108)
        return float(matmul_time(matmul_flops(m, n, k), 0.0, k, used, A100_PEAK, A100_MEMORY, 0.0))

    assert seconds(109) == pytest.approx(2 * seconds(108))


@given(k=st.integers(16, 65536), ramp=st.floats(0, 1000))
def test_short_inner_dimension_costs(k: int, ramp: float) -> None:
    """Twice the inner length is at most twice the time, and never less than it was."""
    flops = matmul_flops(4096, 4096, k)
    short = matmul_time(flops, 1.0, k, 0.9, 1e14, 1e12, ramp)
    long = matmul_time(2 * flops, 1.0, 2 * k, 0.9, 1e14, 1e12, ramp)
    assert short <= long <= 2 * short * (1 + 1e-12)


@given(
    st.lists(st.tuples(st.integers(1, 10**5), st.integers(1, 10**5), st.integers(1, 64)), min_size=1, max_size=5),
    st.integers(1, 10**4),
)
def test_columns_equal_numbers(rows: list[tuple[int, int, int]], k: int) -> None:
    m, n, b = (np.array(c, dtype=float) for c in zip(*rows, strict=True))
    used = wave_utilisation(m, n, b, 128, 128, 108)
    seconds = matmul_time(matmul_flops(m, n, k, b), 2 * m * k * b, k, used, 1e14, 1e12, 300.0)
    for i, row in enumerate(rows):
        single = wave_utilisation(*row, 128, 128, 108)
        assert used[i] == pytest.approx(single, rel=1e-12) and 0 < single <= 1
        one = matmul_time(
            matmul_flops(row[0], row[1], k, row[2]), 2 * row[0] * k * row[2], k, single, 1e14, 1e12, 300.0
        )
        assert seconds[i] == pytest.approx(one, rel=1e-12) and math.isfinite(one)
