"""Whether the prediction picks the right strategy: one job measured under several, ranked both ways."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from meshwright.validate.compare import Compared

FEWEST = 2  # strategies of a set


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceSet:
    """Runs of one source that differ in the strategy only.

    `regret`: the share of the best measured rate that the strategy predicted to be best loses. `correlation`:
    Kendall's tau of the two rankings, runs measured within 1 % of each other left out; None where nothing is left.
    """

    source: str
    model: str
    accelerator: str
    devices: int
    batch: int
    strategies: int
    regret: float
    correlation: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """All sets of one source, averaged."""

    source: str
    sets: int
    strategies: int
    regret: float
    worst_regret: float
    correlation: float | None


TIE = 0.01


def choice_sets(compared: Sequence[Compared]) -> tuple[ChoiceSet, ...]:
    """Every set of at least two strategies for the same job, the largest first."""
    found: dict[tuple[object, ...], list[Compared]] = defaultdict(list)
    for c in compared:
        if c.error is None or c.problem is None or c.estimate is None:
            continue
        job, run = c.problem.job, c.run
        key = (run.source, run.model, c.accelerator, run.n_gpus, job.global_batch, job.seq_len, run.precision)
        found[key].append(c)
    sets = [_choice(key, runs) for key, runs in found.items() if len(_distinct(runs)) >= FEWEST]
    return tuple(sorted(sets, key=lambda s: (-s.strategies, s.source, s.model, s.devices)))


def by_source(sets: Sequence[ChoiceSet]) -> tuple[Choices, ...]:
    """Averages by source, most strategies first."""
    groups: dict[str, list[ChoiceSet]] = defaultdict(list)
    for s in sets:
        groups[s.source].append(s)
    out = []
    for source, mine in groups.items():
        ranked = [s.correlation for s in mine if s.correlation is not None]
        out.append(
            Choices(
                source=source,
                sets=len(mine),
                strategies=sum(s.strategies for s in mine),
                regret=sum(s.regret for s in mine) / len(mine),
                worst_regret=max(s.regret for s in mine),
                correlation=sum(ranked) / len(ranked) if ranked else None,
            )
        )
    return tuple(sorted(out, key=lambda c: -c.strategies))


def _distinct(runs: Sequence[Compared]) -> list[Compared]:
    """One run per strategy; measured twice, the quicker counts."""
    best: dict[object, Compared] = {}
    for c in runs:
        assert c.estimate is not None and c.measured is not None
        key = (c.estimate.strategy, c.problem.job.software if c.problem else "")
        if key not in best or c.measured > (best[key].measured or 0.0):
            best[key] = c
    return list(best.values())


def _choice(key: tuple[object, ...], runs: Sequence[Compared]) -> ChoiceSet:
    distinct = _distinct(runs)
    rates = [(c.predicted or 0.0, c.measured or 0.0) for c in distinct]
    chosen = max(rates)[1]
    source, model, accelerator, devices, batch, *_ = key
    return ChoiceSet(
        source=str(source),
        model=str(model),
        accelerator=str(accelerator),
        devices=int(str(devices)),
        batch=int(str(batch)),
        strategies=len(distinct),
        regret=1.0 - chosen / max(measured for _, measured in rates),
        correlation=kendall(rates),
    )


def kendall(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Kendall's rank correlation of predicted and measured, pairs measured within a tie left out.

    >>> kendall([(1.0, 10.0), (2.0, 20.0), (3.0, 15.0)])
    0.3333333333333333
    """
    agree = total = 0
    for (p, m), (q, n) in itertools.combinations(pairs, 2):
        if abs(m - n) <= TIE * max(m, n):
            continue
        total += 1
        agree += 1 if (p - q) * (m - n) > 0 else -1
    return agree / total if total else None
