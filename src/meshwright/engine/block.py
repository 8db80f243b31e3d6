"""Seconds of one block on one rank: compute by part, recompute, and the communication that stays exposed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from meshwright.engine.kernels import Rates, operator_flops, operator_time
from meshwright.engine.operators import Collective, Walk
from meshwright.formulas.numeric import maximum, minimum

CollectiveTime = Callable[[Collective], Any]
COMM_GROUPS = ("tensor", "context", "expert")
_GROUP_OF = {"tensor": "tensor", "context": "context", "expert": "expert", "expert_tensor": "tensor"}


class BlockCost(NamedTuple):
    """Seconds per micro-batch of one block. Sums: `forward` and `backward` include their exposed communication."""

    forward_parts: dict[str, Any]
    backward_parts: dict[str, Any]
    recompute: Any  # compute run again in the backward pass
    forward_comm: dict[str, Any]  # exposed, by group
    backward_comm: dict[str, Any]  # exposed, by group, recomputed collectives included
    hidden_comm: Any  # communication that runs behind compute
    host_forward: Any  # the device waits for launches
    host_backward: Any
    flops: Any = 0.0  # forward arithmetic on one rank
    recompute_flops: Any = 0.0

    @property
    def host(self) -> Any:
        """Seconds in which the device waits for launches, both passes."""
        return self.host_forward + self.host_backward

    @property
    def forward(self) -> Any:
        """Whole forward pass of the block."""
        return sum(self.forward_parts.values()) + sum(self.forward_comm.values())

    @property
    def backward(self) -> Any:
        """Whole backward pass of the block, recomputation included."""
        return sum(self.backward_parts.values()) + self.recompute + sum(self.backward_comm.values())


class Recompute(NamedTuple):
    """What the backward pass runs again: nothing, everything, operator groups, or every second matrix product."""

    mode: str = "none"  # none, selective, full
    groups: tuple[str, ...] = ()
    every_other: bool = False

    def share(self, kind: str, group: str) -> float:
        """Share of an operator's forward time that is spent again."""
        if self.mode == "none":
            return 0.0
        if self.mode == "full":
            return 1.0
        if self.every_other:  # attention outputs are stored; element-wise operators cost nothing to store again
            return {"matmul": 0.5, "grouped_matmul": 0.5, "memory": 1.0, "permute": 1.0}.get(kind, 0.0)
        return 1.0 if group in self.groups else 0.0


class Overlap(NamedTuple):
    """Which communication the strategy hides behind compute."""

    tensor: bool = False
    expert: bool = False


# Communication split into chunks behind a product still exposes its first chunk (four chunks by default in
# Transformer Engine's user buffers).
_TENSOR_CHUNKS = 4


class Host(NamedTuple):
    """What the host pays to launch kernels. A CUDA graph replays its part of an iteration without the host."""

    launch: float  # seconds per kernel
    per_operator: float = 1.0  # kernels of one operator of the walk
    per_moe: float = 1.0  # the same in an expert layer: routing, permutation, counts that the host waits for
    per_expert: float = 0.0  # kernels of one local expert's product; 0: one kernel takes all experts
    per_low_expert: float = 0.0  # the same under an fp8 or fp4 recipe, quantisation included
    graphs: str = "none"  # none, partial (everything but the experts), full

    def kernels(self, walk: Walk, recompute: Recompute | None = None) -> Any:
        """Launches of the forward pass of `walk`, or of what `recompute` runs again of it."""
        if self.graphs == "full":
            return 0.0
        total: Any = 0.0
        for op in walk.operators:
            if recompute is not None and not recompute.share(op.kind, op.group):
                continue
            experts = op.kind == "grouped_matmul"
            if experts and self.per_expert:
                total = total + op.batch * (self.per_low_expert if op.low_precision else self.per_expert)
            if self.graphs == "none" or experts:
                total = total + (self.per_moe if op.part == "moe" else self.per_operator)
        return total


class TimedWalk(NamedTuple):
    """A walk with its seconds, before recomputation and overlap are decided."""

    walk: Walk
    operators: tuple[tuple[Any, Any, Any], ...]  # forward and backward seconds, forward FLOPs
    collectives: tuple[Any, ...]

    def then(self, other: TimedWalk) -> TimedWalk:
        """This walk followed by another."""
        return TimedWalk(
            self.walk.then(other.walk), self.operators + other.operators, self.collectives + other.collectives
        )


def time_walk(walk: Walk, r: Rates, collective_time: CollectiveTime) -> TimedWalk:
    """Time every operator and collective of a walk."""
    operators = tuple((*operator_time(op, r), operator_flops(op)) for op in walk.operators)
    return TimedWalk(walk, operators, tuple(collective_time(c) for c in walk.collectives))


def block_cost(
    walk: Walk, r: Rates, collective_time: CollectiveTime, recompute: Recompute, overlap: Overlap
) -> BlockCost:
    """Cost of a walk under one recompute mode; `full` repeats the forward pass with its communication."""
    return cost_of(time_walk(walk, r, collective_time), Host(r.host_launch), recompute, overlap)


def cost_of(timed: TimedWalk, launches: Host, recompute: Recompute, overlap: Overlap) -> BlockCost:
    """Cost of a timed walk under one recompute mode and overlap."""
    forward: dict[str, Any] = {}
    backward: dict[str, Any] = {}
    again: Any = 0.0
    flops: Any = 0.0
    flops_again: Any = 0.0
    repeats = recompute.mode != "none"
    for op, (f, b, work) in zip(timed.walk.operators, timed.operators, strict=True):
        part = op.part
        forward[part] = forward.get(part, 0.0) + f
        backward[part] = backward.get(part, 0.0) + b
        flops = flops + work
        if repeats and (share := recompute.share(op.kind, op.group)):
            again = again + share * f
            flops_again = flops_again + share * work
    comm_f: dict[str, Any] = {}
    comm_b: dict[str, Any] = {}
    hidden: Any = 0.0
    cover = {"forward": (dict(forward), sum(forward.values())), "backward": (dict(backward), sum(backward.values()))}
    for c, seconds in zip(timed.walk.collectives, timed.collectives, strict=True):
        group = _GROUP_OF[c.group]
        exposed = _exposed(c, seconds, *cover[c.phase], overlap)
        hidden = hidden + (seconds - exposed)
        target = comm_f if c.phase == "forward" else comm_b
        target[group] = target.get(group, 0.0) + exposed
        repeat = recompute.share("matmul", c.recompute_group) if repeats and c.phase == "forward" else 0.0
        if repeat:
            comm_b[group] = comm_b.get(group, 0.0) + repeat * exposed
    issue = launches.kernels(timed.walk) * launches.launch
    idle_f = maximum(issue - cover["forward"][1] - sum(comm_f.values()), 0.0)
    issue_b = 2 * issue + (launches.kernels(timed.walk, recompute) * launches.launch if repeats else 0.0)
    idle_b = maximum(issue_b - cover["backward"][1] - again - sum(comm_b.values()), 0.0)
    return BlockCost(forward, backward, again, comm_f, comm_b, hidden, idle_f, idle_b, flops, flops_again)


def _exposed(c: Collective, seconds: Any, parts: dict[str, Any], whole: Any, overlap: Overlap) -> Any:
    """What of a collective is not hidden behind the compute of its part; what hides takes its share of the cover."""
    if c.group == "context" or (c.behind and c.group == "tensor"):
        exposed = maximum(seconds - parts[c.behind], 0.0)
        parts[c.behind] = parts[c.behind] - (seconds - exposed)
        return exposed
    if c.group == "expert" and overlap.expert:
        # Two micro-batches alternate (DualPipe, 1F1B all-to-all overlap): the other one's whole block is the cover.
        return maximum(seconds - 0.5 * whole, 0.0)
    if c.group == "tensor" and overlap.tensor:
        return maximum(seconds - minimum(seconds, whole / 4) * (1 - 1 / _TENSOR_CHUNKS), 0.0)
    return seconds
