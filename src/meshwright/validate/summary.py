"""Errors by group: how far off, in which direction, how often inside the interval, and against a naive guess."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshwright.engine.uncertainty import features as of_strategy
from meshwright.messages import N_, Text
from meshwright.validate.compare import Compared, memory_reading
from meshwright.validate.express import taken_as_usual

FACTORS: Mapping[str, str] = {
    "accelerator": N_("accelerator"),
    "framework": N_("framework"),
    "precision": N_("precision"),
    "feature": N_("parallelism"),
    "scale": N_("scale"),
    "tier": N_("tier"),
    "accelerator_framework": N_("accelerator × framework"),
    "source": N_("source"),
}
_SCALES = ((8, "1-8"), (64, "9-64"), (512, "65-512"), (4096, "513-4096"))
_LARGEST_SCALE = ">4096"
SEVERAL = ("feature",)  # factors of which one run may have several values


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How a set of relative errors lies; `coverage` is the share of measurements inside their interval."""

    n: int
    median_abs: float
    mean_abs: float
    bias: float  # mean of the signed errors
    median_signed: float
    p90_abs: float
    coverage: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Errors of the runs of one group; `naive` is the guess by median MFU on the same runs."""

    factor: str
    value: str
    throughput: Spread | None
    memory: Spread | None
    naive: Spread | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A whole comparison in numbers."""

    rows: int
    compared: int
    skipped: int
    overall: Group
    groups: tuple[Group, ...]  # every value of every factor, the largest first
    reasons: tuple[tuple[Text, int], ...]  # why runs were skipped, the most frequent first
    assumed_recompute: Mapping[str, int]  # what was taken where the row does not state it
    as_usual: Mapping[str, int]  # rows that leave a column empty for which the usual was taken, by column
    passed_over: Mapping[str, int]  # rows with a cell that is no number and that no prediction needs, by column

    def of(self, factor: str) -> tuple[Group, ...]:
        """Groups of one factor."""
        return tuple(g for g in self.groups if g.factor == factor)


def spread(errors: Sequence[float], inside: Sequence[bool] = ()) -> Spread | None:
    """Statistics of signed relative errors; None for none.

    >>> spread([0.1, -0.2, 0.3]).median_abs
    0.2
    """
    if not errors:
        return None
    values = np.array(errors)
    size = np.abs(values)
    return Spread(
        n=len(values),
        median_abs=float(np.median(size)),
        mean_abs=float(size.mean()),
        bias=float(values.mean()),
        median_signed=float(np.median(values)),
        p90_abs=float(np.quantile(size, 0.9)),
        coverage=sum(inside) / len(inside) if inside else None,
    )


def summarise(compared: Sequence[Compared]) -> Summary:
    """Errors over all rows and by each factor."""
    done = [c for c in compared if c.skipped is None]
    guesses = naive_errors(done)
    members: dict[tuple[str, str], list[int]] = defaultdict(list)
    for i, c in enumerate(done):
        for factor in FACTORS:
            for value in values_of(c, factor):
                members[factor, value].append(i)
    order = {factor: i for i, factor in enumerate(FACTORS)}
    ranked = sorted(members.items(), key=lambda item: (order[item[0][0]], -len(item[1]), item[0][1]))
    reasons = Counter(str(c.skipped) for c in compared if c.skipped is not None)
    texts = {str(c.skipped): c.skipped for c in compared if c.skipped is not None}
    return Summary(
        rows=len(compared),
        compared=len(done),
        skipped=len(compared) - len(done),
        overall=_group("all", "all", done, guesses, range(len(done))),
        groups=tuple(_group(factor, value, done, guesses, rows) for (factor, value), rows in ranked),
        reasons=tuple((texts[reason], n) for reason, n in reasons.most_common()),
        assumed_recompute=dict(Counter(c.assumed_recompute for c in done if c.assumed_recompute)),
        as_usual=dict(Counter(name for c in done for name in taken_as_usual(c.run))),
        passed_over=dict(Counter(name for c in done for name, _ in c.run.malformed)),
    )


def _group(
    factor: str, value: str, done: Sequence[Compared], guesses: Sequence[float | None], rows: Iterable[int]
) -> Group:
    chosen = list(rows)
    timed = [done[i] for i in chosen if done[i].error is not None]
    return Group(
        factor=factor,
        value=value,
        throughput=spread(_present(c.error for c in timed), [bool(c.inside) for c in timed]),
        memory=spread(_present(done[i].memory_error for i in chosen)),
        naive=spread(_present(guesses[i] for i in chosen)),
    )


def _present(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


# ---------------------------------------------------------------------------------------------- groups


def values_of(c: Compared, factor: str) -> tuple[str, ...]:
    """The groups of one factor that a run belongs to."""
    if factor in SEVERAL:
        return features(c)
    return (_VALUES[factor](c),)


_VALUES: dict[str, Callable[[Compared], str]] = {
    "accelerator": lambda c: c.accelerator,
    "framework": lambda c: c.run.framework or "-",
    "precision": lambda c: c.estimate.strategy.precision if c.estimate else "-",
    "scale": lambda c: scale_of(c.run.n_gpus or 0),
    "tier": lambda c: c.run.tier or "-",
    "accelerator_framework": lambda c: f"{c.accelerator} {c.run.framework or '-'}",
    "source": lambda c: c.run.source or "-",
}


def scale_of(devices: int) -> str:
    """The range of device counts a run falls in."""
    return next((name for most, name in _SCALES if devices <= most), _LARGEST_SCALE)


def features(c: Compared) -> tuple[str, ...]:
    """The parallelism a run uses, and whether it routes tokens to experts."""
    return () if c.estimate is None or c.problem is None else of_strategy(c.estimate.strategy, c.problem.model)


# ---------------------------------------------------------------------------------------------- the naive guess


def naive_errors(done: Sequence[Compared]) -> list[float | None]:
    """Error of guessing each run from the median MFU of its accelerator, its own source left out.

    The guess for an accelerator that one source alone measured is the median over all accelerators of the others.
    """
    shares = [measured_mfu(c) for c in done]
    by_source: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for c, share in zip(done, shares, strict=True):
        if share is not None:
            by_source[c.run.source][c.accelerator].append(share)
    known: dict[tuple[str, str], float | None] = {}
    out: list[float | None] = []
    for c, share in zip(done, shares, strict=True):
        key = (c.run.source, c.accelerator)
        if key not in known:
            known[key] = _median_without(by_source, *key)
        guess = known[key]
        out.append(None if share is None or guess is None else guess / share - 1)
    return out


def _median_without(by_source: Mapping[str, Mapping[str, list[float]]], source: str, accelerator: str) -> float | None:
    others = [found for name, found in by_source.items() if name != source]
    same = [share for found in others for share in found.get(accelerator, ())]
    every = [share for found in others for shares in found.values() for share in shares]
    return statistics.median(same or every) if same or every else None


def measured_mfu(c: Compared) -> float | None:
    """Model FLOP utilisation that a run achieved, against the dense peak of its precision."""
    if c.estimate is None or c.measured is None or c.predicted is None:
        return None
    return c.estimate.mfu * c.measured / c.estimate.tokens_per_second_per_device


# ---------------------------------------------------------------------------------------------- as plain data


def as_row(c: Compared) -> dict[str, Any]:
    """One row of the JSON document; rates are tokens/s per device, memory bytes."""
    reading = memory_reading(c.run)
    return {
        "id": c.run.id,
        "predicted_tokens_per_s_per_gpu": c.predicted,
        "measured_tokens_per_s_per_gpu": c.run.measured_tokens_per_second,
        "error": c.error,
        "interval": None if c.interval is None else list(c.interval),
        "predicted_peak_bytes": c.predicted_peak,
        "measured_peak_bytes": None if reading is None else reading.bytes,
        "memory_error": c.memory_error,
        "skipped": None if c.skipped is None else str(c.skipped),
        "tier": c.run.tier,
        "accelerator": c.run.accelerator,
        "framework": c.run.framework,
    }


def as_summary(summary: Summary) -> dict[str, Any]:
    """The summary of the JSON document: `all`, then groups by factor and value."""
    groups: dict[str, dict[str, Any]] = {factor: {} for factor in FACTORS}
    for group in summary.groups:
        groups[group.factor][group.value] = _as_group(group)
    return {
        "rows": summary.rows,
        "compared": summary.compared,
        "skipped": summary.skipped,
        "all": _as_group(summary.overall),
        "groups": groups,
        "skipped_reasons": {str(reason): n for reason, n in summary.reasons},
        "assumed_recompute": dict(summary.assumed_recompute),
        "as_usual": dict(summary.as_usual),
        "passed_over": dict(summary.passed_over),
    }


def _as_group(group: Group) -> dict[str, Any]:
    return {
        "throughput": _as_spread(group.throughput),
        "memory": _as_spread(group.memory),
        "naive": _as_spread(group.naive),
    }


def _as_spread(found: Spread | None) -> dict[str, Any] | None:
    if found is None:
        return None
    names = ("n", "median_abs", "mean_abs", "bias", "median_signed", "p90_abs", "coverage")
    return {name: getattr(found, name) for name in names}
