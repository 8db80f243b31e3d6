"""Times of placed collectives against published measurements that bound or were held out of the fits."""

from __future__ import annotations

import importlib.util
import re
import timeit
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.catalog.fits import load_fits, parse_fit
from meshwright.engine.communication import (
    OPERATIONS,
    algorithm_costs,
    collective_time,
    expert_all_to_all_time,
    network,
)
from meshwright.engine.placement import Group, place
from meshwright.errors import InputError, UnknownNameError
from meshwright.formulas.collectives import bus_bandwidth, bus_factor
from meshwright.spec.cluster import Cluster
from meshwright.spec.strategy import Strategy

_spec = importlib.util.spec_from_file_location("clusters", Path(__file__).parent / "clusters.py")
assert _spec and _spec.loader
hw = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(hw)

GIB = 2.0**30


def flat(cluster: Cluster, ranks: int) -> Group:
    return place(cluster, Strategy(data=ranks))["data"]


def bus(cluster: Cluster, ranks: int, size: float, operation: str = "all_reduce") -> float:
    """Predicted bus bandwidth in GB/s."""
    seconds = collective_time(network(cluster), flat(cluster, ranks), operation, size)
    return float(bus_bandwidth(size, seconds, bus_factor(operation, ranks))) / 1e9


# --- inside a domain -------------------------------------------------------------------------------------------


def test_h100_node_with_and_without_reduction_in_the_switch() -> None:
    node = hw.cluster(hw.H100, 8)
    assert 460 <= bus(node, 8, 16 * GIB) <= 490
    assert 355 <= bus(node, 8, 16 * GIB, "all_gather") <= 370
    assert 355 <= bus(node, 8, 16 * GIB, "reduce_scatter") <= 370
    assert 355 <= bus(node, 4, 8 * GIB) <= 370


@pytest.mark.parametrize(("ranks", "measured"), [(4, 363), (5, 414), (6, 436), (7, 460), (8, 473)])
def test_h200_by_number_of_gpus(ranks: int, measured: float) -> None:
    assert bus(hw.cluster(hw.H100, 8), ranks, 8 * GIB) == pytest.approx(measured, rel=0.03)


@pytest.mark.parametrize(("ranks", "measured"), [(4, 673), (5, 678), (6, 778), (7, 811), (8, 838)])
def test_b200_by_number_of_gpus(ranks: int, measured: float) -> None:
    assert bus(hw.cluster(hw.B200, 8), ranks, 8 * GIB) == pytest.approx(measured, rel=0.03)


def test_large_domains_and_other_links() -> None:
    rack = hw.cluster(hw.GB200, 72, node=4)
    assert 835 * 0.97 <= bus(rack, 72, 8 * GIB) <= 847 * 1.03
    assert 577 * 0.95 <= bus(rack, 72, GIB / 2) <= 586 * 1.05
    assert bus(hw.cluster(hw.A100, 8), 8, 16 * GIB) == pytest.approx(234.9, rel=0.06)
    assert bus(hw.cluster(hw.V100, 8), 8, 8 * GIB) >= 110
    assert bus(hw.cluster(hw.V100, 8), 8, GIB) == pytest.approx(135, rel=0.05)
    assert bus(hw.cluster(hw.A100_PCIE, 8), 8, GIB) == pytest.approx(0.418 * 30, rel=0.05)


def test_two_mi300x_have_one_link_between_them() -> None:
    node = hw.cluster(hw.MI300X, 8)
    assert 47 <= bus(node, 2, 4 * GIB) <= 64
    assert bus(node, 8, 4 * GIB) == pytest.approx(312.9, rel=0.03)


def sweep(path: Path) -> np.ndarray:
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        cells = re.sub(r"^\d+:\s", "", line).split()
        if len(cells) > 10 and cells[0].isdigit() and int(cells[0]) >= 65536:
            rows.append((float(cells[0]), float(cells[-4]) * 1e-6))
    return np.array(rows)


@pytest.mark.parametrize(
    ("file", "device", "ranks", "operation", "fabric", "nic", "mean", "largest"),
    [
        ("superbench_nccl_allreduce.log", "A100", 8, "all_reduce", "infiniband", 25e9, 0.06, 0.20),
        ("superbench_nccl_allgather.log", "A100", 8, "all_gather", "infiniband", 25e9, 0.06, 0.25),
        ("superbench_nccl_reducescatter.log", "A100", 8, "reduce_scatter", "infiniband", 25e9, 0.06, 0.28),
        ("superbench_nccl_broadcast.log", "A100", 8, "broadcast", "infiniband", 25e9, 0.06, 0.15),
        ("superbench_nccl_alltoall.log", "A100", 8, "all_to_all", "infiniband", 25e9, 0.04, 0.10),
        ("dgxc_h100x8_all_reduce_0.txt", "H100", 8, "all_reduce", "infiniband", 50e9, 0.15, 0.55),
        ("aws_2x_p5_all_reduce.txt", "H100", 16, "all_reduce", "efa", 50e9, 0.09, 0.20),
        ("aws_2x_p4de_all_reduce.txt", "A100", 16, "all_reduce", "efa", 6.25e9, 0.07, 0.18),
    ],
)
def test_sweeps_from_64_kib(
    shared: Path,
    file: str,
    device: str,
    ranks: int,
    operation: str,
    fabric: str,
    nic: float,
    mean: float,
    largest: float,
) -> None:
    rows = sweep(shared / "traces/nccl_tests" / file)
    cluster = hw.cluster(getattr(hw, device), ranks, fabric=fabric, nic=nic)
    error = np.abs(collective_time(network(cluster), flat(cluster, ranks), operation, rows[:, 0]) / rows[:, 1] - 1)
    assert len(rows) >= 15
    assert error.mean() <= mean and error.max() <= largest


def test_azure_a100_was_not_fitted(shared: Path) -> None:
    """Held out: another machine, NCCL 2.18. From 64 MiB, where launch and protocol choices do not decide."""
    text = (shared / "traces/nccl_tests/azure_ND_A100_v4_results.md").read_text(encoding="utf-8")
    found = np.array(re.findall(r"^\|\s*\d+[KMG]\s*\|\s*([\d.]+)", text, flags=re.M), float)
    sizes = 1024.0 * 2.0 ** np.arange(len(found))
    node = hw.cluster(hw.A100, 8)
    predicted = bus_bandwidth(sizes, collective_time(network(node), flat(node, 8), "all_reduce", sizes), 1.75) / 1e9
    error = np.abs(predicted / found - 1)[sizes >= 2**26]
    assert len(error) == 8 and error.mean() < 0.08


# --- across nodes ----------------------------------------------------------------------------------------------


def test_four_b200_nodes_lie_between_the_wire_and_the_sum() -> None:
    cluster = hw.cluster(hw.B200, 32, fabric="efa")
    seconds = collective_time(network(cluster), flat(cluster, 32), "all_reduce", 4 * GIB)
    assert 16.1e-3 <= seconds <= 26.25e-3
    assert seconds == pytest.approx(22.05e-3, rel=0.05)  # measured


def test_published_multi_node_all_reduce() -> None:
    assert bus(hw.cluster(hw.H100, 16, fabric="efa"), 16, 16 * GIB) == pytest.approx(487, rel=0.06)
    assert bus(hw.cluster(hw.H100, 32, fabric="efa"), 32, 4 * GIB) == pytest.approx(365, rel=0.05)
    assert bus(hw.cluster(hw.B200, 32, fabric="efa"), 32, 16 * GIB) == pytest.approx(381.8, rel=0.05)
    assert bus(hw.cluster(hw.H100, 256, fabric="roce"), 256, 2 * GIB) == pytest.approx(340, rel=0.15)


def test_two_nodes_may_exceed_the_card_and_three_may_not() -> None:
    """p4d: 50 GB/s per node; measured 57.2 on two nodes, 31.8 on three."""
    two, three = (bus(hw.cluster(hw.A100, 8 * k, fabric="efa", nic=6.25e9), 8 * k, GIB) for k in (2, 3))
    assert 50 < two <= 100
    assert three < 50


def test_simai_shape_by_size_and_nodes(shared: Path) -> None:
    """The ring's share of the link rate over 4..128 nodes and 16 MiB..16 GiB; the tree may only be quicker."""
    lines = (shared / "traces/nccl_tests/simai_nic_ratio.csv").read_text(encoding="utf-8").splitlines()[1:]
    table = np.array([[float(v or "nan") for v in line.split(",")[:9]] for line in lines])
    errors = []
    for column, nodes in enumerate((4, 8, 16, 32, 64, 128), start=3):
        cluster = hw.cluster(hw.B200, 8 * nodes)  # link fast enough that the cards decide
        for row in table:
            cost = algorithm_costs(network(cluster), flat(cluster, 8 * nodes), "all_reduce", row[0])["ring"]
            seconds = row[0] * bus_factor("all_reduce", 8 * nodes) / (row[column] * 8 * 50e9)
            errors.append(abs(cost / seconds - 1))
    assert len(errors) == 66
    assert np.mean(errors) < 0.10 and np.max(errors) < 0.40


def test_all_to_all_gets_one_card() -> None:
    """NVIDIA/nccl-tests#267: 46-49 GB/s of bus bandwidth per rank over many NDR400 nodes."""
    assert 44 <= bus(hw.cluster(hw.H100, 256), 256, 4 * GIB, "all_to_all") <= 50


def test_point_to_point_across_and_inside() -> None:
    cluster = hw.cluster(hw.H100, 64)
    net = network(cluster)
    inside = place(cluster, Strategy(pipeline=8, data=8, tensor=1))["pipeline"]
    neighbours = place(cluster, Strategy(pipeline=8, tensor=8))["pipeline"]
    assert inside.domains == neighbours.domains == 8
    local = place(hw.cluster(hw.H100, 8), Strategy(pipeline=8))["pipeline"]
    assert local.domains == 1
    seconds = collective_time(net, neighbours, "p2p", 1e9)
    assert 1e9 / 50e9 < seconds < 1e9 / 40e9
    assert collective_time(net, local, "p2p", 1e9) < seconds / 5
    assert (
        collective_time(network(hw.cluster(hw.MI300X, 8)), flat(hw.cluster(hw.MI300X, 8), 8), "p2p", 1e9) > 1e9 / 64e9
    )


# --- TPU -------------------------------------------------------------------------------------------------------


def test_tpu7x_all_gather_sweep() -> None:
    """AI-Hypercomputer/tpu-recipes, 2x2x1: GB/s of gathered bytes by size."""
    ironwood = hw.accelerator("tpu7x", "tpu", "torus", 600e9, 100e9, 4, kind="tpu")
    cluster = hw.cluster(ironwood, 4, node=4, fabric="dcn", torus=(2, 2, 1))
    group = flat(cluster, 4)
    for size, measured in (
        (1572864, 71.77),
        (6291456, 129.2),
        (25165824, 161.9),
        (100663296, 174.8),
        (402653184, 178.8),
    ):
        predicted = size / collective_time(network(cluster), group, "all_gather", size) / 1e9
        assert predicted == pytest.approx(measured, rel=0.05)


def test_slices_are_joined_by_the_slow_network() -> None:
    """All-reduce over two slices adds the card's time on each chip's share, and no more."""
    one = hw.cluster(hw.V5E, 256, node=4, fabric="dcn", nic=3.125e9, torus=(16, 16))
    two = hw.cluster(hw.V5E, 512, node=4, fabric="dcn", nic=3.125e9, torus=(16, 16), slices=2)
    payload = 1e9
    inside = collective_time(network(one), flat(one, 256), "all_reduce", payload)
    across = collective_time(network(two), flat(two, 512), "all_reduce", payload)
    wire = payload / 256 / 3.125e9
    assert inside + wire <= across <= inside + 2 * wire + 1e-3


# --- expert parallelism ----------------------------------------------------------------------------------------


def logical_copies(nodes: int) -> float:
    """Copies DeepEP counts for its bandwidth: nodes reached (home included), or ranks inside one node."""
    if nodes == 1:
        return float(8 * (1 - (7 / 8) ** 8))
    reach = min(nodes, 4)
    return float(reach * (1 - (1 - 1 / reach) ** 8))


@pytest.mark.parametrize("width", [1 + 4 / 128, 2.0])
@pytest.mark.parametrize(("ranks", "dispatch", "combine"), [(8, 153, 158), (16, 43, 43), (32, 58, 57), (64, 51, 50)])
def test_deepep_normal_kernels(ranks: int, dispatch: float, combine: float, width: float) -> None:
    cluster = hw.cluster(hw.H800, max(ranks, 8))
    group = place(cluster, Strategy(data=ranks, expert=ranks))["expert"]
    seconds = expert_all_to_all_time(network(cluster), group, 4096, 8, 7168, width, max_nodes=4)
    seen = 4096 * logical_copies(group.domains) * 7168 * width / seconds / 1e9
    assert seen == pytest.approx(combine if width == 2 else dispatch, rel=0.20)


@pytest.mark.parametrize(
    ("ranks", "dispatch", "combine"),
    [(8, 77, 114), (16, 118, 195), (32, 155, 273), (64, 173, 314), (128, 192, 369), (256, 194, 360)],
)
def test_deepep_low_latency_kernels(ranks: int, dispatch: float, combine: float) -> None:
    cluster = hw.cluster(hw.H800, ranks)
    group = place(cluster, Strategy(data=ranks, expert=ranks))["expert"]
    for width, measured in ((1 + 4 / 128, dispatch), (2.0, combine)):
        seconds = expert_all_to_all_time(
            network(cluster), group, 128, 8, 7168, width, kernel="deepep-low-latency"
        )  # fmt: skip
        assert seconds * 1e6 == pytest.approx(measured, rel=0.20)


@pytest.mark.parametrize(("device", "ranks", "measured"), [("H100", 16, 90), ("H100", 32, 61), ("B200", 8, 726)])
def test_deepep_v2(device: str, ranks: int, measured: float) -> None:
    cluster = hw.cluster(getattr(hw, device), ranks)
    group = place(cluster, Strategy(data=ranks, expert=ranks))["expert"]
    width = 1 + 4 / 128
    seconds = expert_all_to_all_time(network(cluster), group, 8192, 8, 7168, width, max_nodes=4, kernel="deepep-v2")
    assert 8192 * logical_copies(group.domains) * 7168 * width / seconds / 1e9 == pytest.approx(measured, rel=0.20)


def test_node_limit_and_deduplication_pay() -> None:
    cluster = hw.cluster(hw.H100, 128)
    net, group = network(cluster), place(cluster, Strategy(data=128, expert=128))["expert"]
    limited, free, plain = (
        expert_all_to_all_time(net, group, 4096, 8, 7168, 2.0, **how)
        for how in ({"max_nodes": 4}, {}, {"kernel": "alltoall"})
    )
    assert limited < free < plain
    with pytest.raises(UnknownNameError, match="deepeep"):
        expert_all_to_all_time(net, group, 1, 1, 1, 1, kernel="deepeep")


# --- properties ------------------------------------------------------------------------------------------------

shapes = st.sampled_from([(1, 1), (2, 1), (8, 1), (8, 2), (8, 16), (1, 4), (1, 64), (4, 8)])
devices = st.sampled_from(["H100", "A100", "B200", "MI300X", "V100", "A100_PCIE"])


def lay(device: str, local: int, nodes: int) -> tuple[Cluster, Group]:
    cluster = hw.cluster(getattr(hw, device), 8 * nodes)
    tensor = 8 // local if nodes > 1 else 1
    return cluster, place(cluster, Strategy(tensor=tensor, data=local * nodes))["data"]


@given(devices, shapes, st.sampled_from(OPERATIONS), st.floats(1, 1e12))
def test_monotone_in_payload_and_never_beyond_the_wire(
    device: str, shape: tuple[int, int], op: str, size: float
) -> None:
    cluster, group = lay(device, *shape)
    net = network(cluster)
    seconds = collective_time(net, group, op, size)
    assert collective_time(net, group, op, 0) == 0
    if group.ranks == 1:
        assert seconds == 0
        return
    assert 0 < seconds < float("inf")
    assert seconds <= collective_time(net, group, op, size * 1.5)
    # nothing beats each rank sending its least share over everything it has
    fastest = group.scale_up_bandwidth + group.scale_out_bandwidth
    least = bus_factor(op, group.ranks) if op not in ("all_reduce",) else 1.0
    assert seconds >= size * least / (group.local * fastest if op == "broadcast" else fastest) * (1 - 1e-9)


@given(devices, st.sampled_from(OPERATIONS), st.floats(1, 1e12))
def test_columns_equal_scalars(device: str, op: str, size: float) -> None:
    cluster = hw.cluster(getattr(hw, device), 128)
    net = network(cluster)
    rows = [(1, 128, 1), (8, 16, 1), (8, 1, 16), (2, 64, 1), (4, 8, 4), (1, 8, 16)]
    column = Strategy(**{k: np.array([r[i] for r in rows]) for i, k in enumerate(("tensor", "data", "pipeline"))})
    groups = place(cluster, column)
    for name in ("tensor", "data", "pipeline"):
        together = collective_time(net, groups[name], op, np.full(len(rows), size))
        for i, (tensor, data, pipeline) in enumerate(rows):
            alone = place(cluster, Strategy(tensor=tensor, data=data, pipeline=pipeline))[name]
            assert together[i] == pytest.approx(collective_time(net, alone, op, size), rel=1e-9), (name, rows[i])


def test_tpu_columns_equal_scalars() -> None:
    cluster = hw.cluster(hw.V5E, 512, node=4, fabric="dcn", nic=3e9, torus=(16, 16), slices=2)
    net, rows = network(cluster), [(1, 512), (4, 128), (16, 32), (256, 2)]
    groups = place(cluster, Strategy(tensor=np.array([r[0] for r in rows]), data=np.array([r[1] for r in rows])))
    for name in ("tensor", "data"):
        for op in OPERATIONS:
            together = collective_time(net, groups[name], op, np.full(4, 1e8))
            for i, (tensor, data) in enumerate(rows):
                alone = place(cluster, Strategy(tensor=tensor, data=data))[name]
                assert together[i] == pytest.approx(collective_time(net, alone, op, 1e8)), (name, op, rows[i])


def test_all_reduce_never_loses_to_its_two_halves() -> None:
    """Reduce-scatter then all-gather is an all-reduce; the fits must not contradict that by more than a launch."""
    for device in ("H100", "A100", "B200"):
        cluster = hw.cluster(getattr(hw, device), 64)
        net, group = network(cluster), flat(cluster, 64)
        for size in (1e6, 1e8, 1e10):
            halves = sum(collective_time(net, group, op, size) for op in ("reduce_scatter", "all_gather"))
            assert collective_time(net, group, "all_reduce", size) <= halves * 1.05


def test_unknown_operation_is_named() -> None:
    cluster = hw.cluster(hw.H100, 8)
    with pytest.raises(UnknownNameError, match="allreduce"):
        collective_time(network(cluster), flat(cluster, 8), "allreduce", 1.0)


def test_one_call_stays_under_eight_microseconds() -> None:
    cluster = hw.cluster(hw.H100, 1024)
    net, group = network(cluster), place(cluster, Strategy(tensor=8, data=128))["data"]
    for op in OPERATIONS:
        best = min(timeit.repeat(lambda op=op: collective_time(net, group, op, 1e9), number=500, repeat=5)) / 500
        assert best < 8e-6 * 3, op  # three times the aim: test machines are shared


# --- fits ------------------------------------------------------------------------------------------------------


def test_fits_say_where_they_come_from() -> None:
    fits = load_fits()
    for link in fits.links.values():
        assert set(link.operations) == set(OPERATIONS)
        for op in link.operations.values():
            assert 0 < op.efficiency <= 1 and 0 < op.fast_efficiency <= 1
            assert op.measurements or op.basis == "assumed", link.id
    for fabric in fits.fabrics.values():
        assert 0 < fabric.ring_efficiency <= 1 and 0 < fabric.tree_efficiency <= 1
        assert fabric.measurements or fabric.basis == "assumed"
    assert fits.link("nvswitch", "ampere").id == "nvlink3"
    assert fits.link("nvswitch", "rubin").id == "nvlink"
    assert fits.link("carrier-pigeon", "x").id == "unknown-link"
    assert fits.fabric("efa", "hopper").id == "efa-hopper"
    assert fits.fabric("unheard-of", "hopper").id == "unknown-fabric"


def test_provenance_names_the_fit_of_every_operation() -> None:
    net = network(hw.cluster(hw.H100, 16))
    parts = {part: (fit, basis) for part, fit, basis in net.provenance}
    assert parts["link.all_reduce"] == ("nvlink4", "fitted")
    assert parts["fabric"] == ("infiniband", "fitted")


@pytest.mark.parametrize(
    "table", [{"kind": "linnk"}, {"kind": "link", "id": "x"}, {"kind": "fabric", "colour": "blue"}]
)
def test_broken_fit_files_are_named(table: dict[str, str]) -> None:
    with pytest.raises(InputError) as error:
        parse_fit(table, "somewhere.toml")
    assert error.value.where == "somewhere.toml"
