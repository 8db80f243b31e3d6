"""Torus formulas against the worked problems of the scaling book and Google's own numbers."""

import pytest

from meshwright.formulas import torus as t

US = 1e-6
V5E = 45e9  # the book's one-way link rate; V4 the same


def test_all_gather_over_one_axis_of_v5e() -> None:
    """bf16[2048, 8192] over Y of an 8x4 slice: 34 MB at W = 90 GB/s, 377 us."""
    wire = t.axis_bandwidth(V5E, True)
    assert t.torus_all_gather(2048 * 8192 * 2, 2, US, wire) == pytest.approx(377 * US, rel=0.05)
    assert t.torus_all_gather(2048 * 8192 * 2, 3, US, t.axis_bandwidth(V5E, False)) == pytest.approx(
        2 * 373 * US, rel=0.05
    )


def test_collectives_on_v4_cube() -> None:
    """bf16[1024, 4096] on 4x4x4: AG over X with Y sharded 23 us, over X and Y 46 us, all-reduce over Z about 190 us."""
    array, wire = 1024 * 4096 * 2, t.axis_bandwidth(V5E, True)
    assert t.torus_all_gather(array / 4, t.axis_hops(4, True), US, wire) == pytest.approx(23 * US, rel=0.05)
    assert t.torus_all_gather(array, 2 * t.axis_hops(4, True), US, 2 * wire) == pytest.approx(46 * US, rel=0.05)
    assert t.torus_all_reduce(array, t.axis_hops(4, True), US, wire) == pytest.approx(190 * US, rel=0.05)


def test_small_gather_is_bound_by_hops() -> None:
    assert t.torus_all_gather(128, t.axis_hops(16, True), US, 90e9) == pytest.approx(8 * US)


def test_send_corner_to_corner() -> None:
    """bf16[8, 128, 8192] across a 4x4 slice without wrap: 188 us of bandwidth on two links and 6 hops."""
    assert t.torus_send(8 * 128 * 8192 * 2, 6, US, 2, V5E) == pytest.approx(194 * US, rel=0.02)


def test_all_to_all_is_a_quarter_of_an_all_gather() -> None:
    assert t.torus_all_to_all(1e9, 1, 0.0, 90e9) == t.torus_all_gather(1e9, 1, 0.0, 90e9) / 4


def test_v5e_pod_bisection_is_googles() -> None:
    """docs.cloud.google.com: 1.6 TB/s for 16x16 chips of four 50 GB/s links; 256 x 200 GB/s of all-reduce."""
    assert t.torus_bisection(16, True, 50e9) == 1.6e12
    assert 256 * 2 * t.axis_bandwidth(50e9, True) == 51.2e12
