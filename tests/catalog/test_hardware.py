"""The hardware catalogue against the reference table, and against itself."""

from __future__ import annotations

import csv
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest

from meshwright.catalog import hardware, load, schema
from meshwright.catalog.records import DEFAULT_CEILING
from meshwright.catalog.validate import check_file, validate
from meshwright.errors import UnknownNameError

IDS = {
    "V100-SXM2-32GB": "v100-sxm-32gb", "A100-SXM4-40GB": "a100-sxm-40gb", "A100-SXM4-80GB": "a100-sxm-80gb",
    "A100-PCIe-80GB": "a100-pcie-80gb", "H100-SXM5-80GB": "h100-sxm", "H100-PCIe-80GB": "h100-pcie",
    "H100-NVL-94GB": "h100-nvl", "H200-SXM-141GB": "h200-sxm", "GH200-96GB": "gh200", "H800-SXM-80GB": "h800-sxm",
    "H20-SXM-96GB": "h20", "B200-SXM-180GB": "b200-sxm", "B300-SXM-288GB": "b300-sxm", "GB200-NVL72": "gb200-nvl72",
    "GB300-NVL72": "gb300-nvl72", "L40S": "l40s", "RTX-4090": "rtx-4090", "RTX-5090": "rtx-5090", "MI250X": "mi250x",
    "MI300X": "mi300x", "MI325X": "mi325x", "MI355X": "mi355x", "Gaudi2": "gaudi2", "Gaudi3": "gaudi3",
    "TPU-v4": "tpu-v4", "TPU-v5e": "tpu-v5e", "TPU-v5p": "tpu-v5p", "TPU-v6e": "tpu-v6e", "TPU7x-Ironwood": "tpu-v7x",
    "Trainium1": "trainium1", "Trainium2": "trainium2", "Trainium3": "trainium3",
}  # fmt: skip
DTYPES = ("fp32", "tf32", "bf16", "fp16", "fp8", "fp4")


@pytest.fixture(scope="module")
def rows(shared: Path) -> list[dict[str, str]]:
    with (shared / "reference" / "hardware.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def share_of_package(id: str) -> float:
    return 0.5 if id == "mi250x" else 1.0  # a process sees one GCD of two; the table lists the package


def test_every_row_of_the_reference_is_in_the_catalogue(rows):
    assert {row["name"] for row in rows} == set(IDS)
    assert set(IDS.values()) <= set(load.ids("accelerators"))


def test_compute_and_memory_agree_with_the_reference(rows):
    for row in rows:
        id = IDS[row["name"]]
        device, part = hardware.accelerator(id), share_of_package(id)
        peaks = {d: float(row[f"{d}_tflops"]) * 1e12 * part for d in DTYPES if row[f"{d}_tflops"]}
        assert dict(device.peak_flops) == pytest.approx(peaks), id
        assert device.memory_bandwidth == pytest.approx(float(row["hbm_bw_gbps"]) * 1e9 * part), id
        assert device.memory_usable_bytes / 2**30 == pytest.approx(float(row["hbm_gib_usable"]) * part, rel=2e-4), id
        label = float(row["hbm_gb_nominal"]) * part
        assert device.memory_bytes in (pytest.approx(label * 1e9), pytest.approx(label * 2**30)), id
        assert device.vendor == row["vendor"]


def test_links_agree_with_the_reference(rows):
    for row in rows:
        device = hardware.accelerator(IDS[row["name"]])
        assert device.link_bandwidth == pytest.approx(float(row["intra_bw_per_dir_gbps"]) * 1e9), device.id
        if row["p2p_pair_per_dir_gbps"]:
            assert device.link_pair_bandwidth == pytest.approx(float(row["p2p_pair_per_dir_gbps"]) * 1e9), device.id
        if row["host_link_gbps_per_dir"]:
            assert device.host_bandwidth == pytest.approx(float(row["host_link_gbps_per_dir"]) * 1e9), device.id
        assert device.scale_up_domain == int(re.match(r"\d+", row["scaleup_domain"])[0]), device.id


def test_measured_matmul_ceilings_agree_with_the_reference(rows):
    for row in rows:
        if row["measured_bf16_tflops_mamf"]:
            device = hardware.accelerator(IDS[row["name"]])
            measured = float(row["measured_bf16_tflops_mamf"]) / float(row["bf16_tflops"])
            assert device.matmul_ceiling["bf16"] == pytest.approx(measured), device.id


def test_network_of_the_usual_host_agrees_with_the_reference(rows):
    contradicts_itself = {"v100-sxm-32gb"}  # 4x100 on 8 GPUs is 50 Gb/s, p3dn's 1x100 is 12.5; the table says 25
    for row in rows:
        id = IDS[row["name"]]
        gigabits = float(row["scaleout_gbit_per_accel"])
        if gigabits and id not in contradicts_itself:
            cluster = hardware.cluster(f"{id}:{hardware.cluster(f'{id}:1').node_size}")
            assert cluster.nic_bandwidth * 8e-9 == pytest.approx(gigabits), id


def test_prices_lie_in_the_range_of_the_reference(rows):
    for row in rows:
        price = hardware.price(IDS[row["name"]])
        text = re.sub(r"\(.*?\)", "", row["usd_per_accel_hour_order"])
        numbers = [float(x) for x in re.findall(r"\d+\.?\d*", text)]
        assert (price is None) == (not numbers), row["name"]
        if price:
            assert price.dollars_per_hour == pytest.approx((min(numbers) + max(numbers)) / 2, rel=1e-3)


def test_recalled_cells_are_not_sold_as_facts(rows):
    recalled = {"fp32": "peak_flops.fp32", "tf32": "peak_flops.tf32", "fp8": "peak_flops.fp8", "fp4": "peak_flops.fp4"}
    recalled |= {"gib_usable": "memory_usable", "hbm_bw": "memory_bandwidth", "host": "host_bandwidth"}
    for row in rows:
        device = hardware.accelerator(IDS[row["name"]])
        for token in (t.strip() for t in row["recalled_fields"].split(",")):
            if token in recalled:
                assert recalled[token] in device.assumed, (device.id, token)


def test_double_rate_of_fp8_where_the_reference_has_it(rows):
    for row in rows:
        if row["fp8_tflops"] and row["bf16_tflops"]:
            ratio = float(row["fp8_tflops"]) / float(row["bf16_tflops"])
            device = hardware.accelerator(IDS[row["name"]])
            assert device.peak_flops["fp8"] / device.peak_flops["bf16"] == pytest.approx(ratio, rel=1e-6)
            assert ratio == pytest.approx(2, rel=0.03) or device.id in ("gaudi3", "tpu-v6e", "trainium1", "trainium3")


def test_accelerators_of_all_measured_runs_exist(shared):
    with (shared / "validation" / "measured_runs.csv").open(encoding="utf-8") as file:
        used = {row["accelerator"] for row in csv.DictReader(file)} - {""}
    assert len(used) > 15
    assert used <= set(load.ids("accelerators"))


# --- facts from outside, which need no reference table -----------------------------------------------------------


@pytest.mark.parametrize(
    ("id", "units"),
    [
        ("v100-sxm-32gb", 80),
        ("a100-sxm-80gb", 108),
        ("h100-sxm", 132),
        ("h100-pcie", 114),
        ("b200-sxm", 148),
        ("l40s", 142),
        ("rtx-4090", 128),
        ("rtx-5090", 170),
        ("mi250x", 110),
        ("mi300x", 304),
        ("mi355x", 256),
    ],
)
def test_compute_units(id, units):
    assert hardware.accelerator(id).compute_units == units


def test_tensor_core_arithmetic_gives_the_published_peaks():
    """Clock x FMAs x 2 x 4 cores x SMs (stas00/ml-engineering, compute/accelerator)."""
    h100, a100 = hardware.accelerator("h100-sxm"), hardware.accelerator("a100-sxm-80gb")
    assert h100.peak_flops["bf16"] == pytest.approx(1830e6 * 512 * 2 * 4 * h100.compute_units, rel=1e-3)
    assert a100.peak_flops["bf16"] == pytest.approx(1410e6 * 256 * 2 * 4 * a100.compute_units, rel=1e-3)
    mi300x = hardware.accelerator("mi300x")
    assert mi300x.peak_flops["bf16"] == pytest.approx(2100e6 * 256 * 2 * 4 * mi300x.compute_units, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "id"),
    [
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("h100", "h100-sxm"),
        ("H100-SXM", "h100-sxm"),
        ("a100-80gb", "a100-sxm-80gb"),
        ("NVIDIA A100-SXM4-40GB", "a100-sxm-40gb"),
        ("mi300", "mi300x"),
        ("trillium", "tpu-v6e"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
    ],
)
def test_names_people_and_drivers_use(name, id):
    assert hardware.accelerator(name).id == id


def test_unknown_and_ambiguous_names_suggest():
    with pytest.raises(UnknownNameError) as caught:
        hardware.accelerator("h1000-sxm")
    assert "h100-sxm" in str(caught.value.fix)
    with pytest.raises(UnknownNameError, match="ambiguous") as caught:
        hardware.accelerator("h100-")
    assert "h100-pcie" in str(caught.value.fix)


def test_ceilings_say_which_are_defaults():
    v100 = hardware.accelerator("v100-sxm-32gb")
    assert v100.matmul_ceiling["fp16"] == DEFAULT_CEILING
    assert "matmul_ceiling.fp16" in v100.assumed
    h100 = hardware.accelerator("h100-sxm")
    assert h100.matmul_ceiling["fp8"] == pytest.approx(1402.6 / 1979)
    assert not {"matmul_ceiling.bf16", "matmul_ceiling.fp8", "matmul_ceiling.fp16"} & set(h100.assumed)


def test_every_accelerator_is_physical():
    for id in load.ids("accelerators"):
        device = hardware.accelerator(id)
        assert device.memory_usable_bytes <= device.memory_bytes, id
        assert device.link_pair_bandwidth <= device.link_bandwidth, id
        assert set(device.matmul_ceiling) == set(device.peak_flops), id
        assert all(0.4 < share <= 1 for share in device.matmul_ceiling.values()), id
        assert all(math.isfinite(peak) and peak > 0 for peak in device.peak_flops.values()), id
        wide = max(device.peak_flops.get("bf16", 0), device.peak_flops.get("fp16", 0))
        assert device.peak_flops.get("fp32", 0) <= wide, id


def test_every_node_and_link_is_physical():
    for id in load.ids("nodes"):
        node = hardware.node(id)
        per_device = node.nics * node.nic_bandwidth / node.accelerators
        assert 0 <= per_device <= 100e9, id
        link = hardware.link(node.nic_link)
        assert link.scope == "scale-out"
        slower_port = {"nc80adis-h100-v5"}  # 80 Gb/s of a 100 Gb/s card
        on_dcn = node.fabric == "dcn"
        assert on_dcn or id in slower_port or node.nic_bandwidth in (link.bandwidth, 2 * link.bandwidth), id


def test_rack_scale_domains_span_hosts():
    for id in ("gb200-nvl72-tray", "gb300-nvl72-tray", "p6e-gb200-36xlarge", "a4x-highgpu-4g"):
        node = hardware.node(id)
        assert (node.accelerators, node.scale_up_domain) == (4, 72)


@pytest.mark.parametrize(
    ("node", "gigabits"),
    [
        ("p4d", 400),
        ("p4de", 400),
        ("p5", 3200),
        ("p5en", 3200),
        ("p6-b200", 3200),
        ("a3-high", 800),
        ("a3-mega", 1600),
        ("dgx-a100", 1600),
        ("dgx-h100", 3200),
        ("nd-h100-v5", 3200),
        ("dgx-b300", 6400),
        ("hls-gaudi3", 4800),
    ],
)
def test_network_of_cloud_instances(node, gigabits):
    """Totals a node as the clouds publish them (stas00/ml-engineering, network, table of inter-node platforms)."""
    found = hardware.node(node)
    assert found.nics * found.nic_bandwidth * 8e-9 == pytest.approx(gigabits)


# --- the files themselves ----------------------------------------------------------------------------------------


def test_the_shipped_hardware_is_valid():
    found = [f for kind in schema.KINDS for file in load.files(kind).values() for f in check_file(file, kind)]
    assert [(f.code, str(f.message), f.where) for f in found] == []


def test_no_name_means_two_things():
    assert [str(f.message) for f in validate() if f.code == "MW-CATALOG-ALIAS"] == []


def test_every_value_says_where_it_is_from():
    seen = 0
    for kind in schema.KINDS:
        for path in load.files(kind).values():
            for value in _values(load.read(path)):
                seen += 1
                assert value["source"].strip() and value["date"] and value["basis"] in schema.BASES, path
                assert "/work/" not in value["source"] and "../" not in value["source"], path
    assert seen > 1000


def _values(table):
    for given in table.values():
        if isinstance(given, dict):
            yield from [given] if "value" in given else _values(given)


def test_one_accelerator_opens_one_file(monkeypatch):
    opened = []
    parse = load._parse
    monkeypatch.setattr(load, "_parse", lambda path, *rest: opened.append(path.name) or parse(path, *rest))
    hardware.accelerator("h100-sxm")
    assert opened == ["h100-sxm.toml"]


def test_start_up_imports_nothing_heavy():
    code = (
        "import sys, meshwright.catalog.hardware as h; h.cluster('h100-sxm:512');"
        "print([m for m in %r if m in sys.modules])"
    )
    heavy = ["pydantic", "pint", "rich", "numpy", "tomlkit", "click"]
    result = subprocess.run([sys.executable, "-c", code % heavy], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
