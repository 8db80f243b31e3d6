"""Predicted against measured tokens/s of published runs: `meshwright validate`, by source.

Run: `python benchmarks/measured_runs.py ../shared/validation/measured_runs.csv`.

`--rows PREFIX` prints where the step of each row with that id goes. The bands of intervals come from
`fit_step_time.py`, which predicts every run without its source.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from meshwright.api import validate
from meshwright.validate import Compared, Group

TIERS = ("A", "A-", "B")


def line(group: Group) -> str:
    """One group."""
    t, naive = group.throughput, group.naive
    if t is None or naive is None:
        return f"{group.value[:44]:44}  no throughput"
    return (
        f"{group.value[:44]:44} {t.n:4}  median|e| {t.median_abs:6.1%}  mean|e| {t.mean_abs:6.1%}  bias {t.bias:+6.1%}"
        f"  p90 {t.p90_abs:6.1%}  inside {t.coverage or 0:4.0%}  naive {naive.median_abs:6.1%}"
    )


def parts(c: Compared) -> str:
    """Where the step of a row goes."""
    assert c.estimate is not None
    shares = {t.name: f"{t.value / c.estimate.step_seconds:.0%}" for t in c.estimate.time.children}
    return f"{c.run.id} {c.run.model} {c.run.accelerator} {c.estimate.strategy.short} {c.error:+.1%} {shares}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("csv", type=Path)
    parser.add_argument("--rows", default="", help="print rows whose id starts with this")
    options = parser.parse_args(arguments)
    found = validate(options.csv, tiers=TIERS)
    timed = [c for c in found.rows if c.error is not None]
    for c in timed:
        if options.rows and c.run.id.startswith(options.rows):
            print(parts(c))
    summary = found.summary
    for group in (summary.overall, *summary.of("accelerator_framework"), *summary.of("source")):
        print(line(group))
    print("not predicted:", summary.skipped, {str(reason): n for reason, n in summary.reasons})


if __name__ == "__main__":
    main()
