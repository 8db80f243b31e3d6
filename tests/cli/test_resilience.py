"""The verb with real answers: forms, languages, exit codes, and what its sub-verbs say."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

SMALL = ("llama-3.1-8b", "--cluster", "h100-sxm:64", "--seq", "4096", "--gbs", "128", "--framework", "fsdp")
CALLS = {
    "plan": ("plan", *SMALL, "--tokens", "1T", "--trials", "20"),
    "compare": ("compare", *SMALL, "--devices", "64,1024,16384"),
    "replan": ("replan", *SMALL, "--lose", "1", "--away", "6h"),
    "spot": ("spot", *SMALL, "--spot-price", "1.10", "--every", "2d"),
    "incidents": ("incidents", "log.csv", "--nodes", "63", "--days", "55"),
    "check": ("check", "listing.txt"),
}
LISTS = ("compare", "replan", "incidents", "check")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [f"2026-01-{1 + i:02d}T00:00:00,n{i % 4},Xid 63,10min" for i in range(10)]
    (tmp_path / "log.csv").write_text("\n".join(["time,node,cause,downtime", *rows]), "utf-8")
    (tmp_path / "listing.txt").write_text("10 a_1-shard0.pt\n0 a_2-shard0.pt\n", "utf-8")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", CALLS)
def test_every_form(name, run):
    call = ("resilience", *CALLS[name])
    result = run(*call, "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout, parse_constant=pytest.fail)
    assert document["schema"] == f"meshwright.resilience-{name}/1" and result.stderr == ""
    assert json.loads(run(*call, "--json", "--lang", "es").stdout) == document
    rows = list(csv.reader(io.StringIO(run(*call, "--format", "csv").stdout)))
    assert len(rows) > 1 and len({len(row) for row in rows}) == 1
    for language in ("en", "es"):
        drawn = run(*call, "--lang", language)
        assert drawn.exit_code == 0 and max(map(len, drawn.stdout.splitlines())) <= 100
        assert run(*call, "--lang", language, "--ascii").stdout.isascii()
    assert not set("─━┼╋└") & set(run(*call, "--format", "plain").stdout)


@pytest.mark.parametrize("name", LISTS)
def test_lists_are_one_object_a_line(name, run):
    lines = run("resilience", *CALLS[name], "--jsonl").stdout.splitlines()
    assert len(lines) >= 1 and all(isinstance(json.loads(line), dict) for line in lines)


@pytest.mark.parametrize("name", CALLS)
def test_help_in_both_languages(name, run):
    english, spanish = run("resilience", name, "--help"), run("--lang", "es", "resilience", name, "--help")
    assert "Usage:" in english.stdout and "Uso:" in spanish.stdout
    lines = english.stdout.splitlines()
    shown = lines[lines.index("Examples:") + 1 :]
    described = "\n".join(shown[shown.index("") :])
    for example in shown[: shown.index("")]:
        words = example.split()
        assert words[:3] == ["meshwright", "resilience", name]
        assert all(word in described for word in words if word.startswith("--"))


def test_the_answer_no_is_one(run):
    refused = run("resilience", "plan", *SMALL, "--storage-write", "10MB/s", "--steps", "5", "--trials", "10")
    assert refused.exit_code == 1 and "MW-G001" in refused.stdout and "is the limit" in refused.stdout
    slow = run("resilience", "plan", *SMALL, "--mtti", "1h", "--storage-write", "10MB/s", "--trials", "10")
    assert slow.exit_code == 1 and "too slow for this plan" in slow.stdout
    assert run("resilience", "spot", *SMALL, "--spot-price", "9", "--every", "2d").exit_code == 1
    Path("listing.txt").write_text("0 a-shard0.pt\n", "utf-8")
    assert run("resilience", "check", "listing.txt").exit_code == 1
    nothing = run("resilience", "plan", "llama-3.1-405b", "--cluster", "h100-sxm:8")
    assert nothing.exit_code == 1 and "NOTHING FITS" in nothing.stdout
    illegal = run("resilience", "plan", *SMALL, "--tp", "64")
    assert illegal.exit_code == 1 and "MW-" in illegal.stdout


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("plan", *SMALL, "--policy", "asink"), "async"),
        (("plan", *SMALL, "--failures", "nobody"), "nobody"),
        (("plan", *SMALL, "--incidents", "absent.csv"), "absent.csv"),
        (("plan", *SMALL, "--interval", "30"), "needs a unit"),
        (("replan", *SMALL, "--lose", "8"), "1 to 7"),
        (("spot", *SMALL, "--spot-price", "1"), "--every"),
        (("compare", *SMALL, "--devices", "x"), "--devices"),
        (("incidents", "listing.txt"), "time"),
        (("replan", *SMALL, "--optimizer-format", "torch"), "fully_reshardable"),
        (("drill",), "drill"),
    ],
)
def test_wrong_usage_is_two_and_names_the_fix(arguments, expected, run):
    result = run("resilience", *arguments)
    assert result.exit_code == 2 and result.stdout == "" and expected in result.stderr


def test_a_result_file_is_taken_up(run):
    made = run("plan", *SMALL, "--top", "2", "--json", "-o", "plan.json")
    assert made.exit_code == 0, made.output
    found = json.loads(run("resilience", "plan", "--plan", "plan.json", "--trials", "10", "--json").stdout)
    first = json.loads(Path("plan.json").read_text("utf-8"))["ranked"][0]
    assert found["strategy"]["short"] == first["estimate"]["strategy"]["short"]
    assert found["step_seconds"] == pytest.approx(first["estimate"]["step_seconds"])


def test_an_incident_log_sets_the_rate(run):
    found = json.loads(run("resilience", *CALLS["plan"], "--incidents", "log.csv", "--json").stdout)
    assert found["failures"]["source"]["id"] == "incidents"
    # 4 nodes named, ten incidents in nine days and a gap: one each day for four nodes, two for eight.
    assert found["failures"]["mtti"] == pytest.approx(86400 / 2, rel=1e-6)


def test_what_a_measured_run_lost_beyond_the_model(run):
    shown = run("resilience", *CALLS["plan"], "--measured", "55%")
    assert shown.exit_code == 0 and "points more are lost than failures, saves and restarts explain" in shown.stdout


def test_goals_and_failures_of_other_verbs(run):
    small = ("llama-3.1-8b", "--cluster", "h100-sxm:64", "--seq", "4096", "--gbs", "128")
    ranked = run("plan", *small, "--goal", "goodput", "--failures", "opt-175b", "--top", "2")
    assert ranked.exit_code == 0 and "useful" in ranked.stdout and "opt-175b" in ranked.stdout
    wrong = run("plan", *small, "--failures", "opt-175b")
    assert wrong.exit_code == 2 and "--goal goodput" in wrong.stderr
    sized = run("size", *small, "--tokens", "100B", "--deadline", "90d", "--mtti", "3h")
    assert sized.exit_code == 0 and "failures counted" in " ".join(sized.stdout.split())
