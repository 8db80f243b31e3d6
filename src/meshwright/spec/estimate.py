"""The answer for one strategy: a tree of named terms for memory and for time, and what follows from it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from meshwright.messages import Text
from meshwright.spec.finding import Finding
from meshwright.spec.strategy import Strategy

Certainty = Literal["exact", "modelled", "fitted", "assumed"]
Combine = Literal["leaf", "sum", "max"]
Verdict = Literal["FITS", "TIGHT", "OVER"]


class Term(NamedTuple):
    """One named quantity. A total is the sum (or max) of its children; leaves carry their formula id and certainty.

    A named tuple, not a frozen dataclass: an estimate makes a hundred of them, and they cost a third this way.
    """

    name: str
    value: Any
    unit: str
    certainty: Certainty = "modelled"
    formula: str = ""
    combine: Combine = "leaf"
    children: tuple[Term, ...] = ()
    note: str = ""

    def walk(self, prefix: str = "") -> Iterator[tuple[str, Term]]:
        """Every node with its dotted path, parents first."""
        path = f"{prefix}.{self.name}" if prefix else self.name
        yield path, self
        for child in self.children:
            yield from child.walk(path)

    def find(self, path: str) -> Term | None:
        """The node at dotted `path` (full, or relative to this node), or None."""
        for where, node in self.walk():
            if where == path or where.removeprefix(self.name + ".") == path:
                return node
        return None


_WORST: dict[Certainty, int] = {"exact": 0, "modelled": 1, "fitted": 2, "assumed": 3}


def total(name: str, unit: str, children: tuple[Term, ...], *, combine: Combine = "sum", note: str = "") -> Term:
    """A sum (or max) node over `children`, as certain as its least certain child that is not zero."""
    value: Any = 0.0
    certainty: Certainty = "exact"
    for child in children:
        value = value + child.value if combine == "sum" else max(value, child.value)
        if _WORST[child.certainty] > _WORST[certainty]:
            certainty = child.certainty
    return Term(name, value, unit, certainty, "", combine, children, note)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMemory:
    """Peak of one pipeline stage: which phase, and the tree behind it."""

    stage: int
    phase: str
    device: Term
    host: Term
    phases: dict[str, float] = field(default_factory=dict)  # peak bytes by phase


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The answer for a strategy that no framework would run: the findings that forbid it."""

    strategy: Strategy
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Memory, time and what follows for one strategy."""

    strategy: Strategy
    verdict: Verdict
    capacity_bytes: float
    peak_bytes: float
    peak_stage: int
    peak_phase: str
    memory: Term  # the peak stage at its peak phase
    stages: tuple[StageMemory, ...]
    host_bytes: float  # per host, steady state
    host_capacity_bytes: float | None
    time: Term  # seconds per step
    step_seconds: float
    step_interval: tuple[float, float]
    interval_reason: Text
    tokens_per_second: float
    tokens_per_second_per_device: float
    model_flops: float  # per step, all devices (stated convention)
    hardware_flops: float
    mfu: float  # model FLOPs over dense peak of `peak_dtype`
    hfu: float
    peak_dtype: str
    micro_batches: int
    dollars_per_step: float | None
    joules_per_step: float | None
    days: float | None  # to train the job's tokens
    findings: tuple[Finding, ...] = ()
    assumptions: tuple[Text, ...] = ()
    bound_by: str = ""
