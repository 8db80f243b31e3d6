"""Candidates scored per second on one core: rules, memory and time of every one, over spaces of a million and more.

Run: `python benchmarks/search_speed.py`; fails when no space reaches a million candidates a second.

Candidates are counted as a plan counts them (before the rules); the legal
ones are those whose memory and time were computed. Also shows that the cost follows the number of legal strategies and
not the number of devices: 1k, 16k and 131k of them.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import sys
import time

from meshwright.catalog.hardware import cluster
from meshwright.catalog.models import model
from meshwright.engine.search.plan import search
from meshwright.engine.search.space import Constraints
from meshwright.spec.job import Job
from meshwright.spec.plan import Problem

WIDE = Constraints(micro_batch=tuple(range(1, 65)))  # most split no batch: the rules alone decide about them
MANY = 27720  # divisible by 32 of the micro-batch sizes up to 64: nearly all candidates are legal
SPACES = (  # model, cluster, sequence, batch, constraints
    ("gpt-3-175b", "h100-sxm:15360", 8192, 15360 * 4, WIDE),
    ("mixtral-8x22b", "h100-sxm:4096", 8192, 4096 * 8, WIDE),
    ("deepseek-v3", "h100-sxm:2048", 4096, 2048 * 16, WIDE),
    ("deepseek-v3", "h100-sxm:2048", 4096, 2048 * MANY, Constraints()),
    ("mixtral-8x22b", "h100-sxm:4096", 8192, 4096 * MANY, Constraints()),
    ("deepseek-v3", "h100-sxm:2048", 4096, 8192, Constraints()),
    ("gpt-3-175b", "dgx-a100-80gb:1024", 2048, 1536, Constraints()),
    ("llama-3.1-405b", "h100-sxm:1024", 8192, 1024, Constraints()),
    ("llama-3.1-405b", "h100-sxm:16384", 8192, 16384, Constraints()),
    ("llama-3.1-405b", "h100-sxm:131072", 8192, 131072, Constraints()),
)


LIMIT = 1e6  # candidates per second in the fastest space; small spaces are mostly start-up


def main() -> int:
    """Print candidates, legal ones, seconds and rates of every space; 1 when all are too slow."""
    best = 0.0
    for name, where, seq, batch, constraints in SPACES:
        p = Problem(model=model(name), cluster=cluster(where), job=Job(seq_len=seq, global_batch=batch))
        began = time.perf_counter()
        columns, pool = search(p, constraints)
        seconds = time.perf_counter() - began
        legal = len(columns.peak)
        best = max(best, pool.candidates / seconds)
        print(
            f"{name:15} {where:19} batch {batch:9}: {pool.candidates:9,} candidates, {legal:9,} legal "
            f"in {seconds:5.2f} s: {pool.candidates / seconds / 1e6:5.2f} M candidates/s, "
            f"{legal / seconds / 1e6:5.2f} M scored/s",
            flush=True,
        )
    return int(best < LIMIT)


if __name__ == "__main__":
    sys.exit(main())
