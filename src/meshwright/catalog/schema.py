"""What a catalogue file may hold: fields, units, bounds. Turns a file's values into SI numbers, or says what is wrong.

A value is a table `{ value, unit, basis, source, date, note? }`. In a user's own cluster file it may also be a bare
number (SI) or a text with a unit ("400 Gb/s"), and needs no source.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from meshwright import units
from meshwright.errors import InputError
from meshwright.messages import N_, Text
from meshwright.spec.finding import Finding

BASES = ("datasheet", "measured", "fitted", "assumed")
# Where the architecture of a model was read: the authors' config.json (or a copy), code, a paper; or was not.
MODEL_BASES = ("config", "code", "paper", "recalled", "assumed")
VALUE_KEYS = ("value", "unit", "basis", "source", "date", "note")
DTYPES = ("fp32", "tf32", "bf16", "fp16", "fp8", "fp4")
_DATE = re.compile(r"20\d\d-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])")


@dataclass(frozen=True, slots=True)
class Value:
    """A number with a unit: allowed dimensions of the unit, and bounds in SI beyond which it is a slip."""

    dimensions: tuple[str, ...]
    low: float
    high: float
    whole: bool = False
    required: bool = True


@dataclass(frozen=True, slots=True)
class Word:
    """A text, a choice, or (`many`) a list of texts."""

    choices: tuple[str, ...] = ()
    required: bool = False
    many: bool = False


@dataclass(frozen=True, slots=True)
class Kind:
    """Fields of one kind of file; `tables` hold named values (by data type, or one section)."""

    words: Mapping[str, Word]
    values: Mapping[str, Value]
    tables: Mapping[str, Mapping[str, Value | Word]] = field(default_factory=dict)


def _value(dimension: str, low: float, high: float, *, whole: bool = False, required: bool = True) -> Value:
    return Value((dimension,), low, high, whole, required)


LINKS = ("nvswitch", "nvlink-mesh", "xgmi-mesh", "roce-mesh", "pcie", "torus", "neuronlink")
FABRICS = ("infiniband", "roce", "efa", "tcpx", "tcpxo", "ethernet", "slingshot", "omnipath", "dcn", "none")
_HEAD = {"catalog": Word(), "id": Word(required=True), "name": Word(required=True), "aliases": Word(many=True)}
_TAIL = {"notes": Word(many=True)}
_RATE = Value(("bandwidth",), 1e8, 2e13)
_NIC = Value(("bandwidth",), 0, 2e11)

KINDS: Mapping[str, Kind] = {
    "accelerators": Kind(
        {
            **_HEAD,
            "vendor": Word(required=True),
            "kind": Word(("gpu", "tpu", "other"), required=True),
            "architecture": Word(required=True),
            "link": Word(LINKS, required=True),
            "link_id": Word(),
            "default_node": Word(),
            **_TAIL,
        },
        {
            "compute_units": _value("one", 1, 100_000, whole=True),
            "memory": _value("bytes", 1e9, 1e13),
            "memory_usable": _value("bytes", 1e9, 1e13),
            "memory_bandwidth": _value("bandwidth", 1e10, 1e15),
            "link_bandwidth": _RATE,
            "link_pair_bandwidth": _RATE,
            "scale_up_domain": _value("one", 1, 1_000_000, whole=True),
            "host_bandwidth": _value("bandwidth", 1e8, 5e12),
            "power": _value("watts", 5, 20_000, required=False),
            "host_launch": _value("seconds", 1e-7, 1e-3, required=False),
        },
        {
            "peak_flops": {d: _value("flops", 1e11, 1e18, required=False) for d in DTYPES},
            "matmul_ceiling": {d: Value(("one", "flops"), 0.01, 1e18, required=False) for d in DTYPES},
            "torus": {
                "dimensions": _value("one", 2, 3, whole=True),
                "link_bandwidth": _RATE,
                "wrap_multiple": _value("one", 1, 1024, whole=True),
                "largest": Word(required=True),
                "slice_name": Word(),
                "slice_name_units": _value("one", 1, 16, whole=True, required=False),
            },
        },
    ),
    "links": Kind(
        {**_HEAD, "scope": Word(("scale-up", "scale-out"), required=True), **_TAIL},
        {
            "bandwidth": _RATE,
            "latency": _value("seconds", 1e-9, 1),
            "latency_bulk": _value("seconds", 1e-9, 1, required=False),
            "achieved": _value("one", 0.01, 1, required=False),
        },
    ),
    "nodes": Kind(
        {
            **_HEAD,
            "accelerator": Word(required=True),
            "fabric": Word(FABRICS, required=True),
            "nic_link": Word(),
            "link": Word(LINKS),
            "link_id": Word(),
            "clouds": Word(many=True),
            **_TAIL,
        },
        {
            "accelerators": _value("one", 1, 1024, whole=True),
            "nics": _value("one", 0, 256, whole=True),
            "nic_bandwidth": _NIC,
            "rails": _value("one", 1, 256, whole=True, required=False),
            "scale_up_domain": _value("one", 1, 100_000, whole=True, required=False),
            "host_memory": _value("bytes", 1e9, 1e15, required=False),
            "link_bandwidth": Value(("bandwidth",), 1e8, 2e13, required=False),
        },
    ),
    "clusters": Kind(
        {**_HEAD, "node": Word(required=True), "torus": Word(), **_TAIL},
        {
            "devices": _value("one", 1, 10_000_000, whole=True),
            "slices": _value("one", 1, 100_000, whole=True, required=False),
            "pod_size": _value("one", 1, 10_000_000, whole=True, required=False),
            "oversubscription": _value("one", 1, 1000, required=False),
            "price_per_device_hour": _value("price", 1e-4, 10_000, required=False),
        },
    ),
    "prices": Kind(
        {**_HEAD, "accelerator": Word(required=True), **_TAIL},
        {
            "usd_per_hour": _value("price", 1e-4, 10_000),
            "usd_per_hour_low": _value("price", 1e-4, 10_000, required=False),
            "usd_per_hour_high": _value("price", 1e-4, 10_000, required=False),
        },
    ),
}

_PARSERS = {"bytes": units.parse_bytes, "bandwidth": units.parse_bandwidth, "seconds": units.parse_duration}


def si(given: Any, rule: Value, *, where: str) -> float:
    """The SI number of a value table, a text with a unit, or a bare number; raises `InputError` otherwise."""
    number, dimension = _number(given, rule, where)
    low = rule.low if dimension != "one" or "one" not in rule.dimensions or len(rule.dimensions) == 1 else 0.01
    high = rule.high if len(rule.dimensions) == 1 or dimension != "one" else 1.0
    if not math.isfinite(number) or not low <= number <= high:
        raise InputError(
            Text(
                N_("{value} is outside what is possible, {low} to {high}"),
                value=_say(number, dimension),
                low=_say(low, dimension),
                high=_say(high, dimension),
            ),
            where=where,
            fix=Text(N_("check the unit: Gb/s is bits, GB/s is bytes; GiB is 1.074 GB")),
        )
    if rule.whole and number != int(number):
        raise InputError(
            Text(N_("{value} must be a whole number"), value=units.figures(number, 6)),
            where=where,
            fix=Text(N_("the nearest legal value is {value}"), value=f"{max(low, round(number)):,.10g}"),
        )
    return int(number) if rule.whole else number


def _say(number: float, dimension: str) -> str:
    unit = {"bytes": "B", "bandwidth": "B/s", "flops": "FLOP/s", "seconds": "s", "price": "$", "watts": "W"}.get(
        dimension
    )
    return units.show(number, unit) if unit else f"{number:g}"


def _number(given: Any, rule: Value, where: str) -> tuple[float, str]:
    """The number before any bound is checked, and the dimension of its unit."""
    if isinstance(given, Mapping):
        unit, value = given.get("unit"), given.get("value")
        if not isinstance(unit, str) or unit not in units.UNITS or units.UNITS[unit][0] not in rule.dimensions:
            allowed = ", ".join(u for u, (d, _) in units.UNITS.items() if d in rule.dimensions)
            raise InputError(
                Text(N_("unit '{unit}' does not belong here"), unit=str(unit)[:40]),
                where=where,
                fix=Text(N_("use one of: {units}"), units=allowed),
            )
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise _not_a_number(value, where)
        dimension, factor = units.UNITS[unit]
        return _float(value, where) * factor, dimension
    dimension = rule.dimensions[0]
    if isinstance(given, str):
        if parser := _PARSERS.get(dimension):
            return parser(given, where=where), dimension
        quantity: dict[str, units.Kind] = {"one": "count", "flops": "flops", "watts": "watts", "price": "dollars"}
        return units.parse_quantity(given, quantity[dimension], where=where), dimension
    if isinstance(given, bool) or not isinstance(given, (int, float)):
        raise _not_a_number(given, where)
    return _float(given, where), dimension


def _float(value: float, where: str) -> float:
    try:
        return float(value)
    except OverflowError:
        raise _not_a_number(value, where) from None


def _not_a_number(value: object, where: str) -> InputError:
    return InputError(
        Text(N_("'{value}' is not a number"), value=str(value)[:60]),
        where=where,
        fix=Text(N_('write {{ value = 400, unit = "Gb/s", basis = "datasheet", source = "…", date = "2026-01-31" }}')),
    )


COMPARE = N_("compare with a file that works: `meshwright catalog show NAME` says where it lies")


def findings(kind: str, raw: Mapping[str, Any], *, where: str, sourced: bool = True) -> Iterator[Finding]:
    """Everything wrong with the content of a file of `kind`; with `sourced`, each value must say where it is from."""
    rules = KINDS[kind]
    yield from _section(rules.words, rules.values, raw, where, sourced, extra=set(rules.tables))
    for name, table in rules.tables.items():
        given = raw.get(name)
        if given is None:
            continue
        if not isinstance(given, Mapping):
            yield _finding("TABLE", Text(N_("'{name}' must be a table"), name=name), f"{where}: {name}")
            continue
        words = {k: v for k, v in table.items() if isinstance(v, Word)}
        values = {k: v for k, v in table.items() if isinstance(v, Value)}
        yield from _section(words, values, given, f"{where}: {name}", sourced)


def _section(
    words: Mapping[str, Word],
    values: Mapping[str, Value],
    raw: Mapping[str, Any],
    where: str,
    sourced: bool,
    extra: set[str] = frozenset(),  # type: ignore[assignment]
) -> Iterator[Finding]:
    known = {*words, *values, *extra}
    for key in sorted(set(raw) - known):
        yield _finding(
            "FIELD",
            Text(N_("unknown field '{name}'"), name=key[:60]),
            where,
            Text(N_("known fields: {names}"), names=", ".join(sorted(known))),
        )
    for key, word in words.items():
        yield from _word(key, word, raw.get(key), where)
    for key, value in values.items():
        if key not in raw:
            if value.required:
                yield _finding("MISSING", Text(N_("field '{name}' is missing"), name=key), where)
            continue
        try:
            si(raw[key], value, where=f"{where}: {key}")
        except InputError as error:
            yield _finding("VALUE", error.text, error.where, error.fix)
        if sourced:
            yield from _provenance(raw[key], f"{where}: {key}")


def _word(key: str, word: Word, given: Any, where: str) -> Iterator[Finding]:
    if given is None:
        if word.required:
            yield _finding("MISSING", Text(N_("field '{name}' is missing"), name=key), where)
    elif word.many:
        if not isinstance(given, list) or not all(isinstance(x, str) and x.strip() for x in given):
            yield _finding("TEXT", Text(N_("'{name}' must be a list of texts"), name=key), f"{where}: {key}")
    elif not isinstance(given, str) or not given.strip():
        yield _finding("TEXT", Text(N_("'{name}' must be a text"), name=key), f"{where}: {key}")
    elif word.choices and given not in word.choices:
        yield _finding(
            "CHOICE",
            Text(N_("'{value}' is not a known {name}"), value=given[:60], name=key),
            f"{where}: {key}",
            Text(N_("use one of: {names}"), names=", ".join(word.choices)),
        )


def _provenance(given: Any, where: str) -> Iterator[Finding]:
    if not isinstance(given, Mapping):
        yield _finding("SOURCE", Text(N_("the value must be a table with unit, basis, source and date")), where)
        return
    if unknown := sorted(set(given) - set(VALUE_KEYS)):
        yield _finding("FIELD", Text(N_("unknown field '{name}'"), name=unknown[0][:60]), where)
    yield from _basis(given.get("basis"), BASES, where)
    if not isinstance(given.get("source"), str) or not given["source"].strip():
        yield _finding("SOURCE", Text(N_("the value has no source")), where)
    if not _DATE.fullmatch(str(given.get("date", ""))):
        yield _finding("DATE", Text(N_("the value needs a date, YYYY-MM-DD")), where)


def _basis(given: Any, known: tuple[str, ...], where: str) -> Iterator[Finding]:
    if given not in known:
        yield _finding(
            "BASIS",
            Text(N_("basis '{value}' is not one of those that exist"), value=str(given)[:40]),
            where,
            Text(N_("use one of: {names}"), names=", ".join(known)),
        )


def model_findings(raw: Mapping[str, Any], *, where: str) -> Iterator[Finding]:
    """What is wrong with what a model file says of where its values are from; it may say nothing."""
    if "basis" in raw:
        yield from _basis(raw["basis"], MODEL_BASES, f"{where}: basis")
    yield from _word("recalled", Word(many=True), raw.get("recalled"), where)
    named = raw.get("recalled")
    held = {key for table in ("config", "architecture") for key in (raw.get(table) or ())}
    for key in named if isinstance(named, list) else ():
        if isinstance(key, str) and key.strip() and key not in held:
            fix = Text(N_("known fields: {names}"), names=", ".join(sorted(held)))
            yield _finding("FIELD", Text(N_("unknown field '{name}'"), name=key[:60]), f"{where}: recalled", fix)


def _finding(code: str, message: Text, where: str, fix: Text | None = None) -> Finding:
    return Finding(code=f"MW-CATALOG-{code}", severity="error", message=message, where=where, fix=fix or Text(COMPARE))
