"""The fewest devices, or the least cost, that trains so many tokens before a deadline or within a budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from meshwright.catalog.clusters import ONE_NODE
from meshwright.engine.evaluate import SECONDS_PER_DAY, peak_dtype
from meshwright.engine.flops import model_flops_per_token
from meshwright.engine.kernels import dense_peak
from meshwright.engine.points import Found, as_points, best_at, dollars_per_token, feasible_counts, rungs, usual
from meshwright.engine.search.legal import BATCH
from meshwright.engine.search.space import Constraints
from meshwright.errors import UsageError
from meshwright.messages import N_, Text
from meshwright.spec.estimate import Estimate
from meshwright.spec.plan import Problem, ScalePoint, Sizing
from meshwright.spec.strategy import Strategy
from meshwright.units import plain_days, show_count, show_money

Progress = Callable[[float, str], None]
Useful = Callable[[Strategy, float], float]  # share of its time in which a strategy with such a step makes progress
Goal = Literal["fewest", "cheapest"]
OPEN = 2**17  # devices considered when the cluster was named without a number
BEYOND = 16  # how far past the given cluster a remedy is looked for
NEIGHBOURS = 5  # counts checked beside the answer, since throughput is not quite monotone
PER_DOUBLING = 3  # counts of each doubling tried for the least cost
SLACK = 1.1  # how much more than any count tried a device may be taken to do
DEARER = 1.3  # a ladder stops where the cost has risen this far above the least
TRIALS = 15  # about as many searches as an answer takes: for progress only


@dataclass(slots=True)
class _Hunt:
    """The counts tried so far and what they must meet."""

    problem: Problem
    constraints: Constraints
    tokens: float
    deadline: float | None
    budget: float | None
    progress: Progress | None
    useful: Useful | None = None
    tried: dict[int, Found] = field(default_factory=dict)

    def at(self, devices: int) -> Found:
        """The best strategy on `devices` devices, searched once."""
        if devices not in self.tried:
            if self.progress:
                self.progress(min(len(self.tried) / TRIALS, 0.95), f"{devices:,}")
            self.tried[devices] = best_at(self.problem, devices, self.problem.job.global_batch, self.constraints)
        return self.tried[devices]

    def share(self, estimate: Estimate) -> float:
        """Share of the time that makes progress; all of it where failures are not counted."""
        return 1.0 if self.useful is None else max(self.useful(estimate.strategy, estimate.step_seconds), 1e-9)

    def days(self, estimate: Estimate) -> float:
        """Days for all tokens, by the expected step."""
        return self.tokens / estimate.tokens_per_second / self.share(estimate) / SECONDS_PER_DAY

    def dollars(self, estimate: Estimate) -> float | None:
        """Cost of all tokens."""
        price = dollars_per_token(estimate)
        return None if price is None else price * self.tokens / self.share(estimate)

    def meets(self, devices: int) -> bool:
        """Whether the count does the job in time and within the budget."""
        e = self.at(devices).estimate
        if e is None or (self.deadline is not None and self.days(e) > self.deadline):
            return False
        dollars = self.dollars(e)
        return self.budget is None or (dollars is not None and dollars <= self.budget)

    def works(self) -> list[tuple[int, Estimate]]:
        """Counts tried on which something fits, ascending."""
        return [(n, f.estimate) for n, f in sorted(self.tried.items()) if f.estimate]


def size(
    problem: Problem,
    *,
    tokens: float,
    deadline_days: float | None = None,
    budget: float | None = None,
    goal: Goal = "fewest",
    constraints: Constraints | None = None,
    useful: Useful | None = None,
    progress: Progress | None = None,
) -> Sizing:
    """Whole nodes of the problem's hardware, at most the given cluster, that train `tokens` within the limits.

    `useful` gives the share of its time that a strategy makes progress; without it, failures are not counted.

    A cluster named without a number sets no limit. `devices` of the answer is None when no count does it; the summary
    then says what the closest is and what would help.
    """
    if problem.cluster.price_per_device_hour is None and (budget is not None or goal == "cheapest"):
        raise UsageError(
            Text(N_("no price of {accelerator} is known, so that costs cannot be compared"),
                 accelerator=problem.cluster.accelerator.name),
            where="--price",
            fix=Text(N_("give the price of a device hour, e.g. {example}"), example="--price 2.50"),
        )  # fmt: skip
    problem = replace(problem, job=replace(problem.job, tokens=tokens))
    hunt = _Hunt(problem, constraints or Constraints(), tokens, deadline_days, budget, progress, useful)
    named = all(note.template != ONE_NODE for note in problem.cluster.assumptions)
    limit = problem.cluster.devices if named else OPEN
    least = _least_devices(problem, tokens, deadline_days)
    answer = _search(hunt, least, limit, goal)
    summary = _impossible(hunt, least, limit) if answer is None else _counted(hunt, answer, _answer(hunt, answer, goal))
    if progress:
        progress(1.0, "")
    estimate = None if answer is None else hunt.at(answer).estimate
    judged = [_judged(hunt, f) for _, f in sorted(hunt.tried.items())]
    return Sizing(
        problem=problem,
        goal=goal,
        devices=answer,
        estimate=estimate,
        days=hunt.days(estimate) if estimate else None,
        dollars=hunt.dollars(estimate) if estimate else None,
        points=tuple(_with_failures(hunt, p) for p in as_points(judged)),
        summary=summary,
    )


def _with_failures(hunt: _Hunt, point: ScalePoint) -> ScalePoint:
    """The point with its useful share, by which its token is dearer."""
    if hunt.useful is None or point.estimate is None:
        return point
    share = hunt.share(point.estimate)
    price = point.dollars_per_token
    return replace(point, useful=share, dollars_per_token=None if price is None else price / share)


def _least_devices(problem: Problem, tokens: float, deadline: float | None) -> int:
    """Fewer devices than this miss the deadline even at the peak rate of the datasheet."""
    if deadline is None:
        return 1
    flops = model_flops_per_token(problem.model, problem.job.seq_len, masking="causal").training * tokens
    peak = dense_peak(problem.cluster.accelerator, peak_dtype(problem.job.precision))
    return math.ceil(flops / (peak * deadline * SECONDS_PER_DAY))


# ------------------------------------------------------------------------------------------------ search


def _search(hunt: _Hunt, least: int, limit: int, goal: Goal) -> int | None:
    """The count that the goal wants, or None; `hunt` remembers what was tried."""
    ways = {n: w for n, w in feasible_counts(hunt.problem, hunt.constraints, limit).items() if n >= least}
    ladder = sorted({*rungs(ways, hunt.problem.cluster.node_size), *usual(ways, list(ways)[-NEIGHBOURS:])[-1:]})
    if goal == "cheapest":
        return _cheapest(hunt, ways, ladder)
    below = least - 1
    for rung in ladder:
        if hunt.meets(rung):
            answer = _fewest_between(hunt, ways, below, rung)
            if hunt.deadline is None:
                _up_to_budget(hunt, [n for n in ladder if n > rung])
            return answer
        below = rung
    fastest = max(hunt.works(), key=lambda x: x[1].tokens_per_second, default=None)
    return _any_beside(hunt, ways, fastest[0]) if fastest else None


def _fewest_between(hunt: _Hunt, ways: Mapping[int, int], below: int, meets: int) -> int:
    """The least count above `below` that meets the limits, `meets` being one that does."""
    window = [n for n in ways if below < n < meets and _may_meet(hunt, n)]
    even = usual(ways, window)
    low, high = 0, len(even)  # even[high] meets the limits, or `meets` does where high is past the end
    while low < high:
        middle = (low + high) // 2
        if hunt.meets(even[middle]):
            high = middle
        else:
            low = middle + 1
    answer = even[high] if high < len(even) else meets
    left = NEIGHBOURS
    while left and (untried := [n for n in window if n < answer and n not in hunt.tried and _may_meet(hunt, n)]):
        n = max(untried, key=lambda n: (ways[n], n))
        left -= 1
        if hunt.meets(n):
            answer, left = n, NEIGHBOURS
    return min(n for n in hunt.tried if hunt.meets(n))


def _up_to_budget(hunt: _Hunt, ladder: list[int]) -> None:
    """Try larger counts until they are too dear: without a deadline the answer should show what they would do."""
    for rung in ladder:
        if hunt.at(rung).estimate is not None and not hunt.meets(rung):
            return


def _may_meet(hunt: _Hunt, devices: int) -> bool:
    """Whether a count could be in time if each device did a little more than on any count tried."""
    rates = [e.tokens_per_second_per_device for _, e in hunt.works()]
    if hunt.deadline is None or not rates:
        return True
    return hunt.tokens / (max(rates) * SLACK * devices) / SECONDS_PER_DAY <= hunt.deadline


def _any_beside(hunt: _Hunt, ways: Mapping[int, int], centre: int) -> int | None:
    """A count beside the fastest rung that meets the limits, where no rung does."""
    near = sorted(usual(ways, [n for n in ways if centre / 2 < n < centre * 2]), key=lambda n: abs(n - centre))
    return min((n for n in near[:NEIGHBOURS] if hunt.meets(n)), default=None)


def _cheapest(hunt: _Hunt, ways: Mapping[int, int], ladder: list[int]) -> int | None:
    """The count of least cost among those that meet the limits: the likely counts of each doubling, then around."""
    for n in _likely(ways, ladder):
        if not _may_meet(hunt, n):
            continue
        meets, cost = hunt.meets(n), _cost(hunt, n)
        best = _least_cost(hunt)
        if best is not None and DEARER * _cost(hunt, best) < cost < math.inf and (meets or hunt.budget):
            break
    best = _least_cost(hunt)
    if best is None:
        fastest = max(hunt.works(), key=lambda x: x[1].tokens_per_second, default=None)
        best = _any_beside(hunt, ways, fastest[0]) if fastest else None
        if best is None:
            return None
    below = max((n for n in hunt.tried if n < best), default=0)
    above = min((n for n in hunt.tried if n > best), default=best)
    between = [n for n in ways if below < n < above and n not in hunt.tried]
    for n in sorted(between, key=lambda n: (-ways[n], n))[:NEIGHBOURS]:
        hunt.at(n)
    return _least_cost(hunt)


def _likely(ways: Mapping[int, int], ladder: list[int]) -> list[int]:
    """The ladder, and of each doubling the counts that can be partitioned in most ways."""
    chosen = set(ladder)
    octaves: dict[int, list[int]] = {}
    for n in ways:
        octaves.setdefault(n.bit_length(), []).append(n)
    for counts in octaves.values():
        chosen.update(sorted(counts, key=lambda n: (-ways[n], n))[:PER_DOUBLING])
    return sorted(chosen)


def _cost(hunt: _Hunt, devices: int) -> float:
    e = hunt.at(devices).estimate
    dollars = hunt.dollars(e) if e else None
    return math.inf if dollars is None else dollars


def _least_cost(hunt: _Hunt) -> int | None:
    """The cheapest of the counts tried that meet the limits."""
    meets = [n for n in sorted(hunt.tried) if hunt.meets(n)]
    return min(meets, key=lambda n: (_cost(hunt, n), n), default=None)


# ------------------------------------------------------------------------------------------------ words


def _judged(hunt: _Hunt, found: Found) -> Found:
    """The count with what it comes to as its reason."""
    e = found.estimate
    if e is None:
        return found
    dollars = hunt.dollars(e)
    late = hunt.deadline is not None and hunt.days(e) > hunt.deadline
    values = {"days": plain_days(hunt.days(e)), "dollars": "" if dollars is None else show_money(dollars)}
    if late:
        text = Text(N_("{days} days: too late"), **values)
    elif hunt.budget is not None and dollars is not None and dollars > hunt.budget:
        text = Text(N_("{days} days for {dollars}: too dear"), **values)
    elif dollars is not None:
        text = Text(N_("{days} days for {dollars}"), **values)
    else:
        text = Text(N_("{days} days"), **values)
    return found._replace(reason=text)


def _counted(hunt: _Hunt, devices: int, answer: Text) -> Text:
    """The answer, with what failures leave of the time where they are counted."""
    e = hunt.at(devices).estimate
    if hunt.useful is None or e is None:
        return answer
    return Text(N_("{answer}; failures counted, {share} of the time is useful"), answer=answer,
                share=f"{hunt.share(e):.1%}")  # fmt: skip


def _answer(hunt: _Hunt, devices: int, goal: Goal) -> Text:
    """What the answer takes, between which bounds, and how the next smaller count fails."""
    e = hunt.at(devices).estimate
    assert e is not None
    days, dollars = hunt.days(e), hunt.dollars(e)
    cost = Text(N_(", for {dollars}"), dollars=show_money(dollars)) if dollars is not None else Text("")
    values = {
        "devices": f"{devices:,}",
        "nodes": f"{-(-devices // hunt.problem.cluster.node_size):,}",
        "tokens": show_count(hunt.tokens),
        "days": plain_days(days),
        "low": plain_days(days * e.step_interval[0] / e.step_seconds),
        "high": plain_days(days * e.step_interval[1] / e.step_seconds),
        "cost": cost,
        "warning": _warning(hunt, devices, e),
    }
    if goal == "cheapest":
        text = N_(
            "{devices} devices (nodes: {nodes}) are cheapest: {tokens} tokens in {days} days (9 in 10 runs: {low} to"
            " {high}){cost}{warning}"
        )
        return Text(text, **values)
    text = N_(
        "{devices} devices (nodes: {nodes}) are the fewest: {tokens} tokens in {days} days (9 in 10 runs: {low} to"
        " {high}){cost}{warning}"
    )
    return Text(text, **values)


def _warning(hunt: _Hunt, devices: int, e: Estimate) -> Text:
    """That the slow end of the interval misses the deadline; or, without one, what larger counts would do."""
    if hunt.deadline is not None:
        if hunt.days(e) * e.step_interval[1] / e.step_seconds <= hunt.deadline:
            return Text("")
        return Text(N_("; the slow end of this misses the deadline of {days} days"), days=f"{hunt.deadline:,.4g}")
    quickest = max((x for x in hunt.works() if hunt.meets(x[0])), key=lambda x: x[1].tokens_per_second)
    if quickest[0] == devices:
        return Text("")
    dollars = hunt.dollars(quickest[1])
    return Text(
        N_("; within the same budget {devices} devices take {days} days ({dollars}): give a deadline to weigh them"),
        devices=f"{quickest[0]:,}",
        days=plain_days(hunt.days(quickest[1])),
        dollars="" if dollars is None else show_money(dollars),
    )


def _impossible(hunt: _Hunt, least: int, limit: int) -> Text:
    """Why no count does it: the closest, and the least change that would help."""
    works = hunt.works()
    if not works:
        return _nothing_ran(hunt, least, limit)
    values = {"limit": f"{limit:,}", "tokens": show_count(hunt.tokens)}
    in_time = [(n, e) for n, e in works if hunt.deadline is None or hunt.days(e) <= hunt.deadline]
    if in_time:
        return _too_dear(hunt, in_time, values)
    n, e = max(works, key=lambda x: x[1].tokens_per_second)
    deadline = hunt.deadline or 0.0
    text = N_(
        "no count up to {limit} devices trains {tokens} tokens in {deadline} days: the fastest, {devices} devices,"
        " takes {days} days. {remedy}"
    )
    return Text(text, deadline=f"{deadline:,.4g}", devices=f"{n:,}", days=plain_days(hunt.days(e)),
                remedy=_remedy(hunt, least, limit, deadline / hunt.days(e)), **values)  # fmt: skip


def _too_dear(hunt: _Hunt, in_time: list[tuple[int, Estimate]], values: dict[str, str]) -> Text:
    """The least that it costs, and how far the budget goes."""
    n, e = min(in_time, key=lambda x: hunt.dollars(x[1]) or math.inf)
    dollars, budget = hunt.dollars(e) or 0.0, hunt.budget or 0.0
    text = (
        N_(
            "no count up to {limit} devices trains {tokens} tokens for {budget}: the cheapest, {devices} devices, costs"
            " {dollars}. The budget pays {affordable} tokens"
        )
        if hunt.deadline is None
        else N_(
            "no count up to {limit} devices trains {tokens} tokens for {budget} in {deadline} days: the cheapest that"
            " is in time, {devices} devices, costs {dollars}. The budget pays {affordable} tokens"
        )
    )
    return Text(text, budget=show_money(budget), devices=f"{n:,}", dollars=show_money(dollars),
                deadline=f"{hunt.deadline or 0:,.4g}", affordable=show_count(hunt.tokens * budget / dollars),
                **values)  # fmt: skip


def _remedy(hunt: _Hunt, least: int, limit: int, share: float) -> Text:
    """More devices where that is enough; else a larger batch, a later deadline or fewer tokens."""
    larger = _larger(hunt, least, limit)
    if larger is not None:
        dollars = hunt.dollars(larger[1])
        values = {"devices": f"{larger[0]:,}", "days": plain_days(hunt.days(larger[1]))}
        if hunt.budget is not None and dollars is not None and dollars > hunt.budget:
            return Text(N_("{devices} devices would be in time ({days} days), but cost {dollars}"),
                        dollars=show_money(dollars), **values)  # fmt: skip
        return Text(N_("{devices} devices would take {days} days"), **values)
    values = {"batch": f"{hunt.problem.job.global_batch:,}", "tokens": show_count(hunt.tokens * share)}
    split = next((f.reason for _, f in sorted(hunt.tried.items()) if f.blocker == BATCH and f.reason), None)
    if split is not None:
        text = N_(
            "More devices are not the answer: {why}. Use a larger batch as far as the loss allows, at most {tokens}"
            " tokens, or a later deadline"
        )
        return Text(text, why=split, **values)
    text = N_(
        "More devices are not the answer with a global batch of {batch} sequences: use a larger batch as far as the"
        " loss allows, at most {tokens} tokens, or a later deadline"
    )
    return Text(text, **values)


def _larger(hunt: _Hunt, least: int, limit: int) -> tuple[int, Estimate] | None:
    """The first rung beyond the limit that is in time."""
    ways = feasible_counts(hunt.problem, hunt.constraints, max(limit, least) * BEYOND)
    for rung in rungs({n: w for n, w in ways.items() if n > limit and n >= least}, hunt.problem.cluster.node_size):
        if hunt.progress:
            hunt.progress(0.95, f"{rung:,}")
        e = best_at(hunt.problem, rung, hunt.problem.job.global_batch, hunt.constraints).estimate
        if e is not None and (hunt.deadline is None or hunt.days(e) <= hunt.deadline):
            return rung, e
    return None


def _nothing_ran(hunt: _Hunt, least: int, limit: int) -> Text:
    """No count gave any estimate: too few devices for the work, for the batch or for the memory."""
    batch = hunt.problem.job.global_batch
    if least > limit:
        text = N_(
            "no count up to {limit} devices trains {tokens} tokens in {deadline} days: even at the peak rate of the"
            " datasheet that takes {least} devices. {remedy}"
        )
        return Text(text, limit=f"{limit:,}", tokens=show_count(hunt.tokens), deadline=f"{hunt.deadline or 0:,.4g}",
                    least=f"{least:,}", remedy=_remedy(hunt, least, limit, limit / least))  # fmt: skip
    if not hunt.tried:
        text = N_("no whole number of nodes up to {limit} devices can split a global batch of {batch} sequences")
        return Text(text, limit=f"{limit:,}", batch=f"{batch:,}")
    last = hunt.tried[max(hunt.tried)]
    return Text(
        N_("nothing fits on any count up to {limit} devices (at {devices} devices: {why})"),
        limit=f"{limit:,}",
        devices=f"{last.devices:,}",
        why=last.reason or Text(N_("nothing fits")),
    )
