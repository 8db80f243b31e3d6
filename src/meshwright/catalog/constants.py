"""Named constants with a physical meaning: kernel efficiencies by architecture, habits of a software stack.

One TOML file per thing under data/kernels and data/software; every constant carries value, unit, basis, source.
`inherits` names a file of the same folder whose constants hold where this one is silent.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from meshwright.errors import UnknownNameError

DATA = Path(__file__).parent / "data"


@lru_cache(maxsize=64)
def constants(kind: str, name: str) -> Mapping[str, Any]:
    """Values of file `data/<kind>/<name>.toml`, inherited ones included.

    Raises `UnknownNameError` when there is no such file.
    """
    path = DATA / kind / f"{name}.toml"
    if not path.is_file():
        raise UnknownNameError(kind, name, names(kind))
    document = tomllib.loads(path.read_text("utf-8"))
    values: dict[str, Any] = {}
    if parent := document.get("inherits"):
        values.update(constants(kind, parent))
    values.update({key: entry["value"] for key, entry in document["constants"].items()})
    return MappingProxyType(values)


@lru_cache(maxsize=8)
def names(kind: str) -> tuple[str, ...]:
    """All names of a kind."""
    return tuple(sorted(p.stem for p in (DATA / kind).glob("*.toml")))
