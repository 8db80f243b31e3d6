"""The plan an explanation speaks about, and what the formulas were given when its estimate was made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from meshwright.engine.evaluate import estimate_legal
from meshwright.engine.placement import place
from meshwright.engine.stages import StageClass
from meshwright.engine.timing import Blocks, Setting, blocks_of, setting, stages_of
from meshwright.formulas.registry import Call, recording
from meshwright.messages import N_, Text
from meshwright.spec.estimate import Estimate, Term
from meshwright.spec.plan import Plan, Problem
from meshwright.spec.strategy import Strategy


@dataclass(frozen=True)
class Case:
    """A problem and the estimate to explain; `origin` says which plan it is where the reader did not choose it."""

    problem: Problem
    estimate: Estimate
    plan: Plan | None = None
    origin: Text | None = None

    @property
    def strategy(self) -> Strategy:
        """The strategy explained."""
        return self.estimate.strategy

    @cached_property
    def evaluated(self) -> tuple[Estimate, tuple[Call, ...]]:
        """The estimate made again, and every formula call made on the way."""
        # Blocks are remembered between estimates: once without recording, so that they are recorded exactly once below.
        estimate_legal(self.problem, self.strategy, self.estimate.findings)
        with recording() as calls:
            again = estimate_legal(self.problem, self.strategy, self.estimate.findings)
            blocks_of(self.setting, self.strategy, self.groups)
        return again, tuple(calls)

    @property
    def calls(self) -> tuple[Call, ...]:
        """Formula calls of the whole estimate."""
        return self.evaluated[1]

    @cached_property
    def setting(self) -> Setting:
        """What all strategies of this framework and precision share."""
        p = self.problem
        return setting(p.model, p.cluster, p.job, self.strategy.framework, self.strategy.precision)

    @cached_property
    def groups(self) -> dict[str, Any]:
        """Communicators on the topology."""
        return place(self.problem.cluster, self.strategy)

    @cached_property
    def blocks(self) -> Blocks:
        """Costs of every block kind."""
        return blocks_of(self.setting, self.strategy, self.groups)

    @cached_property
    def stages(self) -> tuple[StageClass, ...]:
        """Distinct pipeline stages."""
        return stages_of(self.problem.model, self.strategy)

    @property
    def peak_stage(self) -> StageClass:
        """The stage whose memory the estimate reports."""
        return next((s for s in self.stages if s.index == self.estimate.peak_stage), self.stages[0])

    @property
    def micro_batches(self) -> int:
        """Micro-batches per step."""
        return self.estimate.micro_batches

    def trees(self) -> Iterator[Term]:
        """Device memory, host memory and time."""
        yield self.estimate.memory
        yield self.estimate.time
        host = host_of(self.estimate)
        if host is not None:
            yield host

    def nodes(self) -> Iterator[tuple[str, Term]]:
        """Every term of the trees with its path."""
        for tree in self.trees():
            yield from tree.walk()


def host_of(estimate: Estimate) -> Term | None:
    """Host memory of the node that needs most."""
    return max((s.host for s in estimate.stages), key=lambda term: float(term.value), default=None)


def case_of(problem: Problem | None, estimate: Estimate | None, plan: Plan | None) -> Case | None:
    """The plan to explain with: the estimate given, the winner of the plan, or the best plan of the problem."""
    if plan is not None:
        problem = problem or plan.problem
        if estimate is None and plan.best is not None:
            return Case(problem, plan.best.estimate, plan)
    if problem is None:
        return None
    if estimate is not None:
        return Case(problem, estimate, plan)
    if plan is not None:  # nothing fits: there is no estimate to speak about
        return None
    from meshwright.engine.search.plan import plan as search

    found = search(problem, top=1)
    if found.best is None:
        return None
    origin = Text(N_("the numbers are those of the fastest plan found: {strategy}"), strategy=found.best.strategy.short)
    return Case(problem, found.best.estimate, found, origin)
