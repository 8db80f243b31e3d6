"""The real engine behind the real shell: verdicts, files that are read back, and input that nobody should type."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from meshwright.cli.main import cli
from meshwright.cli.output import to_ascii

ESTIMATE = ["estimate", "llama-3.1-8b", "--cluster", "h100-sxm:64", "--seq", "8192", "--gbs", "128", "--tp", "2"]
PLAN = ["plan", "llama-3.1-8b", "--cluster", "h100-sxm:64", "--seq", "8192", "--gbs", "128"]


def leaves(node: object) -> list[object]:
    if isinstance(node, dict):
        return [leaf for value in node.values() for leaf in leaves(value)]
    if isinstance(node, list):
        return [leaf for value in node for leaf in leaves(value)]
    return [node]


def check_sums(term: dict) -> None:
    if term["children"]:
        combine = sum if term["combine"] == "sum" else max
        assert combine(child["value"] for child in term["children"]) == pytest.approx(term["value"], rel=1e-9)
    for child in term["children"]:
        check_sums(child)


def test_estimate_adds_up(run):
    result = run(*ESTIMATE, "--json")
    document = json.loads(result.stdout)
    assert result.exit_code == 0 and document["verdict"] == "FITS"
    check_sums(document["memory"])
    check_sums(document["time"])
    assert document["time"]["value"] == pytest.approx(document["step_seconds"])
    assert document["tokens_per_second"] == pytest.approx(8192 * 128 / document["step_seconds"])
    low, high = document["step_interval"]
    assert 0 < low <= document["step_seconds"] <= high
    assert 0 < document["mfu"] <= document["hfu"] * (1 + 1e-9) < 1
    assert all(math.isfinite(leaf) for leaf in leaves(document) if isinstance(leaf, float))


def test_a_model_that_does_not_fit_is_a_no(run):
    result = run("estimate", "llama-3.1-405b", "--cluster", "h100-sxm:8", "--tp", "8")
    assert result.exit_code == 1 and "OVER" in result.stdout
    planned = run("plan", "llama-3.1-405b", "--cluster", "h100-sxm:8", "--framework", "megatron")
    assert planned.exit_code == 1 and "NOTHING FITS" in planned.stdout


def test_an_illegal_strategy_is_a_no_with_a_rule(run):
    result = run("estimate", "llama-3.1-8b", "--cluster", "h100-sxm:64", "--tp", "64")
    assert result.exit_code == 1 and "MW-" in result.stdout


def test_plan_is_ranked_and_its_winner_estimates_the_same(run, tmp_path: Path):
    path = tmp_path / "plan.json"
    assert run(*PLAN, "--json", "-o", str(path)).exit_code == 0
    plan = json.loads(path.read_text("utf-8"))
    steps = [ranked["estimate"]["step_seconds"] for ranked in plan["ranked"]]
    near = [step for step in steps if step <= 1.02 * min(steps)]  # ties, in which the simpler comes first
    assert steps == near + sorted(steps[len(near) :]) and len(steps) == 10
    best = plan["ranked"][0]["estimate"]["strategy"]
    flags = [
        "--framework", best["framework"], "--tp", best["tensor"], "--pp", best["pipeline"], "--vpp", best["virtual"],
        "--cp", best["context"], "--mbs", best["micro_batch"], "--recompute", best["recompute"],
        "--zero", {"none": 0}.get(best["sharding"], best["sharding"][-1]), "--schedule", best["schedule"],
        "--recompute-ops", ",".join(best["recompute_ops"]), "--hsdp", best["shard"],
    ]  # fmt: skip
    flags = flags[:-2] if not best["shard"] else flags
    again = run("estimate", "llama-3.1-8b", "--cluster", "h100-sxm:64", "--seq", "8192", "--gbs", "128",
                *map(str, flags), "--json")  # fmt: skip
    assert json.loads(again.stdout)["step_seconds"] == pytest.approx(steps[0], rel=0.02)


def test_constraints_hold_in_every_answer(run):
    result = run(*PLAN, "--tp", "4", "--pp", "1,2", "--framework", "megatron", "--max-memory", "70%", "--jsonl")
    ranked = [json.loads(line) for line in result.stdout.splitlines()]
    assert ranked
    for each in ranked:
        strategy = each["estimate"]["strategy"]
        assert strategy["tensor"] == 4 and strategy["pipeline"] in (1, 2) and strategy["framework"] == "megatron"


def test_standard_input_is_a_model(run, shared: Path):
    config = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 2048, "intermediate_size": 8192,
        "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
        "head_dim": 64, "tie_word_embeddings": True,
    }  # fmt: skip
    result = run("estimate", "-", "--cluster", "h100-sxm:8", "--json", input=json.dumps(config))
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["problem"]["model"]["hidden"] == 2048
    broken = run("estimate", "-", "--cluster", "h100-sxm:8", input="{")
    assert broken.exit_code == 2 and broken.stdout == ""


def test_project_file_is_enough(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "meshwright.toml").write_text(
        'model = "llama-3.1-8b"\ncluster = "h100-sxm:64"\n[job]\nseq_len = 8192\nglobal_batch = 128\n'
        "[strategy]\ntensor = 2\n",
        "utf-8",
    )
    monkeypatch.chdir(tmp_path)
    from_file = json.loads(run("estimate", "--json").stdout)
    from_flags = json.loads(run(*ESTIMATE, "--json", "--no-config").stdout)
    assert from_file["step_seconds"] == from_flags["step_seconds"]
    wider = json.loads(run("estimate", "--json", "--tp", "4").stdout)
    assert wider["strategy"]["tensor"] == 4, "flags win over the file"
    deeper = json.loads(run("estimate", "--json", "--set", "strategy.pipeline=2").stdout)
    assert deeper["strategy"]["pipeline"] == 2


def test_pipe_into_head_is_quiet():
    command = f"{sys.executable} -m meshwright catalog list | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stderr == ""


NUMBERS = st.one_of(
    st.integers(-10, 5000).map(str), st.floats().map(str), st.text(max_size=6),
    st.sampled_from(["8k", "1e99", "-1", "0", "nan", "inf", "٣", "1_0", "0x10", "8 ", "1T", "9" * 40]),
)  # fmt: skip
WORDS = st.one_of(
    st.text(max_size=8), st.sampled_from(["fsdp", "megatron", "full", "zero3", "bf16", "fp8", "adamw", "none"])
)
FLAGS = {
    "--tp": NUMBERS, "--pp": NUMBERS, "--vpp": NUMBERS, "--cp": NUMBERS, "--ep": NUMBERS, "--etp": NUMBERS,
    "--dp": NUMBERS, "--mbs": NUMBERS, "--seq": NUMBERS, "--gbs": NUMBERS, "--zero": NUMBERS,
    "--hsdp": NUMBERS, "--tokens": NUMBERS, "--price": NUMBERS, "--framework": WORDS, "--recompute": WORDS,
    "--recompute-ops": WORDS, "--schedule": WORDS,
    "--offload": WORDS, "--precision": WORDS, "--optimizer": WORDS, "--software": WORDS, "--set": WORDS,
}  # fmt: skip


@given(
    model=st.one_of(st.sampled_from(["llama-3.1-8b", "deepseek-v3", "mamba2-2.7b", "t5-11b"]), st.text(max_size=10)),
    cluster=st.one_of(
        st.sampled_from(
            ["h100-sxm:64", "h100-sxm:7", "tpu-v5p:4x4x4", "dgx-v100:0", "h100:-1", "rtx-4090:2", "a100:1e9"]
        ),
        st.text(max_size=12),
    ),
    flags=st.dictionaries(st.sampled_from(sorted(FLAGS)), st.none(), max_size=4).flatmap(
        lambda chosen: st.fixed_dictionaries({name: FLAGS[name] for name in chosen})
    ),
)
def test_no_estimate_ever_crashes(model: str, cluster: str, flags: dict[str, str]) -> None:
    arguments = [f"{name}={value}" for name, value in flags.items()]
    result = CliRunner().invoke(cli, ["estimate", f"--cluster={cluster}", "--json", *arguments, "--", model])
    assert result.exit_code in (0, 1, 2, 3), result.stderr
    assert "Traceback" not in result.stderr
    if result.exit_code in (0, 1):
        document = json.loads(result.stdout)
        assert all(math.isfinite(leaf) for leaf in leaves(document) if isinstance(leaf, float))
    else:
        assert result.stdout == "" and result.stderr.startswith("error: ")


LIMITS = ["--tp", "--pp", "--cp", "--dp", "--mbs", "--max-memory", "--top", "--goal"]


@given(flags=st.dictionaries(st.sampled_from(LIMITS), NUMBERS, max_size=3))
def test_no_plan_ever_crashes(flags: dict[str, str]) -> None:
    arguments = [f"{name}={value}" for name, value in flags.items()]
    result = CliRunner().invoke(cli, [*PLAN, "--framework", "megatron", "--json", *arguments])
    assert result.exit_code in (0, 1, 2, 3), result.stderr
    assert "Traceback" not in result.stderr


ANSWERS = {
    "estimate": ESTIMATE,
    "plan": PLAN,
    "plan-moe": ["plan", "deepseek-v3", "--cluster", "h100-sxm:512", "--framework", "megatron"],
    "scale": ["scale", "llama-3.1-8b", "--cluster", "h100-sxm:128", "--gbs", "128", "--devices", "8,32,128"],
    "size": ["size", "llama-3.1-8b", "--cluster", "h100-sxm:128", "--tokens", "1T", "--deadline", "60d"],
    "compare": [
        "compare",
        "--model",
        "llama-3.1-8b",
        "--cluster",
        "h100-sxm:64",
        "--with",
        "tp2",
        "--with",
        "fsdp tp1",
    ],
    "explain": ["explain", "bubble", "--model", "llama-3.1-8b", "--cluster", "h100-sxm:64"],
    "catalog": ["catalog", "show", "h100-sxm"],
    "list": ["catalog", "list", "nodes"],
}


@pytest.mark.parametrize("language", ["en", "es"])
@pytest.mark.parametrize("name", ANSWERS)
def test_real_answers_keep_the_width_and_are_json_too(name: str, language: str, run) -> None:
    drawn = run(*ANSWERS[name], "--lang", language)
    assert drawn.exit_code in (0, 1), drawn.stderr
    assert max(map(len, drawn.stdout.splitlines())) <= 100
    assert not re.search(r"\{[a-z_]+\}", drawn.stdout), "an unfilled placeholder"
    assert to_ascii(drawn.stdout).isascii()
    if language == "es":
        return
    document = json.loads(run(*ANSWERS[name], "--json").stdout)
    assert document["schema"].startswith("meshwright.")


def test_plan_draws_what_memory_buys(run):
    """The Pareto front is shown in both languages: ever slower, ever smaller."""
    arguments = ("plan", "llama-3.1-8b", "--cluster", "h100-sxm:64", "--seq", "8192", "--gbs", "256")
    front = json.loads(run(*arguments, "--json").stdout)["pareto"]
    points = [(r["estimate"]["step_seconds"], r["estimate"]["peak_bytes"]) for r in front]
    assert len(points) > 1
    assert points == sorted(points) and [p for _, p in points] == sorted((p for _, p in points), reverse=True)
    assert "What memory buys" in run(*arguments).stdout
    assert "Lo que compra la memoria" in run(*arguments, "--lang", "es").stdout


def test_scale_is_the_same_as_planning_each_count(run):
    points = [json.loads(line) for line in run(*ANSWERS["scale"], "--jsonl").stdout.splitlines()]
    assert [point["devices"] for point in points] == [8, 32, 128]
    alone = json.loads(run("plan", "llama-3.1-8b", "--cluster", "h100-sxm:32", "--gbs", "128", "--json").stdout)
    assert points[1]["estimate"]["step_seconds"] == pytest.approx(
        alone["ranked"][0]["estimate"]["step_seconds"], rel=1e-6
    )


def test_size_meets_its_deadline_and_one_node_less_does_not(run):
    sizing = json.loads(run(*ANSWERS["size"], "--json").stdout)
    assert sizing["days"] <= 60
    rate = sizing["estimate"]["tokens_per_second"]
    assert sizing["days"] == pytest.approx(1e12 / rate / 86400, rel=1e-6)
    fewer = [p for p in sizing["points"] if p["devices"] < sizing["devices"] and p["estimate"]]
    assert all(1e12 / p["estimate"]["tokens_per_second"] / 86400 > 60 for p in fewer)
    impossible = run("size", "llama-3.1-8b", "--cluster", "h100-sxm:64", "--tokens", "100T", "--deadline", "1d")
    assert impossible.exit_code == 1 and impossible.stdout


def test_result_files_are_read_back_by_compare_and_explain(run, tmp_path: Path):
    path = tmp_path / "plan.json"
    run(*PLAN, "--json", "-o", str(path))
    compared = run("compare", str(path), "--top", "2", "--json")
    assert compared.exit_code == 0, compared.stderr
    assert len(json.loads(compared.stdout)["estimates"]) == 2
    explained = run("explain", str(path), "mfu", "--json")
    assert explained.exit_code == 0 and json.loads(explained.stdout)["kind"] == "term"
    piped = run("explain", "-", "mfu", "--json", input=path.read_text("utf-8"))
    assert piped.stdout == explained.stdout


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", ["estimate", "plan-moe", "scale"])
def test_a_terminal_of_any_width_is_filled_but_not_exceeded(name: str, width: int, run, monkeypatch) -> None:
    from meshwright.cli import output

    monkeypatch.setattr(output, "_width", lambda stream: width)
    lines = run(*ANSWERS[name]).stdout.splitlines()
    assert max(map(len, lines)) <= width
