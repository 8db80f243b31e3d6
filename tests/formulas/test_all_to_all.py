"""Bytes and copies of expert all-to-all against DeepEP's tables and a Monte-Carlo router."""

import numpy as np
import pytest

from meshwright.formulas import all_to_all as a

FP8 = 1 + 4 / 128


@pytest.mark.parametrize(
    ("microseconds", "gbps", "width"),
    [(77, 98, FP8), (194, 39, FP8), (114, 127, 2), (360, 40, 2)],
)
def test_low_latency_bytes_are_deepeps(microseconds: float, gbps: float, width: float) -> None:
    """DeepEP prints bandwidth = bytes / time for 128 tokens to 8 experts of hidden 7168."""
    seen = a.dispatch_bytes(128, 8, 7168, width) / (microseconds * 1e-6) / 1e9
    assert seen == pytest.approx(gbps, rel=0.025)


def test_low_latency_identities() -> None:
    assert a.dispatch_bytes(128, 8, 7168, FP8) == pytest.approx(7.57e6, rel=0.015)
    assert a.dispatch_bytes(128, 8, 7168, 2) == pytest.approx(14.68e6, rel=0.015)
    assert a.dispatch_bytes(128, 8, 7168, FP8) / 77e-6 == pytest.approx(98e9, rel=0.015)
    assert a.dispatch_bytes(128, 8, 7168, 2) / 114e-6 == pytest.approx(127e9, rel=0.015)


@pytest.mark.parametrize(("nodes", "limit"), [(2, 2), (4, 4), (8, 8), (8, 4), (16, 4)])
def test_remote_nodes_against_a_router(nodes: int, limit: int) -> None:
    """Tokens pick `limit` random nodes, then 8 places on them at random; one of the nodes is home."""
    rng = np.random.default_rng(7)
    remote = []
    for _ in range(4000):
        allowed = rng.permutation(nodes)[:limit]
        remote.append(len(set(allowed[rng.integers(0, limit, 8)]) - {0}))
    assert a.expected_remote_nodes(nodes, 8, limit) == pytest.approx(np.mean(remote), rel=0.03)


def test_unlimited_routing_is_the_published_form() -> None:
    assert a.expected_remote_nodes(8, 8, 8) == pytest.approx(7 * (1 - (7 / 8) ** 8))
    assert a.expected_remote_nodes(1, 8, 4) == 0


def test_the_busier_wire_decides() -> None:
    assert a.expert_all_to_all(5e9, 1e9, 0.0, 50e9, 100e9) == 0.1
    assert a.expert_all_to_all(1e9, 50e9, 0.5, 50e9, 100e9) == 1.0


def test_share_off_rank() -> None:
    assert a.off_rank_share(1) == 0 and a.off_rank_share(64) == 63 / 64
