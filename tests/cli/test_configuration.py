"""import, check, export and convert in the terminal: forms, streams, exit codes, both languages."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

DS = {
    "train_batch_size": 64, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4,
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 3},
}  # fmt: skip
ON = ["--model", "llama-3.1-8b", "--cluster", "h100-sxm:8", "--seq", "4096", "--recompute", "full"]


@pytest.fixture
def good(tmp_path: Path) -> str:
    path = tmp_path / "ds_config.json"
    path.write_text(json.dumps(DS, indent=2))
    return str(path)


@pytest.fixture
def bad(tmp_path: Path) -> str:
    path = tmp_path / "bad.json"
    path.write_text(json.dumps({**DS, "train_batch_size": 60, "steps_per_prnt": 1}, indent=2))
    return str(path)


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "pretrain.sh"
    path.write_text(
        "export CUDA_DEVICE_MAX_CONNECTIONS=1\n"
        "torchrun --nproc_per_node 8 --nnodes 1 pretrain_gpt.py --num-layers 32 --hidden-size 4096 \\\n"
        "  --num-attention-heads 32 --vocab-size 128256 --tensor-model-parallel-size 8 --sequence-parallel \\\n"
        "  --micro-batch-size 1 --global-batch-size 64 --seq-length 4096 --bf16 --use-distributed-optimizer \\\n"
        "  --max-position-embeddings 4096\n"
    )
    return str(path)


def test_check_says_yes_with_memory_and_speed(run, good: str) -> None:
    result = run("check", good, *ON)
    assert result.exit_code == 0, result.output
    assert "PASSED" in result.stdout and "FITS" in result.stdout and "tokens/s" in result.stdout


def test_check_says_no_and_what_to_do(run, bad: str) -> None:
    result = run("check", bad, *ON)
    assert result.exit_code == 1
    for part in ("MW-F101", "60 != 2 * 4 * 8", "train_batch_size = 48, 64", "MW-F001", "steps_per_print", "FAILED"):
        assert part in result.stdout, part
    assert run("check", bad, "--devices", "8", "--exit-zero").exit_code == 0


def test_check_says_no_when_it_does_not_fit(run, good: str) -> None:
    result = run("check", good, "--model", "llama-3.1-405b", "--cluster", "h100-sxm:8")
    assert result.exit_code == 1 and "OVER" in result.stdout and "FAILED" in result.stdout


def test_check_without_a_cluster_says_what_it_could_not_judge(run, good: str) -> None:
    result = run("check", good)
    assert result.exit_code == 0 and "--model, --cluster" in result.stdout


def test_check_reads_what_a_script_says_itself(run, script: str) -> None:
    result = run("check", script, "--cluster", "h100-sxm:8")
    assert result.exit_code == 0, result.output
    assert "megatron-arguments" in result.stdout


def test_check_of_several_files_fails_when_one_does(run, good: str, bad: str) -> None:
    result = run("check", good, bad, "--devices", "8", "--json")
    document = json.loads(result.stdout)
    assert result.exit_code == 1 and document["schema"] == "meshwright.check/1" and not document["passes"]
    assert [file["passes"] for file in document["files"]] == [True, False]
    finding = next(f for f in document["files"][1]["findings"] if f["code"] == "MW-F101")
    assert finding["line"] == 2 and finding["severity"] == "error"


def test_check_json_is_the_same_in_spanish(run, bad: str) -> None:
    english, spanish = run("check", bad, *ON, "--json"), run("check", bad, *ON, "--json", "--lang", "es")
    assert json.loads(english.stdout) == json.loads(spanish.stdout)
    assert "FALLA" in run("check", bad, *ON, "--lang", "es").stdout


def test_sarif_is_what_code_scanning_takes(run, bad: str) -> None:
    """Required properties of SARIF 2.1.0, section 3: version, runs, tool.driver.name, message, locations."""
    result = run("check", bad, "--devices", "8", "--format", "sarif")
    document = json.loads(result.stdout)
    assert result.exit_code == 1 and document["version"] == "2.1.0"
    (one,) = document["runs"]
    ids = [rule["id"] for rule in one["tool"]["driver"]["rules"]]
    assert one["tool"]["driver"]["name"] == "meshwright" and len(ids) == len(set(ids))
    for found in one["results"]:
        assert ids[found["ruleIndex"]] == found["ruleId"] and found["level"] in ("error", "warning", "note")
        place = found["locations"][0]["physicalLocation"]
        assert place["artifactLocation"]["uri"] == bad and found["message"]["text"]
    batch = next(f for f in one["results"] if f["ruleId"] == "MW-F101")
    assert batch["locations"][0]["physicalLocation"]["region"]["startLine"] == 2


def test_github_annotations(run, bad: str) -> None:
    result = run("check", bad, "--devices", "8", "--format", "github")
    lines = result.stdout.splitlines()
    assert result.exit_code == 1
    assert any(line.startswith(f"::error file={bad},line=2,title=MW-F101::") for line in lines)
    assert all(line.startswith(("::error ", "::warning ", "::notice ")) for line in lines)


def test_github_annotations_hide_nothing_in_a_name(run, tmp_path: Path) -> None:
    path = tmp_path / "a,b:c%.json"
    path.write_text('{"train_batch_size": 8, "x\\n::error::y": 1}')
    lines = run("check", str(path), "--format", "github").stdout.splitlines()
    assert all(line.startswith("::warning file=") and "%0A" in line for line in lines)
    assert all("a%2Cb%3Ac%25.json" in line for line in lines)


def test_check_over_memory_is_told_to_machines_too(run, good: str) -> None:
    large = ["--model", "llama-3.1-405b", "--cluster", "h100-sxm:8"]
    assert "title=memory::OVER" in run("check", good, *large, "--format", "github").stdout
    document = json.loads(run("check", good, *large, "--format", "sarif").stdout)
    assert "MW-MEMORY" in {f["ruleId"] for f in document["runs"][0]["results"]}


@pytest.mark.parametrize("form", ["csv", "md"])
def test_tables_of_findings(run, bad: str, form: str) -> None:
    text = run("check", bad, "--devices", "8", "--format", form).stdout
    if form == "csv":
        rows = list(csv.reader(io.StringIO(text)))
        assert rows[0] == ["file", "line", "code", "severity", "where", "message", "fix"] and len(rows) > 2
    else:
        assert text.splitlines()[1].startswith("| ---")


def test_import_accounts_for_every_setting(run, bad: str) -> None:
    result = run("import", bad, "--devices", "8")
    assert result.exit_code == 0  # an unknown setting is a warning; arithmetic is for check
    assert "7 settings: 5 understood" in " ".join(result.stdout.split()) or "6 settings" in result.stdout
    document = json.loads(run("import", bad, "--json").stdout)
    assert document["schema"] == "meshwright.import/1"
    assert {e["status"] for e in document["entries"]} >= {"understood", "unknown"}


def test_import_writes_a_project_file_that_other_verbs_read(run, good: str, tmp_path: Path, monkeypatch) -> None:
    target = tmp_path / "meshwright.toml"
    where = ["--model", "llama-3.1-8b", "--cluster", "h100-sxm:8"]
    assert run("import", good, *where, "--format", "toml", "-o", str(target)).exit_code == 0
    monkeypatch.chdir(tmp_path)
    result = run("estimate", "--seq", "4096", "--recompute", "full", "--json")
    document = json.loads(result.stdout)
    assert document["strategy"]["sharding"] == "zero3" and document["problem"]["job"]["global_batch"] == 64


def test_standard_input_and_trainer_arguments(run, tmp_path: Path) -> None:
    arguments = tmp_path / "training_args.json"
    arguments.write_text('{"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "bf16": true}')
    text = json.dumps({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
        "bf16": {"enabled": "auto"},
                       "gradient_accumulation_steps": "auto"})  # fmt: skip
    result = run("import", "-", "--trainer-args", str(arguments), "--devices", "8", "--json", input=text)
    assert json.loads(result.stdout)["sections"]["job"]["global_batch"] == 32


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [(["check", "missing.json"], "missing.json"), (["check"], "FILE"), (["export", "gpt2", "--cluster", "h100-sxm:8"],
        "--to"),
     (["export", "gpt2", "--cluster", "h100-sxm:8", "--to", "deepsped"], "deepspeed"),
     (["convert", "missing.json", "--to", "megatron"], "missing.json")],
)  # fmt: skip
def test_wrong_usage_names_the_fix(run, arguments: list[str], expected: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2 and result.stdout == "" and expected in result.stderr


def test_a_file_of_no_framework(run, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text('{"hello": 1}')
    result = run("check", str(path))
    assert result.exit_code == 2 and "--from" in result.stderr


EXPORT = ["export", "llama-3.1-8b", "--cluster", "h100-sxm:8", "--gbs", "128", "--seq", "4096"]


@pytest.mark.parametrize("to", ["deepspeed", "megatron"])
def test_export_writes_files_that_check_passes(run, to: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    result = run(*EXPORT, "--to", to, "--recompute", "full", "--dir", str(folder))
    assert result.exit_code == 0, result.output
    main = folder / {"deepspeed": "ds_config.json", "megatron": "pretrain.sh"}[to]
    arguments = ["--trainer-args", str(folder / "training_args.json")] if to == "deepspeed" else []
    checked = run("check", str(main), *ON, *arguments)
    assert checked.exit_code == 0, checked.output
    again = run(*EXPORT, "--to", to, "--dir", str(folder))
    assert again.exit_code == 2 and "--force" in again.stderr


def test_export_shows_files_as_they_are(run) -> None:
    result = run(*EXPORT, "--to", "deepspeed", "--zero", "3")
    text = result.stdout[result.stdout.index("{") : result.stdout.index("\n}\n") + 2]
    assert json.loads(text)["zero_optimization"]["stage"] == 3
    assert "job.seq_len" in result.stdout


def test_export_of_a_row_of_a_plan(run, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    run(
        "plan",
        "llama-3.1-8b",
        "--cluster",
        "h100-sxm:8",
        "--framework",
        "megatron",
        "--gbs",
        "128",
        "--json",
        "-o",
        str(plan),
    )
    document = json.loads(run("export", "--plan", str(plan), "--rank", "2", "--to", "megatron", "--json").stdout)
    assert document["strategy"]["tensor"] == json.loads(plan.read_text())["ranked"][1]["estimate"]["strategy"]["tensor"]
    result = run("export", "--plan", str(plan), "--rank", "99", "--to", "megatron")
    assert result.exit_code == 2 and "--rank" in result.stderr


def test_export_of_what_rules_forbid_is_no(run) -> None:
    result = run(*EXPORT, "--to", "deepspeed", "--zero", "3", "--pp", "2")
    assert result.exit_code == 1 and "MW-C303" in result.stdout


def test_convert_shows_the_table_and_the_files(run, script: str) -> None:
    result = run("convert", script, "--cluster", "h100-sxm:8", "--to", "deepspeed")
    assert result.exit_code == 0, result.output
    for part in (
        "--tensor-model-parallel-size = 8 → tensor_parallel.autotp_size = 8",
        "tensor_parallel.autotp_size = 8",
        "no counterpart",
        "ds_config.json",
    ):
        assert part in result.stdout, part
    document = json.loads(run("convert", script, "--cluster", "h100-sxm:8", "--to", "deepspeed", "--json").stdout)
    assert document["from"] == "megatron" and {row["verdict"] for row in document["table"]} >= {"maps", "lost"}


@pytest.mark.parametrize("verb", ["import", "check", "export", "convert"])
def test_help_in_both_languages(run, verb: str) -> None:
    english, spanish = run(verb, "--help"), run("--lang", "es", verb, "--help")
    assert "Usage:" in english.stdout and "Uso:" in spanish.stdout and "Configuration file:" not in spanish.stdout


def test_variables_of_the_place_where_it_runs(run, tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(
        "torchrun --nproc_per_node 8 --nnodes $NODES a.py --tensor-model-parallel-size $TP --bf16 --num-layers 4"
    )
    document = json.loads(run("import", str(path), "--env", "NODES=4", "--env", "TP=2", "--json").stdout)
    assert document["devices"] == 32 and document["sections"]["strategy"]["tensor"] == 2
    result = run("import", str(path), "--env", "NODES")
    assert result.exit_code == 2 and "--env" in result.stderr
