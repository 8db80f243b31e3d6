"""A folder of checkpoints, or a listing of one: which are whole, what is wrong with the others, where to start from."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from meshwright.errors import InputError
from meshwright.files import decode, read_bytes
from meshwright.messages import N_, Text
from meshwright.spec.resilience import CheckpointFolder, FoundCheckpoint

LARGEST = 64 * 10**6  # bytes of a listing
_SHARD = re.compile(r"^(?P<name>.*?)[-_.]?(?:shard|rank|part)[-_]?(?P<number>\d+)")
_GIVE = N_("give a folder of checkpoints, or a listing with size and name on a line")
_TEMPORARY = (".tmp", ".temp", ".partial", ".incomplete")
_LATEST = ("last", "latest")
_POINTERS = ("latest", "latest_checkpointed_iteration.txt")  # say which checkpoint is newest, and belong to none


class _File(NamedTuple):
    name: str  # with `/`
    size: int
    changed: float  # [s]; 0 where it is not known


def check(folder: str | Path | bytes) -> CheckpointFolder:
    """The checkpoints of `folder` (a path, a listing as a file, or its content), the newest first."""
    files = _listed(folder) if isinstance(folder, bytes) or not Path(folder).is_dir() else _walked(Path(folder))
    groups: dict[str, list[_File]] = {}
    for file in files:
        if file.name.rsplit("/", 1)[-1] not in _POINTERS:
            groups.setdefault(_group(file.name), []).append(file)
    if not groups:
        raise InputError(
            Text(N_("no file of a checkpoint is here")),
            where="-" if isinstance(folder, bytes) else str(folder),
            fix=Text(_GIVE),
        )
    newest = sorted(groups, key=lambda name: _age(name, groups[name]), reverse=True)
    found = tuple(
        FoundCheckpoint(name=name, files=len(groups[name]), size=sum(f.size for f in groups[name]),
                        faults=tuple(_faults(name, groups)))
        for name in newest
    )  # fmt: skip
    resume = next((c.name for c in found if c.complete), None)
    return CheckpointFolder(checkpoints=found, resume=resume, summary=_summary(found, resume))


def _walked(folder: Path) -> list[_File]:
    files = []
    for root, _, names in os.walk(folder):
        for name in names:
            path = Path(root, name)
            try:
                status = path.stat()
            except OSError:  # gone since it was listed
                continue
            files.append(_File(path.relative_to(folder).as_posix(), status.st_size, status.st_mtime))
    return files


def _listed(listing: str | Path | bytes) -> list[_File]:
    """`size name` on a line, or what `ls -l` prints."""
    where = "-" if isinstance(listing, bytes) else str(listing)
    content = listing if isinstance(listing, bytes) else read_bytes(listing, largest=LARGEST, fix=Text(_GIVE))
    files = []
    for number, line in enumerate(decode(content, where=where).splitlines(), 1):
        words = line.split()
        if not words or line.lstrip().startswith(("#", "total ", "d")):
            continue
        long = re.fullmatch(r"[-l][-rwxsStT.+@]{9,}", words[0]) and len(words) >= 9
        size, name = (words[4], words[8]) if long else (words[0], " ".join(words[1:]))
        if not size.isdigit() or not name:
            raise InputError(
                Text(N_("'{line}' is not a size and a name"), line=line.strip()[:60]),
                where=f"{where}:{number}",
                fix=Text(N_("write it like {examples}"), examples="583649007 checkpoint_1_1000-shard0.pt"),
            )
        files.append(_File(name, int(size), 0.0))
    return files


def _group(name: str) -> str:
    """The checkpoint a file belongs to: its folder, or what stands before the number of the shard."""
    if "/" in name:
        return name.rsplit("/", 1)[0].split("/")[0]
    shard = _SHARD.match(name)
    return shard["name"] if shard and shard["name"] else name.split(".")[0]


def _age(name: str, files: Sequence[_File]) -> tuple[float, float, float]:
    """For sorting: names that say so are newest, then the step in the name, then the time of the last change."""
    numbers = re.findall(r"\d+", name)
    step = float(numbers[-1]) if numbers else -1.0
    last = any(word in name.lower().replace("-", "_").split("_") for word in _LATEST)
    return (1.0 if last else 0.0, step, max(f.changed for f in files))


def _faults(name: str, groups: dict[str, list[_File]]) -> Iterable[Text]:
    files = groups[name]
    for f in files:
        if f.name.endswith(_TEMPORARY):
            yield Text(N_("{file} was not finished"), file=_short(f))
        elif f.size == 0 and not _short(f).startswith("."):
            yield Text(N_("{file} is empty"), file=_short(f))
    shards = {n: f for f in files if (n := _number(f)) is not None and not f.name.endswith(_TEMPORARY)}
    missing = [n for n in range(max(shards, default=-1) + 1) if n not in shards and 0 in shards]
    if missing:
        yield Text(N_("shards are missing: {numbers}"), numbers=", ".join(map(str, missing[:8])))
    for n, f in shards.items():
        usual = _elsewhere(name, n, groups)
        if usual and 0 < f.size < usual:
            text = N_("{file} has {size} bytes, the same shard elsewhere {usual}")
            yield Text(text, file=_short(f), size=f"{f.size:,}", usual=f"{usual:,}")
    if any(f.name.endswith(".distcp") for f in files) and not any(_short(f) == ".metadata" for f in files):
        yield Text(N_(".metadata is missing, which is written last"))


def _short(file: _File) -> str:
    return file.name.rsplit("/", 1)[-1]


def _number(file: _File) -> int | None:
    found = _SHARD.match(_short(file))
    return int(found["number"]) if found else None


def _elsewhere(name: str, number: int, groups: dict[str, list[_File]]) -> int:
    """The size that a shard has in every other checkpoint that has it; 0 where they do not agree."""
    sizes = {
        f.size
        for other, files in groups.items()
        if other != name
        for f in files
        if _number(f) == number and f.size and not f.name.endswith(_TEMPORARY)
    }
    return sizes.pop() if len(sizes) == 1 else 0


def _summary(found: Sequence[FoundCheckpoint], resume: str | None) -> Text:
    broken = sum(not c.complete for c in found)
    values = {"count": len(found), "broken": broken}
    if resume is None:
        return Text(N_("none of {count} checkpoints is complete: nothing to start from"), **values)
    if broken == 0:
        return Text(N_("start from {name}; all {count} checkpoints are complete"), name=resume, **values)
    return Text(N_("start from {name}; of {count} checkpoints {broken} are INCOMPLETE"), name=resume, **values)
