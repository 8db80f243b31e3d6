"""A rule: one id, one reason, one fix. The same condition masks a table of strategies and lints a single one.

Register with the decorator `rule`; the built-in rules use it too. `violated` broadcasts over numpy columns;
the decorated function, called only on a strategy that violates the rule, says what is wrong and what would be legal.

Ids: MW-C1xx divisibility, C2xx batch and schedule, C3xx framework, C4xx precision; MW-P1xx placement; MW-A1xx advice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from meshwright.messages import Text
from meshwright.rules.facts import ModelFacts, facts_of
from meshwright.spec.cluster import Cluster
from meshwright.spec.estimate import Estimate
from meshwright.spec.finding import Finding, Severity
from meshwright.spec.job import Job
from meshwright.spec.model import ModelSpec
from meshwright.spec.strategy import Strategy

Stage = Literal["mesh", "batch", "memory-free", "estimate", "configuration"]
Mask = Any  # bool, or a numpy column of bools
Said = tuple[Text, Text | None, dict[str, Any]]  # message, concrete fix (None: the rule's own), data for machines

TWO_CHUNK_SCHEDULES = frozenset({"zbv"})  # V-shaped: every rank holds two chunks whatever `virtual` says


@dataclass(frozen=True)
class RuleContext:
    """What a rule looks at. Strategy fields are ints or numpy columns; its string fields are always plain strings.

    `uneven_stages`: layers are distributed over stages as evenly as can be and the exported configuration says how;
    False lints a configuration that leaves an uneven split to the framework.
    """

    model: ModelSpec
    cluster: Cluster
    job: Job
    strategy: Strategy
    uneven_stages: bool = True
    estimate: Estimate | None = None

    @cached_property
    def facts(self) -> ModelFacts:
        """Sizes of the model that rules ask for again and again."""
        return facts_of(self.model)

    @cached_property
    def model_ranks(self) -> Any:
        """Devices of one model replica."""
        return self.strategy.tensor * self.strategy.pipeline * self.strategy.context

    @cached_property
    def replicas_batch(self) -> Any:
        """Sequences of one micro-batch over all data-parallel ranks."""
        return self.strategy.micro_batch * self.strategy.data

    @cached_property
    def micro_batches(self) -> Any:
        """Whole micro-batches per step and data-parallel rank."""
        return self.job.global_batch // self.replicas_batch

    @cached_property
    def chunks(self) -> Any:
        """Model chunks per pipeline rank."""
        return 2 if self.strategy.schedule in TWO_CHUNK_SCHEDULES else self.strategy.virtual

    @cached_property
    def shard(self) -> Any:
        """Ranks that share one copy of the sharded states."""
        everyone = self.strategy.data * self.strategy.context
        given = self.strategy.shard
        return given + (given == 0) * everyone

    @cached_property
    def tokens(self) -> float:
        """Tokens of one micro-batch on one device, before tensor parallelism (scalars only)."""
        return self.strategy.micro_batch * self.job.seq_len / self.strategy.context


@dataclass(frozen=True, slots=True)
class Rule:
    """One constraint or piece of advice. `condition` states in plain symbols what must hold."""

    id: str
    severity: Severity
    stage: Stage
    title: Text
    reason: Text
    fix: Text
    condition: str
    source: str
    where: str
    frameworks: frozenset[str]  # empty: all
    applies: Callable[[RuleContext], bool]  # reads model, cluster, job and string fields only
    violated: Callable[[RuleContext], Mask]
    says: Callable[[RuleContext], Said]

    def concerns(self, context: RuleContext) -> bool:
        """Whether the rule can bite in this context at all."""
        return (not self.frameworks or context.strategy.framework in self.frameworks) and self.applies(context)

    def finding(self, context: RuleContext) -> Finding:
        """The finding for a strategy (scalars) that violates the rule."""
        message, fix, data = self.says(context)
        return Finding(
            code=self.id, severity=self.severity, message=message, where=self.where, fix=fix or self.fix, data=data
        )


RULES: dict[str, Rule] = {}


def always(_: RuleContext) -> bool:
    """For rules that concern every model and cluster."""
    return True


def rule(
    id: str,
    *,
    title: str,
    reason: str,
    fix: str,
    condition: str,
    source: str,
    where: str,
    violated: Callable[[RuleContext], Mask],
    severity: Severity = "error",
    stage: Stage = "mesh",
    frameworks: Iterable[str] = (),
    applies: Callable[[RuleContext], bool] = always,
) -> Callable[[Callable[[RuleContext], Said]], Callable[[RuleContext], Said]]:
    """Register the decorated function as what rule `id` says when it is violated."""

    def register(says: Callable[[RuleContext], Said]) -> Callable[[RuleContext], Said]:
        if id in RULES:
            raise ValueError(f"rule {id} registered twice")
        RULES[id] = Rule(
            id, severity, stage, Text(title), Text(reason), Text(fix), condition, source, where,
            frozenset(frameworks), applies, violated, says,
        )  # fmt: skip
        return says

    return register
