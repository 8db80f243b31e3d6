"""How a run survives: what fails how often, what is saved where, what it costs. Seconds, bytes, shares of time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from meshwright.messages import Text
from meshwright.spec.cluster import Cluster
from meshwright.spec.estimate import Estimate, Term
from meshwright.spec.finding import Finding
from meshwright.spec.plan import Problem
from meshwright.spec.strategy import Strategy

Scope = Literal["process", "node", "several"]  # what a failure takes with it
Mode = Literal["blocking", "async", "two-tier", "peer", "replicas"]
SpareKind = Literal["hot", "warm", "cold"]

SCOPES: tuple[str, ...] = ("process", "node", "several")
MODES: tuple[str, ...] = ("blocking", "async", "two-tier", "peer", "replicas")
SPARES: tuple[str, ...] = ("hot", "warm", "cold")
# Where wall time goes, in the order in which it is shown.
BUCKETS: tuple[str, ...] = (
    "productive", "slow_nodes", "checkpoint", "lost_work", "detection", "waiting", "restart", "degraded", "overhead",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One kind of failure: which part of the machine, what it takes with it, and its share of all failures."""

    name: str
    group: str  # accelerator, hbm, nic, network, host, software
    scope: Scope
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureSource:
    """An observed system: failures of one node per second, with the range that is believed."""

    id: str
    title: str
    rate: float  # [1/s]
    low: float
    high: float
    node_size: int  # accelerators of the nodes that were counted
    nodes: int | None
    days: float | None
    failures: int | None
    basis: str
    source: str
    causes: tuple[Cause, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureModel:
    """Failures of one job: rates scaled to its nodes, and the mean time to interrupt that follows."""

    source: FailureSource
    nodes: int
    rate: float  # of one of these nodes  [1/s]
    low: float
    high: float
    small_job: float | None  # a job is interrupted at least this often, however few its nodes  [s]
    mtti: float  # [s]
    mtti_low: float
    mtti_high: float
    causes: tuple[Cause, ...]
    assumptions: tuple[Text, ...] = ()

    @property
    def bound_by_job(self) -> bool:
        """Whether the job's own software, not its nodes, sets the mean time to interrupt."""
        return self.small_job is not None and self.nodes * self.rate * self.small_job < 1

    @property
    def of_nodes(self) -> float:
        """Share of the failures that come with the nodes; the rest is what a small job's own software adds."""
        return min(1.0, self.nodes * self.rate * self.mtti)

    def share(self, *scopes: str) -> float:
        """Share of the failures that take one of `scopes` with them."""
        nodes = sum(cause.share for cause in self.causes if cause.scope in scopes) * self.of_nodes
        return nodes + (1 - self.of_nodes if "process" in scopes else 0.0)

    @property
    def of_software(self) -> float:
        """Share of the failures of software, which strike every replica alike."""
        return sum(c.share for c in self.causes if c.group == "software") * self.of_nodes + 1 - self.of_nodes

    def expected(self, seconds: float) -> float:
        """Failures expected in `seconds`."""
        return seconds / self.mtti


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """One line of an incident log."""

    seconds: float  # since the first incident
    node: str
    cause: str = ""
    downtime: float | None = None  # [s]


@dataclass(frozen=True, slots=True, kw_only=True)
class LemonNode:
    """A node that fails more often than chance allows."""

    node: str
    failures: int
    expected: float
    probability: float  # of so many, were it like the others


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseCount:
    """Incidents of one cause, with its rate and 90 % interval (of one node, per second)."""

    name: str
    group: str
    failures: int
    rate: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentStudy:
    """What an incident log says: rate with its exact interval, causes, lemons, and the rate without them."""

    incidents: int
    nodes: int
    days: float
    rate: float  # of one node  [1/s]
    low: float
    high: float
    causes: tuple[CauseCount, ...]
    lemons: tuple[LemonNode, ...]
    rate_without: float
    low_without: float
    high_without: float
    downtime: float | None  # mean of those that say it  [s]
    source: FailureSource
    summary: Text
    assumptions: tuple[Text, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """Where checkpoints go: what all nodes together, and one node, can write and read."""

    id: str
    title: str
    write: float  # [B/s]
    read: float
    node_write: float
    node_read: float
    capacity: float | None = None
    assumptions: tuple[Text, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """From a failure to the first new step, stage by stage.  [s]"""

    detect: float
    wait: float  # for a machine
    reschedule: float
    load: float
    initialise: float

    @property
    def total(self) -> float:
        """All stages."""
        return self.detect + self.wait + self.reschedule + self.load + self.initialise


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A way to save and to recover. One tier: `segments` 1, `hard` 1. Replicas: `hard` is what strikes all of them.

    `interval` of work and `stall` repeat `segments` times, then `storage_stall` follows: a period. A snapshot is safe
    `quick_persist` (its tier) or `persist` (storage) after its stall.
    """

    mode: Mode
    interval: float
    stall: float = 0.0
    segments: int = 1
    storage_stall: float = 0.0
    quick_persist: float = 0.0
    persist: float = 0.0
    hard: float = 1.0  # share of failures after which only storage helps
    quick: Recovery  # after a failure that the quick tier survives
    full: Recovery  # from storage
    replicas: int = 0
    heal: float = 0.0
    stop: float = 0.0
    overhead: float = 0.0  # share of working time
    hot_spares: bool = False

    @property
    def period(self) -> float:
        """Useful work between saves to storage."""
        return self.segments * self.interval


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkSetting:
    """How a framework is told: a line for its command, file or code."""

    framework: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPlan:
    """What is saved, how long it takes, how often, and what storage must give."""

    mode: Mode
    bytes_per_parameter: float
    total_bytes: float
    weights_bytes: float
    rank_bytes: float  # of the rank that writes most
    host_bytes: float  # staged on one host
    copy_seconds: float  # device to host
    write_seconds: float
    read_seconds: float
    limited_by: str  # storage, nodes
    interval: float  # useful work between saves to storage  [s]
    steps: int
    quick_steps: int | None  # between saves to the quick tier
    stall: float  # of one period  [s]
    young: float
    daly: float
    exact: float
    bandwidth_needed: float  # for this interval  [B/s]
    bandwidth_for_loss: float  # for blocking saves and repeated work to cost 5 %  [B/s]
    kept: int
    kept_bytes: float
    settings: tuple[FrameworkSetting, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLength:
    """Days and dollars of the whole run: without failures, expected, and where half and nine in ten runs end."""

    ideal_days: float
    days: float
    p50_days: float
    p90_days: float
    dollars: float | None = None
    p50_dollars: float | None = None
    p90_dollars: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodput:
    """The useful share of wall time and where the rest goes."""

    useful: float
    low: float  # with the highest believed failure rate
    high: float
    breakdown: Term  # of a day of wall time  [s]
    simulated: float
    simulated_error: float  # standard error of `simulated`
    trials: int
    tokens_per_second: float
    run: RunLength | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spares:
    """Machines held back: as many as repairs at the same time, by Poisson."""

    kind: SpareKind
    nodes: int
    quantile: float
    in_repair: float  # expected
    repair: float  # [s]
    short: float  # probability that they do not suffice


@dataclass(frozen=True, slots=True, kw_only=True)
class ResiliencePlan:
    """How one strategy survives on one cluster."""

    problem: Problem
    strategy: Strategy
    step_seconds: float
    failures: FailureModel
    storage: Storage
    policy: Policy
    checkpoint: CheckpointPlan
    spares: Spares
    goodput: Goodput
    measured: float | None = None  # useful share that a run reached
    findings: tuple[Finding, ...] = ()
    assumptions: tuple[Text, ...] = ()

    @property
    def unexplained(self) -> float | None:
        """Share of the time that the measured run lost beyond what failures, saves and restarts explain."""
        return None if self.measured is None else self.goodput.useful - self.measured

    @property
    def legal(self) -> bool:
        """Whether nothing forbids it."""
        return not any(f.severity == "error" for f in self.findings)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyPoint:
    """One policy at one size of cluster."""

    mode: str  # a `Mode`, or hot-spares
    devices: int
    mtti: float
    interval: float  # useful work between saves to storage  [s]
    useful: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakEven:
    """From how many devices on one policy is better than another, and up to how many; None: never, and to the end."""

    better: str
    than: str
    devices: int | None
    until: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyComparison:
    """Useful share of every policy over the size of the cluster."""

    problem: Problem
    strategy: Strategy
    counts: tuple[int, ...]
    points: tuple[PolicyPoint, ...]
    break_even: tuple[BreakEven, ...]
    summary: Text
    assumptions: tuple[Text, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Resharding:
    """From the checkpoint of one layout to the ranks of another."""

    changes: tuple[str, ...]  # fields of the strategy that change
    steps: tuple[Text, ...]
    seconds: float
    possible: bool  # with the optimizer's states


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplanOption:
    """One way to go on after a loss."""

    name: str  # shrink, shrink-batch, wait, replicas
    devices: int
    global_batch: int
    learning_rate_scale: float
    tokens_per_second: float
    stop_seconds: float  # without any progress
    lost_tokens: float  # until all nodes are back, against no failure
    estimate: Estimate | None = None
    resharding: Resharding | None = None
    note: Text | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replan:
    """What to do after losing some nodes until they are back."""

    problem: Problem
    strategy: Strategy
    lost_nodes: int
    cluster: Cluster  # what is left
    away: float  # until the nodes are back  [s]
    options: tuple[ReplanOption, ...]  # the best first
    break_even: float | None  # shorter absences are better waited out  [s]
    summary: Text
    findings: tuple[Finding, ...] = ()
    assumptions: tuple[Text, ...] = field(default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotAnswer:
    """Machines that may be taken away at any time against those that stay."""

    problem: Problem
    strategy: Strategy
    between: float  # preemptions of one node  [s]
    notice: float  # [s]
    saved_on_notice: bool
    wait: float  # for capacity after a preemption  [s]
    useful: float
    useful_on_demand: float
    dollars_per_token: float
    dollars_per_token_on_demand: float
    break_even: float | None  # time between preemptions of a node from which on it is cheaper  [s]
    summary: Text
    assumptions: tuple[Text, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCheckpoint:
    """One checkpoint of a folder: whether it is whole, and if not, why."""

    name: str
    files: int
    size: int  # [B]
    faults: tuple[Text, ...]

    @property
    def complete(self) -> bool:
        """Whether nothing is wrong with it."""
        return not self.faults


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFolder:
    """The checkpoints of a folder, the newest first, and the one to start from."""

    checkpoints: tuple[FoundCheckpoint, ...]
    resume: str | None
    summary: Text
