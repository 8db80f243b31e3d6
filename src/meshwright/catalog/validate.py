"""Check catalogue files: the schema of each, and that what they say of one another holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from meshwright.catalog import load, records, schema
from meshwright.catalog.torus import parse_shape
from meshwright.errors import InputError, MeshwrightError, UsageError
from meshwright.messages import N_, Text
from meshwright.spec.finding import Finding

CHECKED = (*schema.KINDS, "models")  # kinds whose content is understood here
HARDWARE = ("accelerators", "nodes", "clusters")  # one name space: `cluster()` looks in all three
_BY_FIELD = (
    ("peak_flops", "accelerators"),
    ("scope", "links"),
    ("nics", "nodes"),
    ("usd_per_hour", "prices"),
    ("node", "clusters"),
)


def validate(paths: Sequence[str | Path] = ()) -> list[Finding]:
    """Everything wrong with the given files or folders, or with the whole catalogue, the user's files included."""
    if paths:
        return [f for path in paths for file in _expand(Path(path)) for f in check_file(file)]
    found = [f for kind in CHECKED for file in load.files(kind).values() for f in check_file(file, kind)]
    return [*found, *shared_names()]


def _expand(path: Path) -> Iterator[Path]:
    path = load.expand(path)
    if path.is_dir():
        inside = sorted(path.rglob("*.toml"))
        if not inside:
            raise InputError(Text(N_("no TOML file in this folder")), where=str(path), fix=Text(N_("check the path")))
        yield from inside
    else:
        yield path


def kind_of(raw: Mapping[str, Any], path: Path) -> str:
    """What a file describes: it says so, its folder does, or its fields do."""
    said = raw.get("catalog")
    if said in CHECKED:
        return str(said)
    if said is not None:
        raise InputError(
            Text(N_("'{value}' is not a known {name}"), value=str(said)[:60], name="catalog"),
            where=str(path),
            fix=Text(N_("use one of: {names}"), names=", ".join(CHECKED)),
        )
    if path.parent.name in CHECKED:
        return path.parent.name
    return next((kind for name, kind in _BY_FIELD if name in raw), "models")


def check_file(path: Path, kind: str | None = None) -> list[Finding]:
    """Everything wrong with one file."""
    try:
        raw = load.read(path)
        kind = kind or kind_of(raw, path)
    except UsageError as error:
        return [_from_error(error, "FILE")]
    if kind == "models":
        return _check_model(path) or list(schema.model_findings(raw, where=str(path)))
    found = list(schema.findings(kind, raw, where=str(path)))
    if not found:
        try:
            found = [*_relations(kind, raw, str(path)), *_file_name(raw, path)]
        except UsageError as error:
            found = [_from_error(error, "VALUE")]
    return found


def _check_model(path: Path) -> list[Finding]:
    from meshwright.catalog import models  # model files have their own reader

    try:
        models.model(path)
    except MeshwrightError as error:
        return [_from_error(error, "MODEL")]
    return []


def _from_error(error: MeshwrightError, code: str) -> Finding:
    return _wrong(code, error.text, error.where, error.fix)


def _wrong(code: str, message: Text, where: str, fix: Text | None = None) -> Finding:
    fix = fix or Text(schema.COMPARE)
    return Finding(code=f"MW-CATALOG-{code}", severity="error", message=message, where=where, fix=fix)


def _file_name(raw: Mapping[str, Any], path: Path) -> Iterator[Finding]:
    if raw["id"] != load.normalise(raw["id"]):
        fix = Text(N_("write '{name}'"), name=load.normalise(raw["id"]))
        yield _wrong("ID", Text(N_("an id has lower-case letters, digits, dots and dashes")), str(path), fix)
    if raw["id"] != path.stem:
        text = Text(N_("the file is called {file} but its id is '{id}'"), file=path.name, id=raw["id"])
        yield _wrong("ID", text, str(path), Text(N_("rename one of them")))


def _relations(kind: str, raw: Mapping[str, Any], where: str) -> Iterator[Finding]:
    yield from {
        "accelerators": _accelerator,
        "nodes": _node,
        "clusters": _cluster,
        "prices": _price,
        "links": lambda raw, where: iter(()),
    }[kind](raw, where)


def _refers(raw: Mapping[str, Any], field: str, kind: str, where: str) -> Iterator[Finding]:
    name = raw.get(field)
    if name is not None and name not in load.files(kind):
        error = load.unknown(kind, name)
        yield _wrong("REFERENCE", error.text, f"{where}: {field}", error.fix)


def _accelerator(raw: Mapping[str, Any], where: str) -> Iterator[Finding]:
    yield from _refers(raw, "link_id", "links", where)
    yield from _refers(raw, "default_node", "nodes", where)
    device = records.build("accelerators", raw)
    if device.memory_usable_bytes > device.memory_bytes:
        yield _wrong("MEMORY", Text(N_("more memory is usable than there is")), f"{where}: memory_usable")
    if device.link_pair_bandwidth > device.link_bandwidth:
        yield _wrong(
            "LINK", Text(N_("a pair has more bandwidth than all links together")), f"{where}: link_pair_bandwidth"
        )
    if (device.link == "torus") != (device.torus is not None):
        yield _wrong(
            "TORUS", Text(N_("a torus link needs a [torus] table, and no other link has one")), f"{where}: torus"
        )
    default = raw.get("default_node")
    if (
        default is not None
        and default in load.files("nodes")
        and load.read(load.files("nodes")[default]).get("accelerator") != raw["id"]
    ):
        text = Text(N_("the usual host {node} holds another accelerator"), node=default)
        yield _wrong("REFERENCE", text, f"{where}: default_node")


def _node(raw: Mapping[str, Any], where: str) -> Iterator[Finding]:
    yield from _refers(raw, "accelerator", "accelerators", where)
    yield from _refers(raw, "nic_link", "links", where)
    yield from _refers(raw, "link_id", "links", where)
    node = records.build("nodes", raw)
    if (node.fabric == "none") != (node.nics == 0):
        yield _wrong(
            "NETWORK", Text(N_("fabric 'none' goes with 0 network cards, and only with 0")), f"{where}: fabric"
        )
    if node.nics and node.nic_bandwidth == 0:
        yield _wrong("NETWORK", Text(N_("a network card without bandwidth")), f"{where}: nic_bandwidth")
    domain = node.scale_up_domain
    if domain and domain % node.accelerators and node.accelerators % domain:
        text = Text(
            N_("a domain of {domain} does not divide into hosts of {node}"), domain=domain, node=node.accelerators
        )
        yield _wrong("DOMAIN", text, f"{where}: scale_up_domain")


def _cluster(raw: Mapping[str, Any], where: str) -> Iterator[Finding]:
    yield from _refers(raw, "node", "nodes", where)
    if "torus" in raw:
        parse_shape(raw["torus"], where=f"{where}: torus")
    if ("oversubscription" in raw) != ("pod_size" in raw):
        text = Text(N_("pod_size and oversubscription go together"))
        yield _wrong("NETWORK", text, f"{where}: oversubscription")


def _price(raw: Mapping[str, Any], where: str) -> Iterator[Finding]:
    yield from _refers(raw, "accelerator", "accelerators", where)
    price = records.build("prices", raw)
    low = price.dollars_per_hour if price.low is None else price.low
    high = price.dollars_per_hour if price.high is None else price.high
    if not low <= price.dollars_per_hour <= high:
        yield _wrong("PRICE", Text(N_("the price is outside its own range")), f"{where}: usd_per_hour")


def shared_names() -> list[Finding]:
    """Names that mean two things: accelerators, nodes and clusters share one name space."""
    found: list[Finding] = []
    for group in (HARDWARE, ("links",), ("models",)):
        found += _clashes(group)
    return found


def _clashes(group: Iterable[str]) -> Iterator[Finding]:
    meaning: dict[str, str] = {}
    for kind in group:
        for id, path in load.files(kind).items():
            try:
                given = load.read(path).get("aliases", ())
            except UsageError:
                continue
            names = [id, *(load.normalise(a) for a in given if isinstance(a, str))]
            for name in dict.fromkeys(names):
                if meaning.setdefault(name, id) != id:
                    text = Text(N_("'{name}' names both {a} and {b}"), name=name, a=meaning[name], b=id)
                    yield _wrong("ALIAS", text, f"{path}: aliases")
