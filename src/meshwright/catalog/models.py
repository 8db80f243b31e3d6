"""Models by catalogue name, by file, or from text: one function, one ModelSpec.

A catalogue file has `id`, `aliases`, `name`, `source`, `basis`, and either `[config]` (keys of a Hugging Face
config.json, read by the same reader as any user's) or `[architecture]`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from meshwright.catalog import architecture, hf, load
from meshwright.errors import InputError, UnknownNameError
from meshwright.files import bounded, decode, read_bytes, reason_of
from meshwright.messages import N_, Text
from meshwright.spec.model import ModelSpec

# What a file says of the values nobody read, as its `basis` or (some values only) in `recalled`: a plan repeats it.
UNREAD = {
    "recalled": N_("model: the values of {model} are recalled, not read; to be checked in {source}"),
    "assumed": N_("model: the architecture of {model} is assumed, not known ({source})"),
}
UNREAD_VALUES = N_("model: values of {model} that are recalled, not read: {names}")
_LARGEST_FILE = 4 * 2**20  # a config.json of a few kB; anything larger is not one
KIND = "models"
EXPECTED = N_("give the path of a config.json, or a name of `meshwright catalog list`")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """One file of the catalogue: what a listing needs, and the table the model is read from."""

    id: str
    name: str
    aliases: tuple[str, ...]
    source: str
    basis: str
    notes: tuple[str, ...]
    published: Mapping[str, Any]  # counts its authors state
    data: Mapping[str, Any]
    where: str

    def __hash__(self) -> int:
        return hash((self.id, self.where))


def model_ids() -> tuple[str, ...]:
    """Ids of all models in the catalogue, the user's own included, sorted."""
    return load.ids(KIND)


def model_entry(name: str) -> ModelEntry:
    """The catalogue entry called `name` (id, alias or unique fragment)."""
    id, data, path = load.entry(KIND, resolve(name))
    where = f"catalog/models/{id}.toml" if load.is_shipped(path) else str(path)
    return ModelEntry(
        id=id,
        name=str(data.get("name", id)),
        aliases=_strings(data.get("aliases")),
        source=str(data.get("source", "")),
        basis=str(data.get("basis", "")),
        notes=_strings(data.get("notes")),
        published=data.get("published", {}),
        data=data,
        where=where,
    )


def _strings(value: Any) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()


@lru_cache(maxsize=512)
def from_entry(entry: ModelEntry) -> ModelSpec:
    """The model of a catalogue entry."""
    model = _from_data(entry.data, entry.where)
    return replace(model, name=entry.id, source=entry.source, basis=entry.basis, notes=entry.notes)


def _from_data(data: Mapping[str, Any], where: str) -> ModelSpec:
    """A model from a parsed TOML file: `[config]`, `[architecture]`, or an architecture at the top."""
    config = data.get("config")
    if isinstance(config, Mapping):
        model = hf.from_config(config, where=f"{where}: config")
        model = replace(model, name=str(data.get("name") or data.get("id") or model.name))
    else:
        model = architecture.from_file(data, where=where)
    return replace(model, remarks=(*model.remarks, *_unread(data, model.name)))


def _unread(data: Mapping[str, Any], name: str) -> Iterator[Text]:
    """What a plan must say of values that were not read in any source."""
    if template := UNREAD.get(str(data.get("basis"))):
        yield Text(template, model=name, source=str(data.get("source", "")))
    elif names := _strings(data.get("recalled")):
        yield Text(UNREAD_VALUES, model=name, names=", ".join(names))


def _words(name: str) -> frozenset[str]:
    return frozenset(re.findall(r"\d+(?:\.\d+)?[a-z]*|[a-z]+", name))


def resolve(name: str) -> str:
    """The id for a name: an id, an alias, or a fragment (or words of a name in any order) that fits one model only."""
    short = name.rsplit("/", 1)[-1]
    for key in (name, short):
        if (id := load.exact(KIND, key)) is not None:
            return id
    found: tuple[str, ...] = load.fragments(KIND, short)
    parts = _words(load.normalise(short))
    if not found and parts:
        names = {**{id: id for id in load.files(KIND)}, **load.aliases(KIND)}
        found = tuple(sorted({id for known, id in names.items() if parts <= _words(known)}))
    if len(found) == 1:
        return found[0]
    raise load.unknown(KIND, name, found)


def model(name_or_path: str | Path, *, text: str | bytes | None = None) -> ModelSpec:
    """A model by catalogue name, or read from a config.json, a folder that holds one, or an architecture in TOML.

    `text` is what a shell read for "-" (standard input): JSON or TOML.
    """
    if text is not None:
        return model_from_text(text, where="<stdin>" if str(name_or_path) == "-" else str(name_or_path))
    given = str(name_or_path)
    if given == "-":
        raise InputError(
            Text(N_("nothing was read from standard input")),
            where="-",
            fix=Text(N_("write it like {examples}"), examples="cat config.json | meshwright plan - --cluster …"),
        )
    if not given.strip() or "\0" in given or len(given) > 4096:
        raise load.unknown(KIND, given.replace("\0", ""))
    if not _looks_like_path(given):
        try:
            return from_entry(model_entry(given))
        except UnknownNameError:
            if not _exists(Path(given)):
                raise
    return _from_path(Path(given))


def _looks_like_path(given: str) -> bool:
    if given.endswith((".json", ".toml")) or given.startswith((".", "/", "~")):
        return True
    return ("/" in given or "\\" in given) and _exists(Path(given))


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def _from_path(path: Path) -> ModelSpec:
    try:
        path = path.expanduser()
        if path.is_dir():
            found = [path / name for name in ("config.json", "model.toml") if (path / name).is_file()]
            if not found:
                raise InputError(
                    Text(N_("the folder holds no config.json")), where=str(path),
                    fix=Text(N_("give the folder of a downloaded model, or the path of its config.json")),
                )  # fmt: skip
            path = found[0]
    except (OSError, RuntimeError, ValueError) as error:
        raise InputError(
            Text(N_("cannot read the file: {reason}"), reason=reason_of(error)), where=str(path), fix=Text(EXPECTED)
        ) from None
    content = read_bytes(path, largest=_LARGEST_FILE, fix=Text(EXPECTED))
    model = model_from_text(content, where=str(path), toml=path.suffix == ".toml")
    if model.name in (model.family, "model"):
        model = replace(model, name=path.parent.name if path.stem == "config" and path.parent.name else path.stem)
    return replace(model, source=model.source or str(path), basis=model.basis or "file")


def model_from_text(text: str | bytes, *, where: str = "<text>", toml: bool | None = None) -> ModelSpec:
    """A model from JSON (a config.json) or TOML (an architecture, or a catalogue file)."""
    if isinstance(text, bytes):
        bounded(text, largest=_LARGEST_FILE, where=where)
    text = decode(text, where=where)
    if toml is None:
        toml = text.lstrip()[:1] not in ("{", "") and not _is_json(text)
    if not toml:
        return hf.from_text(text, where=where)
    return _from_data(architecture.parse(text, where=where), where)


def _is_json(text: str) -> bool:
    """Whether `text` that does not begin like an object is JSON all the same: a list, a word, a number."""
    try:
        hf.parse(text, where="")
    except InputError as error:
        return "line" not in error.text.values
    return True
