"""Strategies to be written for each framework: a grid over what it can express, legal by our rules."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from meshwright.catalog.clusters import cluster
from meshwright.catalog.models import model
from meshwright.rules import RuleContext, check
from meshwright.spec import Job, Strategy
from meshwright.spec.plan import Problem


def problem(name: str, on: str, **job: Any) -> Problem:
    """A problem of the catalogue."""
    fields = {"seq_len": 4096, "global_batch": 512, **job}
    return Problem(model=model(name), cluster=cluster(on), job=Job(**fields))


def legal(cases: Iterator[tuple[Problem, Strategy]]) -> list[tuple[Problem, Strategy]]:
    """Those that no error rule refuses."""
    return [
        (p, s)
        for p, s in cases
        if not any(f.severity == "error" for f in check(RuleContext(p.model, p.cluster, p.job, s)))
    ]


def deepspeed() -> list[tuple[Problem, Strategy]]:
    """ZeRO stages, offload, partial groups, precisions, optimizers, degrees."""

    def cases() -> Iterator[tuple[Problem, Strategy]]:
        grid = itertools.product(
            ("none", "zero1", "zero2", "zero3"), ("none", "optimizer", "parameters", "activations"), (0, 8),
            ("bf16", "fp16", "fp32"), ("adamw", "adamw-bf16", "lion", "sgd", "adamw-8bit", "muon"), (1, 8), (1, 4),
        )  # fmt: skip
        for sharding, offload, shard, precision, optimizer, tensor, micro in grid:
            p = problem("llama-3.1-8b", "h100-sxm:64", precision=precision, optimizer=optimizer)
            yield p, Strategy(
                framework="deepspeed", data=64 // tensor, tensor=tensor, sharding=sharding, offload=offload, shard=shard,
                precision=precision, micro_batch=micro, sequence_parallel=tensor > 1,
                recompute="full" if micro > 1 else "none",
            )  # fmt: skip

    return legal(cases())
