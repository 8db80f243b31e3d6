"""From what people type to a problem and a strategy: defaults are listed, nonsense is refused with the nearest fix."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright import api
from meshwright.errors import InputError, UsageError
from meshwright.settings import CLUSTER_OVERRIDES, Settings
from meshwright.spec import Strategy
from meshwright.spec.estimate import Refusal
from meshwright.spec.plan import Problem

LLAMA, H100 = "llama-3.1-8b", "h100-sxm:64"


@pytest.fixture(scope="module")
def problem() -> Problem:
    return api.problem(model=LLAMA, cluster=H100, seq_len=8192, global_batch=128)


def sentences(texts: object) -> str:
    return " | ".join(str(text) for text in texts)  # type: ignore[attr-defined]


def test_everything_given_leaves_no_job_assumption() -> None:
    given = api.problem(
        model=LLAMA, cluster=H100, seq_len="8k", global_batch="128", precision="BF16", optimizer="adamw", tokens="15T",
        price="$2.50",
    )  # fmt: skip
    assert (given.job.seq_len, given.job.global_batch, given.job.tokens) == (8000, 128, 15e12)
    assert given.cluster.price_per_device_hour == 2.5
    assert "because none was given" not in sentences(given.assumptions)


def test_defaults_are_listed() -> None:
    resolved = api.problem(model=LLAMA, cluster=H100)
    said = sentences(resolved.assumptions)
    assert f"sequences of {resolved.job.seq_len} tokens" in said
    assert f"global batch of {resolved.job.global_batch}" in said
    assert "precision bf16" in said and "optimizer adamw" in said
    assert resolved.job.tokens_per_step == 4 * 2**20


@given(st.integers(1, 2**20), st.integers(1, 2**17))
def test_default_batch_splits_over_the_devices_and_feeds_them(seq_len: int, devices: int) -> None:
    batch = api.default_batch(seq_len, devices)
    twos = devices & -devices
    share = batch // (devices // twos)  # a power of two beside the odd part of the device count
    assert batch % (devices // twos) == 0 and share & (share - 1) == 0
    assert batch >= devices / 8
    if batch > max(2 * devices / 8, devices // twos):
        assert batch * seq_len <= api.DEFAULT_TOKENS_PER_STEP * 2**0.5 + seq_len


def test_racks_of_seventy_two_find_a_plan_without_a_batch() -> None:
    resolved = api.problem(model="deepseek-v3", cluster="gb200-nvl72:2016")
    assert resolved.job.global_batch == 504
    assert api.plan(resolved).best is not None


def test_a_batch_that_cannot_be_split_is_said_with_the_nearest_that_can() -> None:
    result = api.plan(api.problem(model="deepseek-v3", cluster="gb200-nvl72:2016", global_batch=512))
    assert result.legal == 0
    said = sentences(result.next_steps)
    assert "512 sequences cannot be split over 2,016 devices" in said and "--gbs 504" in said


def test_settings_are_under_arguments() -> None:
    settings = Settings({
        "model": {"name": LLAMA}, "cluster": {"name": H100, "nic_bandwidth": "100Gbps", "price": 3},
        "job": {"seq_len": 2048, "dropout": True},
    })  # fmt: skip
    resolved = api.problem(settings=settings, seq_len=4096)
    assert resolved.job.seq_len == 4096 and resolved.job.dropout
    assert resolved.cluster.nic_bandwidth == 12.5e9
    assert resolved.cluster.price_per_device_hour == 3


def test_paths_in_a_project_file_are_relative_to_it(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        '{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128,'
        ' "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100}',
        "utf-8",
    )
    settings = Settings({"model": {"path": "config.json"}, "cluster": {"name": H100}}, tmp_path / "meshwright.toml")
    assert api.problem(settings=settings).model.hidden == 64


def test_cluster_settings_are_those_of_the_catalogue() -> None:
    from meshwright.catalog.clusters import OVERRIDES

    assert set(CLUSTER_OVERRIDES) == set(OVERRIDES)


@pytest.mark.parametrize(
    ("arguments", "fix"),
    [
        ({"seq_len": 0}, "1"),
        ({"seq_len": -5}, "1"),
        ({"seq_len": 1e12}, "134,217,728"),
        ({"seq_len": "1e30"}, "check the unit"),
        ({"seq_len": "many"}, "8k"),
        ({"seq_len": 10.5}, "10"),
        ({"global_batch": -1}, "1"),
        ({"global_batch": float("nan")}, "4096"),
        ({"precision": "bf61"}, "bf16"),
        ({"optimizer": "adam"}, "adamw"),
        ({"tokens": "-3T"}, "1"),
        ({"price": "free"}, "200k"),
        ({"model": "llamma-3.1-8b"}, "llama-3.1-8b"),
        ({"cluster": "h100-smx:64"}, "h100-sxm"),
        ({"cluster": "h100-sxm:-8"}, ""),
        ({"cluster": None}, "h100-sxm:512"),
        ({"model": None}, "config.json"),
    ],
)
def test_nonsense_is_refused_with_the_nearest_fix(arguments: dict[str, object], fix: str) -> None:
    with pytest.raises(UsageError) as caught:
        api.problem(**{"model": LLAMA, "cluster": H100, **arguments})  # type: ignore[arg-type]
    assert caught.value.exit_code == 2
    assert caught.value.where
    assert fix in str(caught.value.fix)


def test_strategy_fills_the_data_degree(problem: Problem) -> None:
    strategy, assumed = api.strategy(problem, tensor=8, pipeline="2")
    assert strategy == Strategy(data=4, tensor=8, pipeline=2, sharding="zero1", recompute="none", precision="bf16")
    assert "framework megatron" in sentences(assumed) and "sharding zero1" in sentences(assumed)


@pytest.mark.parametrize(
    ("given", "framework"),
    [
        ({}, "megatron"), ({"sharding": "zero3"}, "fsdp"), ({"sharding": "zero2"}, "fsdp"),
        ({"sharding": "zero2", "offload": "optimizer"}, "deepspeed"), ({"tensor": 8, "pipeline": 2}, "megatron"),
    ],
)  # fmt: skip
def test_the_framework_assumed_is_one_that_runs_what_was_given(
    problem: Problem, given: dict[str, object], framework: str
) -> None:
    strategy, assumed = api.strategy(problem, **given)
    assert strategy.framework == framework and f"framework {framework}" in sentences(assumed)
    assert not isinstance(api.estimate(problem, strategy), Refusal)


def test_degrees_of_a_plan_written_out_give_its_estimate() -> None:
    problem = api.problem(model="qwen3-30b-a3b", cluster="h100-sxm:64", seq_len=4096, global_batch=512)
    limits = api.constraints(recompute="none", framework="megatron")
    best = api.plan(problem, constraints=limits).ranked[0].estimate
    s = best.strategy
    names = "tensor pipeline virtual context expert expert_tensor micro_batch sharding framework"
    degrees = {name: getattr(s, name) for name in names.split()}
    again = api.estimate(problem, api.strategy(problem, **degrees)[0])
    assert not isinstance(again, Refusal)
    assert again.step_seconds == pytest.approx(best.step_seconds) and s.expert > 1


def test_strategy_defaults_follow_the_framework(problem: Problem) -> None:
    assert api.strategy(problem, framework="fsdp")[0].sharding == "zero3"
    tpu = api.problem(model=LLAMA, cluster="tpu-v5p:4x4x4")
    assert api.strategy(tpu)[0].framework == "jax"
    assert api.strategy(problem, virtual=2, pipeline=2)[0].schedule == "interleaved"
    selective = api.strategy(problem, recompute_ops="core_attention, mlp")[0]
    assert selective.recompute == "selective" and selective.recompute_ops == ("core_attn", "mlp")


@pytest.mark.parametrize(
    ("fields", "fix"),
    [
        ({"tensor": 3}, "63 / 66"),
        ({"tensor": 8, "data": 7}, "--dp 8"),
        ({"tensor": 128}, "128"),
        ({"tensor": 0}, "1"),
        ({"framework": "megatorn"}, "megatron"),
        ({"sharding": "zero9"}, "zero"),
        ({"recompute": "some"}, "none"),
        ({"recompute_ops": "core_attm"}, "core_attn"),
    ],
)
def test_impossible_meshes(problem: Problem, fields: dict[str, object], fix: str) -> None:
    with pytest.raises(InputError) as caught:
        api.strategy(problem, **fields)
    assert fix in str(caught.value.fix)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "tensor": st.integers(-3, 100), "pipeline": st.integers(-3, 100), "context": st.integers(-1, 9),
            "data": st.integers(-1, 70), "micro_batch": st.one_of(st.integers(-1, 10**9), st.text(max_size=5)),
            "framework": st.text(max_size=8), "sharding": st.sampled_from(["zero1", "zero7", ""]),
            "shard": st.integers(-1, 9),
        },
    )
)  # fmt: skip
def test_a_strategy_fills_the_cluster_or_is_refused(fields: dict[str, object]) -> None:
    resolved = api.problem(model=LLAMA, cluster=H100, seq_len=8192, global_batch=128)
    try:
        strategy, _ = api.strategy(resolved, **fields)
    except UsageError as error:
        assert str(error) and error.where
    else:
        assert strategy.devices == 64


def test_constraints_take_one_or_several() -> None:
    limits = api.constraints(
        Settings({"constraints": {"pipeline": [1, 2], "framework": "fsdp"}}), tensor="4,8", max_memory_fraction="90%"
    )
    assert limits.tensor == (4, 8) and limits.pipeline == (1, 2) and limits.frameworks == ("fsdp",)
    assert limits.max_memory_fraction == pytest.approx(0.9)
    with pytest.raises(InputError):
        api.constraints(tensor="4,x")
    with pytest.raises(InputError):
        api.constraints(max_memory_fraction="900%")


def test_size_needs_a_length_and_a_limit(problem: Problem) -> None:
    with pytest.raises(UsageError, match="length"):
        api.size(problem, deadline="30d")
    with pytest.raises(UsageError, match="deadline"):
        api.size(problem, tokens="1T")


def test_the_rows_of_a_plan_written_out_give_their_estimates() -> None:
    """Megatron: expert-tensor-parallel-size is tensor-model-parallel-size unless given, whatever the expert degree."""
    moe = api.problem(model="mixtral-8x7b", cluster="h100-sxm:64", seq_len=4096, global_batch=256)
    strategy, assumed = api.strategy(moe, None, tensor=2, pipeline=4, framework="megatron")
    assert (strategy.expert_tensor, strategy.expert) == (2, 1)
    assert "expert tensor 2" in sentences(assumed)
    names = ("framework", "tensor", "pipeline", "virtual", "context", "expert", "micro_batch", "sharding", "recompute")
    ranked = [*api.plan(moe).ranked, *api.plan(moe, constraints=api.constraints(tensor="2", expert="1")).ranked]
    assert any(r.strategy.tensor > 1 and r.strategy.expert == 1 for r in ranked)
    for row in ranked:
        given = {name: getattr(row.strategy, name) for name in (*names, "recompute_ops")}
        if row.strategy.expert > 1:
            given["expert_tensor"] = row.strategy.expert_tensor
        again = api.estimate(moe, api.strategy(moe, **given)[0])
        assert not isinstance(again, Refusal)
        assert (again.step_seconds, again.peak_bytes) == (row.estimate.step_seconds, row.estimate.peak_bytes)
