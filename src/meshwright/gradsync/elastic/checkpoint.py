"""Save while training goes on; find the newest whole checkpoint; load it on any number of ranks."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException

from meshwright.errors import InputError, MeshwrightError
from meshwright.gradsync.elastic import commit, manifest, state
from meshwright.gradsync.elastic.manifest import Flaw, Manifest
from meshwright.gradsync.elastic.state import Parts, Reshard
from meshwright.gradsync.group import Group, gathered_objects, my_rank, rank_in, world_size
from meshwright.messages import N_, Text

_FAILURES = (Exception, CheckpointException)  # DCP's own is no Exception


class CheckpointError(MeshwrightError):
    """A checkpoint could not be written, or none that is there is whole."""

    code = "checkpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What a run goes on from, and what was passed over because it was not whole."""

    step: int
    world_size: int
    path: Path
    rejected: tuple[Flaw, ...]


class Checkpoints:
    """A folder that all ranks see; make it on all ranks together, after `init_process_group`.

    `keep` whole checkpoints stay; older ones go when a new one is committed. One save is under way at a time: a
    further one first waits for it.
    """

    def __init__(self, root: str | Path, *, keep: int = 2, group: Group = None) -> None:
        if keep < 1:
            raise InputError(
                Text(N_("keeping {keep} checkpoints keeps none"), keep=keep),
                where="keep",
                fix=Text(N_("keep 2, so that one remains when the newest turns out damaged")),
            )
        self.root = Path(root)
        self.keep = keep
        self.group = group
        # Saving runs in a thread beside the training, so its collectives need a group of their own.
        self._side = dist.new_group(_members(group), backend="gloo") if dist.is_initialized() else None
        self._attempt = gathered_objects(uuid.uuid4().hex[:8], self._side)[0]
        self._under_way: Any = None
        self._path = self.root

    def save(self, step: int, parts: Parts, facts: Mapping[str, int]) -> float:
        """Copy the state and start writing it; returns the seconds that training stood still."""
        begin = time.perf_counter()
        self.wait()
        self.root.mkdir(parents=True, exist_ok=True)
        writer = commit.CommittingWriter(
            self.root,
            step,
            attempt=self._attempt,
            world_size=world_size(self.group),
            facts=facts,
            keep=self.keep,
        )
        self._path = self.root / commit.folder_name(step)
        self._under_way = dcp.async_save(
            state.to_save(parts, rank_in(self.group)),
            storage_writer=writer,
            process_group=self._side,
            no_dist=self._side is None,
        )
        return time.perf_counter() - begin

    def wait(self) -> None:
        """Block until the save under way is committed."""
        if self._under_way is None:
            return
        under_way, self._under_way = self._under_way, None
        try:
            under_way.result()
        except _FAILURES as error:
            rank, reason = _first_failure(error)
            raise CheckpointError(
                Text(
                    N_("rank {rank} could not write {path}: {reason}"), rank=rank, path=str(self._path), reason=reason
                ),
                where=str(self._path),
                fix=Text(N_("check space and rights of that folder; the last whole checkpoint is untouched")),
            ) from error

    def restore(self, parts: Parts, facts: Mapping[str, int], *, reshard: Reshard = "average") -> Restored | None:
        """Load the newest whole checkpoint into `parts`; None where nothing was ever committed.

        Every rank hashes its share of the files. What is damaged is passed over, reported and renamed to `damaged-…`;
        where all are, the run stops rather than begin anew.
        """
        if rank_in(self.group) == 0:
            commit.remove_partial(self.root)
        rejected: list[Flaw] = []
        for name in self._names():
            listed, flaws = self._examined(self.root / name)
            rejected += flaws
            if listed is None or flaws:
                continue
            _refuse_another_run(listed, facts, self.root / name)
            self._load(self.root / name, listed, parts, reshard)
            if rank_in(self.group) == 0:
                for damaged in {flaw.checkpoint for flaw in rejected}:
                    commit.set_aside(self.root / damaged)
            return Restored(
                step=listed.step, world_size=listed.world_size, path=self.root / name, rejected=tuple(rejected)
            )
        if rejected:
            raise CheckpointError(
                Text(N_("no checkpoint is whole: {flaws}"), flaws="; ".join(map(str, rejected))),
                where=str(self.root),
                fix=Text(N_("bring back a copy, or name an empty folder to begin anew")),
            )
        return None

    def _names(self) -> Sequence[str]:
        """Committed checkpoints, the newest first, as the first rank sees them."""
        return gathered_objects([p.name for p in commit.committed(self.root)], self._side)[0]

    def _examined(self, folder: Path) -> tuple[Manifest | None, list[Flaw]]:
        """The manifest and what is wrong, the same on all ranks: the first reads it, each hashes its share of files."""
        listed = gathered_objects(manifest.read(folder) if rank_in(self.group) == 0 else None, self._side)[0]
        if isinstance(listed, Flaw):
            return None, [listed]
        mine = sorted(listed.files)[rank_in(self.group) :: world_size(self.group)]
        found = gathered_objects(manifest.flaws(folder, listed, mine), self._side)
        return listed, [flaw for of_rank in found for flaw in of_rank]

    def _load(self, folder: Path, listed: Manifest, parts: Parts, reshard: Reshard) -> None:
        rank, now = rank_in(self.group), world_size(self.group)
        reader = dcp.FileSystemReader(folder)
        sizes = reader.read_metadata().state_dict_metadata
        wanted = [state.SHARED]
        wanted += [f"{state.OF_RANK}/{r}" for r in state.ranks_to_read(parts, rank, listed.world_size, now)]
        loaded = state.tensors(parts)
        for key in wanted:
            loaded[key] = torch.empty(sizes[key].size, dtype=torch.uint8)
        try:
            dcp.load(loaded, storage_reader=reader, process_group=self._side, no_dist=self._side is None)
        except _FAILURES as error:
            failed, reason = _first_failure(error)
            raise CheckpointError(
                Text(N_("rank {rank} could not load {path}: {reason}"), rank=failed, path=str(folder), reason=reason),
                where=str(folder),
                fix=Text(N_("build the model and the optimizer as they were when it was saved")),
            ) from error
        state.put_back(parts, loaded, rank, before=listed.world_size, now=now, reshard=reshard)


def _members(group: Group) -> list[int] | None:
    return None if group is None else dist.get_process_group_ranks(group)


def _first_failure(error: BaseException) -> tuple[int, str]:
    """The lowest rank that failed, as DCP collected it, and the first line that says why."""
    failures = getattr(error, "failures", None) or {my_rank(): error}
    rank, cause = min(failures.items(), key=lambda item: item[0])
    cause = cause[0] if isinstance(cause, tuple) else cause
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    return rank, (lines[0] if lines else type(cause).__name__)[:300]


def _refuse_another_run(listed: Manifest, facts: Mapping[str, int], path: Path) -> None:
    other = [name for name in facts if listed.facts.get(name) != facts[name]]
    if other:
        name = other[0]
        raise InputError(
            Text(
                N_("{path} was trained with {name} = {before}, this run says {now}"),
                path=str(path),
                name=name,
                before=str(listed.facts.get(name)),
                now=str(facts[name]),
            ),
            where=name,
            fix=Text(N_("give the same value, or name another folder to begin a run of its own")),
        )
