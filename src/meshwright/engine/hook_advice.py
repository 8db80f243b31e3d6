"""Which communication hook a data-parallel run needs, if any: dense against compressed, by the planner's own times.

The model is replicated on every device (DDP). Gradients are float32 and travel in buckets during the last backward
pass of a step; what does not fit behind it, and the last bucket, is exposed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from meshwright.catalog.constants import constants
from meshwright.engine.communication import Network, algorithm_costs, collective_time, network
from meshwright.engine.evaluate import estimate_legal
from meshwright.engine.params import model_params
from meshwright.engine.placement import Group, place
from meshwright.engine.step import exposed
from meshwright.formulas.collectives import all_reduce_wire_bytes
from meshwright.formulas.compression import (
    block_quantised_bytes,
    gathered_pairs_wire_bytes,
    gathered_wire_bytes,
    two_shot_wire_bytes,
)
from meshwright.messages import N_, Text
from meshwright.spec.hook_advice import HookAdvice, HookOption
from meshwright.spec.plan import Problem
from meshwright.spec.strategy import Strategy

MIB = 2.0**20
BUCKETS = tuple(MIB * size for size in (1, 5, 10, 25, 50, 100, 250, 500))
DEFAULT_BUCKET = 25 * MIB  # of DistributedDataParallel
GRADIENT = 4.0  # bytes of an element
WORTH = 0.98  # a compressed step has to take at most this part of the dense one to be worth its risk

RISKS: dict[str, Text] = {
    "allreduce": Text(N_("none")),
    "bf16": Text(N_("low: no error feedback")),
    "int8": Text(N_("low to medium")),
    "powersgd": Text(N_("medium: start after the first steps")),
    "topk": Text(N_("high: needs warm-up, little momentum")),
    "onebit": Text(N_("high: needs a long dense start")),
}  # fmt: skip


class Traffic(NamedTuple):
    """A hook's communication of one bucket: seconds, and bytes a rank sends."""

    seconds: float
    wire: float


def advise(problem: Problem, micro_batch: int | None = None) -> HookAdvice:
    """Weigh every hook for `problem` as a DDP run over all its devices."""
    ranks = problem.cluster.devices
    per_rank = max(1, problem.job.global_batch // ranks)
    batch = min(micro_batch or 1, per_rank)
    assumed: tuple[Text, ...] = ASSUMED
    if micro_batch is None:
        assumed = (Text(N_("micro-batches of 1 sequence, because no size was given")), *ASSUMED)
    strategy = Strategy(framework="fsdp", data=ranks, sharding="none", micro_batch=batch)
    estimate = estimate_legal(problem, strategy)
    micro_batches = max(1, round(estimate.micro_batches))
    backward = _seconds(estimate.time, "compute.backward") / micro_batches
    compute = estimate.step_seconds - _seconds(estimate.time, "data_comm")
    net, group = network(problem.cluster), place(problem.cluster, strategy)["data"]
    elements = float(model_params(problem.model).total)
    known = constants("hooks", "default")
    bucket = _best_bucket(net, group, elements, backward)
    count = max(1, math.ceil(elements * GRADIENT / bucket))
    bandwidth = problem.cluster.accelerator.memory_bandwidth
    options: list[HookOption] = []
    for hook, traffic in _hooks(net, group, problem, known).items():
        sent = traffic(elements / count)
        moved = elements * GRADIENT * known.get(f"{hook}_passes", 0.0) / bandwidth
        open_seconds = float(exposed(count * sent.seconds, backward, float(count), True)) + moved
        options.append(
            HookOption(
                hook=hook, wire_bytes=count * sent.wire, communication_seconds=count * sent.seconds,
                compression_seconds=moved, exposed_seconds=open_seconds, step_seconds=compute + open_seconds,
                memory_bytes=_memory(hook, elements, problem, known), risk=RISKS[hook],
                costs_more=hook != "allreduce" and count * sent.seconds + moved > _dense_seconds(options),
            )
        )  # fmt: skip
    dense, rest = options[0], sorted(options[1:], key=lambda option: option.step_seconds)
    costs = algorithm_costs(net, group, "all_reduce", bucket)
    hidden = dense.communication_seconds <= backward
    recommended = dense.hook if hidden else _recommended(dense, rest)
    return HookAdvice(
        ranks=ranks, micro_batches=micro_batches, gradient_bytes=elements * GRADIENT, backward_seconds=backward,
        compute_seconds=compute, hidden=hidden, options=(dense, *rest), recommended=recommended,
        algorithm=min(costs, key=costs.__getitem__) if costs else "", bucket_bytes=bucket,
        local_sgd_period=max(1, math.ceil(dense.communication_seconds / (known["sync_share"] * compute))),
        fits=estimate.verdict != "OVER", reasons=_reasons(dense, rest, recommended, hidden, estimate.verdict),
        assumptions=(*problem.assumptions, *assumed),
    )  # fmt: skip


ASSUMED = (
    Text(N_("DistributedDataParallel: the model is replicated, gradients are float32")),
    Text(N_("PowerSGD: every weight is taken as a square matrix of the hidden size")),
    Text(N_("compression is bound by the memory of the device")),
)


def _dense_seconds(options: list[HookOption]) -> float:
    return options[0].communication_seconds if options else math.inf


def _seconds(time: Any, path: str) -> float:
    node = time.find(path)
    return float(node.value) if node is not None else 0.0


def _best_bucket(net: Network, group: Group, elements: float, backward: float) -> float:
    """The bucket that leaves least exposed; DDP's own size where no other is better by a percent."""

    def left_open(bucket: float) -> float:
        count = max(1, math.ceil(elements * GRADIENT / bucket))
        each = float(collective_time(net, group, "all_reduce", elements * GRADIENT / count))
        return float(exposed(count * each, backward, float(count), True))

    best = min(BUCKETS, key=left_open)
    return DEFAULT_BUCKET if left_open(DEFAULT_BUCKET) <= 1.01 * left_open(best) else best


def _hooks(
    net: Network, group: Group, problem: Problem, known: Mapping[str, Any]
) -> dict[str, Callable[[float], Traffic]]:
    """What each hook does with a bucket of so many elements."""
    ranks = int(group.ranks)

    def seconds(operation: str, payload: float) -> float:
        return float(collective_time(net, group, operation, payload)) if ranks > 1 else 0.0

    def dense(elements: float, size: float = GRADIENT) -> Traffic:
        payload = elements * size
        return Traffic(seconds("all_reduce", payload), float(all_reduce_wire_bytes(payload, ranks)))

    def int8(elements: float) -> Traffic:
        message = float(block_quantised_bytes(elements, 8, known["int8_block"]))
        both = seconds("all_to_all", message) + seconds("all_gather", message)
        return Traffic(both, float(two_shot_wire_bytes(message, ranks)))

    def powersgd(elements: float) -> Traffic:
        factor = elements * GRADIENT * min(1.0, known["powersgd_rank"] / problem.model.hidden)
        return Traffic(2 * seconds("all_reduce", factor), 2 * float(all_reduce_wire_bytes(factor, ranks)))

    def topk(elements: float) -> Traffic:
        kept = max(1.0, elements * known["topk_ratio"])
        return Traffic(seconds("all_gather", 8.0 * kept * ranks), float(gathered_pairs_wire_bytes(kept, ranks)))

    def onebit(elements: float) -> Traffic:
        message = float(block_quantised_bytes(elements, 1, known["onebit_block"]))
        return Traffic(seconds("all_gather", message * ranks), float(gathered_wire_bytes(message, ranks)))

    return {
        "allreduce": dense, "bf16": lambda elements: dense(elements, 2.0), "int8": int8, "powersgd": powersgd,
        "topk": topk, "onebit": onebit,
    }  # fmt: skip


def _memory(hook: str, elements: float, problem: Problem, known: Mapping[str, Any]) -> float:
    """More bytes per rank than dense: error feedback in float32, and PowerSGD's right factors."""
    if hook in ("allreduce", "bf16"):
        return 0.0
    factors = elements * GRADIENT * known["powersgd_rank"] / problem.model.hidden if hook == "powersgd" else 0.0
    return elements * GRADIENT + float(factors)


def _recommended(dense: HookOption, rest: list[HookOption]) -> str:
    """The least risky hook whose step is within two percent of the fastest, if that beats dense at all."""
    worth = [option for option in rest if option.step_seconds < WORTH * dense.step_seconds]
    if not worth:
        return dense.hook
    close = {o.hook for o in worth if o.step_seconds <= worth[0].step_seconds / WORTH}
    return next(hook for hook in RISKS if hook in close)


def _reasons(
    dense: HookOption, rest: list[HookOption], recommended: str, hidden: bool, verdict: str
) -> tuple[Text, ...]:
    found = []
    if hidden:
        found.append(Text(N_("the all-reduce takes less than the backward pass it hides behind: no hook is needed")))
    elif recommended == dense.hook:
        found.append(Text(N_("no hook makes the step at least 2 % faster: keep the plain all-reduce")))
    else:
        found.append(Text(N_("the all-reduce takes longer than the backward pass: a part of it is exposed")))
    more = [option.hook for option in rest if option.costs_more]
    if more:
        found.append(Text(N_("on this cluster these take longer than dense: {names}"), names=", ".join(more)))
    if verdict == "OVER":
        found.append(Text(N_("a whole copy of the model with its optimizer does not fit one device: shard it (FSDP)")))
    return tuple(found)
