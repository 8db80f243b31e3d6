"""Published failure rates, storage and recovery times by name: `data/failures`, `data/storage`, `data/recovery`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meshwright.catalog import load
from meshwright.catalog.constants import constants
from meshwright.errors import InputError
from meshwright.formulas.failures import count_high, count_low
from meshwright.messages import N_, Text
from meshwright.spec.resilience import Cause, FailureSource, Storage
from meshwright.units import UNITS

DEFAULT, DEFAULT_STORAGE = "default", "superpod-better"
CAUSES_OF = "llama-3-405b"  # the one published list of causes with counts
SECONDS_PER_DAY = 86400.0
_ROUGH = 2.0  # a rate without counts is believed within a factor of two


def _file(kind: str, name: str, *needed: str) -> tuple[str, Mapping[str, Any], Mapping[str, Any]]:
    """Id, whole content and constants of a file that has all that is needed."""
    id, raw, path = load.entry(kind, name)
    values = raw.get("constants", {})
    for key in needed:
        if not isinstance(values.get(key), Mapping) or not isinstance(values[key].get("value"), (int, float)):
            raise InputError(
                Text(N_("the file does not say {name}"), name=f"[constants.{key}] value"),
                where=str(path),
                fix=Text(N_("see `{command}` for a complete one"), command=f"meshwright catalog show {DEFAULT}"),
            )
    return id, raw, values


def failure_source(name: str = DEFAULT) -> FailureSource:
    """The observed system `name`; its range is the stated one, that of its counts, or a factor of two.

    Raises `UnknownNameError` with the closest names.
    """
    id, raw, values = _file("failures", name, "rate", "node_size")
    rate = values["rate"]
    low, high = rate.get("range") or (rate["value"] / _ROUGH, rate["value"] * _ROUGH)
    count = values.get("failures", {}).get("value")
    nodes, days = (values.get(key, {}).get("value") for key in ("nodes", "days"))
    if count is not None and nodes and days and "range" not in rate:
        low, high = (bound(count) / (nodes * days) for bound in (count_low, count_high))
    per_second = 1 / SECONDS_PER_DAY
    return FailureSource(
        id=id,
        title=str(raw.get("title", id)),
        rate=rate["value"] * per_second,
        low=low * per_second,
        high=high * per_second,
        node_size=int(values["node_size"]["value"]),
        nodes=nodes,
        days=days,
        failures=count,
        basis=str(rate.get("basis", "")),
        source=str(rate.get("source", "")),
        causes=_causes(raw) or _causes(_file("failures", CAUSES_OF)[1]),
    )


def _causes(raw: Mapping[str, Any]) -> tuple[Cause, ...]:
    counts: Mapping[str, Any] = raw.get("causes", {})
    whole = sum(entry["value"] for entry in counts.values())
    return tuple(
        Cause(name=name, group=entry["group"], scope=entry["scope"], share=entry["value"] / whole)
        for name, entry in counts.items()
    )


def small_job() -> tuple[float, float, float]:
    """A job is interrupted at least this often by its own software, however few its nodes; with its range.  [s]"""
    entry = _file("failures", DEFAULT, "small_job")[2]["small_job"]
    low, high = entry.get("range") or (entry["value"], entry["value"])
    return float(entry["value"]), float(low), float(high)


def storage(name: str, nodes: int, nic: float) -> Storage:
    """The storage `name` for `nodes` nodes, each with network cards of `nic` bytes per second.

    Raises `UnknownNameError` with the closest names.
    """
    id, raw, values = _file("storage", name)

    def value(key: str) -> float | None:
        entry = values.get(key)
        return None if entry is None else float(entry["value"]) * UNITS[entry["unit"]][1]

    def whole(way: str) -> float:
        fixed, each = value(way), value(f"{way}_each")
        if fixed is None and each is None:
            raise InputError(
                Text(N_("the storage '{name}' does not say how fast it is to {way}"), name=name, way=way),
                where=name,
                fix=Text(N_("give {names}"), names=f"{way}, {way}_each"),
            )
        return fixed if fixed is not None else float(each or 0.0) * nodes

    limits = [value(f"node_{way}") or value(f"{way}_each") or nic for way in ("write", "read")]
    return Storage(
        id=id,
        title=str(raw.get("title", id)),
        write=whole("write"),
        read=whole("read"),
        node_write=min(limits[0], nic, whole("write")),
        node_read=min(limits[1], nic, whole("read")),
        capacity=value("capacity"),
    )


def recovery_times(name: str) -> Mapping[str, float]:
    """Detect, reschedule and initialise, by how a run is started again: automatic or manual.  [s]"""
    return constants("recovery", name)


def common() -> Mapping[str, float]:
    """Constants that every policy shares."""
    return constants("recovery", "common")
