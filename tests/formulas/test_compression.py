"""Bytes of compressed gradients against counts by hand and the crossovers that are known."""

from __future__ import annotations

from meshwright.formulas import compression as c
from meshwright.formulas.collectives import all_reduce_wire_bytes


def test_topk_beats_fp16_only_below_one_in_two_w():
    """Derived in the reference: k/n < 1/(2W) against an fp16 ring, all bytes counted."""
    n = 1_000_000.0
    for ranks in (4, 8, 64):
        limit = n / (2 * ranks)
        fp16 = all_reduce_wire_bytes(2 * n, ranks)
        assert (
            c.gathered_pairs_wire_bytes(0.99 * limit, ranks) < fp16 < c.gathered_pairs_wire_bytes(1.01 * limit, ranks)
        )


def test_int8_all_gather_beats_an_fp32_ring_below_eight_ranks_and_an_fp16_ring_below_four():
    """torch's quantisation hook: (W-1) n bytes, scales left out."""
    n = 1_000_000.0
    message = n
    for ranks in range(2, 20):
        gathered = c.gathered_wire_bytes(message, ranks)
        assert (gathered < all_reduce_wire_bytes(4 * n, ranks)) == (ranks < 8)
        assert (gathered < all_reduce_wire_bytes(2 * n, ranks)) == (ranks < 4)


def test_two_shots_are_a_quarter_of_fp32_whatever_the_ranks():
    for ranks in (2, 3, 8, 1024):
        ratio = c.two_shot_wire_bytes(c.block_quantised_bytes(2.0**20, 8, 256), ranks)
        assert 0.25 <= ratio / all_reduce_wire_bytes(4 * 2.0**20, ranks) < 0.26


def test_one_bit_is_a_thirty_second_and_its_scales():
    assert c.block_quantised_bytes(2048.0, 1, 2048) == 2048 / 8 + 4


def test_powersgd_rank_four_of_a_square_matrix():
    """(n+m) r / (n m) = 2 r / n."""
    n = 4096
    assert c.low_rank_wire_bytes(n, n, 4, 2) / all_reduce_wire_bytes(4.0 * n * n, 2) == 2 * 4 / n
