"""Public problem reports (kinds A and B) about DeepSpeed and Megatron: verdict, reason and numbers."""

from __future__ import annotations

import csv
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from meshwright import api
from meshwright.catalog.clusters import cluster
from meshwright.catalog.models import model
from meshwright.formulas.memory_states import deepspeed_zero2_device, deepspeed_zero2_host, megatron_states
from meshwright.frameworks.check import Checked
from meshwright.rules import RuleContext
from meshwright.rules.configuration import check_configuration
from meshwright.spec import Attention, Block, Cluster, Job, Mlp, ModelSpec, Strategy
from meshwright.spec.configuration import Configuration
from meshwright.units import show

GIB = 2.0**30


@pytest.fixture
def inputs(shared: Path) -> Path:
    return shared / "cases" / "inputs"


def strict(path: Path) -> bytes:
    """A JSON input without the facts about the run that are no part of the format."""
    return json.dumps({k: v for k, v in json.loads(path.read_text("utf-8")).items() if k != "_run"}).encode()


def run(source: bytes | Path, format: str, **target: Any) -> Checked:
    return api.check(source, api.Target(**target), format=format)


def errors(checked: Checked) -> set[str]:
    return {f.code for f in checked.findings if f.severity == "error"}


def finding(checked: Checked, code: str) -> Any:
    return next(f for f in checked.findings if f.code == code)


def dense(layers: int, hidden: int, heads: int, vocab: int = 50257) -> ModelSpec:
    block = Block(
        mixer=Attention(heads=heads, kv_heads=heads, head_dim=hidden // heads), mlp=Mlp(width=4 * hidden, gated=False)
    )
    return ModelSpec(
        name="dense",
        family="gpt",
        hidden=hidden,
        vocab=vocab,
        blocks=(block,),
        pattern=(0,) * layers,
        tied_embeddings=True,
    )


def v100(devices: int, gigabytes: float, host: float) -> Cluster:
    on = cluster(f"v100-sxm-32gb:{devices}", node_size=min(devices, 8), host_memory_bytes=host)
    small = dataclasses.replace(
        on.accelerator, memory_bytes=gigabytes * 1e9, memory_usable_bytes=(gigabytes - 0.3) * GIB
    )
    return dataclasses.replace(on, accelerator=small)


def test_a01_the_estimator_says_12_39_and_it_does_not_fit(inputs: Path) -> None:
    """The three printed numbers, and OVER on 16 GB: weights, buckets, context and activations come on top."""
    spec = dense(32, 4096, 32)  # 6.65B
    checked = run(
        inputs / "A01_ds_config.json",
        "deepspeed",
        model=spec,
        cluster=v100(2, 16, 512e9),
        job={"seq_len": 2048, "global_batch": 8},
        strategy={"micro_batch": 1},
    )
    assert checked.strategy.sharding == "zero2" and checked.strategy.offload == "optimizer"
    params = 6650.8e6
    assert round(deepspeed_zero2_device(params, 2, offload=True) / GIB, 2) == 12.39
    assert round(deepspeed_zero2_host(params, 2, 2, offload=True) / GIB, 2) == 148.66
    assert checked.estimate is not None and checked.estimate.verdict == "OVER" and not checked.passes
    weights = checked.estimate.memory.find("states.parameters")
    assert weights is not None and weights.value / GIB == pytest.approx(12.39, rel=0.02)
    assert "MW-A134" in {f.code for f in checked.findings}


@pytest.mark.parametrize(
    ("stage", "tensor", "fits", "host"), [(3, 8, True, 225e9), (2, 16, False, 400e9)]
)  # setting 2 trains with about 220 GB a node, setting 1 dies
def test_a06_host_memory_of_100b(inputs: Path, stage: int, tensor: int, fits: bool, host: float) -> None:
    data = json.loads((inputs / "A06_ds_config_z3.json").read_text("utf-8"))
    data["zero_optimization"]["stage"] = stage
    spec = dense(80, 10240, 80)  # 101B
    checked = run(
        json.dumps(data).encode(),
        "deepspeed",
        model=spec,
        cluster=v100(64, 32, 376e9),
        job={"seq_len": 1024, "precision": "fp16"},
        strategy={"tensor": tensor, "recompute": "full"},
    )
    estimate = checked.estimate
    assert estimate is not None
    assert estimate.host_bytes == pytest.approx(host, rel=0.2)  # the states alone; each process adds about 4 GB
    assert (estimate.host_bytes <= 376e9) == fits
    assert ("MW-A136" in {f.code for f in checked.findings}) != fits


@pytest.mark.parametrize(("flag", "bytes_per_parameter"), [(True, 6 + 12 / 4), (False, 18)])
def test_a08_bytes_of_megatron(inputs: Path, flag: bool, bytes_per_parameter: float) -> None:
    text = (inputs / "A08_megatron_args.sh").read_text("utf-8")
    text = text if flag else text.replace("--use-distributed-optimizer", "")
    checked = run(
        text.encode(), "megatron", model="llama-3.1-8b", cluster="h100-sxm:4", job={"seq_len": 1024, "global_batch": 4}
    )
    assert checked.estimate is not None
    states = checked.estimate.memory.find("states")
    from meshwright.engine.params import model_params

    assert states is not None
    assert states.value / model_params(model("llama-3.1-8b")).total == pytest.approx(bytes_per_parameter, rel=0.002)


def test_a09_most_loaded_shard(inputs: Path) -> None:
    imported = api.import_(inputs / "A09_megatron_args.sh", api.Target(devices=8))
    assert imported.sections["strategy"]["sharding"] == "zero1" and imported.configuration.data == 2
    assert megatron_states(4.1055e9, 2) / 2**20 == pytest.approx(46983.28, abs=0.5)


@pytest.mark.parametrize(("host", "fits"), [(1024e9, False), (2048e9, True)])
def test_a28_seventy_billion_and_one_host(inputs: Path, host: float, fits: bool) -> None:
    on = cluster("a100-sxm-80gb:8", host_memory_bytes=host)
    checked = run(
        inputs / "A28_ds_config.json",
        "deepspeed",
        model="llama-2-70b",
        cluster=on,
        job={"seq_len": 2048},
        strategy={"recompute": "full"},
    )
    assert checked.estimate is not None and checked.passes == fits
    if not fits:
        need = finding(checked, "MW-A136").data["need"]
        assert need == pytest.approx(1242e9, rel=0.05)


def test_a29_offload_param_with_stage_two_has_no_effect() -> None:
    data = {
        "train_micro_batch_size_per_gpu": 1,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}},
    }
    checked = run(
        json.dumps(data).encode(), "deepspeed", model="mixtral-8x7b", cluster="a100-sxm-80gb:4", job={"seq_len": 2048}
    )
    said = finding(checked, "MW-F108")
    assert said.severity == "warning" and said.data["bytes"] == pytest.approx(93e9, rel=0.01)
    assert show(said.data["bytes"], "B") in str(said.message)
    assert checked.estimate is not None and checked.estimate.verdict == "OVER"


def test_a29_leaf_modules_answer_the_warning() -> None:
    data: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 1,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 3},
    }
    target = {"model": "mixtral-8x7b", "cluster": "a100-sxm-80gb:8", "job": {"seq_len": 2048}}
    assert "MW-C308" in {f.code for f in run(json.dumps(data).encode(), "deepspeed", **target).findings}
    data["zero_optimization"]["leaf_module"] = {"classes": ["MixtralSparseMoeBlock"]}
    assert "MW-C308" not in {f.code for f in run(json.dumps(data).encode(), "deepspeed", **target).findings}


@pytest.mark.parametrize(("devices", "valid"), [(4, True), (1, False), (3, False)])
def test_b01_the_arithmetic_is_right_for_four(inputs: Path, devices: int, valid: bool) -> None:
    checked = run(inputs / "B01_ds_config.json", "deepspeed", devices=devices)
    assert ("MW-F101" not in errors(checked)) == valid
    if not valid:
        said = finding(checked, "MW-F101")
        assert said.data["right_for_ranks"] == 4
        assert f"8 != 2 * 1 * {devices}" in str(said.message) and "auto" in str(
            api.explain("MW-F101").sections[2].body[0]
        )


def test_b03_four_mismatches_with_both_values(inputs: Path) -> None:
    trainer = json.loads((inputs / "B03_trainer_args.json").read_text("utf-8"))
    checked = run(inputs / "B03_ds_config.json", "deepspeed", trainer=trainer)
    pairs = {f.where: (f.data["file"], f.data["trainer"]) for f in checked.findings if f.code == "MW-F103"}
    assert pairs == {
        "train_batch_size": (8, 128),
        "optimizer.params.lr": (1e-4, 5e-5),
        "scheduler.params.warmup_max_lr": (1e-4, 5e-5),
        "scheduler.params.warmup_num_steps": (500, 1),  # transformers raises 0 to 1
    }
    batch = next(f for f in checked.findings if f.where == "train_batch_size")
    assert "2 × 8 × 8 = 128" in str(batch.message) and "auto" in str(batch.fix)


def test_b04_a_quoted_number(inputs: Path) -> None:
    checked = run(
        inputs / "B04_ds_config.json",
        "deepspeed",
        trainer={"per_device_train_batch_size": 1, "gradient_accumulation_steps": 8, "world_size": 2},
    )
    assert errors(checked) == {"MW-F002"}  # and no mismatch of 8 with 8
    said = finding(checked, "MW-F002")
    assert said.data["value"] == 8 and "quotes" in str(said.fix)


@pytest.mark.parametrize("stage", [2, 3])
def test_b06_zero_and_pipeline_json(inputs: Path, stage: int) -> None:
    data = json.loads(strict(inputs / "B06_ds_config.json"))
    data["zero_optimization"]["stage"] = stage
    target = {"model": "llama-3.1-8b", "cluster": "h100-sxm:8", "job": {"seq_len": 2048}}
    source = json.dumps(data).encode()
    assert "MW-C303" in errors(run(source, "deepspeed", strategy={"pipeline": 2, "tensor": 2}, **target))
    assert "MW-C303" not in errors(run(source, "deepspeed", strategy={"tensor": 2}, **target))


def test_b06_zero_and_pipeline_arguments(inputs: Path) -> None:
    forms = (inputs / "B06_megatron_deepspeed.sh").read_text("utf-8").split("ARGS_ACCEPTED")
    refused, accepted = forms[0], f"ARGS_ACCEPTED{forms[1]}"
    assert errors(run(refused.encode(), "megatron")) == {"MW-F203"}
    assert errors(run(accepted.encode(), "megatron")) == set()
    without = accepted.replace("--no-pipeline-parallel", "")
    said = finding(run(without.encode(), "megatron"), "MW-F203")  # refused even with one stage
    assert "--no-pipeline-parallel" in str(said.fix)


@pytest.mark.parametrize(("heads", "tensor", "valid"), [(12, 8, False), (12, 4, True), (52, 8, False), (52, 4, True)])
def test_b07_heads(heads: int, tensor: int, valid: bool) -> None:
    text = f"python pretrain.py --num-layers 12 --hidden-size {heads * 64} --num-attention-heads {heads} "
    text += "--vocab-size 50257 "
    text += f"--tensor-model-parallel-size {tensor} --bf16 --seq-length 1024 --micro-batch-size 1"
    checked = run(text.encode(), "megatron", cluster="h100-sxm:8")
    assert ("MW-C102" not in errors(checked)) == valid
    if not valid:
        legal = [d for d in range(1, heads + 1) if heads % d == 0]
        assert set(finding(checked, "MW-C102").data["legal"]) <= set(legal)
        assert finding(checked, "MW-C102").data["inside_domain"] == 4


def test_b11_interleaving_over_two_ranks(inputs: Path) -> None:
    text = (inputs / "B11_megatron_args.sh").read_text("utf-8")
    assert errors(run(text.encode(), "megatron")) == {"MW-F202"}
    assert errors(run(text.replace("--no-overlap-p2p-communication", "").encode(), "megatron")) == set()
    assert errors(run(text.replace("parallel-size 2", "parallel-size 4").encode(), "megatron")) == set()
    data = run(
        text.encode(),
        "megatron",
        model="llama-3.1-8b",
        cluster="h100-sxm:8",
        job={"global_batch": 4 * 9, "seq_len": 2048},
        strategy={"micro_batch": 1},
    )
    assert "MW-C202" in errors(data)  # 9 micro-batches are no multiple of 2 ranks


WRAPPERS = {"megatron_ddp": {}, "megatron_fsdp": {"--use-megatron-fsdp": True}, "torch_fsdp2": {}}


def test_b12_the_whole_matrix(inputs: Path) -> None:
    rows = list(csv.DictReader((inputs / "B12_matrix.csv").open(encoding="utf-8")))
    assert len(rows) == 9
    for row in rows:
        tensor, context = int(row["tp"]), int(row["cp"])
        on = cluster(f"{'b200-sxm' if int(row['gpu_arch_major']) >= 10 else 'h100-sxm'}:64")
        torch = row["dp_wrapper"] == "torch_fsdp2"
        strategy = Strategy(
            framework="fsdp" if torch else "megatron",
            sharding="zero3" if torch else "zero1",
            tensor=tensor,
            context=context,
            data=64 // (tensor * context),
        )
        rules = RuleContext(model("llama-3.1-8b"), on, Job(seq_len=8192, global_batch=64), strategy)
        given = row["CUDA_DEVICE_MAX_CONNECTIONS"]
        environment = {} if given == "unset" else {"CUDA_DEVICE_MAX_CONNECTIONS": given}
        file = Configuration(
            format="torchtitan" if torch else "megatron",
            version="",
            values=WRAPPERS[row["dp_wrapper"]],
            environment=environment,
            launch=True,
        )
        found = [f.severity for f in check_configuration(file, rules) if f.code == "MW-F201"]
        wanted = {"error": ["error"], "warn": ["warning"]}.get(row["verdict"].partition(":")[0], [])
        assert found == wanted, row


def test_b15_sequence_parallel_alone_and_overlap_without_it(inputs: Path) -> None:
    text = (inputs / "B15_megatron_args.sh").read_text("utf-8")
    checked = run(text.encode(), "megatron")
    assert errors(checked) == {"MW-F204"} and finding(checked, "MW-F204").data["needs"] == "--sequence-parallel"
    target = {"model": "llama-3.1-8b", "cluster": "h100-sxm:8", "job": {"global_batch": 64, "seq_len": 2048}}
    assert errors(run(text.encode(), "megatron", **target)) == {"MW-C322"}
    alone = b"python pretrain.py --tensor-model-parallel-size 1 --sequence-parallel --bf16"
    assert finding(run(alone, "megatron"), "MW-F205").severity == "info"


def test_b16_lengths(inputs: Path) -> None:
    for row in csv.DictReader((inputs / "B16_cases.csv").open(encoding="utf-8")):
        tensor, context = int(row["tp"]), int(row["cp"])
        sequence = "--sequence-parallel" if row["sequence_parallel"] == "1" else ""
        text = f"python pretrain.py --tensor-model-parallel-size {tensor} --context-parallel-size {context} {sequence} "
        text += f"--seq-length {row['seq_length']} --micro-batch-size 1 --global-batch-size 8 --bf16"
        devices = tensor * context * 8
        checked = run(text.encode(), "megatron", model=dense(12, 192 * 12, 24), cluster=cluster(f"h100-sxm:{devices}"))
        assert ("MW-C115" not in errors(checked)) == (row["valid"] == "1"), row
        if row["valid"] != "1":
            assert finding(checked, "MW-C115").data["legal"][-1] == int(row["next_valid"])
