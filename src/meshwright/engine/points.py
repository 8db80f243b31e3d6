"""The best strategy at one device count: what `scale` and `size` ask again and again."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from meshwright.catalog.hardware import resize
from meshwright.engine.evaluate import estimate_legal
from meshwright.engine.kernels import LOW_PRECISION
from meshwright.engine.params import model_params
from meshwright.engine.search.legal import SPACE, nothing_legal
from meshwright.engine.search.plan import Columns, search
from meshwright.engine.search.rank import fitting, order
from meshwright.engine.search.space import (
    Constraints,
    context_degrees,
    divisors,
    frameworks_for,
    tensor_degrees,
)
from meshwright.errors import InputError
from meshwright.messages import N_, Text
from meshwright.spec.cluster import Cluster
from meshwright.spec.estimate import Estimate, Term
from meshwright.spec.plan import Problem, ScalePoint

MEMORY = "memory"  # why a count fails, beside BATCH, SPACE and the ids of rules


class Found(NamedTuple):
    """What one device count gives: the best estimate, or why there is none."""

    devices: int
    batch: int
    estimate: Estimate | None
    blocker: str = ""  # BATCH, MEMORY, SPACE or a rule id
    reason: Text | None = None


def at(problem: Problem, devices: int) -> Problem:
    """The problem on another number of devices; what the size itself assumed replaces the old assumption."""
    cluster = resize(problem.cluster, devices)
    return replace(problem, cluster=cluster)


def best_at(problem: Problem, devices: int, batch: int, constraints: Constraints) -> Found:
    """The strategy that `plan` would rank first on `devices` devices, without the rest of a plan."""
    try:
        here = at(problem, devices)
    except InputError as error:
        return Found(devices, batch, None, SPACE, error.text)
    here = replace(here, job=replace(problem.job, global_batch=batch))
    if reason := _too_small(here, constraints):
        return Found(devices, batch, None, MEMORY, reason)
    columns, pool = search(here, constraints)
    if not len(columns.peak):
        return Found(devices, batch, None, *nothing_legal(pool.rejected, pool.candidates, devices, batch))
    fits = fitting(here, columns, constraints.max_memory_fraction)
    if not fits.any():
        return Found(devices, batch, None, MEMORY, _nothing_fits(here, columns, constraints))
    best = int(order(columns, fits, "fastest")[0])
    return Found(devices, batch, estimate_legal(here, columns.strategy(best)))


def _too_small(problem: Problem, constraints: Constraints) -> Text | None:
    """Why no strategy can fit, where the weights alone say so (each device holds at least its share of them)."""
    if "parameters" in constraints.offload:
        return None
    cluster = problem.cluster
    weights = model_params(problem.model).total * (1 if problem.job.precision in LOW_PRECISION else 2)
    room = cluster.accelerator.memory_usable_bytes * cluster.devices * constraints.max_memory_fraction
    if weights <= room:
        return None
    return Text(
        N_("the weights alone take {need} GiB, and {devices} devices have {have} GiB together"),
        need=f"{weights / 2**30:,.0f}",
        devices=cluster.devices,
        have=f"{room / 2**30:,.0f}",
    )


def _nothing_fits(problem: Problem, columns: Columns, constraints: Constraints) -> Text:
    """How far the smallest strategy is from the memory of a device, or of a host."""
    capacity = problem.cluster.accelerator.memory_usable_bytes * constraints.max_memory_fraction
    need = float(columns.peak.min())
    if need <= capacity:
        need, capacity = float(columns.host[columns.peak <= capacity].min()), problem.cluster.host_memory_bytes or 0.0
        text = N_("what is offloaded needs {need} GiB of host memory, and a host has {have} GiB")
        return Text(text, need=f"{need / 2**30:,.1f}", have=f"{capacity / 2**30:,.1f}")
    return Text(
        N_("the smallest of {legal} legal strategies needs {need} GiB a device, and {have} GiB can be used"),
        legal=f"{len(columns.peak):,}",
        need=f"{need / 2**30:,.1f}",
        have=f"{capacity / 2**30:,.1f}",
    )


# ------------------------------------------------------------------------------------------------ counts


def feasible_counts(problem: Problem, constraints: Constraints, limit: int) -> dict[int, int]:
    """Whole-node counts up to `limit` whose meshes can split the batch, with the number of ways to do so, ascending.

    devices = tensor · context · pipeline · data, and `data` divides the global batch.
    """
    model, cluster, job = problem.model, problem.cluster, problem.job
    data = np.array([d for d in divisors(job.global_batch) if not constraints.data or d in constraints.data])
    ways: dict[int, int] = {}
    if not len(data):
        return ways
    for framework in frameworks_for(cluster, constraints):
        tensors = constraints.tensor or tensor_degrees(model, cluster, framework)
        contexts = constraints.context or context_degrees(job, framework)
        single = framework in ("deepspeed", "jax")
        pipelines = constraints.pipeline or ((1,) if single else range(1, model.layers + 1))
        inner = np.array([t * c * p for t, c, p in itertools.product(tensors, contexts, pipelines)])
        products = np.outer(inner, data).ravel()
        values, count = np.unique(products[products <= limit], return_counts=True)
        for n, w in zip(values.tolist(), count.tolist(), strict=True):
            ways[n] = ways.get(n, 0) + w
    unit = cluster.node_size if limit >= cluster.node_size else 1
    return {n: ways[n] for n in sorted(ways) if n % unit == 0 and _exists(cluster, n)}


def _exists(cluster: Cluster, devices: int) -> bool:
    """Whether the hardware comes in this size (slices of a torus do not come in every)."""
    if cluster.accelerator.torus is None:
        return True
    try:
        resize(cluster, devices)
    except InputError:
        return False
    return True


def usual(ways: Mapping[int, int], window: Sequence[int]) -> list[int]:
    """Counts of a window that can be partitioned in many ways: throughput is close to monotone over them."""
    most = max((ways[n] for n in window), default=0)
    return [n for n in window if ways[n] * 2 >= most]


def rungs(ways: Mapping[int, int], unit: int) -> list[int]:
    """From feasible counts one for each doubling of `unit`.

    The power of two where it is feasible, else the count that can be partitioned in most ways.
    """
    counts = list(ways)
    if not counts:
        return []
    out = set()
    step = min(unit, counts[0])
    while step <= counts[-1]:
        inside = [n for n in counts if step <= n < 2 * step]
        if inside:
            out.add(step if step in ways else max(inside, key=lambda n: (ways[n], -n)))
        step *= 2
    return sorted(out)


def grown_batch(batch: int, base: int, devices: int) -> int:
    """A batch with the same sequences per device as `batch` on `base` devices; rounded to what `devices` can split.

    >>> grown_batch(1024, 512, 2048), grown_batch(64, 512, 100)
    (4096, 12)
    """
    exact = batch * devices / base
    if batch * devices % base == 0:
        return batch * devices // base
    reach = min(max(exact * 0.05, 1.0), 1000.0)
    near = range(max(1, math.ceil(exact - reach)), math.floor(exact + reach) + 1)
    return max(near, key=lambda b: (math.gcd(b, devices), -abs(b - exact)))


# ------------------------------------------------------------------------------------------------ points


def share_of(time: Term, step: float, *names: str) -> float:
    """Share of a step that top-level terms take: those named, or all exposed communication."""
    chosen = [t.value for t in time.children if (t.name in names if names else t.name.endswith("_comm"))]
    return float(sum(chosen)) / step


def dollars_per_token(estimate: Estimate) -> float | None:
    """Price of one token, or None where no price is known."""
    if estimate.dollars_per_step is None:
        return None
    return estimate.dollars_per_step / (estimate.tokens_per_second * estimate.step_seconds)


def as_points(found: Sequence[Found]) -> tuple[ScalePoint, ...]:
    """Points with what they are relative to each other: efficiency and marginal gain."""
    rates = [f.estimate.tokens_per_second_per_device for f in found if f.estimate]
    best = max(rates, default=1.0)
    out, before = [], None
    for f in found:
        e = f.estimate
        if e is None:
            blank = dict.fromkeys(("efficiency", "exposed_communication", "bubble", "marginal", "dollars_per_token"))
            out.append(ScalePoint(devices=f.devices, global_batch=f.batch, estimate=None, reason=f.reason, **blank))
            continue
        marginal = None
        if before is not None:
            more = e.tokens_per_second - before[1]
            marginal = more / (f.devices - before[0]) / best
        before = (f.devices, e.tokens_per_second)
        out.append(
            ScalePoint(
                devices=f.devices,
                global_batch=f.batch,
                estimate=e,
                efficiency=e.tokens_per_second_per_device / best,
                exposed_communication=share_of(e.time, e.step_seconds),
                bubble=share_of(e.time, e.step_seconds, "bubble"),
                marginal=marginal,
                dollars_per_token=dollars_per_token(e),
                reason=f.reason,
            )
        )
    return tuple(out)
