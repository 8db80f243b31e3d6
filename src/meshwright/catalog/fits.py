"""Load the fitted constants of links, fabrics and expert kernels: `data/fits/*.toml`.

A fit names the measurements it came from, its range and its residuals; what was never measured carries the basis
`assumed`. `benchmarks/fit_collectives.py` writes the files.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from meshwright.errors import InputError
from meshwright.files import reason_of
from meshwright.messages import N_, Text

FITS_DIR = Path(__file__).parent / "data" / "fits"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationFit:
    """One collective inside one scale-up domain, two protocols: the quicker of both is taken.

    time = latency + steps*hop + wire / (link bandwidth * efficiency), the same with the `fast_` constants.
    `efficiency_by_ranks` replaces `efficiency` where the number of ranks changes what the link gives.
    """

    efficiency: float
    latency: float  # [s], without hops
    fast_efficiency: float
    fast_latency: float
    efficiency_by_ranks: Mapping[int, float] = field(default_factory=dict)
    basis: str = "assumed"
    measurements: tuple[str, ...] = ()
    bytes_range: tuple[float, float] | None = None  # payload covered by the measurements
    ranks: tuple[int, ...] = ()
    mean_error: float | None = None
    max_error: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InSwitchFit:
    """Reduction in the scale-up switch.

    time = latency + ranks*latency_per_rank + payload / (link bandwidth * efficiency).
    """

    min_ranks: int
    latency: float
    latency_per_rank: float
    efficiency_by_ranks: Mapping[int, float]
    basis: str = "assumed"
    measurements: tuple[str, ...] = ()
    mean_error: float | None = None
    max_error: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkFit:
    """A scale-up link generation."""

    id: str
    title: str
    links: tuple[str, ...]
    architectures: tuple[str, ...]
    hop_latency: float  # per ring step, bandwidth protocol [s]
    fast_hop_latency: float  # per ring step, latency protocol [s]
    operations: Mapping[str, OperationFit]
    in_switch: InSwitchFit | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricFit:
    """A scale-out fabric between nodes."""

    id: str
    title: str
    fabrics: tuple[str, ...]
    architectures: tuple[str, ...]
    hop_latency: float  # per step between nodes in a tree, or one message [s]
    ring_hop_latency: float  # per step between nodes in a ring, bandwidth protocol [s]
    ring_efficiency: float  # of the network card's rate, asymptotic
    tree_efficiency: float
    tree_pipelining: float  # c in sqrt cost = c sqrt(hop latency / bandwidth); 2 is the optimal-chunk theory
    all_to_all_efficiency: float
    point_to_point_efficiency: float
    basis: str = "assumed"
    measurements: tuple[str, ...] = ()
    mean_error: float | None = None
    max_error: float | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertKernelFit:
    """A dispatch/combine kernel for expert parallelism."""

    id: str
    title: str
    latency: float
    link_efficiency: float
    fabric_efficiency: float
    dedup: bool  # one copy per node and rank, not one per expert
    basis: str = "assumed"
    measurements: tuple[str, ...] = ()
    mean_error: float | None = None
    max_error: float | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fits:
    """Everything in the fits folder."""

    links: Mapping[str, LinkFit]
    fabrics: Mapping[str, FabricFit]
    expert_kernels: Mapping[str, ExpertKernelFit]

    def link(self, kind: str, architecture: str) -> LinkFit:
        """The fit for a link kind on an architecture; the kind's general fit, then the `unknown` one, otherwise."""
        return _match(self.links.values(), "links", kind, architecture) or self.links["unknown-link"]

    def fabric(self, kind: str, architecture: str) -> FabricFit:
        """The fit for a fabric with cards of that generation; the fabric's general fit, then `unknown`, otherwise."""
        return _match(self.fabrics.values(), "fabrics", kind, architecture) or self.fabrics["unknown-fabric"]


def _match(fits: Any, attribute: str, kind: str, architecture: str) -> Any:
    general = None
    for fit in fits:
        if kind in getattr(fit, attribute):
            if architecture in fit.architectures:
                return fit
            if not fit.architectures:
                general = fit
    return general


def parse_fit(table: Mapping[str, Any], where: str) -> LinkFit | FabricFit | ExpertKernelFit:
    """One fit record from its TOML table; InputError names the file and the field that is wrong."""
    data = dict(table)
    kind = data.pop("kind", None)
    try:
        if kind == "link":
            data["operations"] = {name: _operation(op) for name, op in data["operations"].items()}
            if "in_switch" in data:
                data["in_switch"] = InSwitchFit(**_tuples(_int_keys(data["in_switch"])))
            return LinkFit(**_tuples(data))
        if kind == "fabric":
            return FabricFit(**_tuples(data))
        if kind == "expert-kernel":
            return ExpertKernelFit(**_tuples(data))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            Text(N_("a fit file is not valid: {reason}"), reason=reason_of(error)),
            where=where,
            fix=Text(N_("write it again with benchmarks/fit_collectives.py")),
        ) from error
    raise InputError(
        Text(N_("a fit file has the unknown kind '{kind}'"), kind=kind),
        where=where,
        fix=Text(N_("kinds are {names}"), names="link, fabric, expert-kernel"),
    )


def _operation(table: Mapping[str, Any]) -> OperationFit:
    return OperationFit(**_tuples(_int_keys(table)))


def _int_keys(table: Mapping[str, Any]) -> dict[str, Any]:
    data = dict(table)
    if "efficiency_by_ranks" in data:
        data["efficiency_by_ranks"] = {
            int(k): float(v) for k, v in sorted(data["efficiency_by_ranks"].items(), key=_rank)
        }
    return data


def _rank(item: tuple[str, Any]) -> int:
    return int(item[0])


def _tuples(data: Mapping[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}


@lru_cache(maxsize=1)
def load_fits() -> Fits:
    """All fits shipped with the package."""
    links: dict[str, LinkFit] = {}
    fabrics: dict[str, FabricFit] = {}
    kernels: dict[str, ExpertKernelFit] = {}
    for path in sorted(FITS_DIR.glob("*.toml")):
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        if table.get("kind") not in ("link", "fabric", "expert-kernel"):
            continue  # fits of other parts (kernels, frameworks) live in the same folder
        fit = parse_fit(table, str(path))
        if isinstance(fit, LinkFit):
            links[fit.id] = fit
        elif isinstance(fit, FabricFit):
            fabrics[fit.id] = fit
        else:
            kernels[fit.id] = fit
    return Fits(links=links, fabrics=fabrics, expert_kernels=kernels)
