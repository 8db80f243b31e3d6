"""Error feedback lives through a restart: real compressing hooks, resumed bit for bit, averaged over fewer ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.gradsync
torch = pytest.importorskip("torch", reason="torch is not installed (extra `torch`)")
pytest.importorskip("meshwright.gradsync.hooks", reason="no communication hooks in this tree")
import training  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from meshwright.gradsync import elastic  # noqa: E402

STEPS = training.STEPS


def parts(kind: str) -> elastic.Parts:
    from meshwright.gradsync.hooks import int8, powersgd, topk
    from meshwright.gradsync.registration import register_comm_hook

    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(7, 40), nn.Dropout(0.2), nn.Tanh(), nn.Linear(40, 2))
    ddp = DistributedDataParallel(net, bucket_cap_mb=1e-3)
    state, hook = {
        "int8": lambda: (int8.Int8State(), int8.int8_blockwise_hook),
        "topk": lambda: (topk.TopKState(ratio=0.05), topk.topk_hook),
        "powersgd": lambda: (powersgd.PowerSGDState(), powersgd.powersgd_hook),
    }[kind]()
    register_comm_hook(ddp, state, hook)
    optimizer = torch.optim.AdamW(ddp.parameters(), 1e-2)
    return elastic.Parts(model=ddp, optimizer=optimizer, hook_state=state)


def losses(folder: str, steps: int, kind: str) -> list[float]:
    curve: list[float] = []
    elastic.train(
        parts(kind),
        training.feed(),
        training.loss_sum,
        elastic.Checkpoints(folder),
        steps=steps,
        every=3,
        max_norm=0.5,
        on_step=lambda report: curve.append(report.loss),
    )
    return curve


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["int8", "topk", "powersgd"])
def test_residuals_come_back_on_their_rank_and_are_averaged_over_fewer(ranks: Any, tmp_path: Path, kind: str) -> None:
    whole = ranks(3).run(losses, str(tmp_path / "whole"), STEPS, kind)[0]
    folder = str(tmp_path / "cut")
    cut = ranks(3).run(losses, folder, 5, kind)[0] + ranks(3).run(losses, folder, STEPS, kind)[0]
    assert cut == whole
    folder = str(tmp_path / "fewer")
    fewer = ranks(3).run(losses, folder, 5, kind)[0] + ranks(2).run(losses, folder, STEPS, kind)[0]
    assert fewer == pytest.approx(whole, rel=0.02)
