"""Megatron's arguments: what is written is read back as the same model, job and strategy; every way they are kept."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from meshwright import api
from meshwright.catalog.clusters import cluster
from meshwright.catalog.models import model
from meshwright.engine.params import model_params
from meshwright.errors import InputError
from meshwright.frameworks.megatron import layout
from meshwright.frameworks.megatron.model import list_sum
from meshwright.frameworks.megatron.read import read
from meshwright.frameworks.megatron.write import SCRIPT, overlaps_experts, write
from meshwright.frameworks.records import Imported, Surroundings
from meshwright.rules import RuleContext, check
from meshwright.rules.configuration import check_configuration
from meshwright.spec import Job, Strategy
from meshwright.spec.plan import Problem

MODEL = "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --vocab-size 128256"
MODELS = ("llama-3.1-8b", "gpt-3-6.7b", "qwen2.5-7b", "qwen3-8b", "mixtral-8x7b", "deepseek-v3", "qwen3-30b-a3b")


def imported(text: str, **around: Any) -> Imported:
    return read(text, Surroundings(**around))


def codes(text: str, **around: Any) -> set[str]:
    result = imported(text, **around)
    return {f.code for f in (*result.findings, *check_configuration(result.configuration)) if f.severity == "error"}


@given(st.data())
def test_a_written_script_is_read_back_as_the_same(data: st.DataObject) -> None:
    pick = lambda *values: data.draw(st.sampled_from(values))  # noqa: E731
    name = pick(*MODELS)
    spec = model(name)
    tensor, pipeline, context, virtual = pick(1, 2, 4), pick(1, 2, 4), pick(1, 2), pick(1, 2, 3)
    devices = 256
    precision = pick("bf16", "fp16", "fp8")
    job = Job(
        seq_len=2048,
        global_batch=1024,
        precision=precision,
        optimizer=pick("adamw", "lion", "muon"),
        tokens=1024 * 2048 * 1000.0,
        dropout=pick(True, False),
    )
    expert = pick(1, 2, 8) if spec.is_moe else 1
    sharding, overlap = pick("none", "zero1"), pick(True, False)
    strategy = Strategy(
        framework="megatron",
        tensor=tensor,
        pipeline=pipeline,
        context=context,
        data=devices // (tensor * pipeline * context),
        virtual=virtual if pipeline > 1 else 1,
        schedule="interleaved" if pipeline > 1 and virtual > 1 else "1f1b",
        expert=expert,
        expert_tensor=pick(1, tensor) if spec.is_moe else tensor,
        sharding=sharding,
        sequence_parallel=tensor > 1,
        micro_batch=pick(1, 2),
        recompute=pick("none", "selective", "full"),
        recompute_ops=pick(("core_attn",), ("core_attn", "mlp")),
        precision=precision,
        offload=pick("none", "optimizer", "activations"),
        overlap_grad_reduce=overlap,
        overlap_param_gather=overlap and sharding == "zero1",
        overlap_tensor=tensor > 1 and pick(True, False),
        overlap_expert=expert > 1 and pick(True, False),
    )
    problem = Problem(model=spec, cluster=cluster(f"h100-sxm:{devices}"), job=job)
    assume(not any(f.severity == "error" for f in check(RuleContext(spec, problem.cluster, job, strategy))))
    assume(not strategy.overlap_expert or overlaps_experts(strategy, spec))
    back = read(write(problem, strategy).files[0].text, Surroundings())
    assert [f for f in (*back.findings, *check_configuration(back.configuration)) if f.severity == "error"] == []
    assert back.devices == devices
    assert back.model is not None and model_params(back.model).total == model_params(spec).total
    again = Strategy(**{"recompute_ops": strategy.recompute_ops, **back.sections["strategy"], "data": strategy.data})
    assert again == strategy
    read_job = Job(**back.sections["job"])
    assert read_job == job


LAUNCH = f"""
#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1
NNODES=4
ARGS=({MODEL} --tensor-model-parallel-size 8 --sequence-parallel --bf16 --micro-batch-size 2)
torchrun --nproc_per_node=8 --nnodes $NNODES pretrain_gpt.py "${{ARGS[@]}}" --seq-length 4096
"""


def test_a_script_says_devices_environment_and_lines() -> None:
    result = imported(LAUNCH)
    assert result.devices == 32 and result.configuration.launch
    assert result.configuration.environment["CUDA_DEVICE_MAX_CONNECTIONS"] == "1"
    assert result.configuration.line("--seq-length") == 6
    assert result.sections["job"]["global_batch"] == 2 * 32 // 8  # Megatron's default: a micro-batch of every rank


DUMP = "\n".join(
    f"  {name} {'.' * (48 - len(name))} {value}"
    for name, value in {
        "num_layers": 32,
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "ffn_hidden_size": 14336,
        "swiglu": True,
        "group_query_attention": True,
        "num_query_groups": 8,
        "tensor_model_parallel_size": 4,
        "world_size": 64,
        "pipeline_model_parallel_size": 2,
        "sequence_parallel": True,
        "use_distributed_optimizer": True,
        "bf16": True,
        "fp16": False,
        "recompute_granularity": "selective",
        "recompute_modules": "['core_attn', 'mlp']",
        "padded_vocab_size": 128256,
        "train_samples": None,
        "derived_value": 7,
    }.items()
)


def test_a_dump_of_a_run() -> None:
    result = imported(f"using world size: 64\n------------------------ arguments ------------------------\n{DUMP}\n")
    strategy = result.sections["strategy"]
    assert (strategy["tensor"], strategy["pipeline"], strategy["sharding"]) == (4, 2, "zero1")
    assert strategy["recompute_ops"] == ("core_attn", "mlp")
    assert result.devices == 64 and result.model is not None and result.model.vocab == 128256
    assert not [e for e in result.entries if e.status == "unknown"]


def test_a_yaml_file() -> None:
    text = "model_parallel:\n  tensor_model_parallel_size: 4\n  sequence_parallel: true\nbf16: true\nseq_length: 4096\n"
    result = imported(text)
    assert result.sections["strategy"]["tensor"] == 4 and result.sections["job"]["seq_len"] == 4096


def test_text_without_arguments_is_no_configuration() -> None:
    with pytest.raises(InputError):
        imported("echo hello")


def test_an_unknown_argument_names_the_right_one() -> None:
    finding = next(f for f in imported("python a.py --tensor-model-parallel-sizes 4 --bf16").findings)
    assert (finding.code, finding.severity) == ("MW-F001", "error")
    assert "--tensor-model-parallel-size" in str(finding.fix)
    older = next(f for f in imported("python a.py --tensor-model-parallel-sizes 4 --bf16", version="0.8").findings)
    assert older.severity == "warning"


def test_a_variable_that_is_not_set_is_no_number() -> None:
    finding = imported("python a.py --tensor-model-parallel-size $TP --bf16").findings[0]
    assert finding.code == "MW-F002" and "$TP" in str(finding.message)
    result = imported("python a.py --tensor-model-parallel-size $TP --bf16", environment={"TP": "4"})
    assert result.sections["strategy"]["tensor"] == 4


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("--overlap-param-gather --overlap-grad-reduce", "MW-F204"),
        ("--recompute-granularity full", "MW-F204"),
        ("--bf16 --fp16", "MW-F204"),
        ("--use-torch-fsdp2 --pipeline-model-parallel-size 2", "MW-F204"),
        ("--train-iters 10 --train-samples 10", "MW-F204"),
        ("--overlap-moe-expert-parallel-comm --num-experts 8", "MW-F204"),
        ("--expert-model-parallel-size 2", "MW-F204"),
        ("--tp-comm-overlap --tensor-model-parallel-size 2", "MW-F204"),
        ("--seq-length 8192 --max-position-embeddings 4096", "MW-F204"),
        ("--deepspeed --zero-stage 2", "MW-F203"),
        ("--normalization layernorm --recompute-granularity most", "MW-F005"),
        ("--tensor-model-parallel-size 0", "MW-F005"),
    ],
)
def test_what_megatron_refuses(arguments: str, code: str) -> None:
    assert code in codes(f"python pretrain.py {MODEL} {arguments}")


def test_a_whole_script_without_faults_has_none() -> None:
    assert codes(LAUNCH) == set()


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("Et*3|(tt|)*29,m|L", (3, *(2,) * 29, 0, 0)),
        ("E|t|tt|L", (0, 1, 2, 0)),
        ("Et|(t*2|)*2tL", (1, 2, 2, 1)),
        ("E(t|t", None),
        ("Ex|L", None),
        ("Et*9999|" + "t*9999|" * 40 + "L", None),
    ],
)
def test_layouts(text: str, sizes: tuple[int, ...] | None) -> None:
    assert layout.parse(text) == sizes


@given(st.lists(st.integers(0, 12), min_size=1, max_size=20), st.integers(0, 2))
def test_a_written_layout_is_read_back(sizes: list[int], modules: int) -> None:
    assert layout.parse(layout.write(sizes, modules)) == tuple(sizes)


def test_uneven_splits_are_megatrons() -> None:
    text = f"python a.py {MODEL} --pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 6"
    assert "layers_per_stage" not in imported(text).sections["strategy"]  # 26 over 3 is none
    text = text.replace("32 --hidden", "30 --hidden")
    assert imported(text).sections["strategy"]["layers_per_stage"] == (6, 8, 8, 8)
    accounted = "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split"
    text = f"python a.py {MODEL} --pipeline-model-parallel-size 2 {accounted}"
    assert imported(text).sections["strategy"]["layers_per_stage"] == (16, 16)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("([0]*1+[1]*3)*2", [0, 1, 1, 1] * 2),
        ("[1]*3+[0]", [1, 1, 1, 0]),
        ("2*[1]", [1, 1]),
        ("__import__('os')", None),
        ("[1]*10**9", None),
        ("[1]*99999999999", None),
        ("(" * 500, None),
        ("[[1]]", None),
        ("1", None),
    ],
)
def test_patterns_of_layers_are_read_not_evaluated(text: str, value: list[int] | None) -> None:
    assert list_sum(text) == value


@pytest.mark.parametrize(
    ("arguments", "framework", "sharding"),
    [
        ("--use-distributed-optimizer", "megatron", "zero1"),
        ("", "megatron", "none"),
        ("--use-torch-fsdp2", "fsdp", "zero3"),
        ("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads", "fsdp", "zero2"),
        ("--deepspeed --zero-stage 1", "deepspeed", "zero1"),
    ],
)
def test_who_shards_what(arguments: str, framework: str, sharding: str) -> None:
    strategy = imported(f"python a.py {MODEL} {arguments}").sections["strategy"]
    assert (strategy["framework"], strategy["sharding"]) == (framework, sharding)


def test_the_default_width_of_the_mlp_is_megatrons() -> None:
    plain, gated = imported(f"python a.py {MODEL}").model, imported(f"python a.py {MODEL} --swiglu").model
    assert plain is not None and gated is not None
    assert (plain.blocks[0].mlp.width, gated.blocks[0].mlp.width) == (16384, 10880)  # type: ignore[union-attr]


def test_models_that_gpt_arguments_cannot_say_are_listed() -> None:
    on = cluster("h100-sxm:8")
    for name, lost in (("jamba-v0.1", True), ("llama-3.1-8b", False)):
        problem = Problem(model=model(name), cluster=on, job=Job(seq_len=4096, global_batch=64, tokens=1e9))
        exported = write(problem, Strategy(data=8))
        assert ("model" in {m.name for m in exported.missing}) == lost
        assert exported.files[0].name == SCRIPT


def test_convert_shows_what_maps_and_what_is_lost() -> None:
    text = LAUNCH.replace("--bf16", "--bf16 --use-distributed-optimizer --recompute-activations")
    converted = api.convert(
        text.encode(), "deepspeed", api.Target(cluster="h100-sxm:32", job={"global_batch": 64}), format="megatron"
    )
    table = {c.ours: c for c in converted.table}
    assert table["strategy.tensor"].target == (("tensor_parallel.autotp_size", 8),)
    assert table["strategy.sharding"].verdict == "maps"
    assert table["strategy.recompute"].verdict == "lost" and table["strategy.recompute"].note is not None
    assert {c.verdict for c in converted.table} <= {"maps", "changed", "lost", "added", "program"}
    assert table["model.layers"].verdict == "program"
    names = {e.name for e in converted.left}
    assert "--tensor-model-parallel-size" not in names


@pytest.mark.parametrize(
    ("to", "changed"),
    [
        ("torchtitan", {"strategy.sharding"}),
        ("accelerate", {"strategy.sharding"}),
        ("deepspeed", set()),
        ("megatron", set()),
    ],
)
def test_what_the_other_framework_has_not_becomes_the_nearest(to: str, changed: set[str]) -> None:
    """Megatron's distributed optimizer is ZeRO-1, which FSDP has not; the rest maps."""
    text = LAUNCH.replace("--bf16", "--bf16 --use-distributed-optimizer").replace("parallel-size 8", "parallel-size 2")
    converted = api.convert(text.encode(), to, api.Target(cluster="h100-sxm:32"), format="megatron")
    assert {c.ours for c in converted.table if c.verdict == "changed"} == changed
    assert converted.exported.files  # type: ignore[union-attr]


def test_every_pair_of_formats_has_a_conversion_table() -> None:
    from meshwright.frameworks.convert import conversion_table
    from meshwright.frameworks.registry import FRAMEWORKS

    for one, other in itertools.permutations(FRAMEWORKS.values(), 2):
        both = [ours for ours, here, there in conversion_table(one.table, other.table) if here and there]
        assert {"strategy.sharding", "strategy.tensor", "strategy.precision"} <= set(both)


def test_an_overlap_that_megatron_refuses_is_listed_not_written() -> None:
    problem = Problem(
        model=model("mixtral-8x7b"), cluster=cluster("h100-sxm:64"), job=Job(seq_len=4096, global_batch=256)
    )
    for pipeline, virtual, written in ((1, 1, True), (2, 1, False), (2, 2, True)):
        strategy = Strategy(
            data=64 // pipeline, pipeline=pipeline, virtual=virtual, expert=8, overlap_expert=True,
            schedule="interleaved" if virtual > 1 else "1f1b",
        )  # fmt: skip
        exported = write(problem, strategy)
        assert ("--overlap-moe-expert-parallel-comm" in dict(exported.settings)) == written
        assert ("strategy.overlap_expert" in {m.name for m in exported.missing}) != written
