"""Fit the constants of links and fabrics to published nccl-tests sweeps and write `src/meshwright/catalog/data/fits`.

    python benchmarks/fit_collectives.py ../shared [--check]

Needs scipy (extra `fit`). `--check` prints the residuals and writes nothing. What no sweep covers is stated below
as an assumption or a single published number, and the files say so.
"""

# ruff: noqa: E501  (tables of measurements read better on one line)

from __future__ import annotations

import argparse
import csv
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import tomlkit
from scipy.optimize import least_squares

from meshwright.catalog.fits import FITS_DIR, FabricFit, LinkFit, load_fits, parse_fit
from meshwright.engine.communication import build_network, collective_time
from meshwright.engine.placement import Group
from meshwright.formulas.collectives import bus_factor
from meshwright.spec.cluster import Accelerator, Cluster

FAST_HOP = 0.6e-6  # NCCL tuning table: LL hop over NVLink
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "p2p")


# --- measurements ----------------------------------------------------------------------------------------------


def nccl_tests(path: Path) -> np.ndarray:
    """Rows (bytes, seconds in place) of an nccl-tests log."""
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        cells = re.sub(r"^\d+:\s", "", line).split()
        if len(cells) > 10 and cells[0].isdigit() and int(cells[0]) > 0:
            rows.append((float(cells[0]), float(cells[-4]) * 1e-6))
    return np.array(rows)


def azure(path: Path) -> np.ndarray:
    """Rows (bytes, seconds) from Azure's table of all-reduce bus bandwidth, 8 GPUs, sizes 1 KiB doubling to 8 GiB."""
    found = re.findall(r"^\|\s*\d+[KMG]\s*\|\s*([\d.]+)", path.read_text(encoding="utf-8"), flags=re.M)
    sizes = 1024.0 * 2.0 ** np.arange(len(found))
    return np.column_stack([sizes, sizes * 1.75 / (np.array(found, float) * 1e9)])


def vtrain(path: Path, gpu: str) -> dict[int, np.ndarray]:
    """Rows (bytes, seconds in place) by number of GPUs, thinned to about 40 sizes spaced evenly in log."""
    with path.open(encoding="utf-8") as file:
        rows = [r for r in csv.DictReader(file) if r["gpu"] == gpu]
    keep = set(np.unique(np.round(np.geomspace(1, 1024, 48)).astype(int)))
    by_ranks: dict[int, list[tuple[float, float]]] = {}
    for r in rows:
        if int(r["bytes"]) >> 20 in keep:
            by_ranks.setdefault(int(r["n_gpus"]), []).append((float(r["bytes"]), float(r["time_us_in_place"]) * 1e-6))
    return {n: np.array(v) for n, v in by_ranks.items()}


def simai(path: Path) -> list[tuple[int, np.ndarray]]:
    """(nodes, rows (bytes, share of the link rate)) of SimAI's ratio table, 8 GPUs per node, where a ring runs (not on 2)."""
    with path.open(encoding="utf-8") as file:
        table = list(csv.reader(file))
    out = []
    for column, nodes in ((3, 4), (4, 8), (5, 16), (6, 32), (7, 64), (8, 128)):
        rows = [(float(r[0]), float(r[column])) for r in table[1:] if r[column]]
        out.append((nodes, np.array(rows)))
    return out


def from_busbw(rows: list[tuple[float, float]], factor: float) -> np.ndarray:
    """Rows (bytes, seconds) from (MiB, GB/s of bus bandwidth)."""
    return np.array([(mib * 2**20, mib * 2**20 * factor / (gbps * 1e9)) for mib, gbps in rows])


# stas00/ml-engineering network/README.md, 8x H200, all-reduce with NVLS
H200_ML_ENGINEERING = [
    (0.5, 23.9), (1, 39.9), (2, 64.5), (4, 107), (8, 155.5), (16, 219.9), (32, 275.8), (64, 346.5), (128, 401.9),
    (256, 436), (512, 450), (1024, 463.6), (4096, 473), (16384, 482.3),
]  # fmt: skip


# --- fitting ---------------------------------------------------------------------------------------------------


def fit_logs(model: Any, start: list[list[float]], seconds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Positive parameters that minimise the robust log error of `model`; and the relative errors."""

    def residual(log_parameters: np.ndarray) -> np.ndarray:
        return np.log(model(np.exp(log_parameters)) / seconds)

    runs = [least_squares(residual, np.log(s), loss="soft_l1", f_scale=0.05, max_nfev=4000) for s in start]
    best = min(runs, key=lambda r: r.cost)
    return np.exp(best.x), np.abs(np.exp(residual(best.x)) - 1)


def two_lines(rows: np.ndarray, factor: float, link: float) -> dict[str, Any]:
    """Latency and efficiency of both protocols from one sweep."""
    size, seconds = rows[:, 0], rows[:, 1]
    wire = size * factor

    def model(p: np.ndarray) -> np.ndarray:
        return np.minimum(p[0] + wire / (link * p[1]), p[2] + wire / (link * p[3]))

    low, top = seconds.min(), wire[-1] / seconds[-1] / link
    starts = [[low, top * f, low + e, top * 1.01] for f in (0.05, 0.2, 0.5) for e in (1e-5, 4e-5, 1e-4)]
    p, error = fit_logs(model, starts, seconds)
    return {"fast": p[0], "fast_efficiency": p[1], "slow": p[2], "efficiency": p[3], "error": error}


def r(value: float, digits: int = 4) -> float:
    """Rounded to significant digits for the file."""
    return float(f"{value:.{digits}g}")


def operation(
    latency: float, efficiency: float, fast_latency: float, fast_efficiency: float, basis: str, **more: Any
) -> dict[str, Any]:
    """One operation's table."""
    table = {
        "latency": r(max(latency, 0.0)),
        "efficiency": r(efficiency),
        "fast_latency": r(max(fast_latency, 0.0)),
        "fast_efficiency": r(fast_efficiency),
        "basis": basis,
    }
    by_ranks = more.pop("efficiency_by_ranks", None)
    error = more.pop("error", None)
    if error is not None:
        more["mean_error"], more["max_error"] = r(error.mean(), 3), r(error.max(), 3)
    if by_ranks:
        table["efficiency_by_ranks"] = {str(k): r(v) for k, v in by_ranks.items()}
    return table | more


def nvlink3(shared: Path) -> dict[str, Any]:
    """A100: superbench sweeps on 8 GPUs for five operations, vTrain's all-reduce for 2 to 8 GPUs."""
    link = 300e9
    logs = shared / "traces/nccl_tests"
    sweeps = vtrain(shared / "validation/allreduce_a100_node.csv", "A100")
    full = nccl_tests(logs / "superbench_nccl_allreduce.log")
    sets = [(n, rows) for n, rows in sorted(sweeps.items())] + [(8, full)]
    ranks = np.concatenate([np.full(len(rows), n) for n, rows in sets])
    size = np.concatenate([rows[:, 0] for _, rows in sets])
    seconds = np.concatenate([rows[:, 1] for _, rows in sets])
    wire, steps = size * 2 * (ranks - 1) / ranks, 2 * (ranks - 1)

    def model(p: np.ndarray) -> np.ndarray:
        fast = p[0] + steps * FAST_HOP + wire / (link * p[1])
        return np.minimum(fast, p[2] + steps * p[3] + wire / (link * p[4:][ranks - 2]))

    p, error = fit_logs(
        model, [[25e-6, 0.14, 25e-6, 3e-6, *([0.7] * 7)], [25e-6, 0.14, 8e-6, 4e-6, *([0.75] * 7)]], seconds
    )
    hop = p[3]
    ops = {
        "all_reduce": operation(
            p[2], p[10], p[0], p[1], "fitted", error=error,
            efficiency_by_ranks={n: p[2 + n] for n in range(2, 9)}, ranks=list(range(2, 9)),
            bytes_range=[4, 8589934592],
            measurements=["traces/nccl_tests/superbench_nccl_allreduce.log", "validation/allreduce_a100_node.csv (A100)"],
        )
    }  # fmt: skip
    names = {
        "all_gather": "allgather",
        "reduce_scatter": "reducescatter",
        "broadcast": "broadcast",
        "all_to_all": "alltoall",
    }
    for name, file in names.items():
        path = logs / f"superbench_nccl_{file}.log"
        fit = two_lines(nccl_tests(path), bus_factor(name, 8), link)
        ops[name] = operation(
            fit["slow"] - 7 * hop, fit["efficiency"], fit["fast"] - 7 * FAST_HOP, fit["fast_efficiency"], "fitted",
            error=fit["error"], ranks=[8], bytes_range=[4, 8589934592], measurements=[f"traces/nccl_tests/{path.name}"],
        )  # fmt: skip
    ops["p2p"] = operation(10e-6, 0.78, 8e-6, 0.2, "assumed")
    return {
        "id": "nvlink3", "kind": "link", "title": "NVLink 3 through NVSwitch (A100)", "links": ["nvswitch"],
        "architectures": ["ampere"], "hop_latency": r(hop), "fast_hop_latency": FAST_HOP, "operations": ops,
        "notes": ["p2p: between the two-rank all-reduce (0.66 of the link) and the ring of eight"],
    }  # fmt: skip


def nvlink2(shared: Path) -> dict[str, Any]:
    """V100 hybrid cube mesh: vTrain's all-reduce for 2 to 8 GPUs; the pair link bounds small groups."""
    sweeps = vtrain(shared / "validation/allreduce_a100_node.csv", "V100")
    link = {n: min(150e9, 50e9 * (n - 1)) for n in sweeps}
    ranks = np.concatenate([np.full(len(rows), n) for n, rows in sorted(sweeps.items())])
    data = np.concatenate([rows for _, rows in sorted(sweeps.items())])
    wire, steps = data[:, 0] * 2 * (ranks - 1) / ranks, 2 * (ranks - 1)
    rate = np.array([link[n] for n in ranks])

    def model(p: np.ndarray) -> np.ndarray:
        fast = 14e-6 + steps * FAST_HOP + wire / (rate * p[0])
        return np.minimum(fast, p[1] + steps * p[2] + wire / (rate * p[3:][ranks - 2]))

    p, error = fit_logs(model, [[0.1, 2e-5, 3e-6, *([0.6] * 7)]], data[:, 1])
    common = {n: p[1 + n] for n in range(2, 9)}
    ops = {}
    for name in OPERATIONS[:4]:
        fitted = name == "all_reduce"
        extra: dict[str, Any] = {"error": error, "ranks": list(range(2, 9)), "bytes_range": [2**20, 2**30],
                                 "measurements": ["validation/allreduce_a100_node.csv (V100)"]} if fitted else {}  # fmt: skip
        fast = p[0] if fitted else p[0] / 2
        ops[name] = operation(
            p[1], p[9], 14e-6, fast, "fitted" if fitted else "assumed", efficiency_by_ranks=common, **extra
        )
    ops["all_to_all"] = operation(60e-6, 0.6, 60e-6, 0.5, "assumed")
    ops["p2p"] = operation(10e-6, 0.45, 8e-6, 0.1, "assumed")
    return {
        "id": "nvlink2", "kind": "link", "title": "NVLink 2 hybrid cube mesh (V100)", "links": ["nvlink-mesh"],
        "architectures": ["volta"], "hop_latency": r(p[2]), "fast_hop_latency": FAST_HOP, "operations": ops,
        "notes": [
            "latency below 1 MiB assumed (the sweep starts there)",
            "efficiency is of min(all links, pair link x (ranks - 1)); 5 and 6 ranks find fewer rings in the cube mesh",
        ],
    }  # fmt: skip


def in_switch_fit(sets: list[np.ndarray], link: float) -> tuple[np.ndarray, np.ndarray]:
    """fast latency, fast efficiency, latency per rank and efficiency in the switch, from 8-GPU all-reduce sweeps."""
    data = np.concatenate(sets)
    size, seconds = data[:, 0], data[:, 1]

    def model(p: np.ndarray) -> np.ndarray:
        fast = p[0] + 14 * FAST_HOP + 1.75 * size / (link * p[1])
        return np.minimum(fast, 8 * p[2] + size / (link * p[3]))

    return fit_logs(model, [[1e-5, 0.3, 5e-6, 0.6], [2e-5, 0.5, 1e-5, 0.6], [1e-5, 0.2, 3e-6, 0.6]], seconds)


def nvlink4(shared: Path) -> dict[str, Any]:
    """H100/H200: four 8-GPU all-reduce sweeps with NVLS, large-message numbers by GPU count and for the ring."""
    link, logs = 450e9, shared / "traces/nccl_tests"
    sets = [
        nccl_tests(logs / "dgxc_h100x8_all_reduce_0.txt"),
        azure(logs / "azure_ND_H100_v5_results.md"),
        azure(logs / "azure_ND_H200_v5_results.md"),
        from_busbw(H200_ML_ENGINEERING, 1.75),
    ]
    p, error = in_switch_fit(sets, link)
    # stas00/ml-engineering: NVLS bus bandwidth at 8 GiB for 5..8 GPUs relative to 8, as payload rate n/(2(n-1))
    by_ranks = {
        n: p[3] * (bus * n / (2 * (n - 1))) / (473.1 * 8 / 14)
        for n, bus in ((5, 414.2), (6, 435.6), (7, 460), (8, 473.1))
    }
    names = ["dgxc_h100x8_all_reduce_0.txt", "azure_ND_H100_v5_results.md", "azure_ND_H200_v5_results.md"]
    measured = [f"traces/nccl_tests/{n}" for n in names] + ["stas00/ml-engineering network/README.md (8x H200)"]
    ring = {"basis": "measured", "measurements": ["stas00/ml-engineering network/README.md (8x H200, 16 GiB)"]}
    hop = 2.1e-6
    ops = {
        "all_reduce": operation(8.4e-6, 0.816, p[0], p[1], efficiency_by_ranks={4: 0.81, 8: 0.818}, error=error, ranks=[8],
                                bytes_range=[8, 17179869184], **(ring | {"measurements": measured, "basis": "fitted"})),
        "all_gather": operation(8.4e-6, 0.805, p[0], p[1] / 2, **ring),
        "reduce_scatter": operation(8.4e-6, 0.809, p[0], p[1] / 2, **ring),
        "broadcast": operation(8.4e-6, 0.80, p[0], p[1] / 2, "assumed"),
        "all_to_all": operation(25e-6, 0.75, 25e-6, 0.5, "assumed"),
        "p2p": operation(8e-6, 0.80, 7e-6, 0.2, "assumed"),
    }  # fmt: skip
    return {
        "id": "nvlink4", "kind": "link", "title": "NVLink 4 through NVSwitch (H100, H200)", "links": ["nvswitch"],
        "architectures": ["hopper"], "hop_latency": hop, "fast_hop_latency": FAST_HOP, "operations": ops,
        "in_switch": {
            "min_ranks": 5, "latency": 0.0, "latency_per_rank": r(p[2]), "efficiency_by_ranks": {str(k): r(v) for k, v in by_ranks.items()},
            "basis": "fitted", "mean_error": r(error.mean(), 3), "max_error": r(error.max(), 3), "measurements": measured,
        },
        "notes": ["ring latency assumed equal to NVLink 5, for which fixed costs were published"],
    }  # fmt: skip


def nvlink5() -> dict[str, Any]:
    """B200 and GB200: published large-message numbers and SimuMax' fixed costs."""
    measured = [
        "stas00/ml-engineering network/README.md (B200, 4..8 GPUs, 8 GiB)",
        "MooreThreads/SimuMax B200 system file",
    ]
    fast = {"fast_latency": 8e-6, "fast_efficiency": 0.35}
    half = {"fast_latency": 8e-6, "fast_efficiency": 0.17}
    by_ranks = {n: bus * n / (2 * (n - 1)) / 900 for n, bus in ((6, 778.2), (7, 811.2), (8, 838.0))}
    # coreweave/nccl-tests#43, 72 ranks: 841 GB/s at 8 GiB, 581.5 at 0.5 GiB: two points give rate and latency
    big, small = (s * 2**30 * (2 * 71 / 72) / (b * 1e9) for s, b in ((8, 841), (0.5, 581.5)))
    rate = 7.5 * 2**30 / (big - small)
    by_ranks[72] = rate / 900e9
    per_rank = (big - 8 * 2**30 / rate) / 72
    ops = {
        "all_reduce": operation(8.4e-6, 0.758, **fast, efficiency_by_ranks={4: 0.748, 8: 0.758}, basis="measured", measurements=measured),
        "all_gather": operation(8.4e-6, 0.674, **half, basis="measured", measurements=measured[1:]),
        "reduce_scatter": operation(10.9e-6, 0.673, **half, basis="measured", measurements=measured[1:]),
        "broadcast": operation(8.4e-6, 0.67, **half, basis="assumed"),
        "all_to_all": operation(25e-6, 0.597, fast_latency=25e-6, fast_efficiency=0.4, basis="measured", measurements=measured[1:]),
        "p2p": operation(8e-6, 0.75, fast_latency=7e-6, fast_efficiency=0.2, basis="assumed"),
    }  # fmt: skip
    return {
        "id": "nvlink5", "kind": "link", "title": "NVLink 5 through NVSwitch (B200, GB200, B300, GB300)", "links": ["nvswitch"],
        "architectures": ["blackwell"], "hop_latency": 2.1e-6, "fast_hop_latency": FAST_HOP, "operations": ops,
        "in_switch": {
            "min_ranks": 6, "latency": 0.0, "latency_per_rank": r(per_rank), "efficiency_by_ranks": {str(k): r(v) for k, v in by_ranks.items()},
            "basis": "measured", "measurements": [measured[0], "coreweave/nccl-tests#43 (GB200 NVL72, 72 ranks)"],
        },
        "notes": [
            "hop latency: SimuMax' 23 us fixed cost of an all-gather on 8 B200, less NCCL's base of 8.4 us, over 7 steps",
            "latency of the small-message protocol assumed",
        ],
    }  # fmt: skip


def other_links() -> list[dict[str, Any]]:
    """Links with one or two published numbers, or none."""

    def table(
        latency: float, fast: float, efficiencies: dict[str, float], basis: dict[str, str], fast_share: float = 0.3
    ) -> dict[str, Any]:
        return {
            name: operation(latency, efficiencies.get(name, efficiencies["default"]), fast, fast_share * efficiencies["default"],
                            basis.get(name, "assumed"))
            for name in OPERATIONS
        }  # fmt: skip

    xgmi = table(12e-6, 12e-6, {"default": 0.70, "all_to_all": 0.6, "p2p": 0.75}, {"all_reduce": "measured"})
    xgmi["all_reduce"] |= {"efficiency_by_ranks": {"2": 0.745, "8": 0.698},
                           "measurements": ["stas00/ml-engineering network/README.md (MI300X, 4 GiB, 2 and 8 GPUs)"]}  # fmt: skip
    pcie = table(15e-6, 12e-6, {"default": 0.40, "all_to_all": 0.35, "p2p": 0.6}, {"all_reduce": "measured"})
    for name in ("all_reduce", "all_gather", "reduce_scatter", "broadcast"):
        pcie[name]["efficiency_by_ranks"] = {"2": 0.6, "4": 0.5, "8": 0.405}
    pcie["all_reduce"]["measurements"] = ["MooreThreads/SimuMax A100-PCIe (8 GPUs: 0.418 of 30 GB/s; fewer: assumed)"]
    ici = table(13.4e-6, 13.4e-6, {"default": 0.90}, {"all_gather": "fitted"}, 1.0)
    ici["all_gather"]["measurements"] = ["traces/nccl_tests/google_tpu7x_all_gather.md"]
    head = {"architectures": [], "fast_hop_latency": 1.0e-6}
    return [
        {"id": "xgmi", "kind": "link", "title": "AMD xGMI full mesh (MI250X, MI300X, MI355X)", "links": ["xgmi-mesh"],
         "hop_latency": 3.4e-6, "operations": xgmi, **head,
         "notes": ["efficiency is of pair link x (ranks - 1), at most all links", "latency assumed"]},
        {"id": "pcie", "kind": "link", "title": "PCIe through the host or a switch", "links": ["pcie"], "hop_latency": 5.7e-6,
         "operations": pcie, **head, "notes": ["latency per hop: NCCL tuning table"]},
        {"id": "ici", "kind": "link", "title": "TPU inter-chip interconnect (torus)", "links": ["torus"], "hop_latency": 1.0e-6,
         "operations": ici, **head,
         "notes": ["0.9 of the vendor's link rate: the scaling book's allowance and the TPU7x sweep agree",
                   "latency: intercept of the TPU7x sweep, 13.4 us per call; hop: scaling book"]},
        {"id": "neuronlink", "kind": "link", "title": "AWS NeuronLink", "links": ["neuronlink"], "hop_latency": 3.4e-6,
         "operations": table(15e-6, 12e-6, {"default": 0.70, "all_to_all": 0.5}, {}), **head, "notes": ["no public sweep"]},
        {"id": "gaudi-roce", "kind": "link", "title": "Gaudi RoCE mesh", "links": ["roce-mesh"], "hop_latency": 5.0e-6,
         "operations": table(15e-6, 12e-6, {"default": 0.85, "all_to_all": 0.7}, {}), **head, "notes": ["no public sweep"]},
        {"id": "nvlink", "kind": "link", "title": "NVLink of another generation or wiring", "links": ["nvswitch", "nvlink-mesh"],
         "hop_latency": 3.0e-6, "operations": table(10e-6, 10e-6, {"default": 0.75, "all_to_all": 0.65}, {}), **head,
         "notes": ["mean of the measured generations"]},
        {"id": "unknown-link", "kind": "link", "title": "A link nobody measured", "links": [], "hop_latency": 4.0e-6,
         "operations": table(15e-6, 12e-6, {"default": 0.70, "all_to_all": 0.5}, {}), **head, "notes": ["default"]},
    ]  # fmt: skip


# --- fabrics ---------------------------------------------------------------------------------------------------


def fabric(id: str, title: str, fabrics: list[str], **values: Any) -> dict[str, Any]:
    """A fabric's table; unmeasured fields get the stated defaults."""
    table: dict[str, Any] = {
        "id": id, "kind": "fabric", "title": title, "fabrics": fabrics, "architectures": [], "hop_latency": 20e-6,
        "ring_hop_latency": 25e-6, "ring_efficiency": 0.8, "tree_efficiency": 0.75, "tree_pipelining": 2.83,
        "all_to_all_efficiency": 0.75, "point_to_point_efficiency": 0.8, "basis": "assumed",
    }  # fmt: skip
    return table | values


def trial_network(link: LinkFit, fabric_fit: FabricFit, rate: float, nic: float) -> Any:
    """An 8-GPU-node network with the given constants, for fitting."""
    accelerator = Accelerator(
        id="trial", name="trial", vendor="", kind="gpu", architecture="", peak_flops={}, matmul_ceiling={}, compute_units=1,
        memory_bytes=1, memory_usable_bytes=1, memory_bandwidth=1, link="nvswitch", link_bandwidth=rate, link_pair_bandwidth=rate,
        scale_up_domain=8, host_bandwidth=1,
    )  # fmt: skip
    cluster = Cluster(
        id="trial", accelerator=accelerator, devices=1024, node_size=8, domain_size=8, link="nvswitch", link_bandwidth=rate,
        nic_bandwidth=nic, nics_per_node=8, fabric="trial",
    )  # fmt: skip
    return build_network(cluster, link, fabric_fit, link)


def node_group(nodes: int, rate: float, nic: float, local: int = 8) -> Group:
    """All ranks of `nodes` nodes."""
    return Group("data", nodes * local, 1, local, nodes, rate, nic, nic, True)


def fit_tree(
    rows: np.ndarray, link: LinkFit, rate: float, nic: float, start: FabricFit
) -> tuple[FabricFit, np.ndarray]:
    """Hop latency, efficiency and filling cost of the tree from a two-node all-reduce sweep."""
    group = node_group(2, rate, nic)

    def build(p: np.ndarray) -> FabricFit:
        return replace(start, hop_latency=p[0], tree_efficiency=min(p[1], 1.0), tree_pipelining=p[2])

    def model(p: np.ndarray) -> np.ndarray:
        return np.asarray(collective_time(trial_network(link, build(p), rate, nic), group, "all_reduce", rows[:, 0]))

    p, error = fit_logs(model, [[3e-5, 0.9, 1.5], [6e-5, 0.9, 2.5]], rows[:, 1])
    return build(p), error


def fit_ring(shared: Path, link: LinkFit, start: FabricFit) -> tuple[FabricFit, np.ndarray]:
    """Ring hop latency over InfiniBand from SimAI's shares by size and node count (400 Gb/s cards taken).

    The efficiency is the middle of the 46-49 GB/s that real NDR400 cards reach (NVIDIA/nccl-tests#267, #290).
    """
    nic, rate = 50e9, 450e9
    data = [(nodes, rows[:, 0], rows[:, 0] * bus_factor("all_reduce", 8 * nodes) / (rows[:, 1] * 8 * nic))
            for nodes, rows in simai(shared / "traces/nccl_tests/simai_nic_ratio.csv")]  # fmt: skip
    unlimited = replace(link, in_switch=None, operations={
        k: replace(v, efficiency=1.0, efficiency_by_ranks={}, fast_efficiency=1e-9) for k, v in link.operations.items()})  # fmt: skip

    def build(p: np.ndarray) -> FabricFit:
        return replace(start, ring_hop_latency=p[0], ring_efficiency=0.95, hop_latency=1.0)

    def model(p: np.ndarray) -> np.ndarray:
        net = trial_network(unlimited, build(p), rate, nic)
        return np.concatenate([collective_time(net, node_group(n, rate, nic), "all_reduce", s) for n, s, _ in data])

    p, error = fit_logs(model, [[2e-5]], np.concatenate([t for *_, t in data]))
    return replace(start, ring_hop_latency=p[0], ring_efficiency=0.95), error


def fabrics(shared: Path, nvlink3_fit: LinkFit, nvlink4_fit: LinkFit) -> list[dict[str, Any]]:
    """All scale-out fabrics."""
    logs = shared / "traces/nccl_tests"
    blank = parse_fit(fabric("trial", "", []), "trial")
    assert isinstance(blank, FabricFit)
    ring, ring_error = fit_ring(shared, nvlink4_fit, blank)
    p5, p5_error = fit_tree(nccl_tests(logs / "aws_2x_p5_all_reduce.txt"), nvlink4_fit, 450e9, 50e9, blank)
    p4de, p4de_error = fit_tree(
        nccl_tests(logs / "aws_2x_p4de_all_reduce.txt"),
        nvlink3_fit,
        300e9,
        6.25e9,
        blank,
    )
    errors = lambda e: {"mean_error": r(e.mean(), 3), "max_error": r(e.max(), 3)}  # noqa: E731
    infiniband = fabric(
        "infiniband", "InfiniBand HDR, NDR, XDR", ["infiniband"], hop_latency=15e-6, ring_hop_latency=r(ring.ring_hop_latency),
        ring_efficiency=r(ring.ring_efficiency), tree_efficiency=r(0.92 * ring.ring_efficiency), tree_pipelining=2.83,
        all_to_all_efficiency=0.93, point_to_point_efficiency=0.92, basis="fitted", **errors(ring_error),
        measurements=["traces/nccl_tests/simai_nic_ratio.csv (4..128 nodes, 16 MiB..16 GiB)", "NVIDIA/nccl#1244 (46 us floor, 2 nodes)",
                      "NVIDIA/nccl-tests#267, #290 (46-49 GB/s per NDR card)"],
        notes=["SimAI gives shares of the link rate; 400 Gb/s cards are taken", "tree efficiency: NCCL's 0.92; filling cost: theory with the best chunk, 2 sqrt(2) for reduce and broadcast"],
    )  # fmt: skip
    roce = infiniband | {
        "id": "roce", "title": "RoCE v2", "fabrics": ["roce"], "ring_efficiency": 0.92, "tree_efficiency": 0.85,
        "all_to_all_efficiency": 0.85, "basis": "assumed", "notes": ["as InfiniBand, less what hashing of few flows costs (Meta, SIGCOMM 24)"],
        "measurements": ["NVIDIA/nccl#1218 (256 H100, all-reduce 340 GB/s at 2 GiB)"],
    }  # fmt: skip
    for key in ("mean_error", "max_error"):
        roce.pop(key)
    efa_hopper = fabric(
        "efa-hopper", "EFA v2/v3 (p5, p5e, p5en, p6)", ["efa"], architectures=["hopper", "blackwell"], hop_latency=r(p5.hop_latency),
        ring_hop_latency=r(p5.hop_latency), ring_efficiency=0.93, tree_efficiency=r(p5.tree_efficiency), tree_pipelining=r(p5.tree_pipelining),
        all_to_all_efficiency=0.85, point_to_point_efficiency=0.9, basis="fitted", **errors(p5_error),
        measurements=["traces/nccl_tests/aws_2x_p5_all_reduce.txt", "stas00/ml-engineering (p5en and p6, 4 nodes: 365 and 377 GB/s)"],
        notes=["two p5 nodes are bound by NVLink, so the tree's card efficiency is only bounded below"],
    )  # fmt: skip
    efa = fabric(
        "efa-ampere", "EFA v1 (p4d, p4de, p3dn)", ["efa"], architectures=["ampere", "volta"], hop_latency=r(p4de.hop_latency),
        ring_hop_latency=r(p4de.hop_latency), ring_efficiency=0.65, tree_efficiency=r(min(p4de.tree_efficiency, 1.0)),
        tree_pipelining=r(p4de.tree_pipelining), all_to_all_efficiency=0.6, point_to_point_efficiency=0.7, basis="fitted", **errors(p4de_error),
        measurements=["traces/nccl_tests/aws_2x_p4de_all_reduce.txt", "NVIDIA/nccl#527 (p4d, 3 and 4 nodes: 31.8 and 29.6 GB/s)"],
    )  # fmt: skip
    return [
        infiniband, roce, efa_hopper, efa,
        fabric("efa", "EFA, other instances", ["efa"], hop_latency=30e-6, ring_hop_latency=30e-6),
        fabric("tcpx", "GPUDirect-TCPX (A3 High)", ["tcpx", "gpudirect-tcpx"], ring_efficiency=0.7, tree_efficiency=0.65, hop_latency=40e-6,
               ring_hop_latency=40e-6, all_to_all_efficiency=0.6, point_to_point_efficiency=0.7, notes=["no public sweep"]),
        fabric("tcpxo", "GPUDirect-TCPXO (A3 Mega)", ["tcpxo", "fastrak", "gpudirect-tcpxo"], ring_efficiency=0.85, tree_efficiency=0.8,
               hop_latency=25e-6, ring_hop_latency=25e-6, notes=["no public sweep"]),
        fabric("ethernet", "Ethernet through sockets", ["ethernet", "tcp"], ring_efficiency=0.6, tree_efficiency=0.55, hop_latency=60e-6,
               ring_hop_latency=60e-6, all_to_all_efficiency=0.5, point_to_point_efficiency=0.6,
               measurements=["PyTorch/IBM FSDP T5: 120 of 200 Gb/s"]),
        fabric("slingshot", "Slingshot 11", ["slingshot"], ring_efficiency=0.85, tree_efficiency=0.8, notes=["no public sweep"]),
        fabric("omnipath", "Omni-Path 100", ["omnipath", "opa"], ring_efficiency=0.34, tree_efficiency=0.34, all_to_all_efficiency=0.3,
               point_to_point_efficiency=0.4, basis="measured", measurements=["stas00/ml-engineering (Jean Zay: 135 of 400 Gb/s per node)"]),
        fabric("dcn", "Data-centre network between TPU slices", ["dcn"], ring_efficiency=0.8, tree_efficiency=0.8, hop_latency=50e-6,
               ring_hop_latency=50e-6, notes=["no public sweep"]),
        fabric("unknown-fabric", "A fabric nobody measured", [], notes=["default"]),
    ]  # fmt: skip


# --- expert kernels --------------------------------------------------------------------------------------------


def expert_kernels() -> list[dict[str, Any]]:
    """DeepEP's published kernels; constants chosen on its tables, checked in tests/engine/test_communication.py."""
    source = ["deepseek-ai/DeepEP docs/legacy.md, README.md"]
    return [
        {"id": "deepep", "kind": "expert-kernel", "title": "DeepEP, normal kernels", "latency": 43e-6, "link_efficiency": 0.64,
         "fabric_efficiency": 0.88, "dedup": True, "basis": "fitted", "measurements": source,
         "notes": ["link share on H800 (200 GB/s); on faster links assumed to hold"]},
        {"id": "deepep-v2", "kind": "expert-kernel", "title": "DeepEP V2", "latency": 43e-6, "link_efficiency": 0.70,
         "fabric_efficiency": 0.91, "dedup": True, "basis": "fitted", "measurements": source, "notes": []},
        {"id": "deepep-low-latency", "kind": "expert-kernel", "title": "DeepEP, low-latency kernels", "latency": 43e-6,
         "link_efficiency": 0.98, "fabric_efficiency": 1.0, "dedup": False, "basis": "fitted", "measurements": source, "notes": []},
    ]  # fmt: skip


def check_sweeps(shared: Path) -> None:
    """Mean and largest error of the shipped constants on every in-node sweep, all sizes and from 64 KiB."""
    logs, fits = shared / "traces/nccl_tests", load_fits()
    sweeps = [
        ("nvlink4", 450e9, "all_reduce", 8, "dgxc 8x H100", nccl_tests(logs / "dgxc_h100x8_all_reduce_0.txt")),
        ("nvlink4", 450e9, "all_reduce", 8, "azure 8x H100", azure(logs / "azure_ND_H100_v5_results.md")),
        ("nvlink4", 450e9, "all_reduce", 8, "azure 8x H200", azure(logs / "azure_ND_H200_v5_results.md")),
        ("nvlink4", 450e9, "all_reduce", 8, "ml-engineering 8x H200", from_busbw(H200_ML_ENGINEERING, 1.75)),
        ("nvlink3", 300e9, "all_reduce", 8, "azure 8x A100 (held out)", azure(logs / "azure_ND_A100_v4_results.md")),
        ("nvlink3", 300e9, "all_reduce", 8, "superbench 8x A100", nccl_tests(logs / "superbench_nccl_allreduce.log")),
        *(("nvlink3", 300e9, "all_reduce", n, f"vTrain {n}x A100", rows)
          for n, rows in sorted(vtrain(shared / "validation/allreduce_a100_node.csv", "A100").items())),
    ]  # fmt: skip
    for id, rate, name, ranks, title, rows in sweeps:
        link = fits.links[id]
        net = trial_network(link, fits.fabrics["infiniband"], rate, 50e9)
        group = Group("tensor", ranks, 1, ranks, 1, rate, 50e9, 50e9, True)
        error = np.abs(collective_time(net, group, name, rows[:, 0]) / rows[:, 1] - 1)
        large = error[rows[:, 0] >= 65536]
        print(
            f"{title:>28}  all sizes: mean {error.mean():.1%} max {error.max():.1%}   from 64 KiB: mean {large.mean():.1%} max {large.max():.1%}"
        )


def main() -> None:
    """Fit, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shared", type=Path, help="folder with traces/ and validation/")
    parser.add_argument("--check", action="store_true", help="print residuals, write nothing")
    arguments = parser.parse_args()
    three, four = nvlink3(arguments.shared), nvlink4(arguments.shared)
    fit3, fit4 = parse_fit(three, "nvlink3"), parse_fit(four, "nvlink4")
    assert isinstance(fit3, LinkFit) and isinstance(fit4, LinkFit)
    tables = [
        nvlink2(arguments.shared),
        three,
        four,
        nvlink5(),
        *other_links(),
        *fabrics(arguments.shared, fit3, fit4),
        *expert_kernels(),
    ]
    if arguments.check:
        check_sweeps(arguments.shared)
    for table in tables:
        for name, part in {table["id"]: table, **table.get("operations", {})}.items():
            if part.get("mean_error") is not None:
                print(f"{table['id']:>12} {name:<16} mean {part['mean_error']:.1%} max {part['max_error']:.1%}")
        if not arguments.check:
            FITS_DIR.mkdir(parents=True, exist_ok=True)
            head = f"# Written by benchmarks/fit_collectives.py: {table['title']}. Times in s, efficiencies as shares of the link.\n\n"
            (FITS_DIR / f"{table['id']}.toml").write_text(head + tomlkit.dumps(table), encoding="utf-8")


if __name__ == "__main__":
    main()
