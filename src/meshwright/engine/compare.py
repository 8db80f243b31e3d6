"""Estimates side by side, term by term, and the sentence that says what the difference is made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from meshwright.engine.evaluate import evaluate
from meshwright.engine.search.reasons import TERM_NAMES
from meshwright.errors import UsageError
from meshwright.messages import N_, Text
from meshwright.spec.estimate import Estimate, Refusal, Term
from meshwright.spec.plan import ComparedTerm, Comparison, Problem
from meshwright.spec.strategy import Strategy

SAME = 0.01  # closer than this the model does not tell two strategies apart
HEADLINES = (
    ("tokens_per_second", "tokens/s"),
    ("tokens_per_second_per_device", "tokens/s"),
    ("mfu", "1"),
    ("hfu", "1"),
    ("dollars_per_step", "$"),
    ("joules_per_step", "J"),
    ("days", "days"),
    ("host_bytes", "B"),
)


def compare(problem: Problem, items: Sequence[tuple[str, Strategy | Estimate]]) -> Comparison:
    """Strategies of one problem, or finished estimates (also of other problems), with deltas against the first."""
    if len(items) < 2:
        raise UsageError(
            Text(N_("comparing needs at least two strategies")),
            where="compare",
            fix=Text(N_("give two result files, or one result file that holds a plan")),
        )
    names = _distinct([name for name, _ in items])
    estimates = tuple(_estimate(problem, name, item) for name, (_, item) in zip(names, items, strict=True))
    return Comparison(
        names=names,
        estimates=estimates,
        terms=(*_headlines(estimates), *_tree([e.time for e in estimates]), *_tree([e.memory for e in estimates])),
        summary=_summary(names, estimates),
    )


def _distinct(names: list[str]) -> tuple[str, ...]:
    """The names, with a number behind those that were there before."""
    seen: Counter[str] = Counter()
    out = []
    for name in names:
        seen[name] += 1
        out.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return tuple(out)


def _estimate(problem: Problem, name: str, item: Strategy | Estimate) -> Estimate:
    """The estimate of an item; a strategy that no framework would run cannot be compared."""
    if isinstance(item, Estimate):
        return item
    answer = evaluate(problem, item)
    if isinstance(answer, Refusal):
        finding = answer.findings[0]
        raise UsageError(
            Text(N_("no framework would run this strategy: {why} ({code})"), why=finding.message, code=finding.code),
            where=name,
            fix=finding.fix,
        )
    return answer


# ------------------------------------------------------------------------------------------------ terms


def _headlines(estimates: Sequence[Estimate]) -> list[ComparedTerm]:
    """What follows from the trees, where any of the estimates has it."""
    out = []
    for name, unit in HEADLINES:
        values = tuple(getattr(e, name) for e in estimates)
        if any(values):
            out.append(ComparedTerm(path=name, unit=unit, values=values))
    return out


def _tree(roots: Sequence[Term]) -> list[ComparedTerm]:
    """Every path of any of the trees; a term that an estimate lacks is zero under a parent it has, else absent."""
    by_path = [dict(root.walk()) for root in roots]
    out = []
    for path in _union([list(paths) for paths in by_path]):
        node = next(paths[path] for paths in by_path if path in paths)
        parent = path.rpartition(".")[0]
        values = tuple(
            float(paths[path].value) if path in paths else 0.0 if parent in paths else None for paths in by_path
        )
        out.append(ComparedTerm(path=path, unit=node.unit, values=values))
    return out


def _union(lists: Sequence[list[str]]) -> list[str]:
    """All paths, parents before children, siblings in the order of the first list that has them."""
    out: list[str] = []
    for paths in lists:
        for path in paths:
            if path in out:
                continue
            parent = path.rpartition(".")[0]
            family = [i for i, known in enumerate(out) if known == parent or known.startswith(parent + ".")]
            out.insert(family[-1] + 1 if parent and family else len(out), path)
    return out


# ------------------------------------------------------------------------------------------------ words


def _summary(names: tuple[str, ...], estimates: Sequence[Estimate]) -> Text:
    """Which is faster, by how much and through which term; then which has more memory to spare."""
    return Text(N_("{speed}; {memory}"), speed=_speed(names, estimates), memory=_memory(names, estimates))


def _rates(estimates: Sequence[Estimate]) -> tuple[list[float], bool]:
    """What is compared as speed: tokens/s, per device where the estimates use different numbers of devices."""
    per_device = len({round(e.tokens_per_second / e.tokens_per_second_per_device) for e in estimates}) > 1
    return [e.tokens_per_second_per_device if per_device else e.tokens_per_second for e in estimates], per_device


def _speed(names: tuple[str, ...], estimates: Sequence[Estimate]) -> Text:
    """The two fastest that fit (of all, where fewer than two fit) against each other."""
    rates, per_device = _rates(estimates)
    fit = [i for i, e in enumerate(estimates) if e.verdict != "OVER"]
    first, second = sorted(fit if len(fit) > 1 else range(len(rates)), key=lambda i: -rates[i])[:2]
    more = rates[first] / rates[second] - 1
    values = {"fast": names[first], "slow": names[second], "more": f"{more:.0%}" if more >= 0.1 else f"{more:.1%}"}
    if more < SAME:
        if per_device:
            return Text(N_("{fast} and {slow} are equally fast for each device (within 1%)"), **values)
        return Text(N_("{fast} and {slow} are equally fast (within 1%)"), **values)
    return Text(
        N_("{fast} does {more} more tokens/s for each device than {slow}, {why}")
        if per_device
        else N_("{fast} does {more} more tokens/s than {slow}, {why}"),
        why=_explained(estimates[first], estimates[second]),
        **values,
    )


def _explained(fast: Estimate, slow: Estimate) -> Text:
    """The term that saves most device time per token, and its share of the whole difference."""

    def per_token(e: Estimate) -> dict[str, float]:
        return {t.name: float(t.value) / e.step_seconds / e.tokens_per_second_per_device for t in e.time.children}

    ours, theirs = per_token(fast), per_token(slow)
    saved = {name: theirs.get(name, 0.0) - ours.get(name, 0.0) for name in {*ours, *theirs}}
    term = max(saved, key=lambda name: (saved[name], name))
    share = saved[term] / (sum(theirs.values()) - sum(ours.values()))
    if share > 1:  # other terms are slower and take part of the gain away
        return Text(N_("all of it and more through {term}"), term=Text(TERM_NAMES[term]))
    return Text(N_("{share} of it through {term}"), share=f"{share:.0%}", term=Text(TERM_NAMES[term]))


def _memory(names: tuple[str, ...], estimates: Sequence[Estimate]) -> Text:
    """Which do not fit, or which leaves most memory free."""
    spare = [e.capacity_bytes - e.peak_bytes for e in estimates]
    order = sorted(range(len(spare)), key=lambda i: -spare[i])
    first, second = order[:2]
    over = [name for name, e in zip(names, estimates, strict=True) if e.verdict == "OVER"]
    if len(over) == len(names):
        return Text(N_("none of them fits: {name} is closest, {gib} GiB over"), name=names[first],
                    gib=f"{max(-spare[first], 0) / 2**30:.1f}")  # fmt: skip
    if over:
        return Text(N_("these do not fit in memory: {names}"), names=", ".join(over))
    values = {"name": names[first], "other": names[second], "gib": f"{spare[first] / 2**30:.1f}"}
    if abs(spare[first] - spare[second]) < SAME * estimates[first].capacity_bytes:
        return Text(N_("{name} and {other} leave about the same memory free ({gib} GiB)"), **values)
    more = f"{(spare[first] - spare[second]) / 2**30:.1f}"
    return Text(N_("{name} has most memory to spare: {gib} GiB, {more} GiB more than {other}"), more=more, **values)
