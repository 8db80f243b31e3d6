"""Seconds of one block on one rank: compute by part, recompute, and the communication that stays exposed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from meshwright.engine.kernels import Rates, operator_time
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
    host: Any  # launch-bound excess

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
            return {"matmul": 0.5, "grouped_matmul": 0.5, "memory": 1.0}.get(kind, 0.0)
        return 1.0 if group in self.groups else 0.0


class Overlap(NamedTuple):
    """Which communication the strategy hides behind compute."""

    tensor: bool = False
    expert: bool = False


# Communication split into chunks behind a product still exposes its first chunk (four chunks by default in
# Transformer Engine's user buffers).
_TENSOR_CHUNKS = 4


def block_cost(
    walk: Walk, r: Rates, collective_time: CollectiveTime, recompute: Recompute, overlap: Overlap
) -> BlockCost:
    """Cost of a walk under one recompute mode; `full` repeats the forward pass with its communication."""
    forward: dict[str, Any] = {}
    backward: dict[str, Any] = {}
    again: Any = 0.0
    for op in walk.operators:
        f, b = operator_time(op, r)
        forward[op.part] = forward.get(op.part, 0.0) + f
        backward[op.part] = backward.get(op.part, 0.0) + b
        if share := recompute.share(op.kind, op.group):
            again = again + share * f
    comm_f: dict[str, Any] = {}
    comm_b: dict[str, Any] = {}
    hidden: Any = 0.0
    for c in walk.collectives:
        seconds = collective_time(c)
        group = _GROUP_OF[c.group]
        parts = forward if c.phase == "forward" else backward
        exposed = _exposed(c, seconds, parts, overlap)
        hidden = hidden + (seconds - exposed)
        target = comm_f if c.phase == "forward" else comm_b
        target[group] = target.get(group, 0.0) + exposed
        repeat = recompute.share("matmul", c.recompute_group) if c.phase == "forward" else 0.0
        if repeat:
            comm_b[group] = comm_b.get(group, 0.0) + repeat * exposed
    kernels = len(walk.operators)
    host = maximum(kernels * r.host_launch - sum(forward.values()) - sum(comm_f.values()), 0.0)
    host = host + maximum(2 * kernels * r.host_launch - sum(backward.values()) - sum(comm_b.values()), 0.0)
    return BlockCost(forward, backward, again, comm_f, comm_b, hidden, host)


def _exposed(c: Collective, seconds: Any, parts: dict[str, Any], overlap: Overlap) -> Any:
    """What of a collective is not hidden behind the compute of its part."""
    if c.group == "context" or (c.behind and c.group == "tensor"):
        return maximum(seconds - parts[c.behind], 0.0)
    if c.group == "expert" and overlap.expert:
        # Two micro-batches alternate (DualPipe, 1F1B all-to-all overlap): the other one's whole block is the cover.
        return maximum(seconds - 0.5 * sum(parts.values()), 0.0)
    if c.group == "tensor" and overlap.tensor:
        return maximum(seconds - minimum(seconds, sum(parts.values()) / 4) * (1 - 1 / _TENSOR_CHUNKS), 0.0)
    return seconds
