"""torchtitan TOML: written files are read back; cases A14, A15 and B17; the names of 2024 and of 0.2."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from meshwright import api
from meshwright.catalog.clusters import cluster
from meshwright.catalog.models import model
from meshwright.frameworks.records import Surroundings
from meshwright.frameworks.torchtitan.read import read
from meshwright.frameworks.torchtitan.write import write
from meshwright.rules import RuleContext, check
from meshwright.rules.configuration import check_configuration
from meshwright.spec import Job, Strategy
from meshwright.spec.plan import Problem

GIB = 2.0**30


@pytest.fixture
def inputs(shared: Path) -> Path:
    return shared / "cases" / "inputs"


def findings(text: str, devices: int | None = 8, version: str = "") -> dict[str, Any]:
    result = read(text, Surroundings(devices=devices, version=version))
    return {f.code: f for f in (*result.findings, *check_configuration(result.configuration))}


@given(st.data())
def test_written_files_are_read_back_as_the_same_strategy(data: st.DataObject) -> None:
    pick = lambda *values: data.draw(st.sampled_from(values))  # noqa: E731
    tensor, context, pipeline = pick(1, 2, 8), pick(1, 2), pick(1, 2, 4)
    schedule = pick("1f1b", "gpipe", "interleaved") if pipeline > 1 else "1f1b"
    name = pick("llama-3.1-8b", "llama-3.1-70b", "qwen3-30b-a3b")
    moe = name.endswith("a3b")
    precision, sharding = pick("bf16", "fp32", "fp8"), pick("none", "zero2", "zero3")
    strategy = Strategy(
        framework="fsdp", tensor=tensor, context=context, pipeline=pipeline, data=64 // (tensor * context * pipeline),
        schedule=schedule, virtual=2 if schedule == "interleaved" else 1, sharding=sharding, shard=pick(0, 8),
        recompute=pick("none", "selective", "full"), offload=pick("none", "parameters"), precision=precision,
        micro_batch=pick(1, 2), sequence_parallel=tensor > 1, overlap_tensor=tensor > 1 and pick(True, False),
        expert=pick(1, 4) if moe else 1, expert_tensor=1,
    )  # fmt: skip
    job = Job(seq_len=4096, global_batch=512, precision=precision, tokens=512 * 4096 * 100.0)
    problem = Problem(model=model(name), cluster=cluster("h100-sxm:64"), job=job)
    assume(not any(f.severity == "error" for f in check(RuleContext(problem.model, problem.cluster, job, strategy))))
    group = strategy.data * context
    assume(not strategy.shard or (strategy.shard < group and strategy.shard % context == 0 and sharding != "none"))
    assume(sharding == "none" or strategy.data > 1 or context > 1)  # one rank shards nothing
    assume(sharding != "none" or context == 1)
    back = read(write(problem, strategy).files[0].text, Surroundings(devices=64))
    assert [f for f in (*back.findings, *check_configuration(back.configuration)) if f.severity == "error"] == []
    again = Strategy(**{"recompute_ops": strategy.recompute_ops, **back.sections["strategy"]})
    assert again == strategy
    assert back.sections["model"] == {"name": name}
    assert Job(**back.sections["job"]) == job


@pytest.mark.parametrize(("devices", "valid"), [(8, False), (64, True)])
def test_b17_context_parallelism_is_not_free(inputs: Path, devices: int, valid: bool) -> None:
    found = findings((inputs / "B17_train_config.toml").read_text("utf-8"), devices)
    assert ("MW-F301" not in found) == valid
    if not valid:
        said = found["MW-F301"]
        assert (said.data["product"], said.data["devices"], said.data["dp_shard"]) == (64, 8, 1)
        assert "64 != 8" in str(said.message) and "-1" in str(said.fix)


def test_b17_with_a_model_too(inputs: Path) -> None:
    on = {"model": "llama-3.1-8b", "cluster": "h100-sxm:8"}
    checked = api.check(inputs / "B17_train_config.toml", api.Target(**on))
    assert {f.code for f in checked.findings if f.severity == "error"} >= {"MW-F301"}
    assert "MW-C101" not in {f.code for f in checked.findings} and not checked.passes


def test_b17_the_rest_takes_what_is_left() -> None:
    text = "[parallelism]\ndata_parallel_shard_degree = -1\ncontext_parallel_degree = {}\n"
    assert findings(text.format(8)) == {}
    assert "MW-F301" in findings(text.format(3))
    degrees = (
        "[parallelism]\ndata_parallel_shard_degree = 1\ntensor_parallel_degree = 2\npipeline_parallel_degree = 3\n"
    )
    said = findings(degrees)["MW-F301"]  # 1 × 2 × 3 on 8
    assert said.data["product"] == 6 and "6 / 12" in str(said.fix)


def test_a14_memory_of_two_sizes(inputs: Path) -> None:
    """Measured peaks within the case's 10 %, their difference, and no fit on 80 GB at 8 devices."""
    rows = {(r["gpus"], r["variant"]): float(r["peak_GiB"])
            for r in csv.DictReader((inputs / "A14_measured.csv").open(encoding="utf-8"))}  # fmt: skip
    text = (inputs / "A14_llama3_8b.toml").read_text("utf-8")
    peaks = {}
    for devices in (8, 128):
        source = text.replace("shard_degree = 8", f"shard_degree = {devices}").encode()
        checked = api.check(source, api.Target(cluster=f"h100-96gb-hbm2e:{devices}"), format="torchtitan")
        assert checked.imported.version == "0.0.2" and checked.passes
        assert checked.estimate is not None
        peaks[devices] = checked.estimate.peak_bytes / GIB
        assert peaks[devices] == pytest.approx(rows[str(devices), "eager"], rel=0.10)
    assert peaks[8] - peaks[128] == pytest.approx(14.0, abs=1.0)


def test_a15_names_of_2024(inputs: Path) -> None:
    text = (inputs / "A15_405b.toml").read_text("utf-8")
    for schedule, virtual in (("1F1B", 1), ("Interleaved1F1B", 2)):
        imported = read(text.replace('"1F1B"', f'"{schedule}"'), Surroundings(devices=512))
        strategy = imported.sections["strategy"]
        assert (strategy["tensor"], strategy["pipeline"], strategy["data"], strategy["virtual"]) == (8, 8, 8, virtual)
        assert strategy["precision"] == "fp8" and imported.sections["model"] == {"name": "llama-3.1-405b"}
        assert not [f for f in imported.findings if f.severity == "error"]


def test_a15_context_parallelism_keeps_memory_flat() -> None:
    """8B, full recomputation, float8: (FSDP, CP, sequence) = (8, 1, 32k) … (1, 8, 256k) keep the peak within 10 %."""
    peaks = []
    for shard, context, length in ((8, 1, 32768), (4, 2, 65536), (2, 4, 131072), (1, 8, 262144)):
        text = (f"[model]\nname = 'llama3'\nflavor = '8B'\nconverters = ['float8']\n[training]\nlocal_batch_size = 1\n"
                f"seq_len = {length}\n[parallelism]\ndata_parallel_shard_degree = {shard}\n"
                f"context_parallel_degree = {context}\n[activation_checkpoint]\nmode = 'full'\n")  # fmt: skip
        checked = api.check(text.encode(), api.Target(cluster="h100-96gb-hbm2e:8"), format="torchtitan")
        assert checked.estimate is not None, [f.code for f in checked.findings]
        peaks.append(checked.estimate.peak_bytes)
    assert max(peaks) / min(peaks) < 1.1


def test_early_names_are_refused_by_today(inputs: Path) -> None:
    result = read((inputs / "A14_llama3_8b.toml").read_text("utf-8"), Surroundings(devices=8, version="0.2.2"))
    gone = {f.where: str(f.fix) for f in result.findings if f.code == "MW-F004" and f.severity == "error"}
    assert "parallelism.tensor_parallel_degree" in gone["training.tensor_parallel_degree"]
    assert "training.local_batch_size" in gone["training.batch_size"]


@pytest.mark.parametrize(
    ("text", "code"),
    [("[training]\nseqlen = 1\n", "MW-F001"), ("[nonsense]\n", "MW-F001"), ("[training]\nseq_len = '1'\n", "MW-F002"),
     ("[activation_checkpoint]\nmode = 'all'\n", "MW-F005"), ("[training]\nlocal_batch_size = 3\n[parallelism]\n"
     "pipeline_parallel_degree = 2\npipeline_parallel_microbatch_size = 2\n", "MW-F302")],
)  # fmt: skip
def test_what_torchtitan_refuses(text: str, code: str) -> None:
    assert findings(text)[code].severity == "error"


def test_settings_stand_on_their_lines() -> None:
    result = read("[training]\n\nseq_len = 4096\n", Surroundings())
    assert result.configuration.line("training.seq_len") == 3


def test_models_that_torchtitan_has_not_are_listed() -> None:
    problem = Problem(model=model("gpt2"), cluster=cluster("h100-sxm:8"), job=Job(seq_len=1024, global_batch=64))
    strategy = Strategy(framework="fsdp", data=8, sharding="zero3")
    assert {"model", "job.tokens"} <= {m.name for m in write(problem, strategy).missing}
