"""Stop anywhere, go on: the same bits on as many ranks, the same curve within rounding on fewer or more."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.gradsync
torch = pytest.importorskip("torch", reason="torch is not installed (extra `torch`)")
import torch.distributed as dist  # noqa: E402
import training  # noqa: E402

from meshwright.errors import InputError  # noqa: E402
from meshwright.gradsync import elastic  # noqa: E402

STEPS = training.STEPS


def losses(folder: str, steps: int, kind: str) -> list[tuple[int, float]]:
    return training.run(folder, steps, kind=kind)


@pytest.mark.parametrize(("size", "kind"), [(2, "ddp"), (3, "ddp"), (4, "ddp"), (2, "fsdp"), (3, "fsdp")])
def test_a_resumed_run_has_the_bits_of_one_that_never_stopped(ranks: Any, tmp_path: Path, size: int, kind: str) -> None:
    whole = ranks(size).run(losses, str(tmp_path / "whole"), STEPS, kind)
    assert all(curve == whole[0] for curve in whole)
    cut = ranks(size).run(losses, str(tmp_path / "cut"), 5, kind)[0]
    rest = ranks(size).run(losses, str(tmp_path / "cut"), STEPS, kind)[0]
    assert cut + rest == whole[0]
    assert whole[0][-1][1] < whole[0][0][1], "it must learn something"


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_four_three_four_ranks_give_the_curve_of_four(ranks: Any, tmp_path: Path, kind: str) -> None:
    whole = ranks(4).run(losses, str(tmp_path / "whole"), STEPS, kind)[0]
    folder = str(tmp_path / "changing")
    parts = [(4, 5), (3, 10), (4, STEPS)]
    changing = [loss for size, steps in parts for loss in ranks(size).run(losses, folder, steps, kind)[0]]
    assert [step for step, _ in changing] == [step for step, _ in whole]
    assert [loss for _, loss in changing] == pytest.approx([loss for _, loss in whole], rel=1e-5)


def test_seven_of_twelve_and_more_ranks_than_micro_batches(ranks: Any, tmp_path: Path) -> None:
    """Ranks that do not divide the micro-batches: some repeat one without weight."""
    whole = ranks(2).run(few, str(tmp_path / "two"))[0]
    assert ranks(4).run(few, str(tmp_path / "four"))[0] == pytest.approx(whole, rel=1e-5)


def few(folder: str) -> list[float]:
    return [loss for _, loss in training.run(folder, 4, micro_batches=3, global_batch=6)]


def signalled(folder: str, who: int, what: int) -> tuple[int, bool, int, list[str]]:
    """One rank is sent a signal in the middle of step 4."""
    taken: list[int] = []
    sent: list[int] = []

    def loss_sum(model: Any, batch: Any) -> Any:
        if dist.get_rank() == who and len(taken) == 3 and not sent:
            sent.append(what)
            os.kill(os.getpid(), what)
        return training.loss_sum(model, batch)

    before = signal.getsignal(what)
    outcome = elastic.train(
        training.parts(),
        training.feed(),
        loss_sum,
        elastic.Checkpoints(folder),
        steps=8,
        every=100,
        on_step=lambda report: taken.append(report.step),
        grace=0.1,
    )
    assert signal.getsignal(what) == before
    return outcome.step, outcome.finished, outcome.exit_code, sorted(p.name for p in Path(folder).iterdir())


def test_sigusr1_to_one_rank_makes_all_save_at_the_same_step_and_go_on(ranks: Any, tmp_path: Path) -> None:
    found = ranks(3).run(signalled, str(tmp_path / "save"), 1, int(signal.SIGUSR1))
    assert found == [(8, True, 0, ["step-0000000004", "step-0000000008"])] * 3


def test_sigterm_to_one_rank_saves_and_stops_all_and_asks_to_be_run_again(ranks: Any, tmp_path: Path) -> None:
    folder = str(tmp_path / "stop")
    found = ranks(3).run(signalled, folder, 2, int(signal.SIGTERM))
    assert found == [(4, False, 75, ["step-0000000004"])] * 3
    assert ranks(3).run(losses, folder, STEPS, "ddp")[0][0][0] == 5


def another_run(folder: str) -> str:
    try:
        training.run(folder, 4, global_batch=48)
    except InputError as error:
        return str(error)
    return ""


def test_another_global_batch_or_seed_is_refused_by_name(ranks: Any, tmp_path: Path) -> None:
    folder = str(tmp_path / "run")
    ranks(2).run(losses, folder, 3, "ddp")
    for message in ranks(2).run(another_run, folder):
        assert message.endswith("was trained with global_batch = 24, this run says 48")


def test_alone_without_a_process_group(tmp_path: Path) -> None:
    whole = training.run(str(tmp_path / "whole"), 6, kind="plain")
    cut = training.run(str(tmp_path / "cut"), 4, kind="plain") + training.run(str(tmp_path / "cut"), 6, kind="plain")
    assert cut == whole
