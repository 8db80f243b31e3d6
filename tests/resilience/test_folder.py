"""Folders of checkpoints that a kill has torn: the report of a real one, and real files on this disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from meshwright.errors import InputError
from meshwright.resilience.folder import check


def test_the_listing_of_a_real_torn_save(shared: Path) -> None:
    """Case E02: empty shards and a .tmp after a kill; the checkpoint before it is whole."""
    found = check(shared / "cases/inputs/E02_listing.txt")
    assert found.resume == "checkpoint_1_1000"
    assert [c.name for c in found.checkpoints] == ["checkpoint_last", "checkpoint_1_1000"]
    torn = " ".join(str(fault) for fault in found.checkpoints[0].faults)
    assert "shard1.pt is empty" in torn and "shard2.pt.tmp was not finished" in torn and "missing: 2" in torn
    assert "INCOMPLETE" in str(found.summary)


def write(folder: Path, files: dict[str, int], when: float = 0.0) -> None:
    for name, size in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * size)
        os.utime(path, (when, when))


def test_folders_of_torch_distributed_checkpoint(tmp_path: Path) -> None:
    """Metadata is written last: without it the newest step is not whole."""
    shards = {f"__{rank}_0.distcp": 1000 for rank in range(4)}
    write(tmp_path, {f"step-100/{n}": s for n, s in shards.items()} | {"step-100/.metadata": 50})
    write(tmp_path, {f"step-200/{n}": s for n, s in shards.items()})
    found = check(tmp_path)
    assert [c.name for c in found.checkpoints] == ["step-200", "step-100"] and found.resume == "step-100"
    assert ".metadata is missing" in str(found.checkpoints[0].faults[0])


def test_a_shard_cut_short_is_named_with_its_sizes(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        write(tmp_path, {f"iter_{step}/model-rank{r}.pt": 400 if (step, r) != (3, 1) else 123 for r in range(3)})
    found = check(tmp_path)
    assert found.resume == "iter_2"
    assert "model-rank1.pt has 123 bytes, the same shard elsewhere 400" in str(found.checkpoints[0].faults[0])


def test_pointers_to_the_newest_are_no_checkpoint(tmp_path: Path) -> None:
    write(tmp_path, {"global_step10/mp_rank_00_model_states.pt": 10, "latest": 13})
    found = check(tmp_path)
    assert [c.name for c in found.checkpoints] == ["global_step10"] and found.resume == "global_step10"


def test_what_ls_prints_is_read() -> None:
    listing = b"""total 24
-rw-r--r-- 1 user group 583649007 Nov 30 12:00 a_10-shard0.pt
-rw-r--r-- 1 user group 0 Nov 30 12:00 a_20-shard0.pt
drwxr-xr-x 2 user group 4096 Nov 30 12:00 other
"""
    found = check(listing)
    assert found.resume == "a_10" and found.checkpoints[0].name == "a_20"


def test_nothing_whole_is_an_answer_and_nothing_at_all_an_error(tmp_path: Path) -> None:
    assert check(b"0 x-shard0.pt\n").resume is None
    with pytest.raises(InputError, match="no file of a checkpoint"):
        check(tmp_path)
    with pytest.raises(InputError, match="not a size and a name"):
        check(b"hello there\n")
    with pytest.raises(InputError, match="cannot read"):
        check(tmp_path / "absent")
