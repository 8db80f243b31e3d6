"""A cluster from what people write: `h100-sxm:512`, `64xdgx-h100`, `tpu-v5p:8x8x8`, `2*tpu-v5e:16x16`, a name, a file.

The number after `:` always counts accelerators; `64x` in front counts nodes; `2*` in front counts TPU slices joined
over the data-centre network. Every value that the text did not give is listed in `Cluster.assumptions`.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from meshwright import units
from meshwright.catalog import load, records, schema
from meshwright.catalog.schema import Value, Word
from meshwright.catalog.torus import best_shapes, check_shape, is_shape, parse_shape, shape_for, write_shape
from meshwright.errors import InputError
from meshwright.glossary import Label
from meshwright.messages import N_, Text
from meshwright.spec.cluster import Accelerator, Cluster, Link, Node

MAX_DEVICES = 10_000_000
_TEXT = re.compile(
    r"\s*(?:(?P<slices>\d+)\s*\*\s*)?(?:(?P<nodes>\d+)\s*x\s*)?(?P<name>[^:]+?)\s*(?::\s*(?P<count>.*?)\s*)?"
)
_WHOLE = re.compile(r"\d{1,3}(?:[,_]\d{3})+|\d{1,12}")

# What may be set over the catalogue's values, by the names of Cluster's fields.
OVERRIDES: Mapping[str, Value | Word] = {
    "node_size": Value(("one",), 1, 1024, whole=True),
    "domain_size": Value(("one",), 1, 1_000_000, whole=True),
    "link": Word(schema.LINKS),
    "link_bandwidth": Value(("bandwidth",), 1e8, 2e13),
    "nic_bandwidth": Value(("bandwidth",), 0, 1e15),  # narrowed by `_check_nic`, which knows the usual slip
    "nics_per_node": Value(("one",), 0, 256, whole=True),
    "fabric": Word(schema.FABRICS),
    "rails": Value(("one",), 1, 256, whole=True),
    "pod_size": Value(("one",), 1, MAX_DEVICES, whole=True),
    "oversubscription": Value(("one",), 1, 1000),
    "host_memory_bytes": Value(("bytes",), 1e9, 1e15),
    "price_per_device_hour": Value(("price",), 1e-4, 10_000),
}

DEFAULT_NODE = N_("hosts are taken to be {node}, the usual one for {accelerator}")
ONE_NODE = N_("no number given: one node of {devices}")
FLAT_NETWORK = N_("the network ({fabric}, {rate} for each accelerator) is taken to have full bisection")
NO_NETWORK = N_("hosts are taken to have no network between them")
UNCERTAIN = N_("values of {accelerator} that are recalled or defaults, not published: {names}")
PRICED = N_("a {accelerator} hour is taken to cost {price} ({basis}: {source}, {date})")
UNPRICED = N_("no price of {accelerator} is known: costs are left out")
PARTLY_FILLED = N_("{devices} accelerators do not fill hosts of {node_size}: the last one is partly used")
SHAPE_CHOSEN = N_("the slice is taken to have the shape {shape}")
NODE_RESIZED = N_("hosts of {node_size}: each accelerator keeps its share of the network, {rate}")
_BY_SIZE = (ONE_NODE, PARTLY_FILLED, SHAPE_CHOSEN)  # assumptions that a new size makes anew


@dataclass(kw_only=True)
class _Draft:
    """What is known of a cluster while its text is being understood."""

    accelerator: Accelerator
    node: Node
    where: str
    label: str
    devices: int | None = None
    most: int | None = None  # of a cluster that exists: as many as it has
    shape: tuple[int, ...] = ()
    slices: int = 1
    values: dict[str, Any] = field(default_factory=dict)
    assumptions: list[Text] = field(default_factory=list)
    link_id: str = ""


def cluster(
    text: str | os.PathLike[str],
    *,
    devices: int | None = None,
    slices: int | None = None,
    torus: str | tuple[int, ...] | None = None,
    **overrides: Any,
) -> Cluster:
    """The cluster that `text` describes; keyword arguments replace single values (names in `OVERRIDES`).

    Raises `InputError` or `UnknownNameError` with the nearest fix.
    """
    where = os.fspath(text)
    if not isinstance(where, str) or not where.strip():
        raise InputError(Text(N_("no cluster given")), fix=Text(N_("write it like {examples}"), examples=_EXAMPLES))
    draft = _from_file(Path(where)) if _is_file(text) else _from_text(where)
    for name, value in overrides.items():
        if value is not None:
            draft.values[name] = _override(name, value, where)
    if devices is not None or torus is not None or slices is not None:
        _resize_draft(draft, devices, torus, slices)
    return _assemble(draft)


_EXAMPLES = "h100-sxm:512, 64xdgx-h100, tpu-v5p:8x8x8, 2*tpu-v5e:16x16, llama3-h100-24k, my-cluster.toml"


def _is_file(text: str | os.PathLike[str]) -> bool:
    return (
        isinstance(text, os.PathLike)
        or text.lower().endswith(".toml")
        or "\\" in text
        or text.startswith((".", "/", "~"))
    )


def check_devices(number: Any, where: str) -> int:
    """A number of accelerators that can exist."""
    if isinstance(number, bool) or not isinstance(number, (int, float)) or number != number or number != number // 1:
        raise InputError(
            Text(N_("'{text}' is not a whole number of accelerators"), text=str(number)[:60]),
            where=where,
            fix=Text(N_("write it like {examples}"), examples=_EXAMPLES),
        )
    if number < 1:
        raise InputError(
            Text(N_("a cluster needs at least 1 accelerator, not {number}"), number=int(number)),
            where=where,
            fix=Text(N_("write it like {examples}"), examples=_EXAMPLES),
        )
    if number > MAX_DEVICES:
        raise InputError(
            Text(N_("{number} accelerators are more than exist"), number=str(number)[:30]),
            where=where,
            fix=Text(N_("at most {limit}"), limit=f"{MAX_DEVICES:,}"),
        )
    return int(number)


# --- from text ---------------------------------------------------------------------------------------------------


def _from_text(text: str) -> _Draft:
    match = _TEXT.fullmatch(text)
    if match is None:
        raise InputError(
            Text(N_("'{text}' does not describe a cluster"), text=text[:80]),
            where=text[:80],
            fix=Text(N_("write it like {examples}"), examples=_EXAMPLES),
        )
    name, count = match["name"], match["count"]
    if sliced := _cloud_slice(name):
        name, count = sliced[0], count or str(sliced[1])
    kind, id = _find(name)
    draft = {"accelerators": _of_accelerator, "nodes": _of_node, "clusters": _of_cluster}[kind](id, text)
    if match["nodes"] is not None:
        _count_nodes(draft, kind, id, int(match["nodes"]), count, text)
    elif count is not None:
        _count(draft, count, text)
        if kind == "accelerators":
            draft = _one_host(draft, id, text)
    if match["slices"] is not None:
        _slices(draft, int(match["slices"]), text)
    return draft


def _find(name: str) -> tuple[str, str]:
    """Kind and id: an exact name of any kind before a fragment, accelerators before nodes before clusters."""
    order = ("accelerators", "nodes", "clusters")
    for kind in order:
        if id := load.exact(kind, name):
            return kind, id
    for of_aliases in (False, True):
        found = {kind: load.fragments(kind, name, of_aliases=of_aliases) for kind in order}
        if single := next((kind for kind in order if len(found[kind]) == 1), None):
            return single, found[single][0]
        if several := next((found[kind] for kind in order if found[kind]), ()):
            raise load.unknown("clusters", name, several)
    known = {n for kind in order for n in (*load.files(kind), *load.aliases(kind))}
    error = load.unknown("clusters", name)
    raise type(error)(load.noun("clusters"), name[:80], known)


def _cloud_slice(name: str) -> tuple[str, int] | None:
    """`v5p-1024` as the clouds write it: for some generations the number counts cores, two to a chip."""
    stem, _, number = load.normalise(name).removeprefix("tpu-").rpartition("-")
    if not stem or not number.isdecimal() or len(number) > 7 or (id := load.exact("accelerators", stem)) is None:
        return None
    given = load.entry("accelerators", id)[1].get("torus", {})
    if given.get("slice_name") != stem:
        return None
    return id, max(1, int(number) // int(given["slice_name_units"]["value"]))


def _one_host(draft: _Draft, id: str, where: str) -> _Draft:
    """The usual host in a larger size of the same make (`…-x2`, `…-x4`) where one of those holds all devices."""
    make, size, _ = _usual(id).rpartition("-x")
    parts = {n: n.rpartition("-x") for n in load.files("nodes")}
    sizes = [n for n, (stem, _, number) in parts.items() if size and stem == make and number.isdecimal()]
    larger = [n for n in sizes if draft.node.accelerators < (draft.devices or 0) <= records.node(n).accelerators]
    if not larger:
        return draft
    better = _of_accelerator(id, where, min(larger, key=lambda n: records.node(n).accelerators))
    better.devices = draft.devices
    return better


def _usual(id: str) -> str:
    return str(load.entry("accelerators", id)[1].get("default_node") or "")


def _of_accelerator(id: str, where: str, host: str = "") -> _Draft:
    accelerator = records.accelerator(id)
    default = host or _usual(id)
    if not default:
        raise InputError(
            Text(N_("the catalogue names no usual host for {accelerator}"), accelerator=id),
            where=where,
            fix=Text(N_("name a node type, or add default_node to the accelerator's file")),
        )
    node = records.node(default)
    draft = _Draft(accelerator=accelerator, node=node, where=where, label=id, link_id=_link_id(id, default))
    draft.assumptions.append(Text(DEFAULT_NODE, node=node.name, accelerator=accelerator.name))
    return draft


def _of_node(id: str, where: str) -> _Draft:
    node = records.node(id)
    accelerator = records.accelerator(node.accelerator)
    return _Draft(accelerator=accelerator, node=node, where=where, label=id, link_id=_link_id(accelerator.id, id))


def _link_id(accelerator: str, node: str) -> str:
    """The wire between accelerators: the node's, where it wires them otherwise."""
    of_node = load.entry("nodes", node)[1].get("link_id")
    return of_node or load.entry("accelerators", accelerator)[1].get("link_id", "")


def _of_cluster(id: str, where: str) -> _Draft:
    _, raw, path = load.entry("clusters", id)
    if not load.is_shipped(path):
        records.sound("clusters", raw, path)
    draft = _of_node(load.resolve("nodes", raw["node"]), where)
    draft.label = id
    rules = schema.KINDS["clusters"].values
    found = {k: schema.si(raw[k], rule, where=f"{id}: {k}") for k, rule in rules.items() if k in raw}
    draft.devices = int(found.pop("devices"))
    draft.slices = int(found.pop("slices", 1))
    if "torus" in raw:
        draft.shape = _checked_shape(draft, parse_shape(raw["torus"], where=f"{id}: torus"))
    draft.values = found
    draft.most = draft.devices
    return draft


def _count(draft: _Draft, count: str, where: str) -> None:
    """Understand what stands after the colon: a number of accelerators, or the shape of a slice."""
    if is_shape(count):
        draft.shape = _checked_shape(draft, parse_shape(count, where=where))
        draft.devices = math.prod(draft.shape)
        draft.slices = 1
    elif _WHOLE.fullmatch(count):
        _set_devices(draft, check_devices(int(re.sub("[,_]", "", count)), where))
    else:
        negative = count.startswith("-") and _WHOLE.fullmatch(count[1:])
        check_devices(int(re.sub("[,_]", "", count)) if negative else count, where)
        raise AssertionError("unreachable: check_devices refuses text")


def _count_nodes(draft: _Draft, kind: str, id: str, nodes: int, count: str | None, where: str) -> None:
    if kind != "nodes":
        usual = draft.node.id
        raise InputError(
            Text(N_("'{number}x' counts nodes, but {name} is not a node type"), number=nodes, name=id),
            where=where,
            fix=Text(
                N_("write {accelerators} for accelerators, {nodes} for nodes"),
                accelerators=f"{id}:{nodes}",
                nodes=f"{nodes}x{usual}",
            ),
        )
    if count is not None:
        raise InputError(
            Text(N_("the size is given twice, as nodes and as accelerators")),
            where=where,
            fix=Text(
                N_("write {nodes} or {accelerators}"),
                nodes=f"{nodes}x{id}",
                accelerators=f"{id}:{nodes * draft.node.accelerators}",
            ),
        )
    _set_devices(draft, check_devices(nodes * draft.node.accelerators, where))


def _set_devices(draft: _Draft, devices: int) -> None:
    """A new size; on a torus, of one slice (the best shape is taken)."""
    if draft.most is not None and devices > draft.most:
        raise InputError(
            Text(
                N_("{name} has {most} accelerators, not {devices}"), name=draft.label, most=draft.most, devices=devices
            ),
            where=draft.where,
            fix=Text(N_("for a larger one name the node type: {text}"), text=f"{draft.node.id}:{devices}"),
        )
    if draft.accelerator.torus:
        draft.shape = shape_for(devices, draft.accelerator.torus, name=draft.accelerator.id, where=draft.where)
        draft.slices = 1
        draft.assumptions.append(Text(SHAPE_CHOSEN, shape=write_shape(draft.shape)))
    draft.devices = devices


def _slices(draft: _Draft, slices: int, where: str) -> None:
    if not draft.accelerator.torus:
        raise InputError(
            Text(N_("'{number}*' counts TPU slices, but {name} has none"), number=slices, name=draft.label),
            where=where,
            fix=Text(
                N_("write the number of accelerators: {text}"), text=f"{draft.label}:{slices * (draft.devices or 8)}"
            ),
        )
    if draft.devices is None:
        raise _no_size(draft)
    chips = math.prod(draft.shape)
    draft.devices = check_devices(slices * chips, where)
    draft.slices = slices


def _checked_shape(draft: _Draft, shape: tuple[int, ...]) -> tuple[int, ...]:
    if draft.accelerator.torus is None:
        raise InputError(
            Text(N_("{name} is not wired as a torus: it has no shape"), name=draft.accelerator.id),
            where=draft.where,
            fix=Text(N_("write the number of accelerators: {text}"), text=f"{draft.label}:{math.prod(shape)}"),
        )
    return check_shape(shape, draft.accelerator.torus, name=draft.accelerator.id, where=draft.where)


def _resize_draft(draft: _Draft, devices: Any, torus: str | tuple[int, ...] | None, slices: Any) -> None:
    draft.assumptions = [a for a in draft.assumptions if a.template not in _BY_SIZE]
    if torus is not None:
        shape = parse_shape(torus if isinstance(torus, str) else write_shape(tuple(torus)), where="torus")
        draft.shape = _checked_shape(draft, shape)
        draft.devices = math.prod(draft.shape)
        draft.slices = 1
    if devices is not None:
        wanted = check_devices(devices, "devices")
        if slices is not None:
            count = check_devices(slices, "slices")
            if wanted % count:
                raise InputError(
                    Text(N_("{devices} accelerators do not divide into {slices} slices"), devices=wanted, slices=count),
                    where="slices",
                    fix=Text(N_("use {value}"), value=" / ".join(str(n) for n in _multiples(wanted, count))),
                )
            wanted //= count
        if not (draft.shape and torus is not None and wanted == math.prod(draft.shape)):
            _set_devices(draft, wanted)
    if slices is not None:
        _slices(draft, check_devices(slices, "slices"), "slices")


# --- from a file -------------------------------------------------------------------------------------------------

_FILE_WORDS = ("catalog", "id", "name", "aliases", "notes", "base")
_FILE_NAMES = {"host_memory": "host_memory_bytes", "price_per_hour": "price_per_device_hour"}


def _from_file(path: Path) -> _Draft:
    path = load.expand(path)
    raw = dict(load.read(path))
    where = str(path)
    draft = _file_hardware(raw, where)
    draft.label = str(raw.get("id") or path.stem)
    known = {*OVERRIDES, *_FILE_NAMES, *_FILE_WORDS, "accelerator", "node", "devices", "nodes", "torus", "slices"}
    if unknown := sorted(set(raw) - known):
        raise InputError(
            Text(N_("unknown field '{name}'"), name=unknown[0][:60]),
            where=where,
            fix=Text(N_("known fields: {names}"), names=", ".join(sorted(known))),
        )
    for key, value in raw.items():
        name = _FILE_NAMES.get(key, key)
        if name in OVERRIDES:
            draft.values[name] = _override(name, value, f"{where}: {key}")
    _file_size(draft, raw, where)
    return draft


def _file_hardware(raw: Mapping[str, Any], where: str) -> _Draft:
    """Accelerator and node of a user's file: named, or described in full, or a named one with changes (`base`)."""
    if "base" in raw:
        if clash := [key for key in ("accelerator", "node") if key in raw]:
            raise InputError(
                Text(N_("'base' and '{name}' both say what the hardware is"), name=clash[0]),
                where=where,
                fix=Text(N_("keep one of them; `base` may also stand inside [accelerator] or [node]")),
            )
        draft = _from_text(_text(raw["base"], f"{where}: base"))
        draft.most = None
        draft.where = where
        return draft
    node_raw = _described("nodes", raw.get("node"), f"{where}: node")
    given = raw.get("accelerator") or (node_raw and node_raw.get("accelerator"))
    accelerator_raw = _described("accelerators", given, f"{where}: accelerator")
    if accelerator_raw is None:
        raise InputError(
            Text(N_("the file names neither an accelerator nor a node")),
            where=where,
            fix=Text(N_('write node = "dgx-h100" or accelerator = "h100-sxm"')),
        )
    assumptions = []
    if node_raw is None:
        default = accelerator_raw.get("default_node")
        if not default:
            raise InputError(
                Text(N_("the file describes an accelerator but no node")),
                where=where,
                fix=Text(N_("add a [node] table: accelerators, nics, nic_bandwidth, fabric")),
            )
        node_raw = load.entry("nodes", default)[1]
        assumptions.append(Text(DEFAULT_NODE, node=node_raw["name"], accelerator=accelerator_raw["name"]))
    node_raw = {"accelerator": accelerator_raw["id"], **(node_raw or {})}
    records.sound("accelerators", accelerator_raw, f"{where}: accelerator", sourced=False)
    records.sound("nodes", node_raw, f"{where}: node", sourced=False)
    node = records.build("nodes", node_raw)
    if node.nics:
        _check_nic(node.nic_bandwidth, None, f"{where}: node.nic_bandwidth")
    draft = _Draft(accelerator=records.build("accelerators", accelerator_raw), node=node, where=where, label="")
    draft.link_id = node_raw.get("link_id") or accelerator_raw.get("link_id", "")
    draft.assumptions = assumptions
    return draft


def _described(kind: str, given: Any, where: str) -> Mapping[str, Any] | None:
    """The content of a catalogue file, of an inline description, or of a file with changes laid over it."""
    if given is None:
        return None
    if isinstance(given, str):
        return load.entry(kind, given)[1]
    if not isinstance(given, Mapping):
        raise InputError(Text(N_("this must be a name or a table")), where=where, fix=_named(where))
    base = load.entry(kind, _text(given["base"], f"{where}.base"))[1] if "base" in given else {}
    merged: dict[str, Any] = {**base}
    for key, value in given.items():
        old: Any = base.get(key)
        table = isinstance(value, Mapping) and isinstance(old, Mapping) and "value" not in old
        merged[key] = {**old, **value} if table else value
    merged.pop("base", None)
    for key in ("id", "name"):
        merged.setdefault(key, f"custom-{kind.removesuffix('s')}")
    return merged


def _multiples(number: int, unit: int) -> list[int]:
    """The multiples of `unit` on both sides of `number`."""
    below = number // unit * unit
    return [n for n in (below, below + unit) if n > 0]


def _named(where: str) -> Text:
    """How a name is written under the key that `where` ends with."""
    return Text(N_("write it like {examples}"), examples=f'{where.rpartition(" ")[2]} = "h100-sxm"')


def _text(given: Any, where: str) -> str:
    if not isinstance(given, str) or not given.strip():
        raise InputError(Text(N_("this must be a name")), where=where, fix=_named(where))
    return given


def _file_size(draft: _Draft, raw: Mapping[str, Any], where: str) -> None:
    given = [key for key in ("devices", "nodes", "torus") if key in raw]
    if len(given) > 1 and given != ["devices", "torus"]:
        raise InputError(
            Text(N_("the size is given twice, as {a} and as {b}"), a=given[0], b=given[1]),
            where=where,
            fix=Text(N_("keep one of them")),
        )
    whole = Value(("one",), 1, MAX_DEVICES, whole=True)
    if "torus" in raw:
        draft.shape = _checked_shape(
            draft, parse_shape(_text(raw["torus"], f"{where}: torus"), where=f"{where}: torus")
        )
        draft.devices = math.prod(draft.shape)
        draft.slices = 1
    if "nodes" in raw:
        nodes = int(schema.si(raw["nodes"], whole, where=f"{where}: nodes"))
        _set_devices(draft, check_devices(nodes * draft.node.accelerators, f"{where}: nodes"))
    slices = int(schema.si(raw["slices"], whole, where=f"{where}: slices")) if "slices" in raw else None
    if "devices" in raw:
        devices = int(schema.si(raw["devices"], whole, where=f"{where}: devices"))
        if "torus" not in raw:
            _set_devices(draft, devices)
        elif devices != math.prod(draft.shape) * (slices or 1):
            raise InputError(
                Text(
                    N_("a slice of {shape} has {chips} chips, not {devices}"),
                    shape=write_shape(draft.shape),
                    chips=math.prod(draft.shape),
                    devices=devices,
                ),
                where=f"{where}: devices",
                fix=Text(N_("leave out one of torus and devices")),
            )
    if slices is not None:
        _slices(draft, slices, f"{where}: slices")


# --- values set over the catalogue's -----------------------------------------------------------------------------


def _override(name: str, value: Any, where: str) -> Any:
    rule = OVERRIDES.get(name)
    if rule is None:
        raise InputError(
            Text(N_("unknown field '{name}'"), name=name[:60]),
            where=where,
            fix=Text(N_("known fields: {names}"), names=", ".join(sorted(OVERRIDES))),
        )
    if isinstance(rule, Value):
        return schema.si(value, rule, where=where if where.endswith(name) else f"{where}: {name}")
    if value not in rule.choices:
        raise InputError(
            Text(N_("'{value}' is not a known {name}"), value=str(value)[:60], name=name),
            where=where,
            fix=Text(N_("use one of: {names}"), names=", ".join(rule.choices)),
        )
    return value


def _check_nic(rate: float, usual: float | None, where: str) -> None:
    """Refuse the classic slip: a rate in Gb/s read as GB/s is eight times too large."""
    fastest = records.fastest_nic()
    eightfold = usual is not None and usual > 0 and abs(rate / usual - 8) < 0.08
    if rate > 2 * fastest or eightfold:
        raise InputError(
            Text(
                N_("a network of {rate} for one accelerator looks like bits given as bytes (the fastest is {fastest})"),
                rate=units.format_bandwidth(rate),
                fastest=units.format_bandwidth(fastest),
            ),
            where=where,
            fix=Text(
                N_("{bits} Gb/s is {bytes}"), bits=units.figures(rate / 1e9), bytes=units.format_bandwidth(rate / 8)
            ),
        )


# --- the record --------------------------------------------------------------------------------------------------


def _no_size(draft: _Draft) -> InputError:
    example = f"{draft.label}:{write_shape(draft.accelerator.torus.largest) if draft.accelerator.torus else 512}"
    return InputError(
        Text(N_("how many accelerators of {name}?"), name=draft.label),
        where=draft.where,
        fix=Text(N_("write it like {examples}"), examples=example),
    )


def _assemble(draft: _Draft) -> Cluster:
    accelerator, node, values, notes = draft.accelerator, draft.node, draft.values, draft.assumptions
    if draft.devices is None:
        if draft.label != node.id or accelerator.torus:
            raise _no_size(draft)
        draft.devices = node.accelerators
        notes.append(Text(ONE_NODE, devices=node.accelerators))
    node_size = values.get("node_size", node.accelerators)
    share = _network(draft, node_size)
    if accelerator.torus and not draft.shape:
        _set_devices(draft, draft.devices)
    price, price_note = _price(draft)
    result = Cluster(
        id=_label(draft),
        accelerator=accelerator,
        devices=draft.devices,
        node_size=node_size,
        domain_size=_domain(draft, node_size),
        link=values.get("link") or node.link or accelerator.link,
        link_bandwidth=values.get("link_bandwidth") or node.link_bandwidth or accelerator.link_bandwidth,
        nic_bandwidth=share,
        nics_per_node=values.get("nics_per_node", node.nics),
        fabric=values.get("fabric", node.fabric),
        rails=values.get("rails", node.rails),
        pod_size=values.get("pod_size"),
        oversubscription=values.get("oversubscription", 1.0),
        torus=draft.shape,
        slices=draft.slices,
        host_memory_bytes=values.get("host_memory_bytes", node.host_memory_bytes),
        price_per_device_hour=price,
        price_note=price_note,
        node=node.id,
        scale_up=_wire(draft.link_id),
        scale_out=_wire(node.nic_link),
        assumptions=tuple(notes),
    )
    return replace(result, assumptions=(*notes, *_sized(result)))


def _label(draft: _Draft) -> str:
    if draft.shape:
        stem = draft.label if draft.label != draft.node.id else draft.accelerator.id
        return f"{draft.slices}*" * (draft.slices > 1) + f"{stem}:{write_shape(draft.shape)}"
    return f"{draft.label}:{draft.devices}"


def _wire(id: str) -> Link | None:
    return records.link(id) if id else None


def _network(draft: _Draft, node_size: int) -> float:
    """Bytes per second that one accelerator can send off its node, with the assumptions that go with it."""
    node, values, notes = draft.node, draft.values, draft.assumptions
    usual = node.nics * node.nic_bandwidth / node.accelerators
    share: float = values.get("nic_bandwidth", usual)
    if "nic_bandwidth" in values and share > 0:
        _check_nic(share, usual, f"{draft.where}: nic_bandwidth")
    rate = units.format_bandwidth(share)
    if "node_size" in values and node_size != node.accelerators and "nic_bandwidth" not in values:
        notes.append(Text(NODE_RESIZED, node_size=node_size, rate=rate))
    if share == 0:
        notes.append(Text(NO_NETWORK))
    elif "oversubscription" not in values:
        notes.append(Text(FLAT_NETWORK, fabric=values.get("fabric", node.fabric), rate=rate))
    if draft.accelerator.assumed:
        names = ", ".join(draft.accelerator.assumed)
        notes.append(Text(UNCERTAIN, accelerator=draft.accelerator.name, names=names))
    return share


def _domain(draft: _Draft, node_size: int) -> int:
    """Accelerators that share a scale-up domain: a slice, a rack, or the node. How many a job uses is placement's."""
    if "domain_size" in draft.values:
        return int(draft.values["domain_size"])
    if draft.shape:
        return math.prod(draft.shape)
    own = draft.node.scale_up_domain or draft.node.accelerators
    beyond_the_host = own > draft.node.accelerators
    return own if beyond_the_host else min(own, node_size) if draft.node.scale_up_domain else node_size


def _price(draft: _Draft) -> tuple[float | None, str]:
    given = draft.values.get("price_per_device_hour")
    if given is not None:
        return given, ""
    found = records.price(draft.accelerator.id)
    name = draft.accelerator.name
    if found is None:
        draft.assumptions.append(Text(UNPRICED, accelerator=name))
        return None, ""
    price = units.format_money(found.dollars_per_hour)
    draft.assumptions.append(
        Text(PRICED, accelerator=name, price=price, basis=Label(found.basis), source=found.source, date=found.date)
    )
    return found.dollars_per_hour, found.note


def _sized(cluster: Cluster) -> list[Text]:
    """Assumptions that follow from the number of accelerators."""
    if cluster.devices > cluster.node_size and cluster.devices % cluster.node_size:
        return [Text(PARTLY_FILLED, devices=cluster.devices, node_size=cluster.node_size)]
    return []


# --- another size ------------------------------------------------------------------------------------------------


def resize(cluster: Cluster, devices: int) -> Cluster:
    """The same hardware with another number of accelerators; on a torus, the best slice or several equal slices."""
    devices = check_devices(devices, "devices")
    notes = [a for a in cluster.assumptions if a.template not in _BY_SIZE]
    stem = cluster.id.rpartition(":")[0].split("*")[-1] or cluster.id
    if cluster.accelerator.torus is None:
        result = replace(cluster, id=f"{stem}:{devices}", devices=devices)
        return replace(result, assumptions=(*notes, *_sized(result)))
    shape, slices = _slices_for(cluster, devices)
    label = f"{slices}*" * (slices > 1) + f"{stem}:{write_shape(shape)}"
    notes.append(Text(SHAPE_CHOSEN, shape=write_shape(shape)))
    chips = math.prod(shape)
    return replace(
        cluster, id=label, devices=devices, torus=shape, slices=slices, domain_size=chips, assumptions=tuple(notes)
    )


def _slices_for(cluster: Cluster, devices: int) -> tuple[tuple[int, ...], int]:
    """One slice where a pod is large enough, else the fewest equal slices; several stay several of the same shape."""
    torus = cluster.accelerator.torus
    assert torus is not None
    own = math.prod(cluster.torus)
    if cluster.slices > 1 and devices % own == 0 and devices > own:
        return cluster.torus, devices // own
    shapes = best_shapes(torus)
    pod = max(shapes)
    if devices <= pod:
        return shape_for(devices, torus, name=cluster.accelerator.id, where="devices"), 1
    for chips in sorted(shapes, reverse=True):
        if devices % chips == 0 and chips > 1:
            return shapes[chips], devices // chips
    shape_for(devices, torus, name=cluster.accelerator.id, where="devices")
    raise AssertionError("unreachable: a slice larger than a pod is refused")
