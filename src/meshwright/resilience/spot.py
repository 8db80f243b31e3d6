"""Machines that may be taken away at any time, for less money: useful share, cost of a token, where they pay."""

from __future__ import annotations

from dataclasses import replace

from meshwright.errors import UsageError
from meshwright.messages import N_, Text
from meshwright.resilience.goodput import useful
from meshwright.resilience.policies import Setting, policy
from meshwright.resilience.situation import Options, hardware, situation
from meshwright.spec.estimate import Estimate
from meshwright.spec.plan import Problem
from meshwright.spec.resilience import Policy, SpotAnswer
from meshwright.spec.strategy import Strategy
from meshwright.units import show_seconds

SECONDS_PER_HOUR = 3600.0
_HALVINGS = 60
_LONGEST = 10 * 365.25 * 86400.0


def spot(problem: Problem, strategy: Strategy, estimate: Estimate, *, price: float, between: float,
         notice: float = 120.0, wait: float = 600.0, options: Options | None = None) -> SpotAnswer:  # fmt: skip
    """A run on preemptible machines at `price` dollars a device hour, each taken away every `between` seconds.

    A notice long enough for one save turns a preemption into a stop without lost work. `wait` is the time until there
    are machines again.
    """
    o = options or Options()
    cluster = problem.cluster
    if cluster.price_per_device_hour is None:
        raise UsageError(
            Text(N_("no price of {accelerator} is known, so that costs cannot be compared"),
                 accelerator=cluster.accelerator.name),
            where="--price",
            fix=Text(N_("give the price of a device hour, e.g. {example}"), example="--price 2.50"),
        )  # fmt: skip
    here = hardware(problem, o)
    x = situation(here, strategy, estimate.step_seconds, o).setting
    failures = here.failures
    steady = policy(o.mode or "async", x)
    stays = float(useful(steady, failures.mtti, o.slowdown))
    saved = notice >= x.times.stall + x.times.write
    share = _share(x, o, between / cluster.nodes, saved, wait)
    rate = estimate.tokens_per_second
    costs = [
        each * cluster.devices / SECONDS_PER_HOUR / rate / max(kept, 1e-12)
        for each, kept in ((price, share), (cluster.price_per_device_hour, stays))
    ]
    even = _break_even(x, o, cluster.nodes, saved, wait, stays * price / cluster.price_per_device_hour)
    return SpotAnswer(
        problem=problem, strategy=strategy, between=between, notice=notice, saved_on_notice=saved, wait=wait,
        useful=share, useful_on_demand=stays, dollars_per_token=costs[0], dollars_per_token_on_demand=costs[1],
        break_even=even, summary=_summary(share, stays, costs, even),
        assumptions=(*here.assumptions,
                     Text(N_("a node that is taken away stops the whole run until there is another one"))),
    )  # fmt: skip


def _share(x: Setting, o: Options, between: float, saved: bool, wait: float) -> float:
    """Useful share when the run, besides failing, is preempted every `between` seconds."""
    back = x.back(x.times.read)
    if saved:  # a planned stop: save, wait, start again
        stop = x.times.stall + x.times.write + back.total - back.detect + wait
        return float(useful(policy(o.mode or "async", x), x.failures.mtti, o.slowdown)) / (1 + stop / between)
    rates = [1 / x.failures.mtti, 1 / between]
    both = replace(x.failures, mtti=1 / sum(rates))
    waiting = (rates[0] * x.wait + rates[1] * wait) / sum(rates)
    chosen: Policy = policy(o.mode or "async", x._replace(failures=both, wait=waiting))
    return float(useful(chosen, both.mtti, o.slowdown))


def _break_even(x: Setting, o: Options, nodes: int, saved: bool, wait: float, share: float) -> float | None:
    """Time between preemptions of one node at which a token costs the same; None where it never does."""
    if _share(x, o, _LONGEST / nodes, saved, wait) < share:
        return None
    low, high = 1.0, _LONGEST
    for _ in range(_HALVINGS):
        middle = (low * high) ** 0.5
        low, high = (low, middle) if _share(x, o, middle / nodes, saved, wait) >= share else (middle, high)
    return high


def _summary(share: float, stays: float, costs: list[float], even: float | None) -> Text:
    values = {"share": f"{share:.1%}", "stays": f"{stays:.1%}", "change": f"{abs(costs[0] / costs[1] - 1):.0%}"}
    cheaper = costs[0] < costs[1]
    after = Text(N_("; it never pays at this price"))
    if even is not None:
        after = Text(N_("; it pays when a node stays for more than {time}"), time=show_seconds(even))
    if cheaper:
        text = N_("useful {share} of the time (else {stays}); a token costs {change} less{after}")
    else:
        text = N_("useful {share} of the time (else {stays}); a token costs {change} more{after}")
    return Text(text, after=after, **values)
