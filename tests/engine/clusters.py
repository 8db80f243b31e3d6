"""Small clusters for tests of placement and communication, with datasheet links."""

from __future__ import annotations

from typing import Any

from meshwright.spec.cluster import Accelerator, Cluster


def accelerator(
    id: str,
    architecture: str,
    link: Any,
    bandwidth: float,
    pair: float,
    domain: int,
    kind: Any = "gpu",
    host: float = 55e9,
) -> Accelerator:
    return Accelerator(
        id=id, name=id, vendor="", kind=kind, architecture=architecture, peak_flops={"bf16": 1e15}, matmul_ceiling={},
        compute_units=132, memory_bytes=80e9, memory_usable_bytes=79e9, memory_bandwidth=3e12, link=link,
        link_bandwidth=bandwidth, link_pair_bandwidth=pair, scale_up_domain=domain, host_bandwidth=host,
    )  # fmt: skip


H100 = accelerator("h100", "hopper", "nvswitch", 450e9, 450e9, 8)
H800 = accelerator("h800", "hopper", "nvswitch", 200e9, 200e9, 8)
A100 = accelerator("a100", "ampere", "nvswitch", 300e9, 300e9, 8)
B200 = accelerator("b200", "blackwell", "nvswitch", 900e9, 900e9, 8)
GB200 = accelerator("gb200", "blackwell", "nvswitch", 900e9, 900e9, 72)
V100 = accelerator("v100", "volta", "nvlink-mesh", 150e9, 50e9, 8)
MI300X = accelerator("mi300x", "cdna3", "xgmi-mesh", 448e9, 64e9, 8)
A100_PCIE = accelerator("a100-pcie", "ampere", "pcie", 31e9, 31e9, 8, host=31e9)
H100_NVL = accelerator("h100-nvl", "hopper", "nvlink-mesh", 300e9, 300e9, 2, host=60e9)
V5E = accelerator("v5e", "tpu", "torus", 200e9, 50e9, 256, kind="tpu")


def cluster(
    device: Accelerator, devices: int, node: int = 8, nic: float = 50e9, fabric: str = "infiniband", **more: Any
) -> Cluster:
    return Cluster(
        id=f"{device.id}-{fabric}-{'-'.join(map(str, more.values()))}", accelerator=device, devices=devices,
        node_size=node, domain_size=device.scale_up_domain, link=device.link,
        link_bandwidth=device.link_bandwidth, nic_bandwidth=nic,
        nics_per_node=node, fabric=fabric, **more,
    )  # fmt: skip
