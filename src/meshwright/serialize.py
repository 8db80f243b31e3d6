"""Records to plain JSON documents and back: base SI units, schema name and version inside, no NaN or infinity.

A document is `{"schema": "meshwright.plan/1", "meshwright_version": …, …fields of the record…}`. Dataclasses
become objects; a class that shares a field with others (a mixer, an MLP) says its `kind`; a `Text` becomes
`{"text": English sentence, "id": template, "values": …}`. Reading walks the annotations of the same records.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
import sys
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Formatter
from typing import Any

from meshwright import __version__
from meshwright.errors import InputError, MeshwrightError
from meshwright.files import decode, read_bytes, read_stdin, reason_of
from meshwright.glossary import Label
from meshwright.messages import N_, Text
from meshwright.spec import Estimate, Strategy, Term
from meshwright.spec import model as model_records
from meshwright.spec.job import PRECISIONS
from meshwright.spec.plan import Comparison, Explanation, Plan, Problem, Scaling, Sizing
from meshwright.spec.strategy import (
    DISPATCHERS,
    FRAMEWORKS,
    GRAPHS,
    LOSSES,
    OFFLOADS,
    RECOMPUTES,
    SCHEDULES,
    SHARDINGS,
)

RECORDS: dict[str, type] = {
    "estimate": Estimate,
    "plan": Plan,
    "scale": Scaling,
    "size": Sizing,
    "compare": Comparison,
    "explain": Explanation,
}
_MAJOR = 1
_SURROGATE = re.compile("[\ud800-\udfff]")
LARGEST = 256 * 10**6  # bytes of a result file; a plan with a thousand ranked strategies has 90 million
WRITE_IT = N_("write it with `meshwright plan … --json -o plan.json`")
# Records of which several kinds may stand in one field.
_KINDS: dict[str, type] = {
    cls.__name__: cls
    for cls in (
        model_records.Attention,
        model_records.MultiLatentAttention,
        model_records.LinearAttention,
        model_records.Mamba1,
        model_records.Mamba2,
        model_records.Mlp,
        model_records.Moe,
    )
}


def document(kind: str, record: Any, **extra: Any) -> dict[str, Any]:
    """The JSON document of a record; `extra` fields (problem, command) stand before those of the record."""
    body = to_json(record)
    head = {"schema": f"meshwright.{kind}/{_MAJOR}", "meshwright_version": __version__}
    return {
        **head,
        **{k: to_json(v, k) for k, v in extra.items()},
        **(body if isinstance(body, dict) else {kind: body}),
    }


def to_json(value: Any, path: str = "") -> Any:
    """`value` as JSON types; raises an internal error for anything that JSON cannot hold honestly."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise MeshwrightError(Text(N_("the result holds {value} at {path}"), value=str(value), path=path or "/"))
        return float(value)
    if isinstance(value, Text):
        values = {k: to_json(v, f"{path}.{k}") for k, v in value.values.items()}
        kind = {"kind": Label.__name__} if isinstance(value, Label) else {}
        return {**kind, "text": value.render("en"), "id": value.template, "values": values}
    if (dataclasses.is_dataclass(value) and not isinstance(value, type)) or isinstance(value, Term):
        return _object(value, path)
    if isinstance(value, Mapping):
        return {str(k): to_json(v, f"{path}.{k}") for k, v in value.items()}
    if isinstance(value, (frozenset, set)):
        return sorted(to_json(v, path) for v in value)
    if isinstance(value, (list, tuple)):
        return [to_json(v, f"{path}[{i}]") for i, v in enumerate(value)]
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):  # numpy scalars and arrays
        return to_json(value.tolist(), path)
    raise MeshwrightError(Text(N_("the result holds {value} at {path}"), value=type(value).__name__, path=path or "/"))


def _names(cls: Any) -> dict[str, bool]:
    """Fields of a record, and whether each must be given."""
    if cls is Term:
        return {name: name not in Term._field_defaults for name in Term._fields}
    missing = dataclasses.MISSING
    return {f.name: f.default is missing and f.default_factory is missing for f in dataclasses.fields(cls)}


def _object(record: Any, path: str) -> dict[str, Any]:
    name = type(record).__name__
    fields = {"kind": name} if name in _KINDS else {}
    for key in _names(type(record)):
        where = f"{path}.{key}" if path else key
        fields[key] = to_json(getattr(record, key), where)
    if isinstance(record, Strategy):
        fields["short"] = record.short
    return fields


def dumps(value: Any, *, indent: int | None = 2, ascii: bool = False) -> str:
    """JSON text of a document; never NaN or infinity, never a character that UTF-8 cannot hold."""
    text = json.dumps(value, indent=indent, ensure_ascii=ascii, allow_nan=False)
    if not ascii and _SURROGATE.search(text):  # a name read from a file may hold half a character
        return json.dumps(value, indent=indent, ensure_ascii=True, allow_nan=False)
    return text


# ---------------------------------------------------------------------------------------------- reading


@dataclass(frozen=True, slots=True)
class Result:
    """A result file read back: what it is, its problem, its strategies by name, and the record itself."""

    kind: str
    problem: Problem
    strategies: tuple[tuple[str, Strategy], ...]
    record: Any


def load_result(path: str | Path) -> Result:
    """A result written by `--json` (`-` reads standard input): enough to explain, compare and evaluate again."""
    hint = "meshwright plan … --json | meshwright explain - bubble"
    return read_result(read_json(str(path), hint=hint, fix=Text(WRITE_IT)), where=str(path))


def read_json(name: str, *, hint: str, fix: Text) -> Any:
    """The content of a JSON file (`-` reads standard input); `hint` is a pipe that writes one, `fix` how it is made."""
    content = read_stdin(largest=LARGEST, hint=hint) if name == "-" else read_bytes(name, largest=LARGEST, fix=fix)
    try:
        return json.loads(decode(content, where=name), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise InputError(
            Text(N_("the file is not JSON: {reason}"), reason=reason_of(error)), where=name, fix=fix
        ) from error


def _no_constant(name: str) -> float:
    raise ValueError(name)


def _check_major(schema: Any, where: str, fix: Text) -> None:
    if str(schema).partition("/")[2] != str(_MAJOR):
        raise InputError(
            Text(N_("the file has schema {schema}, this release reads version {major}"), schema=schema, major=_MAJOR),
            where=where,
            fix=fix,
        )


def read_record(cls: Any, data: Any, *, kind: str, where: str, fix: Text) -> Any:
    """A document of schema `meshwright.<kind>` as a record of `cls`."""
    schema = data.get("schema", "") if isinstance(data, dict) else ""
    if str(schema).partition("/")[0] != f"meshwright.{kind}":
        raise InputError(
            Text(N_("the file does not hold what is read here: {schema}"), schema=f"meshwright.{kind}"),
            where=where,
            fix=fix,
        )
    _check_major(schema, where, fix)
    try:
        return from_json(cls, data)
    except _Malformed as error:
        raise _damaged(error, where, fix) from error


def _damaged(error: Exception, where: str, fix: Text) -> InputError:
    path = str(error.args[0]) if error.args and error.args[0] else "/"
    return InputError(Text(N_("the result file is damaged at {path}"), path=path), where=where, fix=fix)


def read_result(data: Any, *, where: str = "") -> Result:
    """A result document as records."""
    schema = data.get("schema", "") if isinstance(data, dict) else ""
    kind = str(schema).removeprefix("meshwright.").partition("/")[0]
    if kind not in ("estimate", "plan", "scale", "size") or not str(schema).startswith("meshwright."):
        raise InputError(
            Text(N_("the file does not hold a plan or an estimate of Meshwright")), where=where, fix=Text(WRITE_IT)
        )
    _check_major(schema, where, Text(WRITE_IT))
    try:
        record = from_json(RECORDS[kind], data)
        problem = record.problem if hasattr(record, "problem") else from_json(Problem, data["problem"])
        _check(problem, [strategy for _, strategy in _strategies(record)])
        estimates = [record] if isinstance(record, Estimate) else [r.estimate for r in getattr(record, "ranked", ())]
        for estimate in estimates:
            _expect(estimate.step_seconds > 0, estimate.step_seconds, "step_seconds")
    except (_Malformed, KeyError) as error:
        raise _damaged(error, where, Text(WRITE_IT)) from error
    return Result(kind, problem, _strategies(record), record)


_DEGREES = ("data", "tensor", "pipeline", "virtual", "context", "expert", "expert_tensor", "micro_batch")
_FLAGS = ("sequence_parallel", "overlap_grad_reduce", "overlap_param_gather", "overlap_tensor", "overlap_expert")
_CATEGORIES = {"framework": FRAMEWORKS, "sharding": SHARDINGS, "schedule": SCHEDULES, "recompute": RECOMPUTES,
               "offload": OFFLOADS, "precision": PRECISIONS, "loss": LOSSES, "dispatcher": DISPATCHERS,
               "graphs": GRAPHS}  # fmt: skip


def _check(problem: Problem, strategies: list[Strategy]) -> None:
    """What annotations cannot say: counts are positive, categories exist, the pattern names its blocks."""
    _sane(problem, "problem")
    for strategy in strategies:
        for name in _DEGREES:
            value = getattr(strategy, name)
            _expect(isinstance(value, int) and value >= 1, value, f"strategy.{name}")
        _expect(isinstance(strategy.shard, int) and strategy.shard >= 0, strategy.shard, "strategy.shard")
        for name in _FLAGS:
            _expect(isinstance(getattr(strategy, name), bool), strategy, f"strategy.{name}")
        for name, legal in _CATEGORIES.items():
            _expect(getattr(strategy, name) in legal, strategy, f"strategy.{name}")
        _sane(strategy, "strategy")
    model, cluster, job = problem.model, problem.cluster, problem.job
    for where, value in (
        ("model.hidden", model.hidden), ("model.pattern", len(model.pattern)),
        # a rate of zero is the truth only where nothing travels
        ("cluster.link_bandwidth", cluster.link_bandwidth if cluster.devices > 1 else 1),
        ("cluster.nic_bandwidth", cluster.nic_bandwidth if cluster.devices > cluster.domain_size else 1),
        ("cluster.devices", cluster.devices), ("cluster.node_size", cluster.node_size),
        ("cluster.domain_size", cluster.domain_size), ("job.seq_len", job.seq_len),
        ("job.global_batch", job.global_batch),
    ):  # fmt: skip
        _expect(value >= 1, value, f"problem.{where}")
    _expect(all(0 <= i < len(model.blocks) for i in model.pattern), model.pattern, "problem.model.pattern")
    accelerator = cluster.accelerator
    for where, rate in (
        ("memory_bytes", accelerator.memory_bytes), ("memory_usable_bytes", accelerator.memory_usable_bytes),
        ("memory_bandwidth", accelerator.memory_bandwidth), ("compute_units", accelerator.compute_units),
        ("host_bandwidth", accelerator.host_bandwidth), ("peak_flops", len(accelerator.peak_flops)),
        *((f"peak_flops.{k}", v) for k, v in accelerator.peak_flops.items()),
        *((f"matmul_ceiling.{k}", v) for k, v in accelerator.matmul_ceiling.items()),
    ):  # fmt: skip
        _expect(rate > 0, rate, f"problem.cluster.accelerator.{where}")
    for i, block in enumerate(model.blocks):
        for part in (block.mixer, block.mlp, block.cross):
            for name in _DIVIDES:
                _expect(getattr(part, name, 1) >= 1, part, f"problem.model.blocks[{i}].{name}")


# Fields of mixers and MLPs that something is divided by.
_DIVIDES = ("heads", "kv_heads", "head_dim", "key_heads", "value_heads", "groups", "chunk", "experts", "top_k",
            "shared_count", "router_groups")  # fmt: skip
_MOST = 1e24  # far above every count, rate and size of a problem; its square is still a float


def _sane(value: Any, path: str) -> None:
    """No number of a problem or a strategy is negative, or larger than anything that exists."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        _expect(0 <= value <= _MOST, value, path)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            _sane(item, f"{path}.{key}")
    elif isinstance(value, (tuple, list)):
        for i, item in enumerate(value):
            _sane(item, f"{path}[{i}]")
    elif dataclasses.is_dataclass(value) and not isinstance(value, Text):
        for field in dataclasses.fields(value):
            _sane(getattr(value, field.name), f"{path}.{field.name}")


def _strategies(record: Any) -> tuple[tuple[str, Strategy], ...]:
    if isinstance(record, Estimate):
        return ((record.strategy.short, record.strategy),)
    if isinstance(record, Plan):
        return tuple((f"#{r.rank} {r.strategy.short}", r.strategy) for r in record.ranked)
    if isinstance(record, Sizing):
        return () if record.estimate is None else ((record.estimate.strategy.short, record.estimate.strategy),)
    return tuple(
        (f"{p.devices} × {p.estimate.strategy.short}", p.estimate.strategy) for p in record.points if p.estimate
    )


class _Malformed(Exception):
    """A document that does not follow the annotations; the message is the path."""


def from_json(annotation: Any, data: Any, path: str = "") -> Any:
    """`data` as a value of `annotation`; the inverse of `to_json` on the records of `spec`."""
    if annotation is Any:
        return _plain(data, path)
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        return _union(typing.get_args(annotation), data, path)
    if origin is typing.Literal:
        return _expect(data in typing.get_args(annotation), data, path)
    if origin is tuple:
        return _tuple(typing.get_args(annotation), data, path)
    if origin in (dict, Mapping) or (isinstance(origin, type) and issubclass(origin, Mapping)):
        _expect(isinstance(data, dict), data, path)
        return {k: from_json(typing.get_args(annotation)[1], v, f"{path}.{k}") for k, v in data.items()}
    if annotation is Text:
        return _text(data, path)
    if dataclasses.is_dataclass(annotation) or annotation is Term:
        return _record(annotation, data, path)
    if annotation is float:
        _expect(isinstance(data, (int, float)) and not isinstance(data, bool), data, path)
        return float(_expect(-sys.float_info.max <= data <= sys.float_info.max, data, path))
    if annotation is int:
        return _expect(isinstance(data, int) and not isinstance(data, bool), data, path)
    return _expect(isinstance(data, annotation), data, path)


def _expect(condition: bool, data: Any, path: str) -> Any:
    if not condition:
        raise _Malformed(path)
    return data


def _plain(data: Any, path: str) -> Any:
    """A value of any type; `1e999` is JSON, and infinity to Python."""
    _expect(not isinstance(data, float) or math.isfinite(data), data, path)
    return tuple(_plain(item, path) for item in data) if isinstance(data, list) else data


def _union(options: tuple[Any, ...], data: Any, path: str) -> Any:
    if data is None:
        return _expect(type(None) in options, None, path)
    if isinstance(data, dict) and isinstance(data.get("kind"), str) and data["kind"] in _KINDS:
        return _record(_KINDS[data["kind"]], data, path)
    for option in options:
        if option is type(None):
            continue
        try:
            return from_json(option, data, path)
        except _Malformed as error:
            failure = error
    raise failure


def _tuple(arguments: tuple[Any, ...], data: Any, path: str) -> tuple[Any, ...]:
    _expect(isinstance(data, list), data, path)
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return tuple(from_json(arguments[0], item, f"{path}[{i}]") for i, item in enumerate(data))
    _expect(len(arguments) == len(data), data, path)
    pairs = enumerate(zip(arguments, data, strict=True))
    return tuple(from_json(argument, item, f"{path}[{i}]") for i, (argument, item) in pairs)


def _text(data: Any, path: str) -> Text:
    _expect(isinstance(data, dict) and isinstance(data.get("id"), str), data, path)
    values = data.get("values", {})
    _expect(isinstance(values, dict), values, path)
    if data.get("kind") == Label.__name__:
        return Label(data["id"])
    read = {k: _text(v, path) if isinstance(v, dict) and "id" in v else _plain(v, path) for k, v in values.items()}
    try:
        _expect(_placeholders(data["id"]) <= read.keys(), data, path)
        text = Text(data["id"], **read)
        text.render("en")
    except (ValueError, TypeError) as error:  # no template, a format that does not suit, a value called `template`
        raise _Malformed(path) from error
    return text


_SPEC = re.compile(r",?(\.\d)?[deEfFgG%]?")  # of numbers, without a width


def _placeholders(template: str) -> set[str]:
    """Names in braces; ours have no attribute, index, width or conversion, each of which could do harm."""
    fields = [(name, spec or "", how) for _, name, spec, how in Formatter().parse(template) if name is not None]
    if not all(name.isidentifier() and _SPEC.fullmatch(spec) and how is None for name, spec, how in fields):
        raise ValueError(template)
    return {name for name, _, _ in fields}


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _record(cls: Any, data: Any, path: str) -> Any:
    _expect(isinstance(data, dict), data, path)
    hints = _hints(cls)
    values = {}
    for key, needed in _names(cls).items():
        where = f"{path}.{key}" if path else key
        if key in data:
            values[key] = from_json(hints[key], data[key], where)
        elif needed:
            raise _Malformed(where)
    if cls is Term:  # a column while searching, one number in a result
        from_json(float, values["value"], f"{path}.value")
    return cls(**values)
