"""Frozen records of hardware: accelerator, node, cluster. SI base units; bandwidth is per direction and per device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

LinkKind = Literal["nvswitch", "nvlink-mesh", "xgmi-mesh", "roce-mesh", "pcie", "torus", "neuronlink"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """One device as a process sees it."""

    id: str
    name: str
    vendor: str
    kind: Literal["gpu", "tpu", "other"]
    architecture: str  # volta, ampere, ada, hopper, blackwell, cdna2, cdna3, cdna4, gaudi, tpu, trainium
    peak_flops: Mapping[str, float]  # dense, by dtype: fp32 tf32 bf16 fp16 fp8 fp4  [FLOP/s]
    matmul_ceiling: Mapping[str, float]  # best measured share of the peak, by dtype  [1]
    compute_units: int  # SMs, CUs or cores that take one tile each
    memory_bytes: float  # as sold
    memory_usable_bytes: float  # what a process can get before any context
    memory_bandwidth: float  # [B/s]
    link: LinkKind
    link_bandwidth: float  # whole scale-up bandwidth of a device  [B/s per direction]
    link_pair_bandwidth: float  # between two devices  [B/s per direction]
    scale_up_domain: int  # devices that reach each other over `link`
    host_bandwidth: float  # device to host  [B/s per direction]
    power_watts: float | None = None
    notes: tuple[str, ...] = ()

    def __hash__(self) -> int:
        return hash(self.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A host with its accelerators and network cards."""

    id: str
    name: str
    accelerator: str  # accelerator id
    accelerators: int
    nics: int
    nic_bandwidth: float  # each, per direction  [B/s]
    fabric: str  # infiniband, roce, efa, tcpx, ethernet, slingshot, dcn, none
    rails: int = 1
    scale_up_domain: int | None = None  # where it is not the node (NVL72 racks, TPU slices)
    host_memory_bytes: float | None = None
    link: LinkKind | None = None  # where the node wires the accelerator otherwise (PCIe box)
    link_bandwidth: float | None = None
    clouds: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Accelerators of one kind, wired: everything the placement of groups needs."""

    id: str
    accelerator: Accelerator
    devices: int
    node_size: int  # accelerators per host
    domain_size: int  # accelerators per scale-up domain (node, rack or slice)
    link: LinkKind
    link_bandwidth: float  # scale-up, per device and direction  [B/s]
    nic_bandwidth: float  # scale-out share of one accelerator, per direction  [B/s]
    nics_per_node: int
    fabric: str
    rails: int = 1
    pod_size: int | None = None  # accelerators under full bisection; None: all
    oversubscription: float = 1.0  # beyond the pod
    torus: tuple[int, ...] = ()  # TPU slice shape
    slices: int = 1
    host_memory_bytes: float | None = None  # per host
    price_per_device_hour: float | None = None  # [$]
    price_note: str = ""
    assumptions: tuple[str, ...] = field(default=())

    @property
    def nodes(self) -> int:
        """Hosts, the last one possibly not full."""
        return -(-self.devices // self.node_size)

    def __hash__(self) -> int:
        return hash((self.id, self.accelerator.id, self.devices, self.nic_bandwidth, self.domain_size))
