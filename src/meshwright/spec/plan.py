"""Answers that hold several estimates: a plan, a scaling curve, a sizing, a comparison, an explanation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from meshwright.messages import Text
from meshwright.spec.cluster import Cluster
from meshwright.spec.estimate import Estimate
from meshwright.spec.finding import Finding
from meshwright.spec.job import Job
from meshwright.spec.model import ModelSpec
from meshwright.spec.strategy import Strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Model, cluster and job, resolved; `assumptions` lists every default that was filled in."""

    model: ModelSpec
    cluster: Cluster
    job: Job
    assumptions: tuple[Text, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """One strategy of a plan with its estimate and why it stands where it stands."""

    rank: int
    estimate: Estimate
    reason: Text | None = None
    pareto: bool = False
    useful: float | None = None  # share of wall time, where failures count

    @property
    def strategy(self) -> Strategy:
        """The strategy of the estimate."""
        return self.estimate.strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class FunnelStep:
    """How many candidates one rule (or memory) removed; `code` is a rule id or `memory`."""

    code: str
    title: Text
    rejected: int
    remaining: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NearMiss:
    """A strategy that would be faster (or the closest to fitting) but does not fit, and what would change that."""

    strategy: Strategy
    over_bytes: float
    step_seconds: float
    fix: Text | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlacement:
    """Where the groups of one parallelism lie: ranks, how many share a scale-up domain, over which link they talk."""

    group: str  # tensor, context, expert, data, pipeline
    ranks: int
    ranks_per_domain: int
    domains: int
    link: str
    bandwidth: float  # what one rank gets  [B/s per direction]
    text: Text | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The best strategies, what was rejected and why, and what to try next."""

    problem: Problem
    goal: str
    candidates: int
    legal: int
    fitting: int
    seconds: float
    ranked: tuple[Ranked, ...]
    pareto: tuple[Ranked, ...]
    funnel: tuple[FunnelStep, ...]
    near_misses: tuple[NearMiss, ...]
    placement: tuple[GroupPlacement, ...]
    reasons: tuple[Text, ...]
    next_steps: tuple[Text, ...]
    findings: tuple[Finding, ...] = ()

    @property
    def best(self) -> Ranked | None:
        """The winner, or None when nothing fits."""
        return self.ranked[0] if self.ranked else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalePoint:
    """Best plan at one device count; `estimate` is None where nothing fits (or the batch cannot be split)."""

    devices: int
    global_batch: int
    estimate: Estimate | None
    efficiency: float | None  # tokens/s/device over the best point's
    exposed_communication: float | None  # share of the step
    bubble: float | None
    marginal: float | None  # extra tokens/s per extra device, over the best point's tokens/s/device
    dollars_per_token: float | None
    reason: Text | None = None
    useful: float | None = None  # share of wall time, where failures count


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """Throughput against device count; `knee` is the count beyond which more devices buy little, `binds` says why."""

    problem: Problem
    mode: str  # fixed-batch or growing-batch
    points: tuple[ScalePoint, ...]
    knee: int | None
    binds: str
    summary: Text


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing:
    """The fewest devices (or least cost) that meets a deadline or budget, with the neighbours tried."""

    problem: Problem
    goal: str
    devices: int | None
    estimate: Estimate | None
    days: float | None
    dollars: float | None
    points: tuple[ScalePoint, ...]
    summary: Text


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedTerm:
    """One term in every estimate compared."""

    path: str
    unit: str
    values: tuple[float | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Estimates side by side, term by term; deltas are against the first."""

    names: tuple[str, ...]
    estimates: tuple[Estimate, ...]
    terms: tuple[ComparedTerm, ...]
    summary: Text


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A titled part of an explanation: sentences, and optionally a table of named values."""

    title: Text
    body: tuple[Text, ...] = ()
    rows: tuple[tuple[str, Any, str], ...] = ()  # label, value, unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What a term, a rule code or a concept is; `kind` is concept, rule, term or formula."""

    subject: str
    kind: str
    title: Text
    sections: tuple[Section, ...]
    sources: tuple[str, ...] = ()
    see_also: tuple[str, ...] = field(default=())
