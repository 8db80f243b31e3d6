"""Fit the free constants of the step-time model to published runs, and measure what they are worth.

Run: `python benchmarks/fit_step_time.py ../shared/validation/measured_runs.csv` (needs scipy, extra `fit`; minutes).

Prints the constants with their standard errors and, under leave-one-source-out, the errors by accelerator and
framework, the coverage of the 90 % bands, and (`--ablation`) what each constant buys. `--write` writes
src/meshwright/catalog/data/calibration/step-time.toml, the bands that intervals use
(src/meshwright/catalog/data/accuracy/step-time.toml) and docs/accuracy.md.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from meshwright.calibrate import (
    Fit,
    HeldOut,
    bands,
    covered,
    fit,
    free_constants,
    held_out,
    observations,
    widening,
)
from meshwright.calibrate.observe import is_pretraining
from meshwright.engine.uncertainty import features
from meshwright.validate import Compared, validate
from meshwright.validate.choice import by_source, choice_sets
from meshwright.validate.summary import naive_errors

ROOT = Path(__file__).parents[1]
DATA = ROOT / "src/meshwright/catalog/data"
JUDGED = ("A", "A-")
LARGE = 10  # runs of a group that has a bar of its own


def spread(errors: Sequence[float]) -> str:
    """Median, mean and 90th percentile of the size of errors, and their mean."""
    e = np.array(errors)
    size = np.abs(e)
    return f"{np.median(size):6.1%} {size.mean():7.1%} {np.quantile(size, 0.9):7.1%} {e.mean():+7.1%}"


def judged(rows: Sequence[Compared], runs: Sequence[HeldOut]) -> list[tuple[Compared, HeldOut]]:
    """Runs of tiers A and A- that train from scratch, each with its held-out prediction."""
    by_id = {run.run.id: run for run in runs}
    return [(c, by_id[c.run.id]) for c in rows if c.run.id in by_id and c.run.tier in JUDGED and is_pretraining(c)]


def table(pairs: Sequence[tuple[Compared, HeldOut]], naive: dict[str, float]) -> list[tuple[str, int, str, str]]:
    """Errors by accelerator and framework, all first."""
    groups: dict[str, list[tuple[Compared, HeldOut]]] = defaultdict(list)
    for pair in pairs:
        groups["all"].append(pair)
        groups[f"{pair[0].accelerator} × {pair[0].run.framework}"].append(pair)
    ranked = sorted(groups.items(), key=lambda g: -len(g[1]))
    out = []
    for name, mine in ranked:
        guess = [naive[c.run.id] for c, _ in mine if c.run.id in naive]
        out.append((name, len(mine), spread([h.error for _, h in mine]), spread(guess) if guess else "-"))
    return out


def report(rows: Sequence[Compared], known: Fit, apart: Sequence[HeldOut]) -> None:
    """Print everything."""
    for f in known.free:
        value, at_end = known.values[f.id], not f.low * 1.01 < known.values[f.id] < f.high * 0.99
        print(f"{f.id:45} {f.value:10.4g} -> {value:10.4g} ± {known.errors[f.id]:4.0%} [{f.low:g}, {f.high:g}]"
              f"{' at the end of its range' if at_end else ''}")  # fmt: skip
    print(f"{len(known.free)} constants, {len(known.predicted)} runs")
    pairs = judged(rows, apart)
    print("\nleave one source out, tiers A and A-      n  median    mean     p90    bias | naive guess")
    for name, n, mine, guess in table(pairs, naive_of(rows)):
        print(f"{name[:40]:40} {n:4} {mine} | {guess}")
    for widen in (1.0, widening_of(rows, apart)):
        inside = dict(zip((run.run.id for run in apart), covered(apart, widen), strict=True))
        share = np.mean([inside[c.run.id] for c, _ in pairs])
        print(f"90 % bands from other sources, widened by {widen:.2f}, hold {share:.1%} of them")
    for choice in by_source(choice_sets(rows)):
        print(f"choice: {choice.source[:40]:40} {choice.sets} jobs, {choice.strategies} strategies: regret"
              f" {choice.regret:.1%}, rank correlation {choice.correlation or 0:.2f}")  # fmt: skip


def widening_of(rows: Sequence[Compared], apart: Sequence[HeldOut]) -> float:
    """The widening of the bands that holds 90 % of tiers A and A-."""
    mine = {c.run.id for c, _ in judged(rows, apart)}
    return widening(apart, [run.run.id in mine for run in apart])


def naive_of(rows: Sequence[Compared]) -> dict[str, float]:
    """The naive guess's error by run."""
    done = [c for c in rows if c.skipped is None]
    return {c.run.id: e for c, e in zip(done, naive_errors(done), strict=True) if e is not None}


def ablation(rows: Sequence[Compared], known: Fit) -> list[tuple[str, float]]:
    """Mean error of tiers A and A- when one constant stays at its own value, beside that of the fit."""
    tier = {c.run.id: c.run.tier for c in rows}
    runs = observations(rows)
    measured = np.array([run.log_seconds for run in runs])
    mine = np.array([tier[run.id] in JUDGED for run in runs])
    prior = np.log([f.value for f in known.free])

    def error(predicted: Any) -> float:
        return float(np.mean(np.abs(np.exp(measured - predicted) - 1.0)[mine]))

    out = [("all fitted", error(known.predicted))]
    for j, f in enumerate(known.free):
        out.append((f.id, error(known.predicted + known.slopes[:, j] * (prior[j] - known.point[j]))))
    out.append(("none fitted", error(known.predicted + known.slopes @ (prior - known.point))))
    return out


def write(rows: Sequence[Compared], known: Fit, apart: Sequence[HeldOut]) -> None:
    """Write the fit, the bands and the document."""
    sources = sorted({run.run.publisher for run in apart})
    head = ['id = "step-time"', 'title = "Constants of the step-time model fitted to published runs"', "",
            f"# {len(apart)} runs of {len(sources)} publishers; benchmarks/fit_step_time.py writes this file.", ""]  # fmt: skip
    lines = []
    for f in known.free:
        lines += [f'[constants."{f.id}"]', f"value = {known.values[f.id]:.4g}", f"error = {known.errors[f.id]:.3f}",
                  f"before = {f.value:.4g}", f"range = [{f.low:g}, {f.high:g}]", 'basis = "fitted"',
                  'source = "shared/validation/measured_runs.csv, benchmarks/fit_step_time.py"', ""]  # fmt: skip
    (DATA / "calibration/step-time.toml").write_text("\n".join(head + lines), "utf-8")
    text = ['id = "step-time"',
            'title = "Measured over predicted step time of runs the constants never saw: 5th and 95th percentile, runs,'
            ' sources"']  # fmt: skip
    for group, band in bands(apart, widening_of(rows, apart)).items():
        text += ["", f'[constants."{group}"]', f"value = [{band.low:.3f}, {band.high:.3f}, {band.runs}, {band.sources}]",
                 'unit = "1"', 'basis = "measured"',
                 'source = "published runs, each predicted without its source; benchmarks/fit_step_time.py"']  # fmt: skip
    (DATA / "accuracy/step-time.toml").write_text("\n".join(text) + "\n", "utf-8")
    write_features(apart)


def write_features(apart: Sequence[HeldOut]) -> None:
    """Which kinds of parallelism were measured on which generation of accelerators."""
    seen: dict[str, set[str]] = defaultdict(set)
    for run in apart:
        found = features(run.run.strategy, run.run.problem.model)[:-1]
        seen[run.run.problem.cluster.accelerator.architecture].update(found)
    text = ['id = "features"',
            'title = "Kinds of parallelism of which published runs were compared, by accelerator generation"']  # fmt: skip
    for architecture, names in sorted(seen.items()):
        text += ["", f'[constants."{architecture}"]', f"value = {sorted(names)!r}".replace("'", '"'), 'unit = ""',
                 'basis = "measured"', 'source = "published runs, benchmarks/fit_step_time.py"']  # fmt: skip
    (DATA / "accuracy/features.toml").write_text("\n".join(text) + "\n", "utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit, leave out, print; write if asked."""
    parser = argparse.ArgumentParser()
    parser.add_argument("csv", type=Path)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--ablation", action="store_true")
    options = parser.parse_args(arguments)

    def progress(share: float, what: object) -> None:
        if sys.stderr.isatty():
            print(f"\r{share:4.0%} {what!s:60.60}", end="", file=sys.stderr)

    found = validate(options.csv)
    runs = observations(found.rows)
    known = fit(runs, free_constants(), progress=progress)
    apart = held_out(runs, known, "source", progress=progress)
    report(found.rows, known, apart)
    if options.ablation:
        for name, mean in ablation(found.rows, known):
            print(f"{name:45} mean error {mean:.2%}")
    if options.write:
        write(found.rows, known, apart)


if __name__ == "__main__":
    main()
