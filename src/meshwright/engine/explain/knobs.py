"""What would change a term: its knobs, and what the neighbours of a plan would make of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from meshwright.engine.evaluate import evaluate
from meshwright.engine.explain.case import Case
from meshwright.engine.explain.words import label, labels, shown
from meshwright.messages import N_, Text
from meshwright.spec.estimate import Estimate
from meshwright.spec.plan import Section
from meshwright.spec.strategy import OFFLOADS, RECOMPUTES, SCHEDULES, SHARDINGS, Strategy

SHOWN = 6  # neighbours listed per direction
WORTH = 0.01  # a change below this share of the term is noise

_STATES = ("sharding", "tensor", "pipeline", "expert", "data", "offload", "precision")
_COMM = ("micro_batch", "overlap_tensor", "link_bandwidth", "nic_bandwidth")

# What a term depends on most, by name in the glossary.
KNOBS: dict[str, tuple[str, ...]] = {
    "parameters": _STATES,
    "gradients": _STATES,
    "main_parameters": _STATES,
    "optimizer": _STATES,
    "states": _STATES,
    "activations": ("recompute", "micro_batch", "tensor", "sequence_parallel", "context", "pipeline", "offload"),
    "end_activations": ("micro_batch", "tensor", "context"),
    "logits": ("micro_batch", "vocab", "tensor", "context"),
    "gathered_units": ("sharding", "tensor", "hidden"),
    "gradient_units": ("sharding", "tensor", "hidden"),
    "buckets": ("sharding", "software"),
    "pipeline_buffers": ("micro_batch", "tensor", "context"),
    "sequence_gather": ("micro_batch", "context", "sequence_parallel"),
    "reserve": ("framework",),
    "device": ("sharding", "recompute", "micro_batch", "tensor", "pipeline", "context", "offload"),
    "host": ("offload", "framework", "node_size"),
    "compute": ("devices", "recompute", "precision", "micro_batch", "tensor"),
    "forward": ("devices", "precision", "micro_batch", "tensor"),
    "backward": ("devices", "precision", "micro_batch", "tensor"),
    "recompute": ("recompute", "recompute_ops"),
    "attention": ("seq_len", "devices", "tensor", "context"),
    "mlp": ("devices", "tensor", "precision"),
    "moe": ("devices", "expert", "precision", "expert_imbalance"),
    "tensor_comm": ("tensor", "sequence_parallel", *_COMM, "recompute"),
    "context_comm": ("context", "seq_len", "micro_batch", "nic_bandwidth"),
    "expert_comm": ("expert", "overlap_expert", "precision", "nic_bandwidth"),
    "pipeline_comm": ("pipeline", "virtual", "micro_batch", "nic_bandwidth"),
    "bubble": ("pipeline", "virtual", "schedule", "micro_batches", "micro_batch", "global_batch"),
    "data_comm": ("sharding", "overlap_grad_reduce", "overlap_param_gather", "global_batch", "nic_bandwidth"),
    "param_gather": ("sharding", "shard", "overlap_param_gather", "nic_bandwidth"),
    "grad_reduce": ("sharding", "shard", "overlap_grad_reduce", "nic_bandwidth"),
    "contention": ("overlap_grad_reduce", "overlap_param_gather"),
    "host_overhead": ("micro_batch", "tensor"),
    "data_loading": ("data_time",),
    "step": ("devices", "tensor", "pipeline", "micro_batch", "recompute", "schedule", "precision"),
    "mfu": ("tensor", "pipeline", "micro_batch", "recompute", "global_batch"),
    "hfu": ("tensor", "pipeline", "micro_batch", "global_batch"),
    "tokens_per_second": ("devices", "tensor", "pipeline", "micro_batch", "recompute", "precision"),
    "tokens_per_second_per_device": ("tensor", "pipeline", "micro_batch", "recompute", "precision"),
    "days": ("devices", "tokens", "precision"),
    "dollars_per_step": ("price", "devices", "tensor", "pipeline", "micro_batch"),
    "joules_per_step": ("devices", "tensor", "pipeline", "micro_batch"),
    "micro_batches": ("global_batch", "data", "micro_batch"),
    "peak_bytes": ("sharding", "recompute", "micro_batch", "tensor", "pipeline", "context", "offload"),
}


class Change(NamedTuple):
    """One neighbour: which field changed, from what to what."""

    field: str
    old: Any
    new: Any
    strategy: Strategy


def depends_on(name: str) -> tuple[Text, ...]:
    """The knobs of a term in words."""
    knobs = KNOBS.get(name)
    return (Text(N_("it depends most on: {knobs}"), knobs=labels(knobs)),) if knobs else ()


def neighbours(s: Strategy) -> Iterator[Change]:
    """Strategies that differ in one decision, on the same devices."""
    for field in ("tensor", "pipeline", "context", "expert", "micro_batch", "virtual"):
        old = int(getattr(s, field))
        for new in (old * 2, old // 2):
            changed = _scaled(s, field, old, new) if new else None
            if changed is not None:
                yield Change(field, old, new, changed)
    choices: tuple[str, ...]
    for field, choices in (
        ("recompute", RECOMPUTES),
        ("sharding", SHARDINGS),
        ("schedule", SCHEDULES),
        ("offload", OFFLOADS),
    ):
        old_choice = getattr(s, field)
        if field == "schedule" and (s.pipeline == 1 or s.virtual > 1):
            continue
        yield from (Change(field, old_choice, c, _with(s, {field: c})) for c in choices if c != old_choice)
    for field in (
        "overlap_grad_reduce",
        "overlap_param_gather",
        "overlap_tensor",
        "overlap_expert",
        "sequence_parallel",
    ):
        old_flag = bool(getattr(s, field))
        yield Change(field, old_flag, not old_flag, _with(s, {field: not old_flag}))
    if s.precision != "fp8":
        yield Change("precision", s.precision, "fp8", replace(s, precision="fp8"))


def _with(s: Strategy, fields: dict[str, Any]) -> Strategy:
    return replace(s, **fields)


def _scaled(s: Strategy, field: str, old: int, new: int) -> Strategy | None:
    """`field` at `new`, the data-parallel degree making up for it; None where that is no whole number."""
    fields: dict[str, Any] = {field: new}
    if field in ("tensor", "pipeline", "context"):
        if s.data * old % new:
            return None
        fields["data"] = s.data * old // new
    if field == "tensor" and s.expert_tensor == s.tensor:
        fields["expert_tensor"] = new
    if field == "pipeline" and new == 1:
        fields |= {"virtual": 1, "schedule": "1f1b"}
    if field == "virtual":
        fields["schedule"] = "interleaved" if new > 1 else "1f1b"
        if s.pipeline == 1:
            return None
    return replace(s, layers_per_stage=(), **fields)


def what_changes_it(case: Case, name: str, unit: str, now: float, read: Callable[[Estimate], float | None]) -> Section:
    """The term in every legal neighbour that moves it, largest changes first; `read` finds it in an estimate."""
    moved: list[tuple[float, Change, Estimate]] = []
    for change in neighbours(case.strategy):
        answer = evaluate(case.problem, change.strategy)
        value = read(answer) if isinstance(answer, Estimate) else None
        if value is not None and isinstance(answer, Estimate) and abs(value - now) > WORTH * abs(now):
            moved.append((value, change, answer))
    moved.sort(key=lambda item: item[0])
    below, above = [m for m in moved if m[0] < now][:SHOWN], [m for m in moved if m[0] > now][::-1][:SHOWN]
    body = [*depends_on(name)]
    if below or above:
        body.append(Text(N_("with one decision changed, all else equal ({value} now):"), value=shown(now, unit)))
        body += [_line(value, unit, change, answer) for value, change, answer in (*below, *above)]
    return Section(title=Text(N_("What would change it")), body=tuple(body))


def _line(value: float, unit: str, change: Change, answer: Estimate) -> Text:
    return Text(
        N_("{knob} {old} → {new}: {value}; the step takes {step}, memory {verdict}"),
        knob=label(change.field),
        old=_choice(change.old),
        new=_choice(change.new),
        value=shown(value, unit),
        step=shown(answer.step_seconds, "s"),
        verdict=label(answer.verdict),
    )


def _choice(value: Any) -> Any:
    if isinstance(value, bool):
        return Text(N_("on")) if value else Text(N_("off"))
    return label(value) if value in ("none", "selective", "full") else str(value)
