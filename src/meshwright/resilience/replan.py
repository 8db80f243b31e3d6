"""After losing nodes: go on with fewer, wait for them, or let replicas stay away; what each costs until all is back."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from meshwright.catalog.failures import common
from meshwright.catalog.hardware import resize
from meshwright.engine.points import Found, best_at, feasible_counts
from meshwright.engine.search.space import Constraints
from meshwright.errors import InputError
from meshwright.messages import N_, Text
from meshwright.resilience.resharding import FULLY, reshard
from meshwright.resilience.situation import Options, Situation, hardware, situation, storage_of
from meshwright.spec.cluster import Cluster
from meshwright.spec.estimate import Estimate
from meshwright.spec.finding import Finding
from meshwright.spec.plan import Problem
from meshwright.spec.resilience import Replan, ReplanOption, Resharding
from meshwright.spec.strategy import Strategy
from meshwright.units import show_seconds

TRIED = 4  # counts of devices that the batch can be split over, from the largest down
LINEAR = ("sgd", "sgd-momentum")  # optimizers whose learning rate follows the batch; the root of it for the others
NAMES = {
    "shrink": N_("fewer nodes, the same batch"),
    "shrink-batch": N_("fewer nodes, a smaller batch"),
    "redeal": N_("fewer replicas, micro-batches dealt anew"),
    "wait": N_("wait for the nodes"),
    "replicas": N_("replicas that stay away"),
}


def replan(
    problem: Problem, strategy: Strategy, estimate: Estimate, lost: int, *, away: float | None = None,
    options: Options | None = None, optimizer_format: str = FULLY,
) -> Replan:  # fmt: skip
    """Every way to go on after `lost` nodes left for `away` seconds, the one that loses fewest tokens first."""
    o = options or Options()
    cluster = problem.cluster
    left = _left(cluster, lost)
    here = hardware(problem, o)._replace(storage=storage_of(left, o))
    away = here.spares.repair if away is None else away
    there = situation(here, strategy, estimate.step_seconds, o, on=left)
    now = _Now(problem, strategy, estimate, left, lost, away, there, optimizer_format)
    found, findings = _shrunk(now)
    ways = [*found, *_redealt(now), _waiting(now), *_staying_away(now)]
    ranked = tuple(sorted(ways, key=lambda option: (option.lost_tokens, option.name)))
    shrink = next((option for option in ranked if option.name in ("shrink", "redeal")), None)
    even = None if shrink is None else _break_even(now, shrink)
    return Replan(
        problem=problem, strategy=strategy, lost_nodes=lost, cluster=left, away=away, options=ranked, break_even=even,
        summary=_summary(ranked, lost, away, even), findings=findings,
        assumptions=(
            *here.assumptions,
            Text(N_("the lost nodes are back after {time}"), time=show_seconds(away)),
            Text(N_("data order follows from seed and global step alone: no sample is lost or repeated")),
        ),
    )  # fmt: skip


def _left(cluster: Cluster, lost: int) -> Cluster:
    if not 0 < lost < cluster.nodes:
        raise InputError(
            Text(N_("{lost} of {nodes} nodes cannot be lost: some must be, and some must stay"), lost=lost,
                 nodes=cluster.nodes),
            where="--lose",
            fix=Text(N_("choose from {low} to {high}"), low=1, high=max(1, cluster.nodes - 1)),
        )  # fmt: skip
    return resize(cluster, cluster.devices - lost * cluster.node_size)


class _Now:
    """What all ways to go on start from."""

    def __init__(self, problem: Problem, strategy: Strategy, estimate: Estimate, left: Cluster, lost: int, away: float,
                 there: Situation, optimizer_format: str) -> None:  # fmt: skip
        self.problem, self.strategy, self.estimate, self.left, self.lost = problem, strategy, estimate, left, lost
        self.away, self.optimizer_format = away, optimizer_format
        self.x, self.of, self.storage = there.setting, there.sizes, there.hardware.storage

    @property
    def rate(self) -> float:
        """Tokens per second before the loss."""
        return self.estimate.tokens_per_second

    def resharding(self, new: Strategy) -> Resharding:
        return reshard(self.strategy, new, self.of, self.storage, self.left.nodes,
                       optimizer_format=self.optimizer_format)  # fmt: skip

    def restart(self, load: float) -> float:
        """From the failure to the first step, without a wait for machines."""
        return replace(self.x.back(load), wait=0.0).total

    def fewer(self, name: str, found: Estimate, batch: int, devices: int) -> ReplanOption:
        """Going on with a new layout: stopped once now and once when the nodes come back."""
        path = self.resharding(found.strategy)
        stop = self.restart(path.seconds)
        back = self.restart(path.seconds)
        scale = batch / self.problem.job.global_batch
        lost = self.rate * (stop + back) + (self.rate - found.tokens_per_second) * max(self.away - stop, 0.0)
        return ReplanOption(
            name=name, devices=devices, global_batch=batch,
            learning_rate_scale=scale if self.problem.job.optimizer in LINEAR else math.sqrt(scale),
            tokens_per_second=found.tokens_per_second, stop_seconds=stop, lost_tokens=lost, estimate=found,
            resharding=path,
        )  # fmt: skip


def _shrunk(now: _Now) -> tuple[list[ReplanOption], tuple[Finding, ...]]:
    """The best plan with the same batch on as many of the remaining devices as can split it, and with another batch."""
    problem, left = now.problem, now.left
    only = Constraints(frameworks=(now.strategy.framework,))
    batch = problem.job.global_batch
    counts = sorted(feasible_counts(problem, only, left.devices), reverse=True)[:TRIED]
    same = _best(problem, only, [(n, batch) for n in counts])
    out = [] if same is None else [now.fewer("shrink", _known(same), batch, same.devices)]
    if same is None or same.devices < left.devices:
        mesh = now.strategy.tensor * now.strategy.pipeline * now.strategy.context
        replicas = left.devices // mesh
        smaller = batch * replicas // now.strategy.data
        grain = replicas * now.strategy.micro_batch
        smaller = max(grain, smaller // grain * grain) if grain else 0
        other = _best(problem, only, [(replicas * mesh, smaller)] if replicas else [])
        if other is not None:
            out.append(now.fewer("shrink-batch", _known(other), smaller, other.devices))
    if out:
        return out, ()
    tried = best_at(problem, left.devices, batch, only)
    fix = Text(N_("wait for the nodes, hold {value} spare nodes, or give a batch that more counts divide"),
               value=now.lost)  # fmt: skip
    text = N_("no legal plan on the {devices} devices that are left: {reason}")
    reason = tried.reason or Text(N_("nothing fits"))
    return [], (Finding(code="MW-G010", severity="error", where="--lose", fix=fix,
                        message=Text(text, devices=f"{left.devices:,}", reason=reason)),)  # fmt: skip


def _best(problem: Problem, only: Constraints, tried: Iterable[tuple[int, int]]) -> Found | None:
    found = [best_at(problem, devices, batch, only) for devices, batch in tried]
    works = [f for f in found if f.estimate is not None and f.estimate.verdict != "OVER"]
    return max(works, key=lambda f: _known(f).tokens_per_second, default=None)


def _known(found: Found) -> Estimate:
    assert found.estimate is not None
    return found.estimate


def _redealt(now: _Now) -> Iterable[ReplanOption]:
    """The same layout with the replicas that are whole, which share all micro-batches: some do one more than others."""
    s = now.strategy
    mesh = s.tensor * s.pipeline * s.context
    replicas = now.left.devices // mesh
    copies = now.problem.job.global_batch // s.micro_batch
    if not 0 < replicas < s.data or s.sharding == "zero3" or s.expert > 1:
        return
    before, after = math.ceil(copies / s.data), math.ceil(copies / replicas)
    rate = now.rate * before / after
    path = now.resharding(replace(s, data=replicas))
    stop = now.restart(path.seconds)
    lost = now.rate * 2 * stop + (now.rate - rate) * max(now.away - stop, 0.0)
    yield ReplanOption(
        name="redeal", devices=replicas * mesh, global_batch=now.problem.job.global_batch, learning_rate_scale=1.0,
        tokens_per_second=rate, stop_seconds=stop, lost_tokens=lost, resharding=path,
        note=Text(N_("each replica does up to {after} micro-batches a step instead of {before}; gradients are weighted"
                     " by samples, which the training loop must do"), after=after, before=before),
    )  # fmt: skip


def _waiting(now: _Now) -> ReplanOption:
    stop = now.away + now.restart(now.x.times.read)
    return ReplanOption(
        name="wait", devices=now.problem.cluster.devices, global_batch=now.problem.job.global_batch,
        learning_rate_scale=1.0, tokens_per_second=now.rate, stop_seconds=stop, lost_tokens=now.rate * stop,
        note=Text(N_("with spare nodes at hand it is {time}"), time=show_seconds(now.restart(now.x.times.read))),
    )  # fmt: skip


def _staying_away(now: _Now) -> Iterable[ReplanOption]:
    """Replica-level fault tolerance: each lost node takes its group along, the others go on."""
    groups = now.x.groups
    missing = min(now.lost, groups)
    if groups - missing < 1:
        return
    stop = common()["quorum"] + now.estimate.step_seconds / 2
    rate = now.rate * (groups - missing) / groups
    lost = now.rate * stop + (now.rate - rate) * (now.away + now.restart(now.x.heal_load))
    scale = (groups - missing) / groups
    yield ReplanOption(
        name="replicas", devices=round(now.problem.cluster.devices * scale),
        global_batch=round(now.problem.job.global_batch * scale), learning_rate_scale=1.0, tokens_per_second=rate,
        stop_seconds=stop, lost_tokens=lost,
        note=Text(N_("{missing} of {groups} groups are missing, in the worst case one for each node"), missing=missing,
                  groups=groups),
    )  # fmt: skip


def _break_even(now: _Now, shrink: ReplanOption) -> float:
    """How long the nodes must stay away for two changes of layout to cost less than waiting."""
    wait = now.restart(now.x.times.read)
    slower = now.rate - shrink.tokens_per_second
    extra = now.rate * (2 * shrink.stop_seconds - wait) - slower * shrink.stop_seconds
    return max(0.0, extra / shrink.tokens_per_second)


def _summary(ranked: tuple[ReplanOption, ...], lost: int, away: float, even: float | None) -> Text:
    best = ranked[0]
    after = Text("")
    if even is not None:
        after = Text(N_("; absences of more than {time} are worth a new layout"), time=show_seconds(even))
    text = N_("{lost} nodes lost for {away}: {name} loses least, {tokens} tokens{after}")
    return Text(text, lost=lost, away=show_seconds(away), name=Text(NAMES[best.name]),
                tokens=f"{best.lost_tokens:.3g}", after=after)  # fmt: skip
