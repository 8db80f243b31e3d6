"""Public problem reports (section B of the case log): the verdict and the values the maintainers gave."""

from __future__ import annotations

import csv
import dataclasses
import json
from pathlib import Path

import pytest

from meshwright.catalog.hf import from_text
from meshwright.rules import RULES, check
from meshwright.rules.advice import gather_times
from meshwright.rules.divisibility import even_split, sequence_factor
from meshwright.rules.nearest import nearest_multiples
from meshwright.spec import Finding

from .samples import (
    A100,
    B200,
    GPT2,
    H100,
    LLAMA_8B,
    LLAMA_30B,
    LLAMA_405B,
    MIXTRAL,
    QWEN_3B,
    TPU,
    cluster,
    context,
    dense,
)


@pytest.fixture
def inputs(shared: Path) -> Path:
    return shared / "cases" / "inputs"


def codes(findings: tuple[Finding, ...], severity: str = "error") -> set[str]:
    return {f.code for f in findings if f.severity == severity}


def one(findings: tuple[Finding, ...], code: str) -> Finding:
    return next(f for f in findings if f.code == code)


def test_b01_arithmetic_is_legal_for_four_devices_and_not_for_another_count() -> None:
    legal = check(context(GPT2, data=4, micro_batch=2, global_batch=8, framework="deepspeed", sharding="zero3"))
    assert "MW-C201" not in codes(legal)
    broken = one(check(context(GPT2, data=3, micro_batch=2, global_batch=8, framework="deepspeed")), "MW-C201")
    assert broken.data["legal"] == [6, 12]


@pytest.mark.parametrize("stage", ["zero2", "zero3"])
def test_b06_zero2_and_zero3_exclude_a_deepspeed_pipeline(stage: str) -> None:
    refused = check(context(LLAMA_8B, tensor=2, pipeline=2, framework="deepspeed", sharding=stage))
    assert "MW-C303" in codes(refused)
    assert "--no-pipeline-parallel" in str(RULES["MW-C303"].fix)
    accepted = check(context(LLAMA_8B, tensor=4, pipeline=1, framework="deepspeed", sharding=stage))
    assert not codes(accepted)


def test_b06_zero1_is_accepted() -> None:
    assert not codes(check(context(LLAMA_8B, tensor=2, pipeline=2, framework="deepspeed", sharding="zero1")))


def test_b07_config_as_reported(inputs: Path) -> None:
    """The report's config names no model_type, only its class: 12 heads are not split 8 ways."""
    model = from_text((inputs / "B07_hf_config.json").read_bytes())
    assert "MW-C102" in codes(check(context(model, tensor=8)))
    assert "MW-C102" not in codes(check(context(model, tensor=4)))


def test_b07_heads(inputs: Path) -> None:
    for case in json.loads((inputs / "B07_parallel.json").read_text("utf-8"))["cases"]:
        heads = case["num_attention_heads"]
        model = dense(f"{heads} heads", 12, heads * 64, heads, heads, heads * 256, 50304)
        found = codes(check(context(model, tensor=case["tensor_parallel"])))
        assert ("MW-C102" not in found) == case["valid"], case


@pytest.mark.parametrize(
    ("model", "legal", "inside"), [(GPT2, [1, 2, 3, 4, 6, 12], 4), (LLAMA_30B, [1, 2, 4, 13, 26, 52], 4)]
)
def test_b07_legal_values(model: object, legal: list[int], inside: int) -> None:
    finding = one(check(context(model, tensor=8)), "MW-C102")  # type: ignore[arg-type]
    assert finding.data["legal"] == legal
    assert finding.data["inside_domain"] == inside


def test_b11_interleaving_over_two_ranks_is_version_gated_not_refused() -> None:
    found = check(context(LLAMA_8B, pipeline=2, virtual=4, schedule="interleaved", global_batch=64))
    assert "MW-C206" in codes(found, "warning")
    assert not codes(found)
    assert "overlap" in str(one(found, "MW-C206").message)


def test_b11_interleaving_needs_micro_batches_in_multiples_of_the_pipeline() -> None:
    found = check(context(LLAMA_8B, pipeline=4, virtual=2, schedule="interleaved", global_batch=48, data=8))
    finding = one(found, "MW-C202")
    assert finding.data["legal"] == [32, 64]


DDP_WRAPPERS = {"megatron_ddp": "megatron", "torch_fsdp2": "fsdp"}


def test_b12_connections(inputs: Path) -> None:
    rows = list(csv.DictReader((inputs / "B12_matrix.csv").open(encoding="utf-8")))
    known = [r for r in rows if r["dp_wrapper"] in DDP_WRAPPERS]  # Megatron FSDP is not modelled
    assert len(known) >= 6
    for row in known:
        framework = DDP_WRAPPERS[row["dp_wrapper"]]
        device = B200 if int(row["gpu_arch_major"]) >= 10 else H100
        sharding = "zero1" if framework == "megatron" else "zero3"
        c = context(
            LLAMA_8B,
            device,
            tensor=int(row["tp"]),
            context=int(row["cp"]),
            data=64,
            framework=framework,
            sharding=sharding,
        )
        wanted = {f.data["value"] for f in check(c) if f.code == "MW-A114"}
        verdict, given = row["verdict"], row["CUDA_DEVICE_MAX_CONNECTIONS"]
        if verdict.startswith("error: must be 1"):
            assert wanted == {"1"}
        elif verdict.startswith("warn: DP overlap"):
            assert wanted == {"unset"}
        elif verdict.startswith("warn: use 16 or 32"):
            assert wanted <= {"16", "32"} and wanted
        elif device is B200:
            assert not wanted
        else:
            assert wanted == {given}


def test_b15_sequence_parallel_without_tensor_parallel_is_off_not_refused() -> None:
    found = check(context(LLAMA_8B, tensor=1, sequence_parallel=True))
    assert "MW-C323" in codes(found, "info")
    assert not codes(found)


def test_b15_overlap_without_sequence_parallel_is_refused() -> None:
    found = check(context(LLAMA_8B, tensor=2, overlap_tensor=True, sequence_parallel=False))
    assert "MW-C322" in codes(found)


def test_b16_divisors_and_next_lengths(inputs: Path) -> None:
    rows = list(csv.DictReader((inputs / "B16_cases.csv").open(encoding="utf-8")))
    assert rows
    for row in rows:
        tensor, cp, length = int(row["tp"]), int(row["cp"]), int(row["seq_length"])
        on = row["sequence_parallel"] == "1"
        assert sequence_factor("megatron", tensor, cp, on) == int(row["divisor"])
        assert nearest_multiples(int(row["divisor"]), length)[-1] == int(row["next_valid"])
        found = check(context(LLAMA_8B, tensor=tensor, context=cp, sequence_parallel=on, seq_len=length))
        assert ("MW-C115" not in codes(found)) == (row["valid"] == "1"), row


def test_b17_context_parallelism_is_an_axis_of_its_own() -> None:
    on = cluster(H100, 8)
    finding = one(check(context(LLAMA_8B, on, data=8, context=8, framework="fsdp", sharding="zero3")), "MW-C101")
    assert (finding.data["product"], finding.data["devices"]) == (64, 8)
    assert "64 != 8" in str(finding.message)
    assert finding.data["legal"] == {"data": 1, "context": 1}


def test_b17_product_of_six_on_eight_devices() -> None:
    finding = one(check(context(GPT2, cluster(H100, 8), data=1, tensor=2, pipeline=3)), "MW-C101")
    assert finding.data["legal"] == {"pipeline": 4}


def test_b24_mesh_product() -> None:
    on = cluster(TPU, 1, node_size=1, domain_size=1)
    found = check(context(LLAMA_8B, on, data=1, tensor=8, framework="jax", sharding="zero3"))
    assert "8 != 1" in str(one(found, "MW-C101").message)


@pytest.mark.parametrize(("batch", "axis", "rest"), [(1, 8, "1 % 8"), (19, 4, "19 % 4"), (16, 256, "16 % 256")])
def test_b24_batch_does_not_divide(batch: int, axis: int, rest: str) -> None:
    found = check(context(LLAMA_8B, TPU, data=axis, global_batch=batch, framework="jax", sharding="zero3"))
    assert rest in str(one(found, "MW-C201").message)


def test_a29_parameter_offload_needs_zero3() -> None:
    found = check(context(MIXTRAL, A100, data=4, framework="deepspeed", sharding="zero2", offload="parameters"))
    finding = one(found, "MW-C311")
    # 46.7B parameters in 16 bits: 93.4 GB (the report's 93 GB), which is 87.0 GiB, on every device
    assert "87.0 GiB" in str(finding.message)


def test_a16_logits_of_qwen() -> None:
    found = check(context(QWEN_3B, A100, seq_len=4096, global_batch=32, framework="fsdp", sharding="zero3"))
    assert one(found, "MW-A112").data["bytes"] / 2**30 == pytest.approx(2.32, abs=0.005)


def test_c04_72b_gathers_over_a_slow_network_and_the_copy_inside_a_node() -> None:
    model = dense("72b", 80, 8192, 64, 8, 29568, 152064)
    on = cluster(A100, 16, nic_bandwidth=100e9 / 8 / 8)  # one 100 Gb/s card for eight devices
    finding = one(check(context(model, on, seq_len=4096, framework="deepspeed", sharding="zero3")), "MW-A104")
    assert finding.data["shard"] == 8
    assert finding.data["copy_bytes"] == pytest.approx(18e9, rel=0.02)
    inside = check(context(model, on, seq_len=4096, shard=8, framework="deepspeed", sharding="zero3"))
    assert not [f for f in inside if f.code == "MW-A104"]


def test_c05_traffic_of_a_small_model_on_two_nodes() -> None:
    model = dense("qwen2-1.5b", 28, 1536, 12, 2, 8960, 151936)
    model = dataclasses.replace(model, tied_embeddings=True)
    on = cluster(A100, 4, node_size=2, domain_size=2, nic_bandwidth=1e9)
    moved, _ = gather_times(context(model, on, framework="deepspeed", sharding="zero3"))
    # the report: 3 x 2 B x 1.54e9 = 9.2 GB per micro-step; a ring of 4 moves 3/4 of it, two cards share a node's ring
    assert moved == pytest.approx(9.2e9 * 3 / 4 / 2e9, rel=0.02)


def test_llama_405b_split_is_the_published_one() -> None:
    # Llama Team 2024, section 3.3.2: one layer fewer on the first and on the last of 16 stages
    assert even_split(126, 16) == [7, *[8] * 14, 7]
    finding = one(check(context(LLAMA_405B, pipeline=16, uneven_stages=False)), "MW-C106")
    assert finding.data["layers_per_stage"] == [7, *[8] * 14, 7]


def test_bubble_of_a_tenth_needs_nine_micro_batches_per_further_rank() -> None:
    # (p - 1) / m idle over busy time: idle share 10% means m = 9 (p - 1)
    finding = one(check(context(LLAMA_8B, pipeline=8, data=1, global_batch=8)), "MW-A106")
    assert finding.data["micro_batches"] == 63
    assert finding.data["share"] == pytest.approx(7 / 15)
