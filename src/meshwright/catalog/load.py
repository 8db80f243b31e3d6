"""Find and read catalogue files: one TOML file per thing, `<kind>/<id>.toml`, the user's before the shipped ones.

A known id opens one file and no other; only an alias or a fragment makes the index of aliases be read. The user's own
files live in the configuration folder (`meshwright/catalog`) and in the folders named by MESHWRIGHT_CATALOG; a file
there with the id of a shipped one replaces it.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from meshwright.errors import InputError, UnknownNameError
from meshwright.files import decode, read_bytes, reason_of
from meshwright.messages import N_, Text

DATA = Path(__file__).parent / "data"
ENVIRONMENT = "MESHWRIGHT_CATALOG"
EXPECTED = N_("give the path of a TOML file, or a name of `meshwright catalog list`")
MAX_BYTES = 4_000_000  # a catalogue file is a few kilobytes; a larger one is something else

NOUNS: Mapping[str, str] = {
    "accelerators": N_("accelerator"),
    "links": N_("link"),
    "nodes": N_("node"),
    "clusters": N_("cluster"),
    "prices": N_("price"),
    "models": N_("model"),
    "software": N_("software profile"),
    "kernels": N_("kernel constants"),
    "failures": N_("failure rate"),
    "storage": N_("storage"),
    "recovery": N_("recovery times"),
}
_ALIASES = re.compile(r"^aliases\s*=\s*\[[^\]]*\]", re.MULTILINE)


def noun(kind: str) -> Text:
    """What one thing of `kind` is called."""
    return Text(NOUNS.get(kind, kind))


@lru_cache(maxsize=1)
def user_folder() -> Path:
    """Where `catalog add` puts files."""
    import platformdirs  # only needed when the catalogue is read

    return platformdirs.user_config_path("meshwright") / "catalog"


def overlays() -> tuple[Path, ...]:
    """The user's folders, the strongest first."""
    named = os.environ.get(ENVIRONMENT, "")
    return (*(expand(p) for p in named.split(os.pathsep) if p), user_folder())


def writable_folder() -> Path:
    """The folder that `catalog add` writes to: the first of MESHWRIGHT_CATALOG, else the configuration folder."""
    return overlays()[0]


def kinds() -> tuple[str, ...]:
    """Folders of the shipped catalogue."""
    return tuple(sorted(p.name for p in DATA.iterdir() if p.is_dir()))


def normalise(name: str) -> str:
    """Lower case, with `-` for spaces, underscores and slashes: `NVIDIA H100 80GB HBM3` is `nvidia-h100-80gb-hbm3`."""
    return re.sub(r"[\s_/]+", "-", name.strip().lower())


@lru_cache(maxsize=64)
def _shipped(kind: str) -> Mapping[str, Path]:
    return MappingProxyType(_scan(DATA / kind))


def _scan(folder: Path) -> dict[str, Path]:
    try:
        found = sorted((e.name, e.path) for e in os.scandir(folder) if e.name.endswith(".toml"))
    except OSError:
        return {}
    return {name.removesuffix(".toml"): Path(path) for name, path in found}


def files(kind: str) -> Mapping[str, Path]:
    """Every id of `kind` with its file, the user's files over the shipped ones."""
    found = _shipped(kind)
    for folder in reversed(overlays()):
        if own := _scan(folder / kind):
            found = {**found, **own}
    return found


def ids(kind: str) -> tuple[str, ...]:
    """Every id of `kind`, sorted."""
    return tuple(sorted(files(kind)))


def expand(path: str | os.PathLike[str]) -> Path:
    """The path with `~` replaced by the home folder it names."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise InputError(
            Text(N_("there is no such home folder")),
            where=os.fspath(path),
            fix=Text(N_("write the path in full")),
        ) from None


def read(path: Path) -> Mapping[str, Any]:
    """The parsed file, cached until it changes on disk."""
    try:
        status = path.stat()
    except (OSError, ValueError) as error:
        raise InputError(
            Text(N_("cannot read the file: {reason}"), reason=reason_of(error)), where=str(path), fix=Text(EXPECTED)
        ) from None
    return _parse(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=2048)
def _parse(path: Path, modified: int, size: int) -> Mapping[str, Any]:
    text = decode(read_bytes(path, largest=MAX_BYTES, fix=Text(EXPECTED)), where=str(path))
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits is a ValueError too
        raise InputError(
            Text(N_("not valid TOML: {reason}"), reason=reason_of(error)),
            where=str(path),
            fix=Text(N_("compare with a file that works: `meshwright catalog show NAME` says where it lies")),
        ) from None


def entry(kind: str, name: str) -> tuple[str, Mapping[str, Any], Path]:
    """Id, content and file of the `kind` called `name` (an id, an alias, or a fragment that fits only one)."""
    id = resolve(kind, name)
    path = files(kind)[id]
    return id, read(path), path


def is_shipped(path: Path) -> bool:
    """Whether a file belongs to the package."""
    return path.is_relative_to(DATA)


def aliases(kind: str) -> Mapping[str, str]:
    """Normalised alias → id, for every file of a kind. A broken file has none (its own reading reports why)."""
    found: dict[str, str] = {}
    for id, path in files(kind).items():
        try:
            found.update((normalise(alias), id) for alias in _aliases(path, path.stat().st_mtime_ns))
        except OSError:
            continue
    return found


@lru_cache(maxsize=2048)
def _aliases(path: Path, modified: int) -> tuple[str, ...]:
    """Only the `aliases` line is parsed: an index over all files costs little more than opening them."""
    try:
        line = _ALIASES.search(path.read_text("utf-8"))
        given = tomllib.loads(line[0])["aliases"] if line else []
    except (UnicodeDecodeError, tomllib.TOMLDecodeError):
        return ()
    return tuple(alias for alias in given if isinstance(alias, str))


def exact(kind: str, name: str) -> str | None:
    """The id whose name or alias is `name`, or None."""
    key = normalise(name)
    return key if key in files(kind) else aliases(kind).get(key)


def fragments(kind: str, name: str, *, of_aliases: bool = True) -> tuple[str, ...]:
    """Ids of which `name` is a part; where there is none, ids of whose aliases it is a part."""
    key = normalise(name)
    if len(key) < 2:
        return ()
    found = {id for id in files(kind) if key in id}
    if not found and of_aliases:
        found = {id for alias, id in aliases(kind).items() if key in alias}
    return tuple(sorted(found))


def resolve(kind: str, name: str) -> str:
    """The id meant by `name`; raises `UnknownNameError` with the closest names when it means none, or several."""
    if (id := exact(kind, name)) is not None:
        return id
    found = fragments(kind, name)
    if len(found) == 1:
        return found[0]
    raise unknown(kind, name, found)


def unknown(kind: str, name: str, several: Iterable[str] = ()) -> UnknownNameError:
    """The error for a name of `kind` that means nothing, or several things."""
    what: Any = noun(kind)
    if several := tuple(several):
        return UnknownNameError(what, name[:80], several, ambiguous=True)
    return UnknownNameError(what, name[:80], {*files(kind), *aliases(kind)})
