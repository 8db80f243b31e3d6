"""Frozen records of hardware: accelerator, node, cluster. SI base units; bandwidth is per direction and per device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from meshwright.messages import Text

LinkKind = Literal["nvswitch", "nvlink-mesh", "xgmi-mesh", "roce-mesh", "pcie", "torus", "neuronlink"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One kind of wire: what it carries at best, what was seen, and how long a first byte takes."""

    id: str
    name: str
    scope: Literal["scale-up", "scale-out"]
    bandwidth: float  # of a device's scale-up links together, or of one network card  [B/s per direction]
    latency: float  # of one hop, small messages  [s]
    latency_bulk: float | None = None  # of one hop with the protocol of large messages  [s]
    achieved: float | None = None  # best measured share of `bandwidth`  [1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Torus:
    """How TPU chips are wired into a slice."""

    dimensions: int
    link_bandwidth: float  # one link, one direction, after protocol  [B/s]
    wrap_multiple: int  # an axis closes into a ring when its length is a multiple of this
    largest: tuple[int, ...]  # shape of a whole pod

    def wraps(self, shape: tuple[int, ...]) -> tuple[bool, ...]:
        """Which axes of `shape` close into a ring.

        In two dimensions each axis for itself; in three only slices of whole cubes do, through the optical switches.
        """
        closed = tuple(axis % self.wrap_multiple == 0 for axis in shape)
        return closed if self.dimensions == 2 or all(closed) else (False,) * len(shape)


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
    host_launch: float | None = None  # one kernel launch by the CPU beside it, where measured  [s]
    torus: Torus | None = None
    assumed: tuple[str, ...] = ()  # values whose basis is an assumption, by path
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
    fabric: str  # infiniband, roce, efa, tcpx, tcpxo, ethernet, slingshot, omnipath, dcn, none
    rails: int = 1
    scale_up_domain: int | None = None  # where it is not the node (NVL72 racks, TPU slices)
    host_memory_bytes: float | None = None
    link: LinkKind | None = None  # where the node wires the accelerator otherwise (PCIe box)
    link_bandwidth: float | None = None
    clouds: tuple[str, ...] = ()
    nic_link: str = ""  # link id of a network card
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
    node: str = ""  # node id
    scale_up: Link | None = None
    scale_out: Link | None = None
    assumptions: tuple[Text, ...] = field(default=())

    @property
    def nodes(self) -> int:
        """Hosts, the last one possibly not full."""
        return -(-self.devices // self.node_size)

    def __hash__(self) -> int:
        return hash(self.id) ^ self.devices  # cheap: a key of many caches; equality stays exact
