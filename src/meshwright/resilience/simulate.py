"""Runs played failure by failure, many at once: what the closed forms must agree with, and how runs spread.

A run walks along a timeline of work and stalls that would be its wall time without failures. A failure undoes what is
not safe yet and puts it back on that line; a restart follows, which may fail too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from meshwright.spec.resilience import BUCKETS, Policy

Floats = npt.NDArray[np.float64]
SEED = 20240731
MOST_EVENTS = 200_000  # failures of one run; a run that needs more is not worth starting


@dataclass(frozen=True, slots=True)
class Runs:
    """Seconds of every run: whole, by bucket, and whether it reached its end."""

    wall: Floats
    buckets: dict[str, Floats]
    done: npt.NDArray[np.bool_]

    @property
    def useful(self) -> Floats:
        """Productive share of each run."""
        return self.buckets["productive"] / self.wall


@dataclass(frozen=True, slots=True)
class _Line:
    """The timeline of a policy: `segments` of work and stall, then the stall of storage."""

    policy: Policy

    @property
    def segment(self) -> float:
        return self.policy.interval + self.policy.stall

    @property
    def period(self) -> float:
        return self.policy.segments * self.segment + self.policy.storage_stall

    def work(self, at: Floats) -> Floats:
        """Work done up to a place on the line."""
        p = self.policy
        whole = np.floor(at / self.period)
        rest = at - whole * self.period
        done = np.minimum(np.floor(rest / self.segment), p.segments - 1)
        return whole * p.period + done * p.interval + np.minimum(rest - done * self.segment, p.interval)

    def place(self, work: float) -> float:
        """Where so much work is done."""
        p = self.policy
        whole = np.ceil(work / p.period) - 1 if work > 0 else 0.0
        rest = work - whole * p.period
        done = max(np.ceil(rest / p.interval) - 1, 0.0)
        return float(whole * self.period + done * self.segment + rest - done * p.interval)

    def stored(self, at: Floats) -> Floats:
        """The last save to storage that is safe."""
        return np.floor(np.maximum(at - self.policy.persist, 0) / self.period) * self.period

    def saved(self, at: Floats) -> Floats:
        """The last save to either tier that is safe in its own."""
        safe = np.maximum(at - self.policy.quick_persist, 0)
        whole = np.floor(safe / self.period) * self.period
        done = np.minimum(np.floor((safe - whole) / self.segment), self.policy.segments - 1)
        return whole + done * self.segment


def simulate(
    policy: Policy, mtti: Any, *, work: float | None = None, horizon: float | None = None, trials: int = 200,
    slowdown: float = 0.0, seed: int = SEED,
) -> Runs:  # fmt: skip
    """`trials` runs of so much undisturbed `work`, or for so much wall time (`horizon`), in seconds.

    `mtti` may be a column with a mean time to interrupt for each run.
    """
    rng = np.random.default_rng(seed)
    mean = np.broadcast_to(np.asarray(mtti, float), (trials,))
    if policy.mode == "replicas":
        runs = _replicas(policy, mean, work, horizon, rng)
    else:
        runs = _saved(policy, mean, work, horizon, rng)
    slow = runs.buckets["productive"] * slowdown / (1 + slowdown)
    runs.buckets["slow_nodes"] = slow
    runs.buckets["productive"] = runs.buckets["productive"] - slow
    return runs


def _saved(policy: Policy, mean: Floats, work: float | None, horizon: float | None, rng: np.random.Generator) -> Runs:
    line = _Line(policy)
    n = len(mean)
    restarts = np.array([0.0, policy.quick.total, policy.full.total])
    stages = _stage_ends(policy)
    end = np.inf if work is None else line.place(work)
    left = np.full(n, np.inf if horizon is None else float(horizon))
    at, walked, wall, quick_safe, full_safe = (np.zeros(n) for _ in range(5))
    spent = np.zeros((3, n))
    kind = np.zeros(n, dtype=np.int64)  # what the run restarts from: nothing, the quick tier, storage
    going = np.ones(n, dtype=np.bool_)
    for _ in range(MOST_EVENTS):
        restart = restarts[kind]
        last = np.minimum(restart + end - at, left)  # to the end of the run, if nothing fails
        until = rng.exponential(size=n) * mean
        ends = until >= last
        step = np.where(going, np.minimum(until, last), 0.0)
        down = np.minimum(step, restart)
        up = step - down
        for stage in range(3):
            first, second = stages[stage][kind], stages[stage + 1][kind]
            spent[stage] += np.clip(down - first, 0.0, second - first)
        wall += step
        left -= step
        walked += up
        at = at + up
        going &= ~ends
        if not going.any():
            break
        hard = (rng.random(n) < policy.hard) | ((kind == 2) & (up <= 0))
        full_safe = np.where(going, np.maximum(full_safe, line.stored(at)), full_safe)
        quick_safe = np.where(going, np.maximum(np.maximum(quick_safe, line.saved(at)), full_safe), quick_safe)
        quick_safe = np.where(going & hard, full_safe, quick_safe)
        at = np.where(going, np.where(hard, full_safe, quick_safe), at)
        kind = np.where(going, np.where(hard, 2, 1), kind)
    productive = line.work(at)
    buckets = dict.fromkeys(BUCKETS, np.zeros(n)) | {
        "productive": productive, "checkpoint": at - productive, "lost_work": walked - at,
        "detection": spent[0], "waiting": spent[1], "restart": spent[2],
    }  # fmt: skip
    return Runs(wall, buckets, ~going)


def _stage_ends(policy: Policy) -> list[Floats]:
    """Ends of detection, waiting and restart, by what is restarted from."""
    ends = [np.zeros(3)]
    for name in ("detect", "wait"):
        ends.append(ends[-1] + np.array([0.0, getattr(policy.quick, name), getattr(policy.full, name)]))
    return [*ends, np.array([0.0, policy.quick.total, policy.full.total])]


def _replicas(
    policy: Policy, mean: Floats, work: float | None, horizon: float | None, rng: np.random.Generator
) -> Runs:
    """Groups that leave and come back, and now and then a failure of all of them.

    A failure of a group that is away makes it stay away anew. Saves stop the run for a share of the time that follows
    from their interval; what is not safe yet is undone when all groups fail. The last stretch of a run is taken at its
    mean speed.
    """
    n, groups = len(mean), policy.replicas
    saving = policy.storage_stall / (policy.interval + policy.storage_stall) if policy.hard > 0 else 0.0
    speed = (1 - policy.overhead) * (1 - saving)
    target = np.full(n, np.inf if work is None else float(work))
    left = np.full(n, np.inf if horizon is None else float(horizon))
    back = np.zeros((n, groups))  # when each group takes part again
    now, resume, done, safe, stopped, degraded, worked = (np.zeros(n) for _ in range(7))
    since, spent = np.full(n, np.inf), np.zeros((3, n))  # time since a failure of all; its stages
    stages = np.cumsum(
        [0.0, policy.full.detect, policy.full.wait, policy.full.total - policy.full.detect - policy.full.wait]
    )
    going = np.ones(n, dtype=np.bool_)
    rows = np.arange(n)
    for _ in range(MOST_EVENTS):
        until = rng.exponential(size=n) * mean
        # Between two failures: first everybody waits for the quorum or the restart, then those that are there work.
        wait = np.clip(resume - now, 0.0, until)
        run = until - wait
        present = _present(back, now + wait, now + until, groups)
        need = (target - done) / speed
        quick = np.where(present > 0, need / np.maximum(present / np.maximum(run, 1e-300), 1e-300), np.inf)
        ends = (present >= need) | (until >= left)
        length = np.where(ends, np.minimum(wait + np.where(present >= need, quick, np.inf), left), until)
        length = np.where(going, length, 0.0)
        wait = np.minimum(wait, length)
        run = length - wait
        there = np.where(going, _present(back, now + wait, now + length, groups), 0.0)
        stop = wait.copy()
        for stage in range(3):
            took = np.clip(np.minimum(since + wait, stages[stage + 1]) - np.maximum(since, stages[stage]), 0.0, None)
            spent[stage] += took
            stop -= took
        since = since + length
        stopped += stop
        degraded += run - there
        worked += there
        done += there * speed
        now, left = now + length, left - length
        going &= ~ends
        if not going.any():
            break
        group, all_of_them = rng.integers(0, groups, n), going & (rng.random(n) < policy.hard)
        one = going & ~all_of_them
        back[rows, group] = np.where(one, now + policy.heal, back[rows, group])
        resume = np.where(one, np.maximum(resume, now + policy.stop), resume)
        if all_of_them.any():
            saved = np.floor(np.maximum(done - policy.persist * speed, 0) / policy.interval) * policy.interval
            safe = np.where(all_of_them, np.maximum(safe, saved), safe)
            done = np.where(all_of_them, safe, done)
            resume = np.where(all_of_them, now + policy.full.total, resume)
            since = np.where(all_of_them, 0.0, since)
            back[all_of_them] = 0.0
    useful = done / speed  # group time that is not undone, with what saves and quorums took of it
    buckets = dict.fromkeys(BUCKETS, np.zeros(n)) | {
        "productive": done, "overhead": useful * (1 - saving) * policy.overhead, "checkpoint": useful * saving,
        "lost_work": worked - useful, "degraded": degraded, "detection": spent[0], "waiting": spent[1],
        "restart": stopped + spent[2],
    }  # fmt: skip
    return Runs(now, buckets, ~going)


def _present(back: Floats, start: Floats, stop: Floats, groups: int) -> Floats:
    """Group-seconds between two moments over the number of groups."""
    away = np.clip(np.minimum(back, stop[:, None]) - start[:, None], 0.0, None).sum(axis=1)
    return (stop - start) - away / groups
