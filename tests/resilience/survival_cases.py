"""Problems with one strategy each, estimated once."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from meshwright import api
from meshwright.spec.estimate import Estimate
from meshwright.spec.plan import Problem
from meshwright.spec.strategy import Strategy


@lru_cache(maxsize=32)
def case(
    model: str, cluster: str, seq: int, batch: int, tokens: float | None = None, optimizer: str = "adamw",
    **given: Any,
) -> tuple[Problem, Strategy, Estimate]:  # fmt: skip
    problem = api.problem(
        model=model, cluster=cluster, seq_len=seq, global_batch=batch, tokens=tokens, optimizer=optimizer
    )
    strategy, _ = api.strategy(problem, **given)
    estimate = api.estimate(problem, strategy)
    assert isinstance(estimate, Estimate), [str(f.message) for f in estimate.findings]
    return problem, strategy, estimate


def llama_405b(tokens: float | None = 15e12) -> tuple[Problem, Strategy, Estimate]:
    """The published mesh of 16,384 H100, with full recomputation so that it fits."""
    return case("llama-3.1-405b", "llama3-h100-24k:16384", 8192, 2048, tokens, framework="megatron", tensor=8,
                pipeline=16, recompute="full")  # fmt: skip


def llama_70b(**given: Any) -> tuple[Problem, Strategy, Estimate]:
    usual = {"framework": "megatron", "tensor": 4, "pipeline": 4, "virtual": 10, "recompute": "selective"}
    return case("llama-3.1-70b", "h100-sxm:512", 8192, 512, 15e12, **(usual | given))
