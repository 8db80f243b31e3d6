"""Policies side by side over the size of the cluster, and from where on one is better than another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from meshwright.errors import InputError
from meshwright.messages import N_, Text
from meshwright.resilience.goodput import useful
from meshwright.resilience.plan import BETTER
from meshwright.resilience.policies import every
from meshwright.resilience.situation import Options, hardware, situation
from meshwright.spec.estimate import Estimate
from meshwright.spec.plan import Problem
from meshwright.spec.resilience import BreakEven, PolicyComparison, PolicyPoint
from meshwright.spec.strategy import Strategy

LARGEST = 2**17
PAIRS = (("async", "blocking"), ("two-tier", "async"), ("peer", "async"), ("hot-spares", "async"),
         ("replicas", "peer"))  # fmt: skip
NAMES = {
    "blocking": N_("blocking saves"),
    "async": N_("asynchronous saves"),
    "two-tier": N_("host memory and storage"),
    "peer": N_("memory of another node and storage"),
    "hot-spares": N_("asynchronous saves with hot spares"),
    "replicas": N_("replicas that leave and join"),
}


def compare(problem: Problem, strategy: Strategy, estimate: Estimate, options: Options | None = None,
            counts: Sequence[int] = ()) -> PolicyComparison:  # fmt: skip
    """Useful share of every policy from small to large clusters, each at its best interval.

    The step stays as long as it is: the batch grows with the cluster, data parallelism alone.
    """
    o = options or Options()
    mesh = strategy.tensor * strategy.pipeline * strategy.context
    chosen = tuple(sorted(set(counts))) or _ladder(problem, mesh)
    if wrong := [n for n in chosen if n % mesh or n < mesh]:
        raise InputError(
            Text(N_("{devices} devices are no whole number of model copies of {mesh}"), devices=wrong[0], mesh=mesh),
            where="--devices",
            fix=Text(N_("the nearest legal value is {value}"), value=max(mesh, wrong[0] // mesh * mesh)),
        )
    points = [point for n in chosen for point in _at(problem, strategy, estimate, o, n, mesh)]
    return PolicyComparison(
        problem=problem, strategy=strategy, counts=chosen, points=tuple(points),
        break_even=tuple(_break_even(points, chosen, better, than) for better, than in PAIRS),
        summary=_summary(points, chosen, problem.cluster.devices),
        assumptions=(
            *hardware(problem, o).assumptions,
            Text(N_("the step takes the same at every size: the batch grows with the cluster")),
            Text(N_("replicas: groups as small as hold all states; failures of software strike all of them")),
        ),
    )  # fmt: skip


def _ladder(problem: Problem, mesh: int) -> tuple[int, ...]:
    """Doublings of one model copy, from two nodes of 32 to the largest clusters."""
    out, n = [], mesh
    while n <= max(LARGEST, problem.cluster.devices):
        if n >= min(64, problem.cluster.devices):
            out.append(n)
        n *= 2
    return tuple(out)


def _at(
    problem: Problem, strategy: Strategy, estimate: Estimate, o: Options, devices: int, mesh: int
) -> list[PolicyPoint]:
    here = hardware(problem, o, devices)
    x = situation(here, replace(strategy, data=devices // mesh), estimate.step_seconds, o).setting
    return [
        PolicyPoint(mode=name, devices=devices, mtti=here.failures.mtti, interval=p.period,
                    useful=float(useful(p, here.failures.mtti, o.slowdown)))
        for name, p in every(x, () if x.groups > 1 else ("replicas",)).items()
    ]  # fmt: skip


def _break_even(points: Sequence[PolicyPoint], counts: Sequence[int], better: str, than: str) -> BreakEven:
    """The counts in a row at which a policy gains a tenth of a point: those up to the largest, else the most."""
    share = {(p.mode, p.devices): p.useful for p in points}
    gains = {n: (better, n) in share and share[better, n] >= share[than, n] + BETTER for n in counts}
    rows = [list(row) for gain, row in groupby(counts, lambda n: gains[n]) if gain]
    if not rows:
        return BreakEven(better=better, than=than, devices=None, until=None)
    to_the_end = rows[-1][-1] == counts[-1]
    chosen = rows[-1] if to_the_end else max(rows, key=len)
    return BreakEven(better=better, than=than, devices=chosen[0], until=None if to_the_end else chosen[-1])


def _summary(points: Sequence[PolicyPoint], counts: Sequence[int], devices: int) -> Text:
    def best(n: int) -> PolicyPoint:
        return max((p for p in points if p.devices == n), key=lambda p: p.useful)

    here = best(min(counts, key=lambda n: abs(n - devices)))
    there = best(counts[-1])
    text = N_("{best} keep most at {devices} devices ({share} of the time useful); at {largest} it is {other} ({far})")
    return Text(
        text, best=Text(NAMES[here.mode]), devices=f"{here.devices:,}", share=f"{here.useful:.1%}",
        largest=f"{there.devices:,}", other=Text(NAMES[there.mode]), far=f"{there.useful:.1%}",
    )  # fmt: skip
