"""Predicted against measured tokens/s of published runs: `meshwright validate`, by source, and the bands it implies.

Run: `python benchmarks/measured_runs.py ../shared/validation/measured_runs.csv`.

`--bands` rewrites the bands that intervals use (src/meshwright/catalog/data/accuracy) from the rows of tiers A, A- and
B; `--rows PREFIX` prints where the step of each row with that id goes.
"""

from __future__ import annotations

import argparse
import collections
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from meshwright.api import validate
from meshwright.engine.uncertainty import resemblance
from meshwright.validate import Compared, Group

BANDS = Path(__file__).parents[1] / "src/meshwright/catalog/data/accuracy/step-time.toml"
TIERS = ("A", "A-", "B")
FEWEST = 8  # runs of a band


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


def bands(timed: Iterable[Compared]) -> str:
    """Bands of measured over predicted step time by group of like runs, and over all rows, as a catalogue file."""
    ratios: dict[str, list[float]] = collections.defaultdict(list)
    for c in timed:
        assert c.estimate is not None and c.problem is not None and c.error is not None
        strategy, architecture = c.estimate.strategy, c.problem.cluster.accelerator.architecture
        keys = resemblance(strategy.framework, architecture, c.problem.model.is_moe, strategy.precision)
        for key in (*keys, "any"):
            ratios[key].append(1 + c.error)
    lines = ['id = "step-time"', 'title = "Measured over predicted step time: 5th and 95th percentile, number of runs"']
    for key, values in sorted(ratios.items()):
        if len(values) >= FEWEST:
            low, high = np.quantile(values, [0.05, 0.95])
            lines += ["", f'[constants."{key}"]', f"value = [{low:.3f}, {high:.3f}, {len(values)}]", 'unit = "1"']
            lines += ['basis = "measured"', 'source = "published runs, benchmarks/measured_runs.py"']
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("csv", type=Path)
    parser.add_argument("--bands", action="store_true")
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
    if options.bands:
        BANDS.write_text(bands(timed), "utf-8")


if __name__ == "__main__":
    main()
