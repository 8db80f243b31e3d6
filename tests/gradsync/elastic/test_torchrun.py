"""A real torchrun job: workers are killed, also in the middle of a save, and the curve is that of a job left alone."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.gradsync
pytest.importorskip("torch", reason="torch is not installed (extra `torch`)")

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks"))
import elastic_kills  # noqa: E402

from meshwright.gradsync import elastic  # noqa: E402

OPTIONS = [*elastic_kills.SMALL, "--every=10"]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> elastic.Curve:
    return elastic_kills.left_alone(tmp_path_factory.mktemp("alone"), [*OPTIONS, "--steps=80"], 2)


@pytest.fixture
def job(tmp_path: Path) -> Any:
    started: list[elastic_kills.Job] = []

    def start(ranks: int, restarts: int, *more: str) -> elastic_kills.Job:
        started.append(elastic_kills.Job(tmp_path, [*OPTIONS, *more], elastic_kills.standalone(ranks, restarts)))
        return started[-1]

    yield start
    for one in started:
        one.end()


def test_killed_workers_come_back_and_the_curve_is_the_same_bit_for_bit(job: Any, alone: Any, tmp_path: Path) -> None:
    running = job(2, 12, "--steps=80")
    done = list(elastic_kills.kills(running, ["saving", "training", "saving"], seed=2))
    assert running.wait(300) == 0, running.output()
    assert len(done) == 3
    for kill in done:
        assert kill.resumed >= kill.committed, "what was committed must not be lost"
        assert kill.lost_steps <= 21, "at most the period, one save under way, and the step itself"
    assert any(kill.saving for kill in done), "no kill hit a save: the test has shown nothing about it"
    curve = elastic.curve(tmp_path / "journal.jsonl")
    assert curve.loss == alone.loss
    assert curve.differing == ()
    assert curve.repeated > 0


def test_sigterm_to_the_launcher_saves_and_another_world_size_goes_on(job: Any, alone: Any, tmp_path: Path) -> None:
    """What a scheduler does that takes a node back; then three workers instead of two, with the same global batch."""
    running = job(2, 0, "--steps=80")
    elastic_kills.until("step", lambda: elastic_kills.last_step(running) > 14, running)
    running.process.send_signal(signal.SIGTERM)
    running.wait(120)
    newest = elastic_kills.committed(tmp_path / "checkpoints")
    assert newest == elastic_kills.last_step(running), "saved at the step where it stopped"
    assert job(3, 0, "--steps=80").wait(300) == 0
    starts = [entry for entry in elastic.entries(tmp_path / "journal.jsonl") if entry["kind"] == "start"]
    assert [(entry["step"], entry["world_size"]) for entry in starts] == [(0, 2), (newest, 3)]
    curve = elastic.curve(tmp_path / "journal.jsonl")
    assert curve.loss.keys() == alone.loss.keys()
    assert [curve.loss[s] for s in sorted(curve.loss)] == pytest.approx(
        [alone.loss[s] for s in sorted(alone.loss)], rel=1e-5
    )
