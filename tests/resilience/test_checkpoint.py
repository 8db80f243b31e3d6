"""Bytes and seconds of checkpoints against published ones, and against the exact states of each framework."""

from __future__ import annotations

import pytest
from survival_cases import case, llama_70b, llama_405b

from meshwright.catalog import failures as known
from meshwright.engine.params import model_params
from meshwright.resilience.checkpoint import sizes, times

GIB, TIB = 2**30, 2**40


def test_bloom_wrote_two_point_three_terabytes_in_forty_seconds() -> None:
    """329 GB of weights and 2.3 TB in all, in binary units."""
    problem, strategy, _ = case("bloom-176b", "jean-zay-a100:384", 2048, 1920, framework="deepspeed", sharding="zero1")
    of = sizes(problem, strategy)
    assert of.per_parameter == 14
    assert of.total / TIB == pytest.approx(2.24, abs=0.01)
    assert of.weights / GIB == pytest.approx(328.3, rel=0.001)
    took = times(problem.cluster, of, known.storage("gpfs-jean-zay", 48, 50e9))
    assert took.write == pytest.approx(43, abs=1)  # 2.47e12 B; the chronicles round to 2.3 TB in 40 s
    assert took.limited_by == "storage"


def test_llama_3_405b_writes_346_megabytes_a_gpu() -> None:
    problem, strategy, _ = llama_405b()
    of = sizes(problem, strategy)
    assert of.total == pytest.approx(405.85e9 * 14, rel=1e-3)
    assert of.rank == pytest.approx(346e6, rel=0.02)
    took = times(problem.cluster, of, known.storage("tectonic", 2048, 400e9))
    assert took.write == pytest.approx(2.84, abs=0.01)


def test_opt_kept_ten_bytes_a_parameter() -> None:
    """992 files of about 1.7 GB are 1.69 TB; 175e9 · 10 B = 1.59 TiB."""
    problem, strategy, _ = case("gpt-3-175b", "a100-sxm-80gb:992", 2048, 992, optimizer="sgd-momentum", tensor=8,
                                framework="megatron")  # fmt: skip
    of = sizes(problem, strategy)
    assert of.per_parameter == 10
    assert of.total / TIB == pytest.approx(1.59, abs=0.02)
    assert of.rank * 992 == pytest.approx(1.69e12, rel=0.06)


@pytest.mark.parametrize(
    ("framework", "optimizer", "expected"),
    [
        ("megatron", "adamw", 14), ("deepspeed", "adamw", 14), ("fsdp", "adamw", 12), ("jax", "adamw", 12),
        ("deepspeed", "adamw-8bit", 8), ("megatron", "sgd-momentum", 10), ("megatron", "muon", 10),
        ("fsdp", "adamw-bf16", 6), ("megatron", "sgd", 6), ("megatron", "lion", 10),
    ],
)  # fmt: skip
def test_bytes_per_parameter_by_optimizer(framework: str, optimizer: str, expected: float) -> None:
    """Weights are kept once: FSDP's 16-bit copy is gathered from the fp32 shards and never saved."""
    problem, strategy, _ = case("llama-3.1-8b", "h100-sxm:64", 4096, 128, optimizer=optimizer, framework=framework)
    of = sizes(problem, strategy)
    # 8-bit Adam keeps a scale per block, and Muon leaves the tables to AdamW.
    assert of.per_parameter == pytest.approx(expected, rel=0.01)
    extra = (8 - 4) * (2 * 128256 * 4096) if optimizer == "muon" else 0
    assert of.total == pytest.approx(of.per_parameter * model_params(problem.model).total + extra, rel=1e-9)


@pytest.mark.parametrize(
    "given",
    [
        {"tensor": 8, "pipeline": 4},
        {"tensor": 2, "pipeline": 8, "recompute": "full"},
        {"tensor": 4, "pipeline": 4, "context": 2},
    ],
)  # fmt: skip
def test_ranks_together_write_the_whole_once(given: dict[str, int]) -> None:
    problem, strategy, _ = llama_70b(**({"virtual": None} | given))
    of = sizes(problem, strategy)
    mean = of.total / strategy.devices
    assert mean <= of.rank < 1.6 * mean  # the first and the last stage hold the tables


def test_experts_are_counted_all_and_divided_over_their_own_replicas() -> None:
    problem, strategy, _ = case("deepseek-v3", "h100-sxm:2048", 4096, 4096, framework="megatron", tensor=1, pipeline=16,
                                expert=64, recompute="full")  # fmt: skip
    of = sizes(problem, strategy)
    assert of.total == pytest.approx(14 * model_params(problem.model).total_with_mtp)
    assert of.total / 2048 <= of.rank < 2 * of.total / 2048


def test_the_first_replica_of_deepspeed_writes_the_weights_alone() -> None:
    problem, first, _ = case("gpt-3-13b", "a100-sxm-80gb:64", 2048, 512, framework="deepspeed", sharding="zero2")
    _, third, _ = case("gpt-3-13b", "a100-sxm-80gb:64", 2048, 512, framework="deepspeed", sharding="zero3")
    assert sizes(problem, first).rank > 9 * sizes(problem, third).rank
    assert sizes(problem, first).total == sizes(problem, third).total


def test_state_of_hooks_is_every_ranks_own() -> None:
    problem, strategy, _ = case(
        "llama-3.1-8b", "h100-sxm:64", 4096, 128, framework="fsdp", sharding="none", recompute="full"
    )
    plain, hooked = sizes(problem, strategy), sizes(problem, strategy, 4.0)
    assert hooked.hook == pytest.approx(4 * 64 * model_params(problem.model).total, rel=1e-6)
    assert hooked.total - plain.total == hooked.hook


def test_offloaded_states_are_on_the_host_already() -> None:
    problem, strategy, _ = case("llama-3.1-8b", "h100-sxm:64", 4096, 128, framework="deepspeed", sharding="zero3",
                                offload="optimizer")  # fmt: skip
    of = sizes(problem, strategy)
    assert of.on_device == pytest.approx(of.rank * 2 / 14)


def test_nodes_can_be_the_limit() -> None:
    problem, strategy, _ = llama_70b()
    of = sizes(problem, strategy)
    fast = known.storage("tectonic", 64, 1e9)
    took = times(problem.cluster, of, fast)
    assert took.limited_by == "nodes" and took.write == pytest.approx(of.host / 1e9)
    assert of.total / 64e9 <= took.write < 1.2 * of.total / 64e9
