"""Clusters from text and from files: what is understood, what is assumed, and what is refused with a fix."""

from __future__ import annotations

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.catalog import clusters, hardware, load
from meshwright.errors import InputError, UnknownNameError, UsageError
from meshwright.spec.cluster import Cluster


@pytest.mark.parametrize(
    ("text", "accelerator", "devices", "node_size", "domain"),
    [
        ("h100-sxm:512", "h100-sxm", 512, 8, 8),
        ("dgx-h100:64", "h100-sxm", 64, 8, 8),
        ("64xdgx-h100", "h100-sxm", 512, 8, 8),
        (" 64 x DGX-H100 ", "h100-sxm", 512, 8, 8),
        ("h100:16,384", "h100-sxm", 16384, 8, 8),
        ("dgx-h100", "h100-sxm", 8, 8, 8),
        ("gb200-nvl72:144", "gb200-nvl72", 144, 4, 72),
        ("gb300:72", "gb300-nvl72", 72, 4, 72),
        ("dgx-2:64", "v100-sxm-32gb", 64, 16, 16),
        ("trn2-ultra:128", "trainium2", 128, 16, 64),
        ("rtx-4090:2", "rtx-4090", 2, 2, 2),
        ("rtx-4090:4", "rtx-4090", 4, 4, 4),  # one larger host of the same make, not two on a slow network
        ("rtx-4090:6", "rtx-4090", 6, 2, 2),  # no host holds six
        ("2xworkstation-4090-x2", "rtx-4090", 4, 2, 2),  # named is named
        ("tpu-v5p:8x8x8", "tpu-v5p", 512, 4, 512),
        ("tpu-v5p:512", "tpu-v5p", 512, 4, 512),
        ("2*tpu-v5e:16x16", "tpu-v5e", 512, 8, 256),
        ("v5p-1024", "tpu-v5p", 512, 4, 512),  # the cloud's name counts TensorCores, two to a chip
        ("v5litepod-256", "tpu-v5e", 256, 8, 256),
        ("v6e-64", "tpu-v6e", 64, 8, 64),
        ("selene", "a100-sxm-80gb", 3072, 8, 8),
        ("llama3-h100-24k:16384", "h100-sxm", 16384, 8, 8),
    ],
)
def test_what_people_write(text, accelerator, devices, node_size, domain):
    cluster = hardware.cluster(text)
    assert cluster.accelerator.id == accelerator
    assert (cluster.devices, cluster.node_size, cluster.domain_size) == (devices, node_size, domain)


def test_named_clusters_carry_their_network():
    llama = hardware.cluster("llama3-h100-24k")  # arXiv 2407.21783: pods of 3,072, 1:7 between them, 400 Gb/s RoCE
    assert (llama.devices, llama.pod_size, llama.oversubscription) == (24576, 3072, 7)
    assert (llama.fabric, llama.nic_bandwidth) == ("roce", 50e9)
    jean_zay = hardware.cluster("jean-zay-a100")
    assert (jean_zay.nics_per_node, jean_zay.nic_bandwidth * 8 * 8 / 1e9) == (4, 400)


def test_every_named_cluster_and_node_resolves():
    for id in load.ids("clusters"):
        assert hardware.cluster(id).devices > 1
    for id in load.ids("nodes"):
        node = hardware.node(id)
        if not node.accelerator.startswith("tpu"):
            assert hardware.cluster(f"2x{id}").nodes == 2
    for id in load.ids("accelerators"):
        assert hardware.cluster(f"{id}:4").accelerator.id == id


def test_network_share_of_one_accelerator():
    assert hardware.cluster("p4d:16").nic_bandwidth == 4 * 100e9 / 8 / 8  # 4 cards of 100 Gb/s for 8 GPUs
    assert hardware.cluster("dgx-h100:16").nic_bandwidth == 50e9
    assert hardware.cluster("a3-high:16").nic_bandwidth == 12.5e9
    assert hardware.cluster("tpu-v5e:16x16").nic_bandwidth == 25e9 / 8


def test_pcie_boxes_are_wired_over_pcie():
    box = hardware.cluster("pcie-h100-x4")
    assert (box.link, box.link_bandwidth, box.domain_size) == ("pcie", 63e9, 4)
    assert box.scale_up is not None and box.scale_up.id == "pcie5"
    nvl = hardware.cluster("pcie-h100-nvl-x8")
    assert (nvl.link, nvl.link_bandwidth, nvl.scale_up.id) == ("pcie", 63e9, "pcie5")


# --- TPU slices --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chips", "shape"),
    [
        (4, (2, 2, 1)),
        (8, (2, 2, 2)),
        (16, (2, 2, 4)),
        (32, (2, 4, 4)),
        (64, (4, 4, 4)),
        (128, (4, 4, 8)),
        (256, (4, 8, 8)),
        (512, (8, 8, 8)),
        (1024, (8, 8, 16)),
        (6144, (16, 16, 24)),
        (8960, (16, 20, 28)),
    ],
)
def test_shapes_of_v5p_slices(chips, shape):
    """As in Google's list of v5p topologies; the largest is the whole pod of the scaling book."""
    assert hardware.cluster(f"tpu-v5p:{chips}").torus == shape


@pytest.mark.parametrize(
    ("text", "wraps"),
    [
        ("tpu-v5e:16x16", (True, True)),
        ("tpu-v5e:8x16", (False, True)),
        ("tpu-v5e:8x4", (False, False)),
        ("tpu-v5p:4x4x8", (True, True, True)),
        ("tpu-v5p:2x2x4", (False, False, False)),  # no optical switch inside a cube
        ("tpu-v3:32x32", (True, True)),
    ],
)
def test_which_axes_close(text, wraps):
    cluster = hardware.cluster(text)
    assert cluster.accelerator.torus.wraps(cluster.torus) == wraps


def test_link_rates_of_the_scaling_book():
    rates = {"tpu-v3": 100, "tpu-v4": 45, "tpu-v5e": 45, "tpu-v5p": 90, "tpu-v6e": 90}
    for id, rate in rates.items():
        assert hardware.accelerator(id).torus.link_bandwidth == rate * 1e9


def test_resizing_a_slice():
    one = hardware.cluster("tpu-v5e:64")
    assert hardware.resize(one, 256).torus == (16, 16)
    four = hardware.resize(one, 1024)
    assert (four.slices, four.torus, four.domain_size, four.devices) == (4, (16, 16), 256, 1024)
    two = hardware.cluster("2*tpu-v5p:4x4x4")
    assert hardware.resize(two, 256).slices == 4
    with pytest.raises(InputError, match="no tpu-v5e slice has 7 chips"):
        hardware.resize(one, 7)


@given(st.integers(1, 20_000))
def test_resizing_keeps_the_hardware(devices):
    cluster = hardware.cluster("gb200:512")
    other = hardware.resize(cluster, devices)
    assert other == hardware.cluster(f"gb200:{devices}")


@given(st.integers(1, 9000))
def test_a_slice_has_as_many_chips_as_asked_or_is_refused(chips):
    try:
        cluster = hardware.cluster(f"tpu-v5p:{chips}")
    except InputError as error:
        assert error.fix is not None
        assert chips % 64 or chips > 8960 or not any(True for _ in _boxes(chips // 64))
        return
    assert math.prod(cluster.torus) == chips == cluster.devices == cluster.domain_size


def _boxes(cubes):
    """Ways to build a v5p slice of whole 4x4x4 cubes inside a pod of 4x5x7 cubes."""
    for a in range(1, 5):
        for b in range(a, 6):
            if cubes % (a * b) == 0 and b <= cubes // (a * b) <= 7:
                yield a, b, cubes // (a * b)


# --- assumptions -------------------------------------------------------------------------------------------------


def templates(cluster: Cluster) -> set[str]:
    return {note.template for note in cluster.assumptions}


def test_every_default_is_listed():
    notes = templates(hardware.cluster("h100-sxm:512"))
    assert {clusters.DEFAULT_NODE, clusters.FLAT_NETWORK, clusters.PRICED, clusters.UNCERTAIN} == notes
    assert clusters.DEFAULT_NODE not in templates(hardware.cluster("dgx-h100:512"))
    assert clusters.FLAT_NETWORK not in templates(hardware.cluster("llama3-h100-24k"))
    assert clusters.ONE_NODE in templates(hardware.cluster("dgx-h100"))
    assert clusters.PARTLY_FILLED in templates(hardware.cluster("h100-sxm:12"))
    assert clusters.SHAPE_CHOSEN in templates(hardware.cluster("tpu-v5p:512"))
    assert clusters.SHAPE_CHOSEN not in templates(hardware.cluster("tpu-v5p:8x8x8"))
    assert clusters.UNPRICED in templates(hardware.cluster("h800:64"))
    assert hardware.cluster("h800:64").price_per_device_hour is None
    for note in hardware.cluster("h100-sxm:512").assumptions:
        assert note.values and not any(f"{{{name}}}" in note.render("en") for name in note.values)


def test_what_is_given_is_not_assumed():
    notes = templates(hardware.cluster("h100-sxm:512", oversubscription=2, price_per_device_hour=2.0))
    assert not {clusters.FLAT_NETWORK, clusters.PRICED} & notes
    resized = hardware.cluster("h100-sxm:512", node_size=4)
    assert clusters.NODE_RESIZED in templates(resized)
    assert (resized.node_size, resized.domain_size, resized.nic_bandwidth) == (4, 4, 50e9)
    assert hardware.cluster("gb200:512", node_size=8).domain_size == 72


def test_values_over_the_catalogue():
    cluster = hardware.cluster(
        "h100-sxm:512", nic_bandwidth="100 Gb/s", link_bandwidth="400GB/s", pod_size=256, oversubscription=4,
        fabric="roce", rails=1, host_memory_bytes="1TiB", price_per_device_hour="$2.5", domain_size=4,
    )  # fmt: skip
    assert (cluster.nic_bandwidth, cluster.link_bandwidth, cluster.pod_size) == (12.5e9, 400e9, 256)
    assert (cluster.oversubscription, cluster.fabric, cluster.rails, cluster.domain_size) == (4, "roce", 1, 4)
    assert (cluster.host_memory_bytes, cluster.price_per_device_hour) == (2**40, 2.5)
    assert hardware.cluster("llama3-h100-24k", devices=8192).devices == 8192
    assert hardware.cluster("tpu-v5e:16x16", slices=4).devices == 1024
    assert hardware.cluster("tpu-v5e", devices=1024, slices=4).torus == (16, 16)
    assert hardware.cluster("tpu-v5p", torus="4x4x8").devices == 128


# --- refusals ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "says", "fix"),
    [
        ("h100-sxm", "how many accelerators", "h100-sxm:512"),
        ("tpu-v5p", "how many accelerators", "tpu-v5p:16x20x28"),
        ("h100-sxm:0", "at least 1", ""),
        ("h100-sxm:-8", "at least 1", ""),
        ("h100-sxm:1.5", "not a whole number", ""),
        ("h100-sxm:1e3", "not a whole number", ""),
        ("h100-sxm:many", "not a whole number", ""),
        ("h100-sxm:", "not a whole number", ""),
        ("h100-sxm:10000001", "more than exist", "10,000,000"),
        ("9999999xdgx-h100", "more than exist", "10,000,000"),
        ("0xdgx-h100", "at least 1", ""),
        ("8xh100", "counts nodes", "h100-sxm:8"),
        ("64xdgx-h100:512", "given twice", "64xdgx-h100"),
        ("h100:8x8", "not wired as a torus", "h100-sxm:64"),
        ("2*h100:8", "TPU slices", "h100-sxm:16"),
        ("tpu-v5e:20x20", "larger than a tpu-v5e pod", "2*tpu-v5e:16x16"),
        ("tpu-v5e:1024", "larger than a tpu-v5e pod", "4*tpu-v5e:16x16"),
        ("tpu-v5e:32x8", "no slice of shape", "1, 2, 4, 8, 16"),
        ("tpu-v5p:8x8", "3 dimensions", "tpu-v5p:4x4x4"),
        ("tpu-v5p:5x8x8", "no slice of shape", "16x20x28"),
        ("tpu-v5p:6000", "no tpu-v5p slice", "6144"),
        ("tpu-v5e:0x16", "cannot be 0", ""),
        ("selene:99999", "3072", "dgx-a100:99999"),
        ("dgx", "ambiguous", "dgx-h100"),
        ("h100-smx:8", "no cluster is called", "h100-sxm"),
        ("", "no cluster", "h100-sxm:512"),
        ("no-such-file.toml", "cannot read", ""),
        ("/tmp", "cannot read", ""),
        ("~nobody-of-that-name/x.toml", "no such home folder", ""),
    ],
)
def test_one_clear_message(text, says, fix):
    with pytest.raises(UsageError) as caught:
        hardware.cluster(text)
    assert says in str(caught.value)
    assert fix in str(caught.value.fix or "")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("rate", ["400 GB/s", 400e9, "3.2 TB/s", "201 GB/s"])
def test_bits_given_as_bytes(rate):
    with pytest.raises(InputError, match="bits given as bytes") as caught:
        hardware.cluster("dgx-h100:64", nic_bandwidth=rate)
    assert "Gb/s is" in str(caught.value.fix)


def test_bits_given_as_bytes_below_the_fastest_card():
    with pytest.raises(InputError, match="bits given as bytes"):
        hardware.cluster("p4d:64", nic_bandwidth="50 GB/s")  # 400 Gb/s for 8 GPUs is 6.25 GB/s each: exactly 8 times
    assert hardware.cluster("p4d:64", nic_bandwidth="25 GB/s").nic_bandwidth == 25e9


@pytest.mark.parametrize(
    "values",
    [
        {"node_size": 0}, {"node_size": 2.5}, {"node_size": "eight"}, {"link": "string"}, {"fabric": "pigeon"},
        {"oversubscription": 0.5}, {"oversubscription": math.nan}, {"nic_bandwidth": -1}, {"nic_bandwidth": "400"},
        {"rails": True}, {"bogus": 1}, {"devices": 0}, {"devices": 2.5}, {"slices": 2}, {"torus": "8x8x8"},
        {"price_per_device_hour": 0}, {"host_memory_bytes": "80Gb"}, {"devices": "64"}, {"pod_size": [1]},
        {"link_bandwidth": {"value": 400, "unit": "GB"}}, {"link_bandwidth": {"value": 400, "unit": []}},
    ],
)  # fmt: skip
def test_absurd_values(values):
    with pytest.raises(UsageError):
        hardware.cluster("h100-sxm:512", **values)


NAMES = st.sampled_from(
    ["h100-sxm", "h100", "dgx-h100", "tpu-v5e", "tpu-v5p", "gb200", "selene", "v5p-256", "mi250x", "x", "dgx", "", "h"]
)
COUNTS = st.one_of(
    st.integers(-5, 20_000_000).map(str),
    st.tuples(st.integers(0, 64), st.integers(0, 64)).map(lambda t: f"{t[0]}x{t[1]}"),
    st.tuples(st.integers(0, 30), st.integers(0, 30), st.integers(0, 30)).map(lambda t: f"{t[0]}x{t[1]}x{t[2]}"),
    st.text(max_size=6),
)
PREFIX = st.one_of(
    st.just(""),
    st.integers(0, 10**8).map(lambda n: f"{n}x"),
    st.integers(0, 99).map(lambda n: f"{n}*"),
    st.text(max_size=3),
)
CLUSTER_TEXTS = st.one_of(
    st.text(max_size=40),
    st.builds("{}{}:{}".format, PREFIX, NAMES, COUNTS),
    st.builds("{}{}".format, PREFIX, NAMES),
)


@given(CLUSTER_TEXTS)
def test_any_text_is_a_cluster_or_a_usage_error(text):
    try:
        cluster = hardware.cluster(text)
    except UsageError as error:
        assert str(error) and "{" not in str(error.fix or "").replace("{{", "")
        return
    assert 1 <= cluster.devices <= clusters.MAX_DEVICES
    assert cluster.torus == () or cluster.devices == cluster.slices * math.prod(cluster.torus)
    assert math.isfinite(cluster.nic_bandwidth) and cluster.nic_bandwidth >= 0
    assert hardware.cluster(cluster.id).devices == cluster.devices


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.lists(st.integers(), max_size=2)
)


@given(st.dictionaries(st.sampled_from([*clusters.OVERRIDES, "devices", "slices", "other"]), VALUES, max_size=3))
def test_any_values_give_a_cluster_or_a_usage_error(values):
    try:
        cluster = hardware.cluster("h100-sxm:64", **values)
    except UsageError:
        return
    assert cluster.nic_bandwidth >= 0 and math.isfinite(cluster.nic_bandwidth)


def test_a_cluster_takes_milliseconds():
    hardware.cluster("h100-sxm:512")
    start = time.perf_counter()
    for _ in range(20):
        hardware.cluster("h100-sxm:512")
    assert (time.perf_counter() - start) / 20 < 0.005


# --- files -------------------------------------------------------------------------------------------------------

LAB = """
name = "our lab"
devices = 64
oversubscription = 2
price_per_hour = 2.1
[node]
base = "dgx-h100"
nics = 4
nic_bandwidth = "200 Gb/s"
host_memory = "1TiB"
[accelerator]
base = "h100-sxm"
memory_bandwidth = "3.0TB/s"
[accelerator.peak_flops]
bf16 = "900 TFLOP/s"
"""
OWN = """
nodes = 4
[accelerator]
vendor = "Us"
kind = "gpu"
architecture = "hopper"
link = "pcie"
compute_units = 100
memory = "64GiB"
memory_usable = "63GiB"
memory_bandwidth = "2TB/s"
link_bandwidth = "50GB/s"
link_pair_bandwidth = "50GB/s"
scale_up_domain = 4
host_bandwidth = "50GB/s"
peak_flops = { bf16 = "400TFLOP/s" }
[node]
accelerators = 4
nics = 1
nic_bandwidth = "100Gbps"
fabric = "roce"
"""


def write(folder, text):
    path = folder / "lab.toml"
    path.write_text(text, "utf-8")
    return path


def test_a_file_with_changes_to_catalogue_entries(tmp_path):
    cluster = hardware.cluster(write(tmp_path, LAB))
    assert (cluster.id, cluster.devices, cluster.nic_bandwidth, cluster.nics_per_node) == ("lab:64", 64, 12.5e9, 4)
    assert cluster.accelerator.peak_flops["bf16"] == 900e12
    assert cluster.accelerator.peak_flops["fp8"] == 1979e12
    assert (cluster.accelerator.memory_bandwidth, cluster.host_memory_bytes) == (3e12, 2**40)
    assert (cluster.oversubscription, cluster.price_per_device_hour) == (2, 2.1)
    assert hardware.cluster(str(write(tmp_path, LAB)), devices=128).devices == 128


def test_a_file_with_everything_in_it(tmp_path):
    cluster = hardware.cluster(write(tmp_path, OWN))
    assert (cluster.devices, cluster.node_size, cluster.domain_size) == (16, 4, 4)
    assert cluster.nic_bandwidth == 100e9 / 8 / 4
    assert clusters.UNCERTAIN in templates(cluster)  # its matmul ceiling is a default


def test_a_file_on_top_of_a_cluster(tmp_path):
    cluster = hardware.cluster(write(tmp_path, 'base = "llama3-h100-24k:8192"\nnic_bandwidth = "200Gb/s"\n'))
    assert (cluster.devices, cluster.pod_size, cluster.nic_bandwidth) == (8192, 3072, 25e9)
    tpu = hardware.cluster(write(tmp_path, 'accelerator = "tpu-v5p"\ntorus = "8x8x8"\nslices = 2\n'))
    assert (tpu.devices, tpu.torus, tpu.slices) == (1024, (8, 8, 8), 2)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "names neither"),
        ("devices = 8", "names neither"),
        ('node = "dgx-h100"\ncolour = "red"', "unknown field 'colour'"),
        ('node = "dgx-h101x"', "no node is called"),
        ("node = 5", "must be a name or a table"),
        ('node = "dgx-h100"\ndevices = -1', "outside what is possible"),
        ('node = "dgx-h100"\ndevices = 8\nnodes = 1', "given twice"),
        ('node = "dgx-h100"\ndevices = "lots"', "is not a count"),
        ('node = "dgx-h100"\ndevices = 64\nnic_bandwidth = "400 GB/s"', "bits given as bytes"),
        ('base = "dgx-h100:8"\nnode = "dgx-a100"', "both say"),
        ("base = 3", "must be a name"),
        ("[accelerator]\nbase = 'h100-sxm'\nmemory = '80Gb'\n", "bits or bytes"),
        ("[accelerator]\nname = 'x'\n", "no node"),
        ("[node]\nbase = 'dgx-h100'\naccelerators = 0\n", "outside what is possible"),
        ("[node]\nbase = 'dgx-h100'\nnic_bandwidth = '400GB/s'\n", "outside what is possible"),
        ("devices = [", "not valid TOML"),
        (OWN.replace('peak_flops = { bf16 = "400TFLOP/s" }', ""), "at least one peak"),
        (OWN.replace('"64GiB"', '{ value = 64, unit = "miles" }'), "does not belong here"),
        (OWN.replace('vendor = "Us"', ""), "'vendor' is missing"),
        ('accelerator = "tpu-v5p"\ntorus = "8x8x8"\ndevices = 500\n', "512"),
    ],
)
def test_a_file_with_a_fault(tmp_path, text, says):
    path = write(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        hardware.cluster(path)
    assert says in str(caught.value)
    assert caught.value.where


def test_a_file_that_is_not_text(tmp_path):
    path = tmp_path / "x.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="UTF-8"):
        hardware.cluster(path)


@given(
    st.dictionaries(
        st.sampled_from(["devices", "nodes", "node", "accelerator", "torus", "slices", "base"]), VALUES, max_size=4
    )
)
def test_any_file_is_a_cluster_or_a_usage_error(tmp_path_factory, values):
    lines = [f"{k} = {_toml(v)}" for k, v in values.items() if v is not None]
    path = tmp_path_factory.getbasetemp() / "fuzz.toml"
    path.write_bytes("\n".join(lines).encode("utf-8", "surrogatepass"))
    load._parse.cache_clear()
    try:
        assert isinstance(hardware.cluster(path), Cluster)
    except UsageError as error:
        assert str(error)


def _toml(value):
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ", ".join(map(str, value)) + "]"
    if isinstance(value, str):
        return '"' + "".join(c for c in value if c.isalnum() or c in "x:*-") + '"'
    return str(value)


def test_unknown_name_lists_names_of_all_three_kinds():
    with pytest.raises(UnknownNameError) as caught:
        hardware.cluster("llama3-h100-25k")
    assert "llama3-h100-24k" in str(caught.value.fix)
