"""Scored tables: every row equals the estimate of its strategy, for every framework and category."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest

from meshwright.catalog.hardware import cluster
from meshwright.catalog.models import model
from meshwright.engine.evaluate import evaluate
from meshwright.engine.memory import stated_error
from meshwright.engine.search.plan import Columns, search
from meshwright.engine.search.space import Constraints
from meshwright.spec.estimate import Estimate
from meshwright.spec.job import Job
from meshwright.spec.plan import Problem

# name: model, cluster, sequence, batch, precision, optimizer, constraints
SPACES: dict[str, tuple[str, str, int, int, str, str, Constraints]] = {
    "dense": ("llama-3.2-1b", "h100-sxm:8", 8192, 16, "bf16", "adamw", Constraints()),
    "hybrid sharding": ("llama-3.1-8b", "dgx-a100-80gb:16", 4096, 32, "bf16", "adamw", Constraints(micro_batch=(1, 2))),
    "experts": ("mixtral-8x7b", "h100-sxm:16", 4096, 32, "fp8", "adamw", Constraints(micro_batch=(1, 2))),
    "latent attention": ("deepseek-v2-lite", "b200-sxm:8", 8192, 16, "mxfp8", "adamw-bf16", Constraints()),
    "prediction module": (
        "deepseek-v3", "h100-sxm:64", 4096, 64, "bf16", "adamw", Constraints(micro_batch=(1,), tensor=(1, 8)),
    ),
    "state space": ("mamba2-2.7b", "rtx-4090:8", 2048, 32, "bf16", "adamw-8bit", Constraints()),
    "mixed layers": ("jamba-v0.1", "mi300x:16", 8192, 16, "bf16", "muon", Constraints(micro_batch=(1, 2))),
    "windows": ("gpt-oss-20b", "gb200-nvl72:36", 8192, 72, "bf16", "adamw", Constraints(micro_batch=(1, 4))),
    "encoder": ("vit-huge", "a100-sxm-80gb:8", 257, 128, "fp16", "lion", Constraints()),
    "torus": ("llama-3.1-8b", "tpu-v5e:64", 8192, 64, "bf16", "adafactor", Constraints()),
    "schedules": (
        "llama-3.2-3b", "h100-sxm:8", 4096, 32, "bf16", "adamw",
        Constraints(
            frameworks=("megatron", "fsdp"), schedule=("1f1b", "interleaved", "gpipe", "zb-h1", "zbv", "dualpipe"),
        ),
    ),
    "offload": (
        "llama-3.1-8b", "h100-sxm:8", 4096, 32, "bf16", "adamw",
        Constraints(frameworks=("deepspeed", "fsdp"), offload=("none", "optimizer", "parameters", "activations")),
    ),
    "fixed shard groups": (
        "llama-3.1-8b", "h100-sxm:16", 4096, 32, "bf16", "adamw",
        Constraints(frameworks=("fsdp", "deepspeed"), shard=(0, 4, 8), micro_batch=(1,)),
    ),
    "selective groups": (
        "mixtral-8x7b", "h100-sxm:8", 4096, 16, "bf16", "adamw",
        Constraints(frameworks=("megatron",), recompute=("selective",), recompute_ops=("moe_act", "layernorm")),
    ),
}  # fmt: skip
ROWS = 250  # of each space, spread over all its groups


@lru_cache(maxsize=len(SPACES))
def searched(name: str) -> tuple[Problem, Columns]:
    what, where, seq, batch, precision, optimizer, constraints = SPACES[name]
    job = Job(seq_len=seq, global_batch=batch, precision=precision, optimizer=optimizer)  # type: ignore[arg-type]
    problem = Problem(model=model(what), cluster=cluster(where), job=job)
    return problem, search(problem, constraints)[0]


def some_rows(columns: Columns) -> list[int]:
    """Rows of every group and recompute mode, evenly spread."""
    kind = columns.group * 100 + columns.mode
    kinds = np.unique(kind)
    each = max(ROWS // len(kinds), 3)
    rows: list[int] = []
    for k in kinds:
        mine = np.flatnonzero(kind == k)
        rows += mine[np.unique(np.linspace(0, len(mine) - 1, each).astype(int))].tolist()
    return rows


def assert_same(problem: Problem, columns: Columns, row: int) -> None:
    strategy = columns.strategy(row)
    answer = evaluate(problem, strategy)
    assert isinstance(answer, Estimate), (strategy, [str(f.message) for f in answer.findings])
    assert columns.seconds[row] == pytest.approx(answer.step_seconds, rel=1e-9), strategy
    assert columns.peak[row] == pytest.approx(answer.peak_bytes, rel=1e-9), strategy
    assert columns.safe[row] == pytest.approx(answer.peak_bytes * (1 + stated_error(strategy)), rel=1e-9)


@pytest.mark.parametrize("name", SPACES)
def test_rows_equal_single_estimates(name: str) -> None:
    problem, columns = searched(name)
    rows = some_rows(columns)
    assert len(rows) >= min(len(columns.peak), 20)
    for row in rows:
        assert_same(problem, columns, row)


def test_every_row_of_a_small_space() -> None:
    problem = Problem(
        model=model("olmoe-1b-7b"),
        cluster=cluster("h100-sxm:8"),
        job=Job(seq_len=4096, global_batch=8, precision="bf16"),
    )
    columns, _ = search(problem, Constraints(micro_batch=(1,), recompute=("none", "full")))
    assert len(columns.peak) > 300
    for row in range(len(columns.peak)):
        assert_same(problem, columns, row)


@pytest.mark.parametrize("name", SPACES)
def test_candidates_are_distinct_and_fill_the_cluster(name: str) -> None:
    problem, columns = searched(name)
    strategies = [columns.strategy(i) for i in range(0, len(columns.peak), max(len(columns.peak) // 2000, 1))]
    # A hybrid group as large as all replicas is the plain one: such a strategy may stand there once more.
    plain = [s for s in strategies if s.sharding != "zero3" or s.shard]
    assert len(set(plain)) == len(plain)
    assert {s.devices for s in strategies} == {problem.cluster.devices}
    assert np.isfinite(columns.seconds).all() and np.isfinite(columns.peak).all()
    assert (columns.seconds > 0).all() and (columns.peak > 0).all()


@pytest.mark.parametrize("name", SPACES)
def test_host_memory_equals_the_estimate(name: str) -> None:
    """Where states or activations live on the host, the column is what one host needs."""
    problem, columns = searched(name)
    for row in some_rows(columns)[:60]:
        strategy = columns.strategy(row)
        if strategy.offload != "none":
            answer = evaluate(problem, strategy)
            assert isinstance(answer, Estimate)
            assert columns.host[row] == pytest.approx(answer.host_bytes, rel=1e-9)
