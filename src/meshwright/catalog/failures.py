"""Published failure rates, storage and recovery times by name: `data/failures`, `data/storage`, `data/recovery`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeGuard

from meshwright.catalog import load
from meshwright.catalog.constants import constants
from meshwright.errors import InputError
from meshwright.formulas.failures import count_high, count_low
from meshwright.messages import N_, Text
from meshwright.spec.resilience import SCOPES, Cause, FailureSource, Storage
from meshwright.units import UNITS

DEFAULT, DEFAULT_STORAGE = "default", "superpod-better"
CAUSES_OF = "llama-3-405b"  # the one published list of causes with counts
SECONDS_PER_DAY = 86400.0
_ROUGH = 2.0  # a rate without counts is believed within a factor of two
_UNITS: Mapping[str, float] = {
    "1": 1.0, "s": 1.0, "d": SECONDS_PER_DAY, "1/node/day": 1 / SECONDS_PER_DAY,
    **{unit: factor for unit, (dimension, factor) in UNITS.items() if dimension in ("bytes", "bandwidth")},
}  # fmt: skip
_MOST = 1e24  # far above every rate, time and size


class _Value(NamedTuple):
    """One value of a file in SI, with its range and where it comes from."""

    value: float
    low: float | None
    high: float | None
    basis: str
    source: str


def _values(kind: str, name: str, *needed: str) -> tuple[str, Mapping[str, Any], dict[str, _Value]]:
    """Id, whole content and values of a file that must have those `needed`; a user's file may say anything."""
    id, raw, path = load.entry(kind, name)
    entries = raw.get("constants")
    found = {key: _value(entry) for key, entry in (entries.items() if isinstance(entries, Mapping) else ())}
    wrong = [key for key, value in found.items() if value is None] + [key for key in needed if key not in found]
    if wrong:
        raise InputError(
            Text(N_("{name} is not a positive number with a unit that is known"), name=f"[constants.{wrong[0]}] value"),
            where=str(path),
            fix=Text(N_("see `{command}` for a complete one"), command=f"meshwright catalog show {_SHOWN[kind]}"),
        )
    return id, raw, {key: value for key, value in found.items() if value is not None}


_SHOWN = {"failures": DEFAULT, "storage": DEFAULT_STORAGE}


def _value(entry: Any) -> _Value | None:
    """The value of an entry, or None where it makes no sense."""
    if not isinstance(entry, Mapping) or entry.get("unit") not in _UNITS:
        return None
    factor = _UNITS[entry["unit"]]
    value, bounds = entry.get("value"), entry.get("range")
    if not _positive(value) or not (bounds is None or (isinstance(bounds, list) and len(bounds) == 2)):
        return None
    low, high = bounds or (value, value)
    if not _positive(low) or not _positive(high):
        return None
    given = bounds is not None
    return _Value(value * factor, low * factor if given else None, high * factor if given else None,
                  str(entry.get("basis", "")), str(entry.get("source", "")))  # fmt: skip


def _positive(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < _MOST


def failure_source(name: str = DEFAULT) -> FailureSource:
    """The observed system `name`; its range is the stated one, that of its counts, or a factor of two.

    Raises `UnknownNameError` with the closest names, `InputError` where a file of the user's says something else.
    """
    id, raw, values = _values("failures", name, "rate", "node_size")
    rate = values["rate"]
    count, nodes, days = (values[key].value if key in values else None for key in ("failures", "nodes", "days"))
    low, high = rate.low or rate.value / _ROUGH, rate.high or rate.value * _ROUGH
    if count and nodes and days and rate.low is None:
        low, high = (float(bound(count)) / (nodes * days) for bound in (count_low, count_high))
    return FailureSource(
        id=id,
        title=str(raw.get("title", id)),
        rate=rate.value,
        low=min(low, rate.value),
        high=max(high, rate.value),
        node_size=max(1, int(values["node_size"].value)),
        nodes=None if nodes is None else int(nodes),
        days=None if days is None else days / SECONDS_PER_DAY,
        failures=None if count is None else int(count),
        basis=rate.basis,
        source=rate.source,
        causes=_causes(raw) or _causes(load.entry("failures", CAUSES_OF)[1]),
    )


def _causes(raw: Mapping[str, Any]) -> tuple[Cause, ...]:
    given = raw.get("causes")
    counts = {
        name: entry
        for name, entry in (given.items() if isinstance(given, Mapping) else ())
        if isinstance(entry, Mapping) and _value(entry) is not None and entry.get("scope") in SCOPES
    }
    whole = sum(entry["value"] for entry in counts.values())
    return tuple(
        Cause(name=name, group=str(entry.get("group", name)), scope=entry["scope"], share=entry["value"] / whole)
        for name, entry in counts.items()
    )


def small_job() -> tuple[float, float, float]:
    """A job is interrupted at least this often by its own software, however few its nodes; with its range.  [s]"""
    entry = _values("failures", DEFAULT, "small_job")[2]["small_job"]
    return entry.value, entry.low or entry.value, entry.high or entry.value


def storage(name: str, nodes: int, nic: float) -> Storage:
    """The storage `name` for `nodes` nodes, each with network cards of `nic` bytes per second.

    Raises `UnknownNameError` with the closest names, `InputError` where a file of the user's says something else.
    """
    id, raw, values = _values("storage", name)
    rates: dict[str, float] = {}
    for way in ("write", "read"):
        fixed, each = values.get(way), values.get(f"{way}_each")
        if fixed is None and each is None:
            raise InputError(
                Text(N_("the storage '{name}' does not say how fast it is to {way}"), name=name, way=way),
                where=name,
                fix=Text(N_("give {names}"), names=f"{way}, {way}_each"),
            )
        rates[way] = fixed.value if fixed is not None else each.value * nodes if each is not None else 0.0
        own = values.get(f"node_{way}") or each
        rates[f"node_{way}"] = min(own.value if own is not None else nic, nic, rates[way])
    capacity = values.get("capacity")
    return Storage(
        id=id,
        title=str(raw.get("title", id)),
        write=rates["write"],
        read=rates["read"],
        node_write=rates["node_write"],
        node_read=rates["node_read"],
        capacity=None if capacity is None else capacity.value,
    )


def recovery_times(name: str) -> Mapping[str, float]:
    """Detect, reschedule and initialise, by how a run is started again: automatic or manual.  [s]"""
    return constants("recovery", name)


def common() -> Mapping[str, float]:
    """Constants that every policy shares."""
    return constants("recovery", "common")
