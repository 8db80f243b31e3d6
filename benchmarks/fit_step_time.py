# ruff: noqa: E501  (the sentences of a page)
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
from meshwright.catalog import load
from meshwright.engine.uncertainty import features
from meshwright.validate import Compared, validate
from meshwright.validate.choice import by_source, choice_sets
from meshwright.validate.summary import naive_errors

ROOT = Path(__file__).parents[1]
DATA = ROOT / "src/meshwright/catalog/data"
PAGE = ROOT / "docs/accuracy.md"
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
    for what, asked, got in bars(rows, pairs, inside):
        print(f"bar  {what:60} {got:6.1%} of {asked:.1%}: {'holds' if got <= asked else 'MISSED'}")
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
    """Write the fit, the bands, what was measured at all, and the document."""
    _write("calibration/step-time.toml", "Constants of the step-time model fitted to published runs", _fitted(known))
    widened = bands(apart, widening_of(rows, apart))
    title = "Measured over predicted step time of runs the constants never saw: 5th and 95th percentile, runs, sources"
    values = {g: f"[{b.low:.3f}, {b.high:.3f}, {b.runs}, {b.sources}]" for g, b in widened.items()}
    _write("accuracy/step-time.toml", title, {g: {"value": v, "unit": '"1"'} for g, v in values.items()})
    seen: dict[str, set[str]] = defaultdict(set)
    for run in apart:
        found = features(run.run.strategy, run.run.problem.model)[:-1]
        seen[run.run.problem.cluster.accelerator.architecture].update(found)
    title = "Kinds of parallelism of which published runs were compared, by accelerator generation"
    lists = {name: "[" + ", ".join(f'"{f}"' for f in sorted(found)) + "]" for name, found in sorted(seen.items())}
    _write("accuracy/features.toml", title, {name: {"value": v, "unit": '""'} for name, v in lists.items()})
    PAGE.write_text(page(rows, known, apart, widening_of(rows, apart)), "utf-8")


def _fitted(known: Fit) -> dict[str, dict[str, str]]:
    return {
        f.id: {
            "value": f"{known.values[f.id]:.4g}", "error": f"{known.errors[f.id]:.3f}", "before": f"{f.value:.4g}",
            "range": f"[{f.low:g}, {f.high:g}]", "basis": '"fitted"',
        }
        for f in known.free
    }  # fmt: skip


def _write(name: str, title: str, entries: dict[str, dict[str, str]]) -> None:
    lines = [f'id = "{Path(name).stem}"', f'title = "{title}"', "", "# Written by benchmarks/fit_step_time.py."]
    for id, fields in entries.items():
        fields = {"basis": '"measured"', **fields, "source": '"shared/validation/measured_runs.csv"'}
        lines += ["", f'[constants."{id}"]', *(f"{key} = {value}" for key, value in fields.items())]
    (DATA / name).write_text("\n".join(lines) + "\n", "utf-8")


# ---------------------------------------------------------------------------------------------- the document


def page(rows: Sequence[Compared], known: Fit, apart: Sequence[HeldOut], widen: float) -> str:
    """docs/accuracy.md."""
    pairs = judged(rows, apart)
    inside = dict(zip((run.run.id for run in apart), covered(apart, widen), strict=True))
    share = np.mean([inside[c.run.id] for c, _ in pairs])
    naive = naive_of(rows)
    lines = [
        "# Accuracy", "",
        "Written by `benchmarks/fit_step_time.py --write` from the published runs of `measured_runs.csv`; not edited by hand.",
        "",
        f"{len(rows)} published runs were read, {len(known.predicted)} have a rate and settings that can be expressed. "
        f"The tables show the {len(pairs)} complete ones (tiers A and A-, training from scratch), **each predicted by"
        " constants fitted without its own source**. The naive guess beside it is the median utilisation of the"
        " accelerator over the other sources.", "",
        "## Tokens per second, leave one source out", "",
        "| accelerator × framework | runs | median | mean | p90 | bias | naive median | naive mean |",
        "|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for name, n, mine, guess in table(pairs, naive):
        cells = [*mine.split(), *(guess.split()[:2] if guess != "-" else ["-", "-"])]
        lines.append(f"| {name} | {n} | " + " | ".join(cells) + " |")
    lines += ["", f"The 90 % bands, from sources other than the run's own and widened by {widen:.2f} in logarithms, hold"
              f" {share:.1%} of these runs.", "", "## Bars", "", "| bar | asked | measured | holds |", "|---|---|---|---|"]  # fmt: skip
    for what, asked, got in bars(rows, pairs, inside):
        lines.append(f"| {what} | {asked:.1%} | {got:.1%} | {'yes' if got <= asked else '**no**'} |")
    lines += ["", "## Choice among measured strategies", "", "One job measured under several strategies: what the one predicted"
              " best loses against the best measured one.", "",
              "| source | jobs | strategies | regret | worst | rank correlation |", "|---|---|---|---|---|---|"]  # fmt: skip
    for c in by_source(choice_sets(rows)):
        tau = "-" if c.correlation is None else f"{c.correlation:.2f}"
        lines.append(f"| {c.source[:50]} | {c.sets} | {c.strategies} | {c.regret:.1%} | {c.worst_regret:.1%} | {tau} |")
    lines += ["", "## Furthest off", "", "| run | model | accelerator | strategy | error |", "|---|---|---|---|---|"]
    for c, h in sorted(pairs, key=lambda pair: -abs(np.log1p(pair[1].error)))[:25]:
        strategy = c.estimate.strategy.short if c.estimate else ""
        lines.append(f"| {c.run.id} | {c.run.model} | {c.accelerator} | {strategy} | {h.error:+.0%} |")
    measured = {(c.accelerator, c.run.framework) for c, _ in pairs}
    never = sorted(set(load.ids("accelerators")) - {a for a, _ in measured})
    lines += ["", "## Never validated", "", "No complete run trained on: " + ", ".join(never) + ".", "",
              "## Constants", "", f"{len(known.free)} constants are fitted; each belongs to a generation of accelerators or to a"
              " software profile, none to a run, a model or a source. *Without* is the mean error of the same runs when that"
              " constant alone keeps the value it had before any run was seen.", "",
              "| constant | before | fitted | ± | range | without |", "|---|---|---|---|---|---|"]  # fmt: skip
    parts = ablation(rows, known)
    without = dict(parts)
    for f in known.free:
        lines.append(f"| {f.id} | {f.value:.4g} | {known.values[f.id]:.4g} | {known.errors[f.id]:.0%} |"
                     f" {f.low:g} to {f.high:g} | {without[f.id]:.2%} |")  # fmt: skip
    lines += ["", f"All fitted: {parts[0][1]:.2%} mean error on the runs themselves; none fitted: {parts[-1][1]:.2%}."]
    return "\n".join(lines) + "\n"


def bars(
    rows: Sequence[Compared], pairs: Sequence[tuple[Compared, HeldOut]], inside: dict[str, bool]
) -> list[tuple[str, float, float]]:
    """What is asked of the predictions, and what was measured, both as numbers to stay under."""
    errors = np.array([h.error for _, h in pairs])
    size = np.abs(errors)

    def of(ids: str, how: Any) -> float:
        found = [abs(h.error) for c, h in pairs if c.run.id.startswith(ids)]
        return float(how(found)) if found else float("nan")

    def everything(ids: str) -> float:
        return float(np.mean([abs(c.error) for c in rows if c.run.id.startswith(ids) and c.error is not None]))

    large = [(name, n, float(mine.split()[0].rstrip("%")) / 100) for name, n, mine, _ in table(pairs, {}) if n >= LARGE]
    worst = max((value, name) for name, _, value in large)
    return [
        ("median", 0.06, float(np.median(size))),
        ("mean", 0.10, float(size.mean())),
        ("90th percentile", 0.20, float(np.quantile(size, 0.9))),
        ("bias", 0.02, abs(float(errors.mean()))),
        (f"worst median of a group of ten ({worst[1]})", 0.12, worst[0]),
        ("vTrain multi-node, mean (in the fit)", 0.12, everything("vtrain")),
        ("SimuMax B200, mean", 0.055, of("simumax", np.mean)),
        ("Korthikanti, mean", 0.07, of("kor22", np.mean)),
        ("torchtitan, mean", 0.07, of("tt", np.mean)),
        ("llm-foundry, mean", 0.06, of("lf", np.mean)),
        ("runs outside their 90 % band", 0.15, 1.0 - float(np.mean([inside[c.run.id] for c, _ in pairs]))),
    ]


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
