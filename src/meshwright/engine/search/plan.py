"""The search: every legal candidate of the space scored, ranked, and what was rejected told."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from meshwright.engine.evaluate import estimate_legal
from meshwright.engine.memory import stated_error
from meshwright.engine.placement import describe
from meshwright.engine.search.rank import distinct_meshes, fitting, order, pareto_front
from meshwright.engine.search.reasons import fix_for, reason_for_rank, reasons, what_next
from meshwright.engine.search.score import block_table, score
from meshwright.engine.search.space import (
    Category,
    Constraints,
    Mode,
    Table,
    categories,
    frameworks_for,
    one,
    recomputes,
    schedules,
    strategy_of,
    table,
)
from meshwright.engine.timing import Setting, setting
from meshwright.glossary import Label
from meshwright.messages import N_, Text
from meshwright.rules.base import RULES, RuleContext
from meshwright.rules.check import advise, check, hard_mask
from meshwright.spec.finding import Finding
from meshwright.spec.plan import FunnelStep, NearMiss, Plan, Problem, Ranked
from meshwright.spec.strategy import Strategy

Progress = Callable[[float, str], None]
Useful = Callable[[Strategy, float], float]  # share of its time in which a strategy with such a step makes progress
GOALS = ("fastest", "memory", "goodput")
NEAR_MISSES = 3


class Group(NamedTuple):
    """One scored table: everything needed to turn a row back into a strategy."""

    table: Table
    like: Strategy
    modes: tuple[Mode, ...]


@dataclass(slots=True)
class Pool:
    """All scored candidates as columns."""

    groups: list[Group] = field(default_factory=list)
    group: list[npt.NDArray[np.int64]] = field(default_factory=list)
    row: list[npt.NDArray[np.int64]] = field(default_factory=list)
    mode: list[npt.NDArray[np.int64]] = field(default_factory=list)
    peak: list[npt.NDArray[np.float64]] = field(default_factory=list)
    seconds: list[npt.NDArray[np.float64]] = field(default_factory=list)
    safe: list[npt.NDArray[np.float64]] = field(default_factory=list)  # peak with the stated error on top
    host: list[npt.NDArray[np.float64]] = field(default_factory=list)
    rejected: Counter[str] = field(default_factory=Counter)
    candidates: int = 0


class Columns(NamedTuple):
    """The pool, concatenated."""

    groups: list[Group]
    group: npt.NDArray[np.int64]
    row: npt.NDArray[np.int64]
    mode: npt.NDArray[np.int64]
    peak: npt.NDArray[np.float64]
    seconds: npt.NDArray[np.float64]
    safe: npt.NDArray[np.float64]
    host: npt.NDArray[np.float64]

    def strategy(self, index: int) -> Strategy:
        """Candidate `index` as a strategy of plain numbers."""
        g = self.groups[int(self.group[index])]
        return one(g.like, int(self.row[index]), g.modes[int(self.mode[index])])


def search(problem: Problem, constraints: Constraints, progress: Progress | None = None) -> tuple[Columns, Pool]:
    """Score every legal candidate of the space."""
    model, cluster, job = problem.model, problem.cluster, problem.job
    pool = Pool()
    frameworks = frameworks_for(cluster, constraints)
    steps = [(f, i) for f in frameworks for i in (False, True)]
    for n, (framework, interleaved) in enumerate(steps):
        if progress:
            progress(n / len(steps), framework)
        s = setting(model, cluster, job, framework, job.precision)
        whole = table(model, cluster, job, framework, constraints, interleaved)
        for schedule in schedules(constraints, interleaved) if len(whole) else ():
            _score_schedule(pool, problem, constraints, s, whole, framework, schedule)
    whole_numbers = [_joined(part, np.int64) for part in (pool.group, pool.row, pool.mode)]
    figures = [_joined(part, np.float64) for part in (pool.peak, pool.seconds, pool.safe, pool.host)]
    return Columns(pool.groups, *whole_numbers, *figures), pool


def _joined(parts: list[Any], dtype: type) -> Any:
    return np.concatenate(parts).astype(dtype, copy=False) if parts else np.empty(0, dtype)


def _score_schedule(
    pool: Pool, problem: Problem, c: Constraints, s: Setting, whole: Table, framework: str, schedule: str
) -> None:
    """Score one framework under one schedule; blocks are shared by all its categories."""
    model, cluster, job = problem.model, problem.cluster, problem.job
    modes = recomputes(model, framework, c)
    legal_by: list[tuple[Category, npt.NDArray[np.bool_]]] = []
    for category in categories(model, cluster, job, framework, c):
        columns = strategy_of(whole, category, modes[0], schedule, job.precision, model.is_moe)
        pool.candidates += len(whole) * len(modes)
        kept = []
        for mode in modes:
            context = RuleContext(model, cluster, job, replace(columns, recompute=mode.recompute), uneven_stages=True)
            mask, rejected = hard_mask(context)
            pool.rejected.update(dict(rejected))
            kept.append(mask)
        legal_by.append((category, np.array(kept)))
    if not legal_by:
        return
    any_legal: npt.NDArray[np.bool_] = np.zeros(len(whole), dtype=np.bool_)
    for _, masks in legal_by:
        any_legal |= masks.any(axis=0)
    if not any_legal.any():
        return
    rows = whole.rows(any_legal)
    first = strategy_of(rows, legal_by[0][0], modes[0], schedule, job.precision, model.is_moe)
    blocks = block_table(s, first, modes)
    for category, masks in legal_by:
        mask = masks[:, any_legal]
        keep: npt.NDArray[np.bool_] = np.zeros(len(rows), dtype=np.bool_) | mask.any(axis=0)
        if not keep.any():
            continue
        mine = rows.rows(keep)
        like = strategy_of(mine, category, modes[0], schedule, job.precision, model.is_moe)
        pool.groups.append(Group(mine, like, modes))
        error = stated_error(like)
        for scores in score(s, like, blocks._replace(key=blocks.key[keep]), modes):
            allowed = mask[:, keep][scores.mode, scores.row]
            pool.group.append(np.full(int(allowed.sum()), len(pool.groups) - 1))
            pool.row.append(scores.row[allowed])
            pool.mode.append(scores.mode[allowed])
            pool.peak.append(scores.peak[allowed])
            pool.seconds.append(scores.seconds[allowed])
            pool.safe.append(scores.peak[allowed] * (1 + error))
            pool.host.append(scores.host[allowed])


def plan(
    problem: Problem,
    *,
    goal: str = "fastest",
    constraints: Constraints | None = None,
    top: int = 10,
    useful: Useful | None = None,
    progress: Progress | None = None,
) -> Plan:
    """The best strategies for a problem, with the reasons, the closest misses and the funnel of rejections.

    With `useful` (goal goodput) the order is by useful tokens per second, failures counted.

    A strategy counts as fitting when its peak plus the stated memory error stays under the limit; those that fit only
    without the error are shown as near misses, and used when nothing fits safely.
    """
    if goal == "goodput" and useful is None:
        raise ValueError("goal goodput needs the useful share of a strategy")
    began = time.perf_counter()
    c = constraints or Constraints()
    columns, pool = search(problem, c, progress)
    capacity = problem.cluster.accelerator.memory_usable_bytes * c.max_memory_fraction
    fits = fitting(problem, columns, c.max_memory_fraction)
    shares = None if useful is None else _shares(columns, fits, useful)
    ranking = order(columns, fits, goal, shares)
    chosen = distinct_meshes(columns, ranking, top)
    front = pareto_front(columns, fits)
    ranked = _ranked(problem, columns, chosen, front, shares)
    pareto = _ranked(problem, columns, distinct_meshes(columns, front, top), front, shares)
    best = ranked[0] if ranked else None
    legal = len(columns.peak)
    findings: tuple[Finding, ...] = ()
    if best:
        context = RuleContext(problem.model, problem.cluster, problem.job, best.strategy, uneven_stages=True)
        findings = tuple(_weighed(f, c) for f in check(context) + advise(context, best.estimate))
    if progress:
        progress(1.0, "")
    misses = _near_misses(problem, columns, fits, capacity, best)
    return Plan(
        problem=problem,
        goal=goal,
        candidates=pool.candidates,
        legal=legal,
        fitting=int(fits.sum()),
        seconds=time.perf_counter() - began,
        ranked=ranked,
        pareto=pareto,
        funnel=_funnel(pool, legal, int(fits.sum())),
        near_misses=misses,
        placement=describe(problem.cluster, best.strategy) if best else (),
        reasons=reasons(columns, fits, best) if best else (),
        next_steps=what_next(problem, best, misses, pool),
        findings=findings,
    )


# Fields whose values the search compares; a rule's advice on them has been followed and found wanting.
COMPARED = ("tensor", "pipeline", "context", "expert", "expert_tensor", "micro_batch", "sharding", "recompute")


def _weighed(finding: Finding, c: Constraints) -> Finding:
    """A finding on the winner; where its advice is a value that was searched too, it says so instead of advising it."""
    searched = finding.where in COMPARED and not getattr(c, finding.where)
    advised = finding.data.get("legal") and "layers_per_stage" not in finding.data
    if not searched or not advised or finding.severity == "error":
        return finding
    values = ", ".join(str(value) for value in finding.data["legal"])
    text = N_("nothing: the search weighed {where} = {values}, which is slower or does not fit")
    return replace(finding, fix=Text(text, where=Label(finding.where), values=values))


def _shares(columns: Columns, fits: npt.NDArray[np.bool_], useful: Useful) -> npt.NDArray[np.float64]:
    """Useful share of every candidate that fits."""
    out = np.ones(len(columns.seconds))
    for i in np.flatnonzero(fits):
        out[i] = max(useful(columns.strategy(int(i)), float(columns.seconds[i])), 1e-9)
    return out


def _ranked(
    problem: Problem,
    columns: Columns,
    chosen: list[int],
    front: npt.NDArray[np.int64],
    shares: npt.NDArray[np.float64] | None = None,
) -> tuple[Ranked, ...]:
    on_front = set(front.tolist())
    out: list[Ranked] = []
    for n, index in enumerate(chosen):
        estimate = estimate_legal(problem, columns.strategy(index))
        reason = reason_for_rank(estimate, out[0].estimate if out else None)
        useful = None if shares is None else float(shares[index])
        out.append(Ranked(rank=n + 1, estimate=estimate, reason=reason, pareto=index in on_front, useful=useful))
    return tuple(out)


def _funnel(pool: Pool, legal: int, fitting: int) -> tuple[FunnelStep, ...]:
    """What each rule and then memory removed, in the order of the rules."""
    remaining = pool.candidates
    steps = []
    for code in sorted(pool.rejected):
        remaining -= pool.rejected[code]
        steps.append(FunnelStep(code=code, title=RULES[code].title, rejected=pool.rejected[code], remaining=remaining))
    title = Text(N_("peak memory over the limit"))
    steps.append(FunnelStep(code="memory", title=title, rejected=legal - fitting, remaining=fitting))
    return tuple(steps)


def _near_misses(
    problem: Problem, columns: Columns, fits: npt.NDArray[np.bool_], capacity: float, best: Ranked | None
) -> tuple[NearMiss, ...]:
    """Faster than the winner but too large, closest to the limit first; when nothing fits, the smallest of all."""
    over = ~fits
    if best:
        over &= columns.seconds < best.estimate.step_seconds
    index = np.flatnonzero(over)
    index = index[np.argsort(columns.peak[index], kind="stable")][:2000]
    chosen = distinct_meshes(columns, index, NEAR_MISSES)
    out = []
    for i in chosen:
        strategy = columns.strategy(i)
        excess = float(columns.peak[i] - capacity)
        host = float(columns.host[i] - (problem.cluster.host_memory_bytes or np.inf))
        out.append(
            NearMiss(
                strategy=strategy,
                over_bytes=excess,
                step_seconds=float(columns.seconds[i]),
                fix=fix_for(problem, strategy, excess, float(columns.safe[i] - capacity), host),
            )
        )
    return tuple(out)
