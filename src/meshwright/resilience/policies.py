"""Ways to save and recover, each with the interval that loses least."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from meshwright.catalog.failures import common, recovery_times
from meshwright.formulas.failures import failure_probability, pair_loss
from meshwright.formulas.goodput import exact_interval
from meshwright.resilience.checkpoint import Times
from meshwright.resilience.goodput import useful
from meshwright.spec.resilience import FailureModel, Mode, Policy, Recovery

_NEIGHBOURS = (0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0)  # of the interval of each tier alone


class Setting(NamedTuple):
    """What every policy is built from, at one size of cluster."""

    step: float  # seconds of one step: intervals are whole steps
    failures: FailureModel
    times: Times
    wait: float  # for a machine
    recovery: str = "automatic"  # or manual
    hot: bool = False
    groups: int = 1  # replicas that can leave and join
    heal_load: float = 0.0  # to fetch the states of a replica from another one

    def back(self, load: float, needs: float | None = None) -> Recovery:
        """From a failure to the first new step, when the states take `load` seconds to come back.

        `needs` is the share of such failures after which a machine is needed (default: as of all failures).
        """
        usual = self.failures.share("node", "several")
        share = 1.0 if needs is None or usual <= 0 else needs / usual
        known = recovery_times(self.recovery)
        return Recovery(
            detect=known["detect"],
            wait=0.0 if self.hot else self.wait * share,
            reschedule=common()["swap"] if self.hot else known["reschedule"],
            load=load,
            initialise=known["initialise"],
        )

    def steps(self, interval: float) -> float:
        """The interval as whole steps, in seconds."""
        return max(1, round(interval / self.step)) * self.step

    def at_least(self, interval: float, least: float) -> float:
        """The interval as whole steps of not less than `least` seconds."""
        return max(self.steps(interval), math.ceil(least / self.step - 1e-9) * self.step)


def policy(mode: Mode, x: Setting, interval: float | None = None) -> Policy:
    """The policy `mode` with its best interval, or with `interval` seconds of work between saves to storage."""
    return _BUILD[mode](x, interval)


def _blocking(x: Setting, interval: float | None) -> Policy:
    cost = x.times.stall + x.times.write
    best = x.steps(exact_interval(cost, x.failures.mtti))
    back = x.back(x.times.read)
    return Policy(mode="blocking", interval=interval or best, storage_stall=cost, quick=back, full=back,
                  hot_spares=x.hot)  # fmt: skip


def _async(x: Setting, interval: float | None) -> Policy:
    """Storage is written behind the run: a snapshot may not start before the last one is safe."""
    stall, persist = x.times.stall, x.times.write
    best = x.at_least(exact_interval(stall, x.failures.mtti), persist)
    back = x.back(x.times.read)
    return Policy(mode="async", interval=interval or best, storage_stall=stall, persist=persist, quick=back, full=back,
                  hot_spares=x.hot)  # fmt: skip


def _two_tier(x: Setting, interval: float | None) -> Policy:
    """Host memory for failures of processes, storage for those that take a node."""
    hard = x.failures.share("node", "several")
    return _tiers(x, "two-tier", interval, hard=hard, persist=0.0, quick=x.back(x.times.copy, 0.0))


def _peer(x: Setting, interval: float | None) -> Policy:
    """Memory of another node for failures of one node, storage where a pair of nodes is lost."""
    together = failure_probability(x.back(x.times.peer).total, x.failures.mtti) * pair_loss(2, x.failures.nodes)
    hard = min(1.0, x.failures.share("several") + x.failures.share("node") * together)
    needs = (x.failures.share("node", "several") - hard) / max(1 - hard, 1e-6)
    quick = x.back(x.times.peer + x.times.copy, max(0.0, needs))
    return _tiers(x, "peer", interval, hard=hard, persist=x.times.peer, quick=quick)


def _tiers(x: Setting, mode: Mode, interval: float | None, *, hard: float, persist: float, quick: Recovery) -> Policy:
    """The best of intervals around those that each tier would take alone; storage is written from the host's copy."""
    mtti, stall, write = x.failures.mtti, x.times.stall, x.times.write
    alone = [exact_interval(stall, mtti / share) for share in (max(1 - hard, 1e-6), 1.0)]
    tried = []
    for each in sorted({x.at_least(one * factor, persist) for one in alone for factor in _NEIGHBOURS}):
        least = math.ceil(write / (each + stall) - 1e-9)
        segments = max(1, least) if interval is None else max(1, round(interval / each))
        tried.append(Policy(
            mode=mode, interval=each, stall=stall, segments=segments, quick_persist=persist, persist=write, hard=hard,
            quick=quick, full=x.back(x.times.read, 1.0), hot_spares=x.hot,
        ))  # fmt: skip
    return max(tried, key=lambda p: (useful(p, mtti), p.interval))


def _replicas(x: Setting, interval: float | None) -> Policy:
    """Every step the groups that are there agree on a quorum; one that failed fetches its states from another.

    Failures of software strike all groups alike, so that storage is still written behind the run.
    """
    known = common()
    share = x.failures.of_software
    heal = x.back(x.heal_load, x.failures.share("node", "several") / max(1 - share, 1e-6))
    best = x.at_least(exact_interval(x.times.stall, x.failures.mtti / max(share, 1e-6)), x.times.write)
    return Policy(mode="replicas", interval=interval or best, storage_stall=x.times.stall, persist=x.times.write,
                  hard=share, quick=heal, full=x.back(x.times.read, 0.0), replicas=x.groups, heal=heal.total,
                  stop=known["quorum"] + x.step / 2, overhead=known["quorum_overhead"], hot_spares=x.hot)  # fmt: skip


_BUILD = {"blocking": _blocking, "async": _async, "two-tier": _two_tier, "peer": _peer, "replicas": _replicas}


def every(x: Setting, without: Iterable[str] = ()) -> dict[str, Policy]:
    """All policies by name; hot spares are the asynchronous one with machines that already run."""
    modes: tuple[Mode, ...] = ("blocking", "async", "two-tier", "peer", "replicas")
    out = {mode: policy(mode, x) for mode in modes if mode not in without}
    return out | {"hot-spares": policy("async", x._replace(hot=True))}
