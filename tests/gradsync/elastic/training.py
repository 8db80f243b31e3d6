"""A small model with dropout and everything a checkpoint has to carry, for tests that run on ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from meshwright import gradsync
from meshwright.gradsync import elastic

STEPS = 14


class Errors:
    """State of a hook that keeps a sum per rank: what it had seen, and how it was dealt anew."""

    def __init__(self) -> None:
        self.seen = torch.zeros(3)
        self.resharded: str | None = None

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self.seen}

    def load_state_dict(self, state: Any, reshard: str = "average") -> None:
        if isinstance(state, list):
            self.resharded = reshard
            self.seen = torch.stack([s["seen"] for s in state]).mean(0) if reshard == "average" else torch.zeros(3)
        else:
            self.seen = state["seen"].clone()


def fetch(indices: Sequence[int]) -> Any:
    """Rows made of their own index, with every third label masked."""
    rows = [torch.randn(9, generator=torch.Generator().manual_seed(i)) for i in indices]
    x = torch.stack(rows)
    mask = torch.tensor([[float((i + j) % 3 > 0) for j in range(2)] for i in indices])
    return x[:, :7], x[:, 7:], mask


def feed(**changed: Any) -> elastic.Feed[Any]:
    values: dict[str, Any] = {"size": 50, "global_batch": 24, "micro_batches": 12, "seed": 9}
    return elastic.Feed(**{**values, **changed}, fetch=fetch, count=lambda batch: float(batch[2].sum()))


def loss_sum(model: nn.Module, batch: Any) -> torch.Tensor:
    x, y, mask = batch
    return ((model(x) - y).square() * mask).sum()


def parts(kind: str = "ddp", optimizer: str = "AdamW") -> elastic.Parts:
    torch.manual_seed(0)
    net: Any = nn.Sequential(nn.Linear(7, 40), nn.Dropout(0.2), nn.Tanh(), nn.Linear(40, 2))
    errors = None
    if kind == "fsdp":
        for layer in (net[0], net[3]):
            fully_shard(layer)
        fully_shard(net)
    elif kind == "ddp":
        net = DistributedDataParallel(net, bucket_cap_mb=1e-3)
        net.register_comm_hook(None, gradsync.rank_ordered_hook)
        errors = Errors()
    rest = {"momentum": 0.9} if optimizer == "SGD" else {}
    made = getattr(torch.optim, optimizer)(net.parameters(), lr=1e-2, **rest)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(made, STEPS)
    return elastic.Parts(model=net, optimizer=made, scheduler=schedule, hook_state=errors)


def run(
    folder: str, steps: int, *, kind: str = "ddp", until: int = STEPS, every: int = 3, **more: Any
) -> list[tuple[int, float]]:
    """Train up to `steps`; step and loss of each step taken."""
    curve: list[tuple[int, float]] = []
    made = parts(kind)
    elastic.train(
        made,
        feed(**more),
        loss_sum,
        elastic.Checkpoints(folder, keep=3),
        steps=steps,
        every=every,
        max_norm=0.5,
        check_every=5 if kind == "ddp" else 0,
        on_step=lambda report: curve.append((report.step, report.loss)),
    )
    return curve
