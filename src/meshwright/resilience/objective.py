"""The useful share of time as an objective: what `plan --goal goodput` and `size` divide the speed by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from meshwright.catalog.hardware import resize
from meshwright.resilience.checkpoint import sizes, times
from meshwright.resilience.failures import failure_model
from meshwright.resilience.goodput import useful
from meshwright.resilience.plan import Options, setting, storage_of
from meshwright.resilience.policies import Setting, policy
from meshwright.resilience.spares import spares
from meshwright.spec.plan import Problem
from meshwright.spec.resilience import FailureModel, Spares, Storage
from meshwright.spec.strategy import Strategy

Share = Callable[[Strategy, float], float]
_OF_SIZES = (
    "framework", "tensor", "pipeline", "virtual", "context", "expert", "expert_tensor", "data", "sharding", "shard",
    "offload", "schedule", "layers_per_stage",
)  # fmt: skip


def share(problem: Problem, options: Options | None = None) -> Share:
    """A function from a strategy and the seconds of its step to the useful share of its time.

    The strategy may be of another number of devices of the same hardware: failures, storage and spares follow.
    """
    o = options or Options()
    hardware: dict[int, _Here] = {}
    settings: dict[tuple[object, ...], Setting] = {}

    def of(strategy: Strategy, step: float) -> float:
        key = tuple(getattr(strategy, name) for name in _OF_SIZES)
        if key not in settings:
            devices = strategy.devices
            if devices not in hardware:
                hardware[devices] = _here(problem, devices, o)
            settings[key] = _setting(hardware[devices], strategy, step, o)
        x = settings[key]._replace(step=step)
        return float(useful(policy(o.mode or "async", x), x.failures.mtti, o.slowdown))

    return of


class _Here(NamedTuple):
    """What follows from the number of devices alone."""

    problem: Problem
    failures: FailureModel
    storage: Storage
    spares: Spares


def _here(problem: Problem, devices: int, o: Options) -> _Here:
    cluster = problem.cluster if devices == problem.cluster.devices else resize(problem.cluster, devices)
    mtti = None if o.mtti is None else o.mtti * problem.cluster.nodes / cluster.nodes
    failures = failure_model(cluster, o.source, mtti_given=mtti)
    held = spares(failures, o.spare_kind, nodes=o.spare_nodes, repair=o.repair)
    return _Here(replace(problem, cluster=cluster), failures, storage_of(cluster, o), held)


def _setting(here: _Here, strategy: Strategy, step: float, o: Options) -> Setting:
    of = sizes(here.problem, strategy, o.hook_bytes)
    took = times(here.problem.cluster, of, here.storage)
    return setting(here.problem, strategy, step, here.failures, of, took, here.spares, o)
