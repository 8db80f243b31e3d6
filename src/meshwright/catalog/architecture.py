"""An architecture of one's own as plain TOML: named block kinds and the order of the layers.

The keys are the fields of the records in `spec.model`; docs/reference/model-toml.md describes them with examples.
"""

from __future__ import annotations

import difflib
import math
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from functools import lru_cache
from typing import Any, Literal, NoReturn

from meshwright.errors import InputError
from meshwright.files import decode, reason_of
from meshwright.messages import N_, Text
from meshwright.spec import model as spec
from meshwright.spec.model import (
    Attention,
    Block,
    Extra,
    LinearAttention,
    Mamba1,
    Mamba2,
    Mlp,
    ModelSpec,
    Moe,
    MultiLatentAttention,
)

MIXERS: dict[str, type] = {
    "attention": Attention, "mha": Attention, "gqa": Attention, "mqa": Attention, "sliding": Attention,
    "mla": MultiLatentAttention, "linear": LinearAttention, "mamba1": Mamba1, "mamba2": Mamba2,
}  # fmt: skip
MLPS: dict[str, type] = {"dense": Mlp, "gated": Mlp, "moe": Moe}
_MODEL_KEYS = (
    "name", "hidden", "vocab", "tied_embeddings", "embedding_width", "learned_positions", "position_width",
    "embedding_norm", "final_norm", "has_head", "head_bias", "encoder_layers", "mtp_layers", "max_positions", "notes",
)  # fmt: skip
_TOP_KEYS = (*_MODEL_KEYS, "blocks", "pattern", "layers", "extras", "norm", "family")
_ABOUT_KEYS = ("id", "aliases", "source", "basis", "notes", "published", "architecture", "date", "config",
               "recalled")  # fmt: skip
_ZERO_ALLOWED = {
    "learned_positions", "encoder_layers", "mtp_layers", "extra_params", "shared_width", "conv_kernel", "norms",
    "vocab", "flops_per_token", "shared_count",
}  # fmt: skip


def from_text(text: str | bytes, *, where: str = "model.toml") -> ModelSpec:
    """A ModelSpec from the text of an architecture file (the keys at the top, or under [architecture])."""
    data = parse(text, where=where)
    return from_file(data, where=where)


def parse(text: str | bytes, *, where: str) -> dict[str, Any]:
    """The table in `text`, or an InputError with the line."""
    written = decode(text, where=where)
    try:
        return tomllib.loads(written)
    except tomllib.TOMLDecodeError as error:
        message = Text(N_("not valid TOML: {reason}"), reason=reason_of(error))
        raise InputError(message, where=where, fix=_complete()) from None
    except (RecursionError, ValueError):
        raise InputError(
            Text(N_("TOML nested or written too large to be a model")), where=where, fix=_complete()
        ) from None


def from_file(data: Mapping[str, Any], *, where: str) -> ModelSpec:
    """A ModelSpec from a parsed file."""
    if "architecture" in data:
        _known(data, (*_ABOUT_KEYS, "name"), where)
        inner = data["architecture"]
        if not isinstance(inner, Mapping):
            _fail(where, "architecture", Text(N_("'{key}' must be a table"), key="architecture"))
        name = data.get("name") or data.get("id")
        return from_table({**({"name": name} if name and "name" not in inner else {}), **inner}, where=where)
    return from_table(data, where=where)


def from_table(table: Mapping[str, Any], *, where: str) -> ModelSpec:
    """A ModelSpec from an architecture table."""
    _known(table, _TOP_KEYS, where)
    for key in ("hidden", "vocab", "blocks"):
        if key not in table:
            _fail(where, key, Text(N_("'{key}' is missing from the architecture"), key=key))
    blocks = table["blocks"]
    if not isinstance(blocks, Mapping) or not blocks:
        _fail(where, "blocks", Text(N_("'{key}' must be a table"), key="blocks"))
    norm = _value(str, "norm", table.get("norm", "rms"), where, Literal["rms", "layer", "layer-no-bias", "none"])
    names = list(blocks)
    kinds = [_block(blocks[name], norm, f"{where}: blocks.{name}") for name in names]
    order = _layers(table, names, where)
    used = list(dict.fromkeys(order))
    for name in names:
        if name not in used:
            _fail(where, f"blocks.{name}", Text(N_("block '{name}' is never used by the layers"), name=name))
    hints = _hints(ModelSpec)
    values = {k: _value(hints[k], k, table[k], where) for k in _MODEL_KEYS if k in table and k != "notes"}
    values.setdefault("name", "model")
    values.setdefault("final_norm", norm)
    model = ModelSpec(
        family=_value(str, "family", table.get("family", "custom"), where),
        blocks=tuple(kinds[names.index(name)] for name in used),
        pattern=tuple(used.index(name) for name in order),
        extras=tuple(_record(Extra, e, f"{where}: extras", {}) for e in _tables(table.get("extras", []), where)),
        **values,
    )
    if model.encoder_layers > model.layers:
        _fail(where, "encoder_layers", Text(N_("{have} encoder layers in a model of {layers}"),
                                            have=model.encoder_layers, layers=model.layers))  # fmt: skip
    return model


def _layers(table: Mapping[str, Any], names: list[str], where: str) -> list[str]:
    """The block name of every layer, from `pattern` ("M M A M", repeated by `layers`) or a list of repeats."""
    pattern, layers = table.get("pattern"), table.get("layers")
    order: list[str]
    if isinstance(layers, list) and pattern is None:
        order = []
        for item in _tables(layers, where):
            _known(item, ("block", "repeat"), f"{where}: layers")
            order += [_name(item.get("block"), names, f"{where}: layers")] * _value(
                int, "repeat", item.get("repeat", 1), f"{where}: layers"
            )  # fmt: skip
            _limit(order, where)
    else:
        if pattern is None:
            if len(names) > 1:
                _fail(where, "pattern", Text(N_("several blocks need a 'pattern' or a list of 'layers'")),
                      Text(N_('for example pattern = "{names}"'), names=" ".join(names)))  # fmt: skip
            pattern = names[0]
        words = pattern.split() if isinstance(pattern, str) else pattern
        if not isinstance(words, list) or not words:
            _fail(where, "pattern", Text(N_("'pattern' must be a string of block names or a list")))
        if isinstance(pattern, str) and len(words) == 1 and words[0] not in names and set(words[0]) <= set(names):
            words = list(words[0])  # one-letter names may stand together: "MMAM"
        unit = [_name(word, names, f"{where}: pattern") for word in words]
        total = len(unit) if layers is None else _value(int, "layers", layers, where)
        if total > 10**4 or total % len(unit):
            _fail(where, "layers", Text(N_("{layers} layers cannot be filled with a pattern of {unit}"), layers=total,
                                        unit=len(unit)))  # fmt: skip
        order = unit * (total // len(unit))
    if not order:
        _fail(where, "layers", Text(N_("the model has no layers")))
    _limit(order, where)
    return order


def _limit(order: list[str], where: str) -> None:
    if len(order) > 10**4:
        _fail(where, "layers", Text(N_("more than {limit} layers"), limit=10**4))


def _name(word: Any, names: list[str], where: str) -> str:
    if not isinstance(word, str) or word not in names:
        close = difflib.get_close_matches(str(word), names, n=3, cutoff=0.4) or names[:8]
        raise InputError(Text(N_("no block is called '{name}'"), name=str(word)[:60]), where=where,
                         fix=Text(N_("did you mean {names}?"), names=", ".join(close)))  # fmt: skip
    return word


def _block(table: Any, norm: str, where: str) -> Block:
    if not isinstance(table, Mapping):
        raise InputError(Text(N_("a block is a table with 'mixer' and 'mlp'")), where=where, fix=_complete())
    _known(table, ("mixer", "attention", "mlp", "cross", "norm", "norms", "parallel", "extra_params"), where)
    mixer = _kind(table.get("mixer", table.get("attention")), MIXERS, "attention", f"{where}.mixer")
    mlp = _kind(table.get("mlp"), MLPS, "gated", f"{where}.mlp")
    cross = _kind(table.get("cross"), {"attention": Attention}, "attention", f"{where}.cross")
    if mixer is None and mlp is None:
        raise InputError(Text(N_("a block needs a mixer, an MLP, or both")), where=where, fix=_complete())
    hints = _hints(Block)
    given = [k for k in ("norm", "norms", "parallel", "extra_params") if k in table]
    rest = {k: _value(hints[k], k, table[k], where) for k in given}
    rest.setdefault("norm", norm)
    rest.setdefault("norms", (mixer is not None) + (mlp is not None) + (cross is not None))
    return Block(mixer=mixer, mlp=mlp, cross=cross, **rest)


def _kind(table: Any, kinds: Mapping[str, type], default: str, where: str) -> Any:
    """One mixer or MLP: its record chosen by `kind`."""
    if table is None:
        return None
    if not isinstance(table, Mapping):
        raise InputError(
            Text(N_('expected a table such as {{ kind = "{kind}" }}'), kind=default), where=where, fix=_complete()
        )
    kind = table.get("kind", default)
    if not isinstance(kind, str) or kind not in kinds:
        close = difflib.get_close_matches(str(kind), kinds, n=3, cutoff=0.3) or list(kinds)
        raise InputError(Text(N_("no kind is called '{name}'"), name=str(kind)[:60]), where=where,
                         fix=Text(N_("did you mean {names}?"), names=", ".join(close)))  # fmt: skip
    preset: dict[str, Any] = {}
    if kinds[kind] is Mlp:
        preset["gated"] = kind == "gated"
        preset["activation"] = "silu" if kind == "gated" else "gelu"
    if kinds[kind] is Attention and isinstance(table.get("heads"), int):
        preset["kv_heads"] = 1 if kind == "mqa" else table["heads"]
    if kind == "sliding" and "window" not in table:
        raise InputError(Text(N_("sliding attention needs a 'window'")), where=where, fix=_complete())
    built = _record(kinds[kind], {k: v for k, v in table.items() if k != "kind"}, where, preset)
    _sane(built, where)
    return built


def _sane(part: Any, where: str) -> None:
    """Relations between fields that no single value can show."""
    pairs: list[tuple[str, int, str, int]] = []
    match part:
        case Attention():
            pairs = [("kv_heads", part.kv_heads, "heads", part.heads)]
        case Mamba2():
            pairs = [("heads", part.heads, "inner", part.inner), ("groups", part.groups, "heads", part.heads)]
        case LinearAttention():
            pairs = [("key_heads", part.key_heads, "value_heads", part.value_heads)]
        case Moe() if part.top_k > part.experts:
            raise InputError(
                Text(N_("a token cannot visit {top_k} of {experts} experts"), top_k=part.top_k, experts=part.experts),
                where=where,
                fix=Text(N_("the nearest legal value is {value}"), value=part.experts),
            )
    for small, a, large, b in pairs:
        if b % a:
            near = sorted((d for d in range(1, min(b, 4096) + 1) if b % d == 0), key=lambda d: abs(d - a))[:3]
            raise InputError(
                Text(N_("{what} = {small} does not divide {of} = {large}"), what=small, small=a, of=large, large=b),
                where=where,
                fix=Text(N_("nearest values that do: {values}"), values=", ".join(map(str, sorted(near)))),
            )


def _record(kind: type, table: Mapping[str, Any], where: str, preset: Mapping[str, Any]) -> Any:
    known = {f.name: f for f in fields(kind)}
    _known(table, tuple(known), where)
    hints = _hints(kind)
    values = {**preset, **{k: _value(hints[k], k, v, where) for k, v in table.items()}}
    for name, field in known.items():
        if name in values or field.default is not MISSING:
            continue
        if type(None) in typing.get_args(hints[name]):
            values[name] = None
        else:
            raise InputError(Text(N_("'{key}' is missing"), key=name), where=where, fix=_complete())
    return kind(**values)


@lru_cache(maxsize=64)
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind, vars(spec))


def _value(kind: Any, key: str, value: Any, where: str, choices: Any = None) -> Any:
    """`value` if it has the type the record's annotation asks for, within sane bounds."""
    kind = choices or kind
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        options = [k for k in typing.get_args(kind) if k is not type(None)]
        return _value(options[0], key, value, where)
    if typing.get_origin(kind) is Literal:
        legal = typing.get_args(kind)
        if value not in legal:
            _fail(where, key, Text(N_("'{key}' is {value}"), key=key, value=repr(value)[:40]),
                  Text(N_("use one of {names}"), names=", ".join(legal)))  # fmt: skip
        return value
    if kind is bool and isinstance(value, bool):
        return value
    if kind is str and isinstance(value, str):
        return value
    if kind is int and isinstance(value, int) and not isinstance(value, bool):
        low, high = (0 if key in _ZERO_ALLOWED else 1), 10**12 if key in ("params", "flops_per_token") else 10**9
        if low <= value <= high:
            return value
        shown = str(value) if abs(value) < 10**15 else "> 1e15"
        _fail(where, key, Text(N_("'{key}' is {value}, outside {low} to {high}"), key=key, value=shown, low=low,
                               high=high),
              Text(N_("write a whole number between {low} and {high}"), low=low, high=high))  # fmt: skip
    wanted = {bool: N_("true or false"), str: N_("a string"), int: N_("a whole number")}[kind]
    shown = repr(value)[:40] if not isinstance(value, float) or math.isfinite(value) else "not a number"
    _fail(where, key, Text(N_("'{key}' is {value}, not {wanted}"), key=key, value=shown, wanted=Text(wanted)))
    return None  # not reached


def _tables(value: Any, where: str) -> list[Mapping[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(v, Mapping) for v in value):
        raise InputError(Text(N_("expected a list of tables")), where=where, fix=_complete())
    return value


def _known(table: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    """Refuse keys nobody reads, with the closest that exist."""
    known = tuple(known)
    for key in table:
        if key not in known:
            close = difflib.get_close_matches(key, known, n=3, cutoff=0.5)
            fix = (
                Text(N_("did you mean {names}?"), names=", ".join(close))
                if close
                else Text(N_("known keys: {names}"), names=", ".join(known))
            )
            raise InputError(Text(N_("unknown key '{key}'"), key=key[:60]), where=where, fix=fix)


def _complete() -> Text:
    return Text(N_("see docs/reference/model-toml.md for a complete example"))


def _fail(where: str, key: str, text: Text, fix: Text | None = None) -> NoReturn:
    raise InputError(text, where=f"{where}: {key}", fix=fix or _complete())
