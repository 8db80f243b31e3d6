"""What one checkout predicts on the fixed grid, and for measured rows, as JSON on stdout.

    PYTHONPATH=CHECKOUT/src python tools/prediction_grid.py CHECKOUT [--measured measured_runs.csv]

It asks the api of whatever checkout PYTHONPATH names, also an older one, and so uses only what has long been there;
a point that the checkout cannot answer holds its error. `tools/prediction_change.py` runs it at two revisions.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

GRID = Path(__file__).with_name("prediction_grid.toml")
Point = dict[str, Any]


def words(values: Mapping[str, Any]) -> str:
    """A strategy or a job in a few words."""
    return " ".join(f"{key}={value}" for key, value in values.items())


def questions(grid: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every point: its id, and what is asked."""
    for sweep in grid.get("estimate", ()):
        for model, cluster, strategy in itertools.product(sweep["models"], sweep["clusters"], sweep["strategies"]):
            asked = {"model": model, "cluster": cluster, "job": sweep["job"], "strategy": strategy}
            yield f"estimate {model} {cluster} {words(sweep['job'])} {words(strategy)}", asked
    for sweep in grid.get("plan", ()):
        for model, cluster in itertools.product(sweep["models"], sweep["clusters"]):
            asked = {"model": model, "cluster": cluster, "job": sweep["job"], "strategy": None}
            yield f"plan {model} {cluster} {words(sweep['job'])}", asked


def answered(ask: Callable[[], Point]) -> Point:
    """What `ask` says, or the error: an older checkout may lack a model, and must still answer for the others."""
    try:
        return ask()
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:300]}


def answer(asked: Mapping[str, Any]) -> Point:
    """Verdict, step time and peak memory of a strategy, or of the best plan."""
    from meshwright import api

    problem = api.problem(model=asked["model"], cluster=asked["cluster"], **asked["job"])
    if asked["strategy"] is None:
        best = api.plan(problem, top=1).ranked
        if not best:
            return {"verdict": "NOTHING FITS"}
        return {**figures(best[0].estimate), "strategy": chosen(best[0].estimate.strategy)}
    strategy, _ = api.strategy(problem, **asked["strategy"])
    return figures(api.estimate(problem, strategy))


def figures(estimate: Any) -> Point:
    """What is compared of an estimate; a refusal has its codes only."""
    if not hasattr(estimate, "step_seconds"):
        return {"verdict": "REFUSED", "codes": sorted({f.code for f in estimate.findings if f.severity == "error"})}
    return {
        "verdict": estimate.verdict,
        "step_seconds": float(estimate.step_seconds),
        "peak_bytes": float(estimate.peak_bytes),
    }


def chosen(strategy: Any) -> str:
    """The plan in words."""
    return f"{strategy.framework} {strategy.short} {strategy.sharding} {strategy.recompute} {strategy.schedule}"


def rows(path: Path) -> list[Point]:
    """Each measured row beside its prediction, as `validate --json` gives it."""
    from meshwright import api

    kept = ("id", "error", "memory_error", "skipped", "tier")
    return [{key: line[key] for key in kept} for line in api.validate(path).document["rows"]]


def main(arguments: list[str]) -> int:
    """Answer every point."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--measured", type=Path)
    parser.add_argument("--grid", type=Path, default=GRID)
    options = parser.parse_args(arguments)
    import meshwright

    where = Path(meshwright.__file__).resolve()
    if options.checkout.resolve() not in where.parents:
        print(f"meshwright is loaded from {where}, not from {options.checkout}: set PYTHONPATH", file=sys.stderr)
        return 2
    grid = tomllib.loads(options.grid.read_text("utf-8"))
    points = {id: answered(lambda asked=asked: answer(asked)) for id, asked in questions(grid)}
    found: dict[str, Any] = {"points": points, "rows": None}
    if options.measured is not None:
        measured = options.measured
        found["rows"] = answered(lambda: {line["id"]: line for line in rows(measured)})
    json.dump(found, sys.stdout, allow_nan=False)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
