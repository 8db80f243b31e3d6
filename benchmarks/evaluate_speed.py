"""Milliseconds of one full evaluation as a call: rules, memory of every stage, time, trees, derived figures.

Run: `python benchmarks/evaluate_speed.py [strategies]`. Legal strategies are drawn from the search space of two
problems; each is evaluated once, in a fresh process that did not search (nothing of a strategy is remembered), so the
mean is that of distinct calls. One thread. Fails when a mean is above the limit.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pickle
import random
import statistics
import subprocess
import sys
import time

from meshwright.catalog.hardware import cluster
from meshwright.catalog.models import model
from meshwright.engine.evaluate import evaluate
from meshwright.engine.search.plan import search
from meshwright.engine.search.space import Constraints
from meshwright.spec.estimate import Estimate
from meshwright.spec.job import Job
from meshwright.spec.plan import Problem
from meshwright.spec.strategy import Strategy

PROBLEMS = (  # model, cluster, sequence, batch
    ("llama-3.1-70b", "h100-sxm:512", 8192, 1024),
    ("deepseek-v3", "h100-sxm:2048", 4096, 8192),
)
LIMIT = 0.5  # ms, mean
WARM_UP = 20  # calls that load catalogue files and code


def problem(index: int) -> Problem:
    """One of the problems above."""
    name, where, seq, batch = PROBLEMS[index]
    return Problem(model=model(name), cluster=cluster(where), job=Job(seq_len=seq, global_batch=batch))


def draw(index: int, count: int) -> list[Strategy]:
    """`count` distinct legal strategies of the whole space, drawn with a fixed seed."""
    columns, _ = search(problem(index), Constraints())
    rows = random.Random(0).sample(range(len(columns.peak)), min(2 * count, len(columns.peak)))
    return list(dict.fromkeys(columns.strategy(row) for row in rows))[:count]


def measure(index: int, strategies: list[Strategy]) -> int:
    """Evaluate each once and print mean, median and tail; runs in a process of its own. 1 when the mean is too long."""
    p = problem(index)
    seconds = []
    for strategy in strategies:
        began = time.perf_counter()
        answer = evaluate(p, strategy)
        seconds.append(time.perf_counter() - began)
        if not isinstance(answer, Estimate):
            raise SystemExit(f"not legal: {strategy}")
    timed = sorted(1e3 * s for s in seconds[WARM_UP:])
    name, where, _, _ = PROBLEMS[index]
    mean = statistics.fmean(timed)
    print(
        f"{name} on {where}: {len(timed)} distinct strategies, mean {mean:.3f} ms (limit {LIMIT}), "
        f"median {timed[len(timed) // 2]:.3f} ms, 95 % under {timed[int(0.95 * len(timed))]:.3f} ms "
        f"(first call of the process {1e3 * seconds[0]:.1f} ms)"
    )
    return int(mean > LIMIT)


def main() -> int:
    """Draw here, measure in fresh processes."""
    if len(sys.argv) == 3 and sys.argv[1] == "--measure":
        return measure(int(sys.argv[2]), pickle.load(sys.stdin.buffer))
    failed = 0
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 3000
    for index in range(len(PROBLEMS)):
        chosen = pickle.dumps(draw(index, count + WARM_UP))
        failed |= subprocess.run([sys.executable, __file__, "--measure", str(index)], input=chosen).returncode
    return failed


if __name__ == "__main__":
    sys.exit(main())
