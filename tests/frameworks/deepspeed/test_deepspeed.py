"""DeepSpeed files: what is written is read back as the same strategy; traps, conflicts and idle settings are found."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from meshwright import api
from meshwright.catalog.clusters import cluster
from meshwright.catalog.models import model
from meshwright.frameworks.deepspeed.read import read
from meshwright.frameworks.deepspeed.write import ARGUMENTS, CONFIG, write
from meshwright.frameworks.records import Imported, Surroundings
from meshwright.rules import RuleContext, check
from meshwright.rules.configuration import check_configuration
from meshwright.spec import Job, Strategy
from meshwright.spec.plan import Problem

BASE = {
    "train_batch_size": 64,
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 4,
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 2},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
}


def imported(data: dict[str, Any], devices: int | None = 8, **around: Any) -> Imported:
    return read(json.dumps(data), Surroundings(devices=devices, **around))


def found(data: dict[str, Any], devices: int | None = 8, **around: Any) -> dict[str, Any]:
    """Findings by code; the last of each."""
    result = imported(data, devices, **around)
    return {f.code: f for f in (*result.findings, *check_configuration(result.configuration))}


def zero(**settings: Any) -> dict[str, Any]:
    return {**BASE, "zero_optimization": {"stage": 2, **settings}}


degree = st.sampled_from((1, 2, 4))


@given(st.data())
def test_written_files_are_read_back_as_the_same_strategy(data: st.DataObject) -> None:
    """Over what DeepSpeed can express: what `missing` lists may differ, nothing else."""
    pick = lambda *values: data.draw(st.sampled_from(values))  # noqa: E731
    tensor, pipeline, context = data.draw(degree), data.draw(degree), data.draw(degree)
    precision = pick("bf16", "fp16", "fp32")
    sharding = pick("none", "zero1", "zero2", "zero3")
    job = Job(
        seq_len=4096,
        global_batch=512,
        precision=precision,
        optimizer=pick("adamw", "adamw-bf16", "adamw-8bit", "lion", "muon", "sgd"),
    )
    name = pick("llama-3.1-8b", "mixtral-8x7b")
    strategy = Strategy(
        framework="deepspeed",
        tensor=tensor,
        pipeline=pipeline,
        context=context,
        data=64 // (tensor * pipeline * context),
        sharding=sharding,
        shard=pick(0, 8),
        micro_batch=pick(1, 2),
        precision=precision,
        sequence_parallel=False,
        offload=pick("none", "optimizer", "parameters", "activations"),
        recompute=pick("none", "full"),
        overlap_grad_reduce=True if sharding == "none" else pick(True, False),
        overlap_tensor=tensor > 1 and pick(True, False),
        expert=pick(1, 2, 4) if name.startswith("mixtral") else 1,
    )
    problem = Problem(model=model(name), cluster=cluster("h100-sxm:64"), job=job)
    context_of_rules = RuleContext(problem.model, problem.cluster, job, strategy)
    assume(not any(f.severity == "error" for f in check(context_of_rules)))
    assume(not (job.optimizer == "adamw-bf16" and (sharding == "none" or precision != "bf16")))
    assume(strategy.shard != strategy.data * context)
    assume(strategy.offload != "activations" or strategy.recompute == "full")
    files = {f.name: f.text for f in write(problem, strategy).files}
    back = read(files[CONFIG], Surroundings(devices=64, beside=json.loads(files[ARGUMENTS])))
    assert [f for f in (*back.findings, *check_configuration(back.configuration)) if f.severity == "error"] == []
    again = {**back.sections["strategy"]}
    for field in (
        "tensor",
        "pipeline",
        "context",
        "sharding",
        "shard",
        "micro_batch",
        "precision",
        "offload",
        "recompute",
        "overlap_grad_reduce",
        "overlap_tensor",
        "expert",
    ):
        default = getattr(Strategy(recompute="none", overlap_tensor=False), field)
        assert again.get(field, default) == getattr(strategy, field), field
    assert back.sections["job"] == {"precision": precision, "optimizer": job.optimizer, "global_batch": 512}


def test_every_setting_is_accounted_for() -> None:
    data = {
        **BASE,
        "nonsense": 1,
        "wandb": {"enabled": True, "team": "x"},
        "zero_optimization": {"stage": 3, "reduce_bucket_size": 5e8, "stage3_max_live_parameters": 1e9},
    }
    status = {e.name: e.status for e in imported(data).entries}
    assert status["zero_optimization.stage"] == "understood"
    assert status["zero_optimization.reduce_bucket_size"] == "unmodelled"
    assert status["wandb"] == "irrelevant"
    assert status["nonsense"] == "unknown"
    leaves = 3 + 1 + 3 + 2 + 1 + 1  # batch, bf16, zero, optimizer, wandb, nonsense
    assert len(status) == leaves


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("train_micro_batch_size", "train_micro_batch_size_per_gpu"),
        ("gradient_acumulation_steps", "gradient_accumulation_steps"),
        ("zero_optimisation", "zero_optimization"),
        ("stage", "zero_optimization.stage"),
    ],
)
def test_a_misspelt_setting_names_the_right_one(name: str, near: str) -> None:
    finding = found({**BASE, name: 1})["MW-F001"]
    assert finding.severity == "warning" and near in str(finding.fix)  # DeepSpeed lets unknown top-level keys pass


def test_inside_zero_an_unknown_setting_is_refused() -> None:
    finding = found(zero(overlap_coms=True))["MW-F001"]
    assert finding.severity == "error" and "overlap_comm" in str(finding.fix)


@pytest.mark.parametrize(
    ("data", "where", "fix"),
    [
        ({**BASE, "gradient_accumulation_steps": "4"}, "gradient_accumulation_steps", "4"),
        ({**BASE, "bf16": {"enabled": "false"}}, "bf16.enabled", "false"),
        (zero(stage="2"), "zero_optimization.stage", "2"),
        ({**BASE, "train_batch_size": True}, "train_batch_size", "whole number"),
        ({**BASE, "bf16": True}, "bf16", "table"),
    ],
)
def test_values_of_the_wrong_type(data: dict[str, Any], where: str, fix: str) -> None:
    finding = found(data)["MW-F002"]
    assert (finding.severity, finding.where) == ("error", where)
    assert fix in str(finding.fix)


def test_text_that_is_false_counts_as_what_it_says_not_as_true() -> None:
    assert imported({**BASE, "bf16": {"enabled": "false"}}).sections["job"]["precision"] == "fp32"


def test_twice_the_same_key() -> None:
    text = '{"train_batch_size": 8, "train_batch_size": 16}'
    codes = [f.code for f in read(text, Surroundings(devices=8)).findings]
    assert codes == ["MW-F003"]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        ({**BASE, "train_batch_size": 60}, "MW-F101"),
        ({"bf16": {"enabled": True}}, "MW-F102"),
        ({**BASE, "fp16": {"enabled": True}}, "MW-F106"),
        (zero(compute_grad_norm=False, stage=3), "MW-F109"),
        (zero(offload_optimizer={"device": "cpu", "ratio": 0.5}), "MW-F109"),
        (zero(mics_shard_size=8, stage=3), "MW-F004"),
        ({**BASE, "optimizer": {"type": "SGD"}}, "MW-F110"),
        (zero(stage=4), "MW-F005"),
        (zero(reduce_bucket_size=0), "MW-F005"),
        ({**BASE, "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 0}}}, "MW-F111"),
    ],
)
def test_what_deepspeed_refuses(data: dict[str, Any], code: str) -> None:
    assert found(data)[code].severity == "error"


def test_rules_follow_the_version() -> None:
    data = {**zero(mics_shard_size=4, stage=3), "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 0}}}
    old = imported(data, version="0.16.4")
    codes = {f.code for f in (*old.findings, *check_configuration(old.configuration))}
    assert not codes & {"MW-F004", "MW-F111"}
    assert old.sections["strategy"]["shard"] == 4


def test_idle_settings_of_a_higher_stage() -> None:
    finding = found(zero(stage3_max_live_parameters=5e8))["MW-F107"]
    assert (finding.severity, finding.where) == ("info", "zero_optimization.stage3_max_live_parameters")
    assert "MW-F107" not in found(zero(stage=3, stage3_max_live_parameters=5e8))
    assert found({**BASE, "zero_optimization": {"stage": 0, "offload_optimizer": {"device": "cpu"}}})["MW-F107"]


def test_auto_is_filled_by_the_trainer_and_by_nobody_else() -> None:
    data = {
        **BASE,
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
    }
    alone = found(data)
    assert alone["MW-F104"].severity == "info" and "MW-F102" not in alone
    args = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "learning_rate": 1e-4, "bf16": True}
    filled = imported(data, beside=args)
    assert filled.sections["job"]["global_batch"] == 64 and filled.sections["strategy"]["micro_batch"] == 4
    assert not [f for f in filled.findings if f.code in ("MW-F103", "MW-F104")]
    assert found(zero(stage="auto"))["MW-F105"].where == "zero_optimization.stage"


def test_bucket_sizes_of_the_trainer_come_from_the_width() -> None:
    data = zero(stage=3, reduce_bucket_size="auto", stage3_prefetch_bucket_size="auto")
    values = imported(
        data,
        beside={
            "bf16": True,
            "learning_rate": 1e-4,
            "per_device_train_batch_size": 2,
            "gradient_accumulation_steps": 4,
        },
        hidden=4096,
    ).configuration.values
    assert values["zero_optimization.reduce_bucket_size"] == 4096**2
    assert values["zero_optimization.stage3_prefetch_bucket_size"] == int(0.9 * 4096**2)


def test_old_spellings_of_offload() -> None:
    result = imported(zero(cpu_offload=True))
    assert result.sections["strategy"]["offload"] == "optimizer"


def test_partial_groups_and_tensor_parallelism() -> None:
    strategy = imported(
        {**zero(stage=3, zero_hpz_partition_size=8), "tensor_parallel": {"autotp_size": 2}}, 64
    ).sections["strategy"]
    assert (strategy["shard"], strategy["tensor"]) == (8, 2)


def test_what_deepspeed_cannot_say_is_listed() -> None:
    problem = Problem(
        model=model("llama-3.1-8b"), cluster=cluster("h100-sxm:8"), job=Job(seq_len=4096, global_batch=64)
    )
    strategy = Strategy(framework="deepspeed", data=4, pipeline=2, sharding="zero1", recompute="selective", virtual=2)
    names = {m.name for m in write(problem, strategy).missing}
    assert {"strategy.pipeline", "strategy.virtual", "strategy.recompute", "job.seq_len"} <= names


def test_an_illegal_strategy_is_refused_not_written() -> None:
    from meshwright.spec import Refusal

    problem = api.problem(model="llama-3.1-8b", cluster="h100-sxm:8", global_batch=64)
    strategy = Strategy(framework="deepspeed", data=4, pipeline=2, sharding="zero3")
    refused = api.export(problem, strategy, "deepspeed")
    assert isinstance(refused, Refusal) and "MW-C303" in {f.code for f in refused.findings}
