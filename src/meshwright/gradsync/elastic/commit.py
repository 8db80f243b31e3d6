"""Checkpoints come into being by one rename: before it there is nothing, after it everything."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch.distributed.checkpoint import FileSystemWriter

from meshwright.gradsync.elastic import manifest
from meshwright.gradsync.elastic.manifest import Manifest

COMMITTED = "step-"
PARTIAL = ".partial"
DAMAGED = "damaged-"
SIDECAR = ".sha256"


def folder_name(step: int) -> str:
    """Name of the checkpoint after a step; names sort as steps do.

    >>> folder_name(120)
    'step-0000000120'
    """
    return f"{COMMITTED}{step:010d}"


def committed(root: Path) -> list[Path]:
    """Checkpoints of a folder, the newest first; none of them need be whole."""
    return sorted((p for p in root.glob(f"{COMMITTED}*") if p.is_dir()), reverse=True)


def set_aside(folder: Path) -> None:
    """Take a damaged checkpoint out of the list, so that no whole one is cleared away in its favour."""
    if folder.is_dir():
        folder.rename(folder.with_name(f"{DAMAGED}{folder.name}.{time.time_ns():x}"))


def remove_partial(root: Path) -> None:
    """Clear away what interrupted saves left behind."""
    for path in root.glob(f".{COMMITTED}*{PARTIAL}"):
        shutil.rmtree(path, ignore_errors=True)


class CommittingWriter(FileSystemWriter):
    """DCP's writer into a partial folder; every rank hashes its own files, the coordinator lists them and renames.

    All of it runs inside DCP's save, in its thread: a failure on any rank reaches all of them, and nothing is renamed.
    """

    def __init__(
        self, root: Path, step: int, *, attempt: str, world_size: int, facts: Mapping[str, int], keep: int
    ) -> None:
        self.root, self.step, self.world_size, self.facts, self.keep = root, step, world_size, facts, keep
        self.partial = root / f".{folder_name(step)}.{attempt}{PARTIAL}"
        super().__init__(self.partial, sync_files=True)

    def write_data(self, plan: Any, planner: Any) -> Any:
        """Write as DCP does, then note the hash of every file beside it."""
        written = super().write_data(plan, planner)
        for name in {result.storage_data.relative_path for result in written.wait()}:
            size, digest = manifest.file_hash(self.partial / name)
            (self.partial / f"{name}{SIDECAR}").write_text(f"{size} {digest}", "utf-8")
        return written

    def finish(self, metadata: Any, results: Any) -> None:
        """On the coordinator, once every rank has written: list, force to disk, rename, clear away what is too old."""
        super().finish(metadata, results)
        names = {result.storage_data.relative_path for of_rank in results for result in of_rank}
        files = {name: self._noted(name) for name in names}
        files[".metadata"] = manifest.file_hash(self.partial / ".metadata")
        listed = Manifest(step=self.step, world_size=self.world_size, facts=self.facts, files=files)
        manifest.write(self.partial, listed)
        _sync_folder(self.partial)
        self._rename()
        for old in committed(self.root)[self.keep :]:
            shutil.rmtree(old, ignore_errors=True)

    def _noted(self, name: str) -> tuple[int, str]:
        sidecar = self.partial / f"{name}{SIDECAR}"
        size, digest = sidecar.read_text("utf-8").split()
        sidecar.unlink()
        return int(size), digest

    def _rename(self) -> None:
        """Put the folder in its place; one that is there already is of the same step, and was found not whole."""
        final = self.root / folder_name(self.step)
        if final.exists():
            final.rename(self.partial.with_suffix(f".replaced{PARTIAL}"))
        self.partial.rename(final)
        _sync_folder(self.root)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
