"""The seconds of a step as a tree of named terms that sums to the step (numbers only)."""

from __future__ import annotations

from collections.abc import Sequence

from meshwright.engine.block import BlockCost
from meshwright.engine.stages import StageClass
from meshwright.engine.step import Step
from meshwright.spec.estimate import Certainty, Term, total

_FORMULA = {
    "attention": "roofline.time",
    "norm": "roofline.time",
    "loss": "roofline.time",
    "embedding": "roofline.time",
}
COMM = ("tensor", "context", "expert")


def _contributions(
    stage: StageClass, kinds: Sequence[BlockCost], head: BlockCost, embedding: BlockCost, mtp_kind: int
) -> list[tuple[float, BlockCost]]:
    """Every cost on the stage with how often it runs per micro-batch."""
    out = [(float(n), cost) for n, cost in zip(stage.counts, kinds, strict=True) if n]
    if stage.embedding:
        out.append((1.0, embedding))
    if stage.head:
        out.append((1.0, head))
    if stage.mtp:
        out += [(1.0, kinds[mtp_kind]), (1.0, head)]
    return out


def _pass(name: str, parts: dict[str, float]) -> Term:
    leaves = tuple(Term(k, v, "s", "modelled", _FORMULA.get(k, "roofline.matmul.time")) for k, v in parts.items() if v)
    return total(name, "s", leaves)


def time_tree(
    step: Step,
    micro_batches: float,
    stage: StageClass,
    kinds: Sequence[BlockCost],
    head: BlockCost,
    embedding: BlockCost,
    mtp_kind: int,
    schedule: str,
    torus: bool = False,
) -> Term:
    """Tree of a step: compute and exposed communication of the slowest stage, bubble, states, optimizer, host."""
    forward: dict[str, float] = {}
    backward: dict[str, float] = {}
    comm = dict.fromkeys(COMM, 0.0)
    again = 0.0
    for n, cost in _contributions(stage, kinds, head, embedding, mtp_kind):
        n *= micro_batches * stage.share
        for name, value in cost.forward_parts.items():
            forward[name] = forward.get(name, 0.0) + n * value
        for name, value in cost.backward_parts.items():
            backward[name] = backward.get(name, 0.0) + n * value
        again += n * cost.recompute
        for side in (cost.forward_comm, cost.backward_comm):
            for name, value in side.items():
                comm[name] += n * value
    passes = [_pass("forward", forward), _pass("backward", backward)]
    if again:
        passes.append(Term("recompute", again, "s", "modelled", "roofline.matmul.time"))
    fitted: Certainty = "fitted"
    switched = {"gather": "comm.pipelined", "exchange": "moe.all_to_all", "send": "comm.pipelined"}
    on_torus = {"gather": "comm.torus.all_gather", "exchange": "comm.torus.all_to_all", "send": "comm.torus.send"}
    wire = on_torus if torus else switched
    schedule_formula = {"gpipe": "1f1b", "zb-h1": "zb_h1"}.get(schedule, schedule)
    leaves = [
        total("compute", "s", tuple(passes)),
        Term("tensor_comm", comm["tensor"], "s", fitted, wire["gather"]),
        Term("context_comm", comm["context"], "s", fitted, wire["gather"]),
        Term("expert_comm", comm["expert"], "s", fitted, wire["exchange"]),
        Term("pipeline_comm", step.pipeline_comm, "s", fitted, wire["send"]),
        Term("bubble", step.bubble, "s", "modelled", f"pipeline.bubble.{schedule_formula}"),
        total(
            "data_comm",
            "s",
            (
                Term("param_gather", step.param_gather, "s", fitted, wire["gather"]),
                Term("grad_reduce", step.grad_reduce, "s", fitted, wire["gather"]),
                Term("contention", step.contention, "s", "assumed", ""),
            ),
        ),
        Term("optimizer", step.optimizer, "s", "modelled", "optimizer.update"),
        Term("host_overhead", step.host, "s", "assumed", ""),
        Term("data_loading", step.data, "s", "assumed", ""),
    ]
    return total("step", "s", tuple(t for t in leaves if t.value))
