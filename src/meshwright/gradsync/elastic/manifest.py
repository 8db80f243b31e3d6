"""What a whole checkpoint consists of: every file with its size and hash, and a hash of the list itself."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshwright.messages import N_, Text

NAME = "manifest.json"
SCHEMA = "meshwright.checkpoint/1"
BLOCK = 2**20


@dataclass(frozen=True, slots=True)
class Flaw:
    """Why a checkpoint is not whole: the file, and what is wrong with it."""

    checkpoint: str
    file: str
    what: Text

    def __str__(self) -> str:
        return f"{self.checkpoint}/{self.file}: {self.what}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A committed checkpoint: after which step, by how many ranks, of which run, with which files."""

    step: int
    world_size: int
    facts: Mapping[str, int]
    files: Mapping[str, tuple[int, str]]  # bytes and SHA-256 of each file


def file_hash(path: Path) -> tuple[int, str]:
    """Size and SHA-256 of a file as it can be read back."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
            size += len(block)
    return size, digest.hexdigest()


def write(folder: Path, manifest: Manifest) -> None:
    """Write the manifest and force it to the disk."""
    body = {
        "schema": SCHEMA,
        "step": manifest.step,
        "world_size": manifest.world_size,
        "facts": dict(manifest.facts),
        "files": {name: list(facts) for name, facts in sorted(manifest.files.items())},
    }
    with (folder / NAME).open("w", encoding="utf-8") as file:
        json.dump({**body, "sha256": _digest(body)}, file, indent=1)
        file.flush()
        os.fsync(file.fileno())


def read(folder: Path) -> Manifest | Flaw:
    """The manifest of a checkpoint, or why there is none that can be trusted."""
    try:
        body = json.loads((folder / NAME).read_bytes())
        digest = body.pop("sha256")
        if body["schema"] != SCHEMA or digest != _digest(body):
            return Flaw(folder.name, NAME, Text(N_("its content is not what was written")))
        files = {str(name): (int(size), str(found)) for name, (size, found) in body["files"].items()}
        return Manifest(step=body["step"], world_size=body["world_size"], facts=body["facts"], files=files)
    except FileNotFoundError:
        return Flaw(folder.name, NAME, Text(N_("it is missing")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Flaw(folder.name, NAME, Text(N_("its content is not what was written")))


def flaws(folder: Path, manifest: Manifest, names: Iterable[str]) -> list[Flaw]:
    """What is wrong with some of the files of a checkpoint; sizes first, since they cost nothing."""
    found = []
    for name in names:
        size, digest = manifest.files[name]
        path = folder / name
        if not path.is_file():
            found.append(Flaw(folder.name, name, Text(N_("it is missing"))))
        elif path.stat().st_size != size:
            text = Text(N_("it has {found} bytes instead of {size}"), found=path.stat().st_size, size=size)
            found.append(Flaw(folder.name, name, text))
        elif file_hash(path)[1] != digest:
            found.append(Flaw(folder.name, name, Text(N_("its content is not what was written"))))
    return found


def _digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
