"""What every answer starts from: what was said of failures and storage, and what follows for one strategy somewhere."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

from meshwright.catalog import failures as known
from meshwright.catalog.hardware import resize
from meshwright.engine.search.space import divisors
from meshwright.messages import N_, Text
from meshwright.resilience.checkpoint import Sizes, Times, sizes, times
from meshwright.resilience.failures import failure_model
from meshwright.resilience.policies import Setting
from meshwright.resilience.simulate import SEED
from meshwright.resilience.spares import spares, waiting
from meshwright.spec.cluster import Cluster
from meshwright.spec.plan import Problem
from meshwright.spec.resilience import FailureModel, FailureSource, Mode, SpareKind, Spares, Storage
from meshwright.spec.strategy import Strategy
from meshwright.units import show_bandwidth

WHOLE_STATES = 16.0  # bytes per parameter of weights, gradients, master weights and moments


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What may be said about how a run survives; None: the default, which is listed as an assumption."""

    source: FailureSource | None = None
    mtti: float | None = None  # measured on this cluster  [s]
    mode: Mode | None = None
    storage: str | None = None
    write: float | None = None  # of storage, all nodes together  [B/s]
    read: float | None = None
    interval: float | None = None  # useful work between saves to storage  [s]
    steps: int | None = None  # the same in steps
    recovery: str = "automatic"
    spare_kind: SpareKind = "warm"
    spare_nodes: int | None = None
    repair: float | None = None  # [s]
    slowdown: float = 0.0
    kept: int = 2
    hook_bytes: float = 0.0
    measured: float | None = None  # useful share that a run reached
    trials: int = 200
    seed: int = SEED


def storage_of(cluster: Cluster, options: Options) -> Storage:
    """The storage that was named, or the default; given rates replace its own."""
    card = cluster.nic_bandwidth * min(cluster.node_size, cluster.devices)
    found = known.storage(options.storage or known.DEFAULT_STORAGE, cluster.nodes, card or math.inf)
    if options.write is not None or options.read is not None:
        write = options.write or options.read or found.write
        found = replace(found, write=write, read=options.read or write, node_write=card or write,
                        node_read=card or write)  # fmt: skip
        if options.storage is None:
            found = replace(found, id="given", title="")
    elif options.storage is None:
        text = N_("storage writes {write} and reads {read} over all nodes ({name}), because none was given")
        said = Text(text, write=show_bandwidth(found.write), read=show_bandwidth(found.read), name=found.id)
        found = replace(found, assumptions=(said,))
    return found


def replica_groups(problem: Problem, strategy: Strategy, of: Sizes) -> int:
    """Groups of devices that each hold every state, so that one can leave: data-parallel, or of HSDP.

    Where states are divided over all replicas: as many as there would be if each group were the smallest whole number
    of model copies, and of hosts, that has room for the states in half of its memory.
    """
    copies = strategy.data * strategy.context
    if strategy.sharding == "none":
        return int(copies)
    if strategy.shard and strategy.shard < copies:
        return int(copies // strategy.shard)
    cluster, mesh = problem.cluster, strategy.tensor * strategy.pipeline
    states = of.total * WHOLE_STATES / max(of.per_parameter, 1.0)
    least = max(states / (cluster.accelerator.memory_usable_bytes / 2), min(cluster.node_size, cluster.devices))
    ranks = next((d for d in divisors(copies) if d * mesh >= least), copies)
    return int(copies // ranks)


class Hardware(NamedTuple):
    """What follows from the number of devices alone."""

    problem: Problem  # on so many devices
    failures: FailureModel
    storage: Storage
    spares: Spares

    @property
    def assumptions(self) -> tuple[Text, ...]:
        """What is assumed of failures and storage."""
        return (*self.failures.assumptions, *self.storage.assumptions)


class Situation(NamedTuple):
    """One strategy on some hardware: its checkpoint, and what policies are built from."""

    hardware: Hardware
    sizes: Sizes
    times: Times
    setting: Setting


def hardware(problem: Problem, o: Options, devices: int | None = None) -> Hardware:
    """Failures, storage and spares on `devices` devices (default: all); a mean time that was measured on the problem's
    cluster says a rate for each node, which holds on any number of them.
    """
    cluster = problem.cluster if devices in (None, problem.cluster.devices) else resize(problem.cluster, devices or 0)
    mtti = None if o.mtti is None else o.mtti * problem.cluster.nodes / cluster.nodes
    failures = failure_model(cluster, o.source, mtti_given=mtti)
    held = spares(failures, o.spare_kind, nodes=o.spare_nodes, repair=o.repair)
    return Hardware(replace(problem, cluster=cluster), failures, storage_of(cluster, o), held)


def situation(here: Hardware, strategy: Strategy, step: float, o: Options, on: Cluster | None = None) -> Situation:
    """The checkpoint of `strategy`, its times on the nodes of `on` (default: all), and the setting of its policies."""
    cluster = here.problem.cluster
    of = sizes(here.problem, strategy, o.hook_bytes)
    took = times(on or cluster, of, here.storage)
    card = cluster.nic_bandwidth * min(cluster.node_size, cluster.devices)
    groups = replica_groups(here.problem, strategy, of)
    x = Setting(
        step=step,
        failures=here.failures,
        times=took,
        wait=waiting(here.failures, here.spares),
        recovery=o.recovery,
        hot=here.spares.kind == "hot",
        groups=groups,
        # All nodes of a group fetch its states from another group together.
        heal_load=of.total / (card * max(1.0, cluster.nodes / groups)) if card else took.read,
    )
    return Situation(here, of, took, x)
