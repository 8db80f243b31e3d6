"""The useful share of time as an objective: what `plan --goal goodput` and `size` divide the speed by."""

from __future__ import annotations

from collections.abc import Callable

from meshwright.resilience.goodput import useful
from meshwright.resilience.policies import Setting, policy
from meshwright.resilience.situation import Hardware, Options, hardware, situation
from meshwright.spec.plan import Problem
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
    known: dict[int, Hardware] = {}
    settings: dict[tuple[object, ...], Setting] = {}

    def of(strategy: Strategy, step: float) -> float:
        key = tuple(getattr(strategy, name) for name in _OF_SIZES)
        if key not in settings:
            devices = strategy.devices
            if devices not in known:
                known[devices] = hardware(problem, o, devices)
            settings[key] = situation(known[devices], strategy, step, o).setting
        x = settings[key]._replace(step=step)
        return float(useful(policy(o.mode or "async", x), x.failures.mtti, o.slowdown))

    return of
