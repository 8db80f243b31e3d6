"""The elastic training loop: the step it is at decides everything, so it can stop and go on anywhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import nn

from meshwright.gradsync.accumulate import accumulate
from meshwright.gradsync.clipping import clip_grad_norm_
from meshwright.gradsync.drift import check_replicas
from meshwright.gradsync.elastic.checkpoint import Checkpoints, Restored
from meshwright.gradsync.elastic.feed import Feed
from meshwright.gradsync.elastic.order import derived_seed
from meshwright.gradsync.elastic.rng import seed_everything
from meshwright.gradsync.elastic.signals import Signals
from meshwright.gradsync.elastic.state import Parts, Reshard
from meshwright.gradsync.group import Group, gathered, rank_in, world_size

T = TypeVar("T")
STOPPED = 75  # EX_TEMPFAIL: not finished, run me again


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """One optimizer step: the same on every rank."""

    step: int  # steps taken, this one included
    loss: float  # mean over all tokens of the global batch
    tokens: float
    grad_norm: float | None
    world_size: int
    seconds: float
    stalled: float  # seconds in which a save kept training waiting, after this step


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a run left the loop; exit with `exit_code`, which tells the launcher whether to start it again."""

    step: int
    finished: bool
    restored: Restored | None

    @property
    def exit_code(self) -> int:
        """0 when done, 75 when stopped by a signal before the end."""
        return 0 if self.finished else STOPPED


def train(
    parts: Parts,
    feed: Feed[T],
    loss_sum: Callable[[nn.Module, T], torch.Tensor],
    checkpoints: Checkpoints,
    *,
    steps: int,
    every: int = 100,
    max_norm: float | None = None,
    check_every: int = 0,
    reshard: Reshard = "average",
    group: Group = None,
    on_start: Callable[[Restored | None], None] = lambda restored: None,
    on_step: Callable[[StepReport], None] = lambda report: None,
    grace: float = 5.0,
) -> Outcome:
    """Train until `steps`, from the newest whole checkpoint on; save every `every` steps and when a signal asks.

    `loss_sum` returns the sum (not the mean) of the losses of a micro-batch's tokens. Randomness is seeded anew for
    each micro-batch from (seed, step, micro-batch), so dropout does not depend on who computes it. `check_every`
    compares replicas bit by bit that often. At one world size the bits of a resumed run are those of one that never
    stopped, if the reduction adds in an order of its own: `rank_ordered_hook` does, DDP's does for two ranks.
    """
    with Signals() as signals:
        restored = checkpoints.restore(parts, feed.facts, reshard=reshard)
        on_start(restored)
        step = saved = restored.step if restored else 0
        while step < steps:
            begin = time.perf_counter()
            window, counts = feed.window(step, rank_in(group), world_size(group))
            tokens, save, stop = _agreed(counts, signals, group)
            if save and saved < step:
                checkpoints.save(step, parts, feed.facts)
                saved = step
            if stop:
                checkpoints.wait()
                signals.wait_for_stop(grace)
                return Outcome(step=step, finished=False, restored=restored)
            loss, norm = _step(parts, feed.seed, loss_sum, step, window, counts, tokens, max_norm, group)
            step += 1
            if check_every and step % check_every == 0:
                check_replicas(parts.model, group)
            stalled = 0.0
            if step % every == 0 or step == steps:
                stalled, saved = checkpoints.save(step, parts, feed.facts), step
            on_step(
                StepReport(
                    step=step,
                    loss=loss,
                    tokens=tokens,
                    grad_norm=norm,
                    world_size=world_size(group),
                    seconds=time.perf_counter() - begin,
                    stalled=stalled,
                )
            )
        checkpoints.wait()
        return Outcome(step=step, finished=True, restored=restored)


def _agreed(counts: list[float], signals: Signals, group: Group) -> tuple[float, bool, bool]:
    """Tokens of the step over all ranks, and whether any rank was asked to save or to stop: one small message."""
    table = gathered([sum(counts), signals.save, signals.stop], group)
    save, stop = (any(row[i] for row in table) for i in (1, 2))
    if save:
        signals.save = False
    return sum(row[0] for row in table), save, stop


def _step(
    parts: Parts,
    seed: int,
    loss_sum: Callable[[nn.Module, T], torch.Tensor],
    step: int,
    window: list[tuple[int, T]],
    counts: list[float],
    tokens: float,
    max_norm: float | None,
    group: Group,
) -> tuple[float, float | None]:
    """One optimizer step; the loss over the global batch and the norm before clipping."""
    losses: list[Any] = []
    parts.optimizer.zero_grad(set_to_none=True)
    for micro in accumulate(parts.model, window, counts, n_global=tokens, group=group):
        number, data = micro.data
        seed_everything(derived_seed(seed, step, number))
        loss = loss_sum(parts.model, data)
        micro.scaled(loss).backward()
        if counts[micro.index]:
            losses.append(loss.detach())
    norm = None if max_norm is None else float(clip_grad_norm_(parts.model, max_norm))
    parts.optimizer.step()
    if parts.scheduler is not None:
        parts.scheduler.step()  # type: ignore[attr-defined]
    total = float(torch.stack(losses).double().sum()) if losses else 0.0
    return sum(row[0] for row in gathered([total], group)) / max(tokens, 1), norm
