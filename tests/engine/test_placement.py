"""Placement against brute force over every rank of random meshes, and the sentences that describe it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from string import Formatter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.engine.placement import Group, describe, members_per_block, place, usable_domain
from meshwright.spec.strategy import Strategy

_spec = importlib.util.spec_from_file_location("clusters", Path(__file__).parent / "clusters.py")
assert _spec and _spec.loader
hw = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(hw)


def brute(groups: list[list[int]], block: int) -> tuple[int, int]:
    """(least members in a block, blocks) of the groups that span most blocks, counting rank by rank."""
    counts = []
    for members in groups:
        by_block: dict[int, int] = {}
        for rank in members:
            by_block[rank // block] = by_block.get(rank // block, 0) + 1
        counts.append((len(by_block), min(by_block.values())))
    most = max(n for n, _ in counts)
    return min(low for n, low in counts if n == most), most


def rank_groups(shape: dict[str, int], name: str) -> list[list[int]]:
    """Groups along one mesh dimension (or several joined with '+'), written as nested loops over coordinates."""
    wanted = name.split("+")
    groups: dict[tuple[int, ...], list[int]] = {}
    for rank in range(int(np.prod(list(shape.values())))):
        rest, at = rank, {}
        for axis, size in shape.items():  # fastest first
            at[axis], rest = rest % size, rest // size
        groups.setdefault(tuple(v for k, v in at.items() if k not in wanted), []).append(rank)
    return list(groups.values())


meshes = st.tuples(*(st.sampled_from((1, 2, 3, 4, 6, 8)) for _ in range(4)))


@given(meshes, st.sampled_from((2, 4, 6, 8, 16, 72)))
def test_groups_as_counted_rank_by_rank(mesh: tuple[int, int, int, int], block: int) -> None:
    tensor, context, data, pipeline = mesh
    shape = {"tensor": tensor, "context": context, "data": data, "pipeline": pipeline}
    device = hw.accelerator("x", "hopper", "nvswitch", 450e9, 450e9, block)
    cluster = hw.cluster(device, int(np.prod(mesh)), node=block)
    groups = place(cluster, Strategy(tensor=tensor, context=context, data=data, pipeline=pipeline))
    for name, axes in (
        ("tensor", "tensor"),
        ("context", "context"),
        ("data", "context+data"),
        ("pipeline", "pipeline"),
    ):
        g = groups[name]
        assert (g.local, g.domains) == brute(rank_groups(shape, axes), block), name
        assert g.ranks == len(rank_groups(shape, axes)[0])


@given(st.sampled_from((1, 2, 4)), st.sampled_from((1, 2, 4, 8)), st.sampled_from((1, 2, 3)), st.sampled_from((1, 2)))
def test_expert_groups_as_counted_rank_by_rank(etp: int, ep: int, edp: int, pipeline: int) -> None:
    """Expert layers see their own mesh over the same ranks: expert tensor fastest, then expert, then expert data."""
    shape = {"expert_tensor": etp, "expert": ep, "expert_data": edp, "pipeline": pipeline}
    cluster = hw.cluster(hw.H100, int(np.prod(list(shape.values()))))
    strategy = Strategy(data=etp * ep * edp, expert=ep, expert_tensor=etp, pipeline=pipeline)
    groups = place(cluster, strategy)
    for name in shape:
        assert (groups[name].local, groups[name].domains) == brute(rank_groups(shape, name), 8), name


def test_columns_equal_scalars() -> None:
    cluster = hw.cluster(hw.H100, 4096, pod_size=1024, oversubscription=4.0)
    rows = [(1, 4096, 1, 1), (8, 64, 8, 1), (4, 32, 8, 4), (6, 10, 3, 2), (16, 16, 16, 1), (3, 7, 5, 2)]
    column = Strategy(
        **{k: np.array([r[i] for r in rows]) for i, k in enumerate(("tensor", "data", "pipeline", "context"))}
    )
    together = place(cluster, column)
    for i, (tensor, data, pipeline, context) in enumerate(rows):
        alone = place(cluster, Strategy(tensor=tensor, data=data, pipeline=pipeline, context=context))
        for name, group in alone.items():
            for attribute in (
                "ranks",
                "local",
                "domains",
                "scale_up_bandwidth",
                "scale_out_bandwidth",
                "scattered_bandwidth",
            ):
                value = np.broadcast_to(getattr(together[name], attribute), len(rows))[i]
                assert value == pytest.approx(getattr(group, attribute)), (name, attribute)


def test_what_decides_between_one_card_and_eight() -> None:
    """Data parallel over all ranks leaves a node on eight cards; behind tensor parallel 8 each rank has its own one."""
    cluster = hw.cluster(hw.H100, 64)
    flat, behind = (place(cluster, s)["data"] for s in (Strategy(data=64), Strategy(data=8, tensor=8)))
    assert (flat.local, flat.domains, flat.scale_out_bandwidth) == (8, 8, 50e9)
    assert (behind.local, behind.domains, behind.scale_out_bandwidth) == (1, 8, 50e9)


def test_hsdp_shards_in_the_node_and_replicates_across() -> None:
    groups = place(hw.cluster(hw.H100, 64), Strategy(data=64, sharding="zero3", shard=8))
    assert (groups["shard"].ranks, groups["shard"].domains) == (8, 1)
    assert (groups["replica"].ranks, groups["replica"].local, groups["replica"].domains) == (8, 1, 8)


def test_mesh_links_give_pairs_not_the_whole() -> None:
    """MI300X: two ranks have one 64 GB/s link between them, eight have seven."""
    rates = {n: place(hw.cluster(hw.MI300X, 8), Strategy(tensor=n))["tensor"].scale_up_bandwidth for n in (2, 4, 8)}
    assert rates == {2: 64e9, 4: 192e9, 8: 448e9}


def test_rack_domain_is_cut_so_that_groups_do_not_straddle() -> None:
    assert usable_domain(hw.cluster(hw.GB200, 2048, node=4)) == 64
    assert usable_domain(hw.cluster(hw.GB200, 4608, node=4)) == 72
    assert usable_domain(hw.cluster(hw.GB200, 64, node=4)) == 72
    expert = place(hw.cluster(hw.GB200, 256, node=4), Strategy(data=256, expert=64))["expert"]
    assert (expert.local, expert.domains) == (64, 1)


def test_bridged_pairs_fall_back_to_pcie() -> None:
    """H100 NVL: NVLink joins two cards; four of a node talk over PCIe, and nobody needs a network card for it."""
    cluster = hw.cluster(hw.H100_NVL, 8, node=4)
    pair, four = (place(cluster, Strategy(tensor=n, data=8 // n))["tensor"] for n in (2, 4))
    assert (pair.scale_up_bandwidth, pair.bridged) == (300e9, True)
    assert (four.scale_up_bandwidth, four.bridged) == (60e9, False)
    assert (four.local, four.domains) == (4, 1)


def test_oversubscription_hurts_what_leaves_the_pod() -> None:
    """Llama 3's fabric: 3,072 GPUs per pod, 1:7 between pods."""
    cluster = hw.cluster(hw.H100, 12288, pod_size=3072, oversubscription=7.0)
    inside = place(cluster, Strategy(tensor=8, data=384, pipeline=4))["data"]
    ring = place(cluster, Strategy(tensor=8, data=1536))["data"]  # 384 nodes of the group per pod, one edge leaves
    pipeline = place(cluster, Strategy(tensor=8, data=384, pipeline=4))["pipeline"]  # every edge leaves
    assert inside.scale_out_bandwidth == ring.scale_out_bandwidth == 50e9
    assert pipeline.scale_out_bandwidth == pytest.approx(50e9 / 7)
    assert ring.scattered_bandwidth == pytest.approx(50e9 / (7 * 0.75))


def test_torus_axes() -> None:
    """16x16 v5e: 16 chips close a ring of two 50 GB/s links; four chips are a line; 256 use both axes."""
    cluster = hw.cluster(hw.V5E, 256, node=4, fabric="dcn", nic=3e9, torus=(16, 16))
    found = {n: place(cluster, Strategy(tensor=n, data=256 // n))["tensor"] for n in (4, 16, 256)}
    assert {n: g.scale_up_bandwidth for n, g in found.items()} == {4: 50e9, 16: 100e9, 256: 200e9}
    assert {n: g.hops for n, g in found.items()} == {4: 3, 16: 8, 256: 16}
    data = place(cluster, Strategy(tensor=4, data=64))["data"]
    assert data.scale_up_bandwidth == 50e9 + 100e9  # the rest of the first axis, and the second one whole


def test_sentences() -> None:
    cluster = hw.cluster(hw.H100, 1024)
    found = {p.group: p for p in describe(cluster, Strategy(tensor=8, pipeline=8, data=16))}
    assert set(found) == {"tensor", "pipeline", "data"}
    assert str(found["tensor"].text) == "8 ranks inside one node, over NVLink"
    assert (
        str(found["data"].text) == "16 ranks over 16 nodes, one rank per node: each has its own 400 Gb/s of InfiniBand"
    )
    assert found["data"].bandwidth == 50e9
    spread = {p.group: p for p in describe(hw.cluster(hw.H100, 16), Strategy(tensor=16))}["tensor"]
    assert (spread.ranks_per_domain, spread.domains, spread.link) == (8, 2, "InfiniBand")
    for p in (*found.values(), spread):
        assert p.text is not None
        assert {f for _, f, _, _ in Formatter().parse(p.text.template) if f} <= set(p.text.values)


def test_single_device_has_nothing_to_say() -> None:
    assert describe(hw.cluster(hw.H100, 1, node=1), Strategy()) == ()
    group = place(hw.cluster(hw.H100, 1, node=1), Strategy())["data"]
    assert isinstance(group, Group) and (group.ranks, group.local, group.domains) == (1, 1, 1)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 80), st.integers(1, 6))
def test_members_per_block_exact(ranks: int, stride: int, block: int, tiles: int) -> None:
    groups = [
        [tile * ranks * stride + offset + i * stride for i in range(ranks)]
        for tile in range(tiles) for offset in range(stride)
    ]  # fmt: skip
    assert members_per_block(ranks, stride, block, ranks * stride * tiles) == brute(groups, block)
