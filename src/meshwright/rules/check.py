"""Ask the rules: a mask over a table of strategies, or findings for one strategy."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from meshwright.rules import advice, batch, divisibility, framework, placement, precision
from meshwright.rules.base import RULES, Rule, RuleContext
from meshwright.spec.estimate import Estimate
from meshwright.spec.finding import Finding
from meshwright.spec.strategy import Strategy

BUILT_IN = (divisibility, batch, framework, precision, placement, advice)  # importing them registers their rules
ORDER = {"error": 0, "warning": 1, "advice": 2, "info": 3}
FIRST = "MW-C100"  # the other rules may divide by degrees
_COLUMNS = tuple(f.name for f in dataclasses.fields(Strategy))


def length_of(strategy: Strategy) -> int:
    """Rows of the longest column; 1 for a strategy of plain values."""
    sizes = [v.size for name in _COLUMNS if isinstance(v := getattr(strategy, name), np.ndarray)]
    return max(sizes, default=1)


def concerned(context: RuleContext, severities: tuple[str, ...]) -> list[Rule]:
    """Rules of these severities that can bite, in order of their ids; not those that need an estimate."""
    return [
        RULES[i]
        for i in sorted(RULES)
        if RULES[i].severity in severities and RULES[i].stage != "estimate" and RULES[i].concerns(context)
    ]


def hard_mask(context: RuleContext) -> tuple[npt.NDArray[np.bool_], list[tuple[str, int]]]:
    """Rows that no error rule rejects, and how many each rule rejected, a row counting for the first that does."""
    legal = np.ones(length_of(context.strategy), dtype=bool)
    left = legal.size
    rejected: list[tuple[str, int]] = []
    with np.errstate(divide="ignore", invalid="ignore"):
        for rule in concerned(context, ("error",)):
            bad: Any = rule.violated(context)
            if isinstance(bad, np.ndarray):
                legal &= ~bad
            elif bad:
                legal[:] = False
            else:
                continue
            now = int(np.count_nonzero(legal))
            if now < left:
                rejected.append((rule.id, left - now))
                left = now
            if not left:
                break
    return legal, rejected


def check(context: RuleContext) -> tuple[Finding, ...]:
    """All findings for one strategy that need no estimate, gravest first."""
    first = RULES[FIRST]
    if first.violated(context):
        return (first.finding(context),)
    hits = [
        rule.finding(context)
        for rule in RULES.values()
        if rule.stage != "estimate" and rule.concerns(context) and rule.violated(context)
    ]
    return tuple(sorted(hits, key=lambda f: (ORDER[f.severity], f.code)))


def advise(context: RuleContext, estimate: Estimate) -> tuple[Finding, ...]:
    """What the finished estimate adds: only rules that need one."""
    context = dataclasses.replace(context, estimate=estimate)
    return tuple(
        rule.finding(context)
        for rule in RULES.values()
        if rule.stage == "estimate" and rule.concerns(context) and rule.violated(context)
    )
