"""Ask the rules: a mask over a table of strategies, or findings for one strategy."""

from __future__ import annotations

import dataclasses
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from meshwright.rules import (
    accelerate_configuration,
    advice,
    any_configuration,
    batch,
    deepspeed_configuration,
    divisibility,
    framework,
    megatron_configuration,
    placement,
    precision,
    torchtitan_configuration,
)
from meshwright.rules.base import RULES, Rule, RuleContext
from meshwright.spec.cluster import Cluster
from meshwright.spec.estimate import Estimate
from meshwright.spec.finding import Finding
from meshwright.spec.job import Job
from meshwright.spec.model import ModelSpec
from meshwright.spec.strategy import Strategy

# Importing them registers their rules.
BUILT_IN = (
    divisibility, batch, framework, precision, placement, advice, any_configuration, deepspeed_configuration,
    megatron_configuration, accelerate_configuration, torchtitan_configuration,
)  # fmt: skip
ORDER = {"error": 0, "warning": 1, "advice": 2, "info": 3}
FIRST = "MW-C100"  # the other rules may divide by degrees
_STRINGS = ("framework", "sharding", "schedule", "recompute", "offload", "precision", "loss", "layers_per_stage")
_COLUMNS = tuple(f.name for f in dataclasses.fields(Strategy))


def length_of(strategy: Strategy) -> int:
    """Rows of the longest column; 1 for a strategy of plain values."""
    sizes = [v.size for name in _COLUMNS if isinstance(v := getattr(strategy, name), np.ndarray)]
    return max(sizes, default=1)


@lru_cache(maxsize=1024)
def _can_bite(model: ModelSpec, cluster: Cluster, job: Job, uneven: bool, strings: tuple[Any, ...]) -> tuple[Rule, ...]:
    """Rules that concern these categories; `applies` reads nothing else, so the answer holds for any degrees."""
    context = RuleContext(model, cluster, job, Strategy(**dict(zip(_STRINGS, strings, strict=True))), uneven)
    return tuple(rule for rule in RULES.values() if rule.concerns(context))


def can_bite(context: RuleContext) -> tuple[Rule, ...]:
    """Rules that can bite in this context."""
    strings = tuple(getattr(context.strategy, name) for name in _STRINGS)
    return _can_bite(context.model, context.cluster, context.job, context.uneven_stages, strings)


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
    hits = [rule.finding(context) for rule in can_bite(context) if rule.stage != "estimate" and rule.violated(context)]
    return tuple(sorted(hits, key=lambda f: (ORDER[f.severity], f.code)))


def advise(context: RuleContext, estimate: Estimate) -> tuple[Finding, ...]:
    """What the finished estimate adds: only rules that need one."""
    context = dataclasses.replace(context, estimate=estimate)
    return tuple(
        rule.finding(context) for rule in can_bite(context) if rule.stage == "estimate" and rule.violated(context)
    )
