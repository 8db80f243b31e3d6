"""Accelerate YAML: written files are read back; cases A22, A29, B20 and B22; what each FSDP version drops."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from meshwright import api
from meshwright.catalog.clusters import cluster
from meshwright.catalog.models import model
from meshwright.frameworks.accelerate.read import read
from meshwright.frameworks.accelerate.write import write
from meshwright.frameworks.check import Checked
from meshwright.frameworks.records import Surroundings
from meshwright.rules import RuleContext, check
from meshwright.rules.configuration import check_configuration
from meshwright.spec import Job, Strategy
from meshwright.spec.plan import Problem
from meshwright.units import show


@pytest.fixture
def inputs(shared: Path) -> Path:
    return shared / "cases" / "inputs"


def checked(source: Path | bytes, **target: Any) -> Checked:
    return api.check(source, api.Target(**target), format="accelerate")


def codes(text: str) -> dict[str, Any]:
    result = read(text, Surroundings(devices=8))
    return {f.code: f for f in (*result.findings, *check_configuration(result.configuration))}


FSDP = "distributed_type: FSDP\nnum_processes: 8\nmixed_precision: bf16\nfsdp_config:\n  fsdp_auto_wrap_policy: {}\n"


def fsdp(*lines: str, policy: str = "TRANSFORMER_BASED_WRAP") -> str:
    return FSDP.format(policy) + "".join(f"  fsdp_{line}\n" for line in lines)


@given(st.data())
def test_written_files_are_read_back_as_the_same_strategy(data: st.DataObject) -> None:
    pick = lambda *values: data.draw(st.sampled_from(values))  # noqa: E731
    tensor, context = pick(1, 2, 4), pick(1, 2)
    precision, sharding = pick("bf16", "fp16", "fp32"), pick("zero2", "zero3")
    strategy = Strategy(
        framework="fsdp", tensor=tensor, context=context, data=64 // (tensor * context), sharding=sharding,
        shard=pick(0, 8), recompute=pick("none", "full"), offload=pick("none", "parameters", "activations"),
        precision=precision, micro_batch=pick(1, 2), sequence_parallel=tensor > 1,
    )  # fmt: skip
    job = Job(seq_len=4096, global_batch=512, precision=precision)
    problem = Problem(model=model("llama-3.1-8b"), cluster=cluster("h100-sxm:64"), job=job)
    assume(not any(f.severity == "error" for f in check(RuleContext(problem.model, problem.cluster, job, strategy))))
    assume(strategy.offload != "activations" or strategy.recompute == "full")
    assume(not strategy.shard or strategy.shard < strategy.data * context)
    yaml, arguments = (f.text for f in write(problem, strategy).files)
    back = read(yaml, Surroundings(beside=json.loads(arguments)))
    assert [f for f in (*back.findings, *check_configuration(back.configuration)) if f.severity == "error"] == []
    again = back.sections["strategy"]
    for field in (
        "tensor",
        "context",
        "sharding",
        "shard",
        "recompute",
        "offload",
        "precision",
        "micro_batch",
        "framework",
    ):
        default = getattr(Strategy(recompute="none"), field)
        assert again.get(field, default) == getattr(strategy, field), field
    assert back.sections["job"]["global_batch"] == 512 and back.devices == 64


def test_a22_frozen_weights_double(inputs: Path) -> None:
    found = checked(inputs / "A22_accelerate_fsdp2.yaml", model="llama-3.1-8b", cluster="a800-sxm-80gb:8",
                    job={"seq_len": 2048})  # fmt: skip
    said = next(f for f in found.findings if f.code == "MW-F403")
    assert said.data["fp32"] == pytest.approx(4 * 8.03e9 / 8, rel=0.01)
    assert said.data["fp32"] == 2 * said.data["half"] and show(said.data["fp32"], "B") in str(said.message)
    first = (inputs / "A22_accelerate_fsdp2.yaml").read_text("utf-8").replace("fsdp_version: 2", "fsdp_version: 1")
    assert "MW-F403" not in codes(first)


def test_a29_offload_param_with_stage_two(inputs: Path) -> None:
    found = checked(inputs / "A29_accelerate_zero2_offload.yaml", model="mixtral-8x7b", cluster="a100-sxm-80gb:4",
                    job={"seq_len": 2048})  # fmt: skip
    said = next(f for f in found.findings if f.code == "MW-F108")
    assert said.severity == "warning" and said.data["bytes"] == pytest.approx(93e9, rel=0.01)
    assert found.estimate is not None and found.estimate.verdict == "OVER"
    assert found.strategy is not None and (found.strategy.sharding, found.strategy.offload) == ("zero2", "none")


def test_b20_the_wrong_class(inputs: Path) -> None:
    found = checked(inputs / "B20_accelerate_fsdp.yaml", model=str(inputs / "B20_hf_config.json"),
                    cluster="a100-sxm-80gb:8", job={"seq_len": 512})  # fmt: skip
    said = next(f for f in found.findings if f.code == "MW-F401")
    assert said.severity == "error" and "XLMRobertaLayer" in str(said.fix)


@pytest.mark.parametrize(
    ("name", "wrong", "right"),
    [("gpt2", "BertLayer", "GPT2Block"), ("bert-large", "GPT2Block", "BertLayer"),
     ("llama-2-7b", "LLaMADecoderLayer", "LlamaDecoderLayer")],
)  # fmt: skip
def test_b20_the_whole_kind(name: str, wrong: str, right: str) -> None:
    on = {"model": name, "cluster": "a100-sxm-80gb:8", "job": {"seq_len": 512}}
    found = checked(fsdp(f"transformer_layer_cls_to_wrap: {wrong}").encode(), **on)
    assert right in str(next(f for f in found.findings if f.code == "MW-F401").fix)
    fine = checked(fsdp(f"transformer_layer_cls_to_wrap: {right}").encode(), **on)
    assert "MW-F401" not in {f.code for f in fine.findings}


def test_b22_loading_without_synchronising(inputs: Path) -> None:
    text = (inputs / "B22_accelerate_fsdp.yaml").read_text("utf-8")
    assert codes(text)["MW-F402"].severity == "error"
    assert "MW-F402" not in codes(text.replace("fsdp_sync_module_states: false", "fsdp_sync_module_states: true"))


@pytest.mark.parametrize(
    ("strategy", "sharding", "shard"),
    [("FULL_SHARD", "zero3", None), ("SHARD_GRAD_OP", "zero2", None), ("NO_SHARD", "none", None),
     ("HYBRID_SHARD", "zero3", 8), (1, "zero3", None), (5, "zero2", 8)],
)  # fmt: skip
def test_strategies_of_fsdp_1(strategy: Any, sharding: str, shard: int | None) -> None:
    text = fsdp(f"sharding_strategy: {strategy}").replace("num_processes: 8", "num_processes: 32\nnum_machines: 4")
    found = read(text, Surroundings()).sections["strategy"]
    assert (found["sharding"], found.get("shard")) == (sharding, shard)


@pytest.mark.parametrize(
    ("text", "code", "severity"),
    [(fsdp("version: 2", "use_orig_params: true"), "MW-F407", "info"),
     (fsdp("version: 2", "reshard_after_forward: FULL_SHARD"), "MW-F405", "error"),
     (fsdp("version: 2", "activation_checkpointing_offload: true"), "MW-F405", "error"),
     (fsdp(policy="NO_WRAP"), "MW-F404", "warning"), (fsdp("version: 3"), "MW-F005", "error"),
     (fsdp() + "parallelism_config:\n  parallelism_config_tp_size: 4\n", "MW-F406", "error"),
     ("distributed_type: FSPD\n", "MW-F005", "error"), (fsdp() + "num_procesess: 8\n", "MW-F001", "error")],
)  # fmt: skip
def test_what_accelerate_refuses_or_drops(text: str, code: str, severity: str) -> None:
    assert codes(text)[code].severity == severity


def test_megatron_settings() -> None:
    text = "distributed_type: MEGATRON_LM\nnum_processes: 16\nmegatron_lm_config:\n  megatron_lm_tp_degree: 4\n"
    text += "  megatron_lm_pp_degree: 2\n  megatron_lm_use_distributed_optimizer: true\n"
    strategy = read(text, Surroundings()).sections["strategy"]
    assert (strategy["framework"], strategy["tensor"], strategy["pipeline"], strategy["sharding"]) == (
        "megatron", 4, 2, "zero1",
    )  # fmt: skip


def test_ranks_of_a_pipeline_join_data_parallelism() -> None:
    """Accelerate has no pipeline: what is written still multiplies to the devices, and says what was lost."""
    problem = api.problem(model="llama-3.1-8b", cluster="h100-sxm:64", seq_len=8192, global_batch=256)
    strategy = Strategy(framework="fsdp", sharding="zero2", data=4, tensor=8, pipeline=2, micro_batch=1)
    exported = write(problem, strategy)
    flat = dict(exported.settings)
    sizes = [v for k, v in flat.items() if k.endswith(("_replicate_size", "_shard_size", "_tp_size", "_cp_size"))]
    assert math.prod(sizes) == flat["num_processes"] == 64
    assert "strategy.pipeline" in {missing.name for missing in exported.missing}
    assert json.loads(exported.files[1].text)["gradient_accumulation_steps"] == 256 // 8
