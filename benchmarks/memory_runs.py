"""Predicted against measured peak memory of published runs: `meshwright validate`, by source, and the bands it implies.

    python benchmarks/memory_runs.py [--rows PREFIX] measured_runs.csv [memory_small_runs.csv]

Each source counts something else: torch's allocated or reserved bytes, or the whole process (nvidia-smi); what is
compared is the same quantity. The bars are those of the file: median and 90th percentile over every row that states a
peak and neither offloads nor trains adapters. `--rows` prints the parts of the peak of each row with that id.

The band of a framework (`error_*` in src/meshwright/catalog/data/memory/frameworks.toml) is the 90th percentile of its
rows' errors; its coverage is taken without the source it is asked about.
"""

from __future__ import annotations

import argparse
import collections
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from meshwright.engine.memory import stated_error
from meshwright.validate import Compared, validate

BARS = {"measured_runs.csv": (0.04, None), "memory_small_runs.csv": (0.02, 0.06)}  # median, 90th percentile
OF_SOURCE = {"tt": ("torchtitan, mean", 0.06), "simumax": ("SimuMax, mean", 0.015)}
LEVEL = 0.9


def errors(rows: Iterable[Compared]) -> np.ndarray:
    """Relative errors of the rows that have one."""
    return np.array([c.memory_error for c in rows if c.memory_error is not None])


def offloads(c: Compared) -> bool:
    """Whether a row keeps part of its states on the host, or its source says so."""
    note = f"{c.run.sharding_note} {c.run.optimizer}".lower()
    return "offload" in note or "cpu adam" in note


def source(c: Compared) -> str:
    """Where a row comes from."""
    return c.run.id.split("-")[0]


def line(name: str, rows: Sequence[Compared]) -> str:
    """Errors of a group."""
    found = errors(rows)
    if not len(found):
        return f"{name:34} no row"
    size = np.abs(found)
    return (
        f"{name:34} {len(found):4}  median|e| {np.median(size):6.1%}  mean|e| {size.mean():6.1%}"
        f"  bias {found.mean():+6.1%}  p90 {np.quantile(size, LEVEL):6.1%}  worst {size.max():6.1%}"
    )


def parts(c: Compared) -> str:
    """The parts of the predicted peak of a row."""
    assert c.estimate is not None and c.measured_peak is not None and c.predicted_peak is not None
    terms = (t for group in c.estimate.memory.children for t in (group.children or (group,)))
    shares = " ".join(f"{t.name}={float(t.value) / 1e9:.2f}" for t in terms if float(t.value) > 0.01 * c.measured_peak)
    head = f"{c.run.id} {c.run.model[:40]} {c.estimate.strategy.short} {c.estimate.peak_phase}"
    return (
        f"{head}: {c.counted} {c.measured_peak / 1e9:.2f}, {c.predicted_peak / 1e9:.2f} {c.memory_error:+.1%} {shares}"
    )


def by_framework(rows: Iterable[Compared]) -> dict[str, dict[str, np.ndarray]]:
    """Sizes of errors by framework and source."""
    sizes: dict[str, dict[str, list[float]]] = collections.defaultdict(lambda: collections.defaultdict(list))
    for c in rows:
        if c.memory_error is not None and c.estimate is not None:
            sizes[c.estimate.strategy.framework][source(c)].append(abs(c.memory_error))
    return {name: {s: np.array(v) for s, v in of.items()} for name, of in sizes.items()}


def bands(rows: Sequence[Compared]) -> None:
    """Print the band of each framework, and how many rows of a source the band of the other sources holds."""
    stated = {c.estimate.strategy.framework: stated_error(c.estimate.strategy) for c in rows if c.estimate is not None}
    for framework, of in sorted(by_framework(rows).items()):
        everything = np.concatenate(list(of.values()))
        inside = held = 0
        for name, own in of.items():
            rest = [v for other, v in of.items() if other != name]
            if rest:
                band = np.quantile(np.concatenate(rest), LEVEL)
                inside, held = inside + int((own <= band).sum()), held + len(own)
        share = f"{inside / held:.0%} of {held}" if held else "one source only"
        print(
            f"band {framework:12} {np.quantile(everything, LEVEL):6.1%} (stated {stated[framework]:.0%}, holds "
            f"{(everything <= stated[framework]).mean():.0%} of {len(everything)}); without the source: {share}"
        )


def held(name: str, value: float, bar: float) -> None:
    """Print whether a bar holds."""
    print(f"bar  {name:34} {value:6.2%} of {bar:.1%}: {'holds' if value <= bar else 'missed'}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("csv", type=Path, nargs="+")
    parser.add_argument("--rows", default="", help="print rows whose id starts with this")
    options = parser.parse_args(arguments)
    every: list[Compared] = []
    for path in options.csv:
        found = [c for c in validate(path).rows if c.run.peak_mem_gb and c.run.tier != "L"]
        compared = [c for c in found if c.memory_error is not None]
        plain = [c for c in compared if not offloads(c)]
        for c in compared:
            if options.rows and c.run.id.startswith(options.rows):
                print(parts(c))
        for name in dict.fromkeys(map(source, compared)):
            print(line(name, [c for c in compared if source(c) == name]))
        print(line(f"{path.name}, no offload", plain))
        reasons = collections.Counter(str(c.skipped) for c in found if c.memory_error is None)
        print(f"{sum(reasons.values())} rows with a peak are not predicted:", dict(reasons))
        median, tail = BARS.get(path.name, (None, None))
        if median is not None:
            held(f"{path.name}, median", float(np.median(np.abs(errors(plain)))), median)
        if tail is not None:
            held(f"{path.name}, 90th percentile", float(np.quantile(np.abs(errors(plain)), LEVEL)), tail)
        for name, (label, bar) in OF_SOURCE.items():
            own = [c for c in plain if source(c) == name]
            if own:
                held(label, float(np.abs(errors(own)).mean()), bar)
        every += plain
    bands(every)


if __name__ == "__main__":
    main()
