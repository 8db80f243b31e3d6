"""Checkpoints: torn or damaged ones are found, named and passed over; what was committed stays; state is complete."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.gradsync
torch = pytest.importorskip("torch", reason="torch is not installed (extra `torch`)")
import torch.distributed as dist  # noqa: E402
import training  # noqa: E402

from meshwright.gradsync import elastic  # noqa: E402
from meshwright.gradsync.elastic import commit, manifest, rng  # noqa: E402


def steps_to(folder: str, steps: int) -> list[tuple[int, float]]:
    return training.run(folder, steps)


def restored(folder: str) -> tuple[int | None, list[str]]:
    try:
        found = elastic.Checkpoints(folder).restore(training.parts(), training.feed().facts)
    except elastic.CheckpointError as error:
        return None, [str(error)]
    return (None, []) if found is None else (found.step, [str(flaw) for flaw in found.rejected])


def flip_a_byte(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.fixture(scope="module")
def two_checkpoints(ranks: Any, tmp_path_factory: Any) -> Path:
    """A run that committed after steps 3 and 6."""
    folder = tmp_path_factory.mktemp("run")
    ranks(2).run(steps_to, str(folder), 6)
    assert [p.name for p in commit.committed(folder)] == ["step-0000000006", "step-0000000003"]
    return folder


@pytest.mark.parametrize(
    ("file", "damage", "said"),
    [
        ("__0_0.distcp", flip_a_byte, "its content is not what was written"),
        ("__1_0.distcp", flip_a_byte, "its content is not what was written"),
        ("__1_0.distcp", cut_short, "bytes instead of"),
        ("__0_0.distcp", Path.unlink, "it is missing"),
        (".metadata", flip_a_byte, "its content is not what was written"),
        ("manifest.json", flip_a_byte, "its content is not what was written"),
        ("manifest.json", cut_short, "its content is not what was written"),
        ("manifest.json", Path.unlink, "it is missing"),
    ],
)
def test_damage_is_found_named_and_passed_over(
    ranks: Any, two_checkpoints: Path, tmp_path: Path, file: str, damage: Any, said: str
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(two_checkpoints, folder)
    damage(folder / "step-0000000006" / file)
    for step, flaws in ranks(2).run(restored, str(folder)):
        assert step == 3
        assert len(flaws) == 1
        assert flaws[0].startswith(f"step-0000000006/{file}: ")
        assert said in flaws[0]
    assert [p.name for p in commit.committed(folder)] == ["step-0000000003"]
    assert any(p.name.startswith("damaged-step-0000000006") for p in folder.iterdir()), "kept for who wants to look"


def test_a_manifest_with_another_content_and_a_right_look_is_refused(
    ranks: Any, two_checkpoints: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(two_checkpoints, folder)
    path = folder / "step-0000000006" / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "step": 600}))
    assert ranks(2).run(restored, str(folder))[0][0] == 3


def test_when_all_are_damaged_it_stops_and_names_each(ranks: Any, two_checkpoints: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(two_checkpoints, folder)
    for name in ("step-0000000003", "step-0000000006"):
        cut_short(folder / name / "__0_0.distcp")
    for step, messages in ranks(2).run(restored, str(folder)):
        assert step is None
        assert "step-0000000003/__0_0.distcp" in messages[0]
        assert "step-0000000006/__0_0.distcp" in messages[0]


def test_a_partial_folder_is_no_checkpoint_and_is_cleared_away(
    ranks: Any, two_checkpoints: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(two_checkpoints, folder)
    shutil.copytree(folder / "step-0000000006", folder / ".step-0000000009.abc.partial")
    assert ranks(2).run(restored, str(folder)) == [(6, [])] * 2
    assert not list(folder.glob(".step*"))


def test_nothing_saved_is_nothing_to_go_on_from(ranks: Any, tmp_path: Path) -> None:
    assert ranks(2).run(restored, str(tmp_path / "empty")) == [(None, [])] * 2


def snapshot(folder: str) -> tuple[bool, bool, float]:
    """Training goes on while a slow disk writes: what lands is the state at the save."""
    write = commit.CommittingWriter.write_data
    gate = threading.Event()

    def slow(self: Any, plan: Any, planner: Any) -> Any:
        gate.wait(30)
        return write(self, plan, planner)

    commit.CommittingWriter.write_data = slow  # type: ignore[method-assign]
    try:
        made, checkpoints = training.parts(), elastic.Checkpoints(folder)
        assert made.hook_state is not None
        made.hook_state.seen += 1  # type: ignore[attr-defined]
        before = [p.detach().clone() for p in made.model.parameters()]
        stalled = checkpoints.save(1, made, training.feed().facts)
        with torch.no_grad():
            for p in made.model.parameters():
                p.zero_()
        made.hook_state.seen += 1  # type: ignore[attr-defined]
        early = Path(folder, "step-0000000001").exists()
        gate.set()
        checkpoints.wait()
        loaded = training.parts()
        elastic.Checkpoints(folder).restore(loaded, training.feed().facts)
    finally:
        commit.CommittingWriter.write_data = write  # type: ignore[method-assign]
    assert stalled < 20
    same = all(torch.equal(a, b) for a, b in zip(before, loaded.model.parameters(), strict=True))
    return early, same, float(loaded.hook_state.seen[0])  # type: ignore[union-attr]


def test_what_is_saved_is_the_state_at_the_save_not_at_the_write(ranks: Any, tmp_path: Path) -> None:
    assert ranks(2).run(snapshot, str(tmp_path / "run")) == [(False, True, 1.0)] * 2


def hook_states(folder: str, reshard: str, save: bool) -> tuple[list[float], str | None]:
    made = training.parts()
    checkpoints = elastic.Checkpoints(folder)
    if save:
        made.hook_state.seen += dist.get_rank() + 1.0  # type: ignore[union-attr]
        checkpoints.save(1, made, training.feed().facts)
        checkpoints.wait()
    else:
        checkpoints.restore(made, training.feed().facts, reshard=reshard)  # type: ignore[arg-type]
    return made.hook_state.seen.tolist(), made.hook_state.resharded  # type: ignore[union-attr]


def test_each_rank_gets_its_own_hook_state_back_or_all_of_them(ranks: Any, tmp_path: Path) -> None:
    folder = str(tmp_path / "run")
    saved = ranks(4).run(hook_states, folder, "average", True)
    assert ranks(4).run(hook_states, folder, "average", False) == saved
    assert ranks(2).run(hook_states, folder, "average", False) == [([2.5] * 3, "average")] * 2
    assert ranks(3).run(hook_states, folder, "zero", False) == [([0.0] * 3, "zero")] * 3


def generators(folder: str, save: bool) -> list[float]:
    """Numbers drawn after a save, and after a restore."""
    import random

    import numpy

    made, checkpoints = training.parts(), elastic.Checkpoints(folder)
    rng.seed_everything(100 + dist.get_rank())
    if save:
        checkpoints.save(1, made, training.feed().facts)
        checkpoints.wait()
        rng.restore(rng.capture())
    else:
        torch.rand(7), random.random(), numpy.random.rand()
        checkpoints.restore(made, training.feed().facts)
    return [float(torch.rand(())), random.random(), float(numpy.random.rand())]


def test_random_generators_come_back_on_their_own_rank(ranks: Any, tmp_path: Path) -> None:
    folder = str(tmp_path / "run")
    after_save = ranks(2).run(generators, folder, True)
    assert ranks(2).run(generators, folder, False) == after_save
    assert after_save[0] != after_save[1]


def unwritable(folder: str) -> str:
    """The disk of rank 1 fails while it writes."""
    write = commit.CommittingWriter.write_data

    def failing(self: Any, plan: Any, planner: Any) -> Any:
        if dist.get_rank() == 1:
            raise OSError("No space left on device")
        return write(self, plan, planner)

    commit.CommittingWriter.write_data = failing  # type: ignore[method-assign]
    try:
        checkpoints = elastic.Checkpoints(folder)
        checkpoints.save(9, training.parts(), training.feed().facts)
        checkpoints.wait()
    except elastic.CheckpointError as error:
        return str(error)
    finally:
        commit.CommittingWriter.write_data = write  # type: ignore[method-assign]
    return ""


def test_a_failed_write_is_told_on_all_ranks_with_the_rank_and_commits_nothing(
    ranks: Any, two_checkpoints: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(two_checkpoints, folder)
    for message in ranks(3).run(unwritable, str(folder)):
        assert message.startswith("rank 1 could not write ")
        assert "step-0000000009" in message
        assert "No space left on device" in message
    assert [p.name for p in commit.committed(folder)] == ["step-0000000006", "step-0000000003"]
    assert ranks(2).run(restored, str(folder)) == [(6, [])] * 2


def other_model(folder: str) -> str:
    made = training.parts()
    made.model = torch.nn.Linear(3, 3)
    made.optimizer = torch.optim.AdamW(made.model.parameters())
    try:
        elastic.Checkpoints(folder).restore(made, training.feed().facts)
    except elastic.CheckpointError as error:
        return str(error)
    return ""


def test_another_model_is_refused(ranks: Any, two_checkpoints: Path) -> None:
    for message in ranks(2).run(other_model, str(two_checkpoints)):
        assert message.startswith("rank 0 could not load ")
        assert message.endswith("Missing key in checkpoint state_dict: model.weight.")


def test_old_checkpoints_go_when_a_new_one_is_committed(ranks: Any, tmp_path: Path) -> None:
    ranks(2).run(steps_to, str(tmp_path), 14)  # every 3 and at the end, keep 3
    names = [p.name for p in commit.committed(tmp_path)]
    assert names == [f"step-{step:010d}" for step in (14, 12, 9)]


def test_a_journal_cut_short_by_a_kill_is_read(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    first = elastic.Journal(path)
    for step in (1, 2, 3):
        first.note("step", step=step, loss=0.1 * step)
    path.write_bytes(path.read_bytes()[:-9])
    second = elastic.Journal(path)
    second.note("step", step=2, loss=0.2)
    second.note("step", step=3, loss=0.1 * 3)
    second.note("step", step=3, loss=0.5)
    curve = elastic.curve(path)
    assert curve.loss == {1: 0.1, 2: 0.2, 3: 0.1 * 3}
    assert (curve.repeated, curve.differing) == (2, (3,))


def test_hashes_are_sha256(tmp_path: Path) -> None:
    """The digest of `abc` in FIPS 180-2."""
    (tmp_path / "abc").write_bytes(b"abc")
    expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert manifest.file_hash(tmp_path / "abc") == (3, expected)
