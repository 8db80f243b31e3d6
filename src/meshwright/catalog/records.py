"""Catalogue files as frozen records: accelerator, node, link, price. No default is silent: `assumed` lists them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, cast

from meshwright.catalog import load, schema
from meshwright.catalog.torus import parse_shape
from meshwright.errors import InputError
from meshwright.messages import N_, Text
from meshwright.spec.cluster import Accelerator, Link, LinkKind, Node, Torus

# Where nobody has published the best matmul of a device: the middle of the measured GPUs (0.73 to 0.87 in bf16), and
# the mean ratio of fp8 to bf16 among those measured in both.
DEFAULT_CEILING = 0.80
NARROW_RATIO = 0.95

Basis = Literal["datasheet", "measured", "fitted", "assumed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Dollars for one accelerator for one hour, with the range it was taken from."""

    accelerator: str
    dollars_per_hour: float
    low: float | None
    high: float | None
    basis: Basis
    source: str
    date: str
    note: str = ""


def accelerator(name: str) -> Accelerator:
    """The accelerator called `name`: an id, an alias ("NVIDIA H100 80GB HBM3"), or a fragment that fits only one."""
    id, raw, path = load.entry("accelerators", name)
    return _cached("accelerators", id, path, raw)


def node(name: str) -> Node:
    """The node type called `name`."""
    id, raw, path = load.entry("nodes", name)
    return _cached("nodes", id, path, raw)


def link(name: str) -> Link:
    """The link called `name`."""
    id, raw, path = load.entry("links", name)
    return _cached("links", id, path, raw)


def price(accelerator_id: str) -> Price | None:
    """What an accelerator costs, or None where no price is known."""
    if accelerator_id not in load.files("prices"):
        return None
    _, raw, path = load.entry("prices", accelerator_id)
    return _cached("prices", accelerator_id, path, raw)


def sound(kind: str, raw: Mapping[str, Any], path: Path | str, *, sourced: bool = True) -> Mapping[str, Any]:
    """`raw`, if it follows the schema; the first thing wrong is raised otherwise."""
    for finding in schema.findings(kind, raw, where=str(path), sourced=sourced):
        raise InputError(finding.message, where=finding.where, fix=finding.fix)
    return raw


def build(kind: str, raw: Mapping[str, Any]) -> Any:
    """The record of a file's content that is known to follow the schema."""
    return {"accelerators": _accelerator, "nodes": _node, "links": _link, "prices": _price}[kind](raw)


def _cached(kind: str, id: str, path: Path, raw: Mapping[str, Any]) -> Any:
    found = _records.get((kind, path))
    if found is None or found[0] is not raw:  # `load.read` gives the same object until the file changes
        if not load.is_shipped(path):
            sound(kind, raw, path)
        if raw["id"] != id:
            raise InputError(
                Text(N_("the file is called {file} but its id is '{id}'"), file=path.name, id=str(raw["id"])),
                where=str(path),
                fix=Text(N_("rename one of them")),
            )
        found = _records[(kind, path)] = (raw, build(kind, raw))
    return found[1]


_records: dict[tuple[str, Path], tuple[Mapping[str, Any], Any]] = {}


def _values(kind: str, raw: Mapping[str, Any]) -> dict[str, Any]:
    rules = schema.KINDS[kind].values
    return {k: schema.si(raw[k], rule, where=f"{raw.get('id', kind)}: {k}") for k, rule in rules.items() if k in raw}


def _accelerator(raw: Mapping[str, Any]) -> Accelerator:
    values = _values("accelerators", raw)
    rules = schema.KINDS["accelerators"].tables
    peaks = {
        d: schema.si(v, cast(schema.Value, rules["peak_flops"][d]), where=f"{raw['id']}: peak_flops.{d}")
        for d, v in raw.get("peak_flops", {}).items()
    }
    if not peaks:
        raise InputError(
            Text(N_("an accelerator needs at least one peak rate")),
            where=f"{raw['id']}: peak_flops",
            fix=Text(N_("write it like {examples}"), examples='bf16 = "989 TFLOP/s"'),
        )
    ceilings, assumed = _ceilings(raw, peaks)
    return Accelerator(
        id=raw["id"],
        name=raw["name"],
        vendor=raw["vendor"],
        kind=raw["kind"],
        architecture=raw["architecture"],
        peak_flops=peaks,
        matmul_ceiling=ceilings,
        compute_units=values["compute_units"],
        memory_bytes=values["memory"],
        memory_usable_bytes=values["memory_usable"],
        memory_bandwidth=values["memory_bandwidth"],
        link=cast(LinkKind, raw["link"]),
        link_bandwidth=values["link_bandwidth"],
        link_pair_bandwidth=values["link_pair_bandwidth"],
        scale_up_domain=values["scale_up_domain"],
        host_bandwidth=values["host_bandwidth"],
        power_watts=values.get("power"),
        host_launch=values.get("host_launch"),
        torus=_torus(raw),
        assumed=(*_assumed(raw), *assumed),
        notes=tuple(raw.get("notes", ())),
    )


def _assumed(raw: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Paths of the values whose basis is an assumption."""
    found: list[str] = []
    for key, value in raw.items():
        if isinstance(value, Mapping):
            if "value" not in value:
                found += _assumed(value, f"{key}.")
            elif value.get("basis") == "assumed":
                found.append(prefix + key)
    return found


def _ceilings(raw: Mapping[str, Any], peaks: Mapping[str, float]) -> tuple[dict[str, float], list[str]]:
    """Best matmul as a share of the peak, for each data type that has a peak, and which of them are defaults."""
    rules = schema.KINDS["accelerators"].tables["matmul_ceiling"]
    found: dict[str, float] = {}
    for dtype, given in raw.get("matmul_ceiling", {}).items():
        number = schema.si(given, cast(schema.Value, rules[dtype]), where=f"{raw['id']}: matmul_ceiling.{dtype}")
        found[dtype] = number / peaks[dtype] if number > 1 and dtype in peaks else number
        if not 0 < found[dtype] <= 1:
            raise InputError(
                Text(N_("the best {dtype} matmul is above the peak"), dtype=dtype),
                where=f"{raw['id']}: matmul_ceiling.{dtype}",
                fix=Text(N_("a share of the peak is above 0 and at most 1")),
            )
    wide = found.get("bf16", found.get("fp16", DEFAULT_CEILING))
    missing = [dtype for dtype in peaks if dtype not in found]
    for dtype in missing:
        found[dtype] = wide * NARROW_RATIO if dtype in ("fp8", "fp4") else wide
    twins = {peaks.get("bf16"), peaks.get("fp16")} - {None}
    same = {"fp16"} if len(twins) == 1 and "bf16" in found and "bf16" not in missing else set()
    return found, [f"matmul_ceiling.{dtype}" for dtype in missing if dtype not in same]


def _torus(raw: Mapping[str, Any]) -> Torus | None:
    given = raw.get("torus")
    if given is None:
        return None
    rules = schema.KINDS["accelerators"].tables["torus"]
    where = f"{raw['id']}: torus"
    number = {
        key: schema.si(given[key], cast(schema.Value, rules[key]), where=f"{where}.{key}")
        for key in ("dimensions", "link_bandwidth", "wrap_multiple")
    }
    return Torus(
        dimensions=int(number["dimensions"]),
        link_bandwidth=number["link_bandwidth"],
        wrap_multiple=int(number["wrap_multiple"]),
        largest=parse_shape(given["largest"], where=where),
    )


def _node(raw: Mapping[str, Any]) -> Node:
    values = _values("nodes", raw)
    return Node(
        id=raw["id"],
        name=raw["name"],
        accelerator=raw["accelerator"],
        accelerators=values["accelerators"],
        nics=values["nics"],
        nic_bandwidth=values["nic_bandwidth"],
        fabric=raw["fabric"],
        rails=values.get("rails", 1),
        scale_up_domain=values.get("scale_up_domain"),
        host_memory_bytes=values.get("host_memory"),
        link=raw.get("link"),
        link_bandwidth=values.get("link_bandwidth"),
        clouds=tuple(raw.get("clouds", ())),
        nic_link=raw.get("nic_link", ""),
        notes=tuple(raw.get("notes", ())),
    )


def _link(raw: Mapping[str, Any]) -> Link:
    values = _values("links", raw)
    return Link(
        id=raw["id"],
        name=raw["name"],
        scope=raw["scope"],
        bandwidth=values["bandwidth"],
        latency=values["latency"],
        latency_bulk=values.get("latency_bulk"),
        achieved=values.get("achieved"),
    )


def _price(raw: Mapping[str, Any]) -> Price:
    values = _values("prices", raw)
    given = raw["usd_per_hour"]
    return Price(
        accelerator=raw["accelerator"],
        dollars_per_hour=values["usd_per_hour"],
        low=values.get("usd_per_hour_low"),
        high=values.get("usd_per_hour_high"),
        basis=given["basis"],
        source=given["source"],
        date=given["date"],
        note=given.get("note", ""),
    )


@lru_cache(maxsize=1)
def fastest_nic() -> float:
    """Bytes per second of the fastest network card in the shipped catalogue."""
    names = [id for id in load.ids("links") if 'scope = "scale-out"' in load.files("links")[id].read_text("utf-8")]
    return max(link(id).bandwidth for id in names)
