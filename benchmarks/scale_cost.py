"""Seconds of one plan against the number of devices: the cost follows the legal strategies, not the devices.

Run: `python benchmarks/scale_cost.py [model] [accelerator]` (default gpt-3-175b on h100-sxm, batch 1,536 × 2,048
tokens). Prints devices, candidates, legal candidates, seconds, and microseconds per candidate.
"""

from __future__ import annotations

import sys
from dataclasses import replace

from meshwright.catalog.hardware import cluster, resize
from meshwright.catalog.models import model
from meshwright.engine.search.plan import plan
from meshwright.spec.job import Job
from meshwright.spec.plan import Plan, Problem

COUNTS = (1024, 16384, 131072)
REPEATS = 3


def measure(problem: Problem, devices: int) -> Plan:
    """The fastest of a few plans."""
    here = replace(problem, cluster=resize(problem.cluster, devices))
    return min((plan(here) for _ in range(REPEATS)), key=lambda p: p.seconds)


def main(model_name: str = "gpt-3-175b", accelerator: str = "h100-sxm") -> None:
    """Print one line per count."""
    problem = Problem(
        model=model(model_name),
        cluster=cluster(f"{accelerator}:{COUNTS[0]}"),
        job=Job(seq_len=2048, global_batch=1536),
    )
    plan(problem)  # imports and caches
    print(f"{model_name} on {accelerator}, batch {problem.job.global_batch} × {problem.job.seq_len}")
    print(f"{'devices':>9} {'candidates':>11} {'legal':>8} {'seconds':>8} {'µs/candidate':>13}")
    for devices in COUNTS:
        p = measure(problem, devices)
        each = p.seconds / max(p.candidates, 1) * 1e6
        print(f"{devices:>9,} {p.candidates:>11,} {p.legal:>8,} {p.seconds:>8.2f} {each:>13.1f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
