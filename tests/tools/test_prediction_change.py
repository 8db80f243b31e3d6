"""The report of what a change does to predictions: which revisions, what counts as a change, and a whole run of it."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


report_of, grid_of = tool("prediction_change"), tool("prediction_grid")
needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "protocol.file.allow=always")
    done = subprocess.run(["git", "-C", str(folder), *identity, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def checkout_or_skip() -> None:
    """Needs this checkout to be one of git, and git to be allowed to read it."""
    if subprocess.run(["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True, check=False).returncode:
        pytest.skip("not a git checkout")


def save(folder: Path, text: str) -> str:
    """A commit that changes `src/a`."""
    (folder / "src").mkdir(exist_ok=True)
    (folder / "src/a").write_text(text, "utf-8")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", text)
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    return folder


# ---------------------------------------------------------------------------------------------- the grid


def test_the_grid_has_about_two_hundred_points_over_every_kind() -> None:
    asked = list(grid_of.questions(tomllib.loads(grid_of.GRID.read_text("utf-8"))))
    ids = [id for id, _ in asked]
    assert 150 <= len(ids) <= 250 and len(set(ids)) == len(ids)
    strategies = [question["strategy"] for _, question in asked if question["strategy"]]
    assert {s["framework"] for s in strategies} == {"megatron", "fsdp", "deepspeed", "jax"}
    assert sum(question["strategy"] is None for _, question in asked) >= 10


def grid_file(folder: Path, text: str) -> Path:
    path = folder / "grid.toml"
    path.write_text(text, "utf-8")
    return path


ONE = """
[[estimate]]
models = ["llama-3.1-8b", "no-such-model"]
clusters = ["h100-sxm:8"]
job = { seq_len = 4096, global_batch = 8 }
strategies = [{ framework = "fsdp", sharding = "zero3", recompute = "full" }]
[[plan]]
models = ["llama-3.1-8b"]
clusters = ["h100-sxm:8"]
job = { seq_len = 4096, global_batch = 8 }
"""


def test_the_worker_says_what_the_command_line_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert grid_of.main([str(ROOT), "--grid", str(grid_file(tmp_path, ONE))]) == 0
    points = json.loads(capsys.readouterr().out)["points"]
    options = ["--cluster", "h100-sxm:8", "--seq", "4096", "--gbs", "8", "--json", "--no-config"]

    def said(verb: str, *more: str) -> Any:
        command = [sys.executable, "-m", "meshwright", verb, "llama-3.1-8b", *options, *more]
        return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    estimate = said("estimate", "--framework", "fsdp", "--zero", "3", "--recompute", "full")
    best = said("plan", "--top", "1")["ranked"][0]["estimate"]
    first, unknown, plan = points.values()
    assert first == {key: estimate[key] for key in ("verdict", "step_seconds", "peak_bytes")}
    assert "no-such-model" in unknown["error"]
    assert plan["step_seconds"] == best["step_seconds"] and best["strategy"]["short"] in plan["strategy"]


def test_the_worker_refuses_another_checkout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert grid_of.main([str(tmp_path)]) == 2
    assert "PYTHONPATH" in capsys.readouterr().err


def test_the_worker_predicts_measured_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = ROOT / "tests/data/measured_runs/rows.csv"
    assert grid_of.main([str(ROOT), "--grid", str(grid_file(tmp_path, "")), "--measured", str(rows)]) == 0
    found = json.loads(capsys.readouterr().out)["rows"]
    assert len(found) > 5 and all(set(row) >= {"error", "memory_error", "skipped"} for row in found.values())


# ---------------------------------------------------------------------------------------------- which revisions


@needs_git
def test_a_branch_is_compared_with_where_it_left(repository: Path) -> None:
    left = save(repository, "one")
    git(repository, "switch", "-qc", "work")
    save(repository, "two")
    git(repository, "switch", "-q", "main")
    save(repository, "moved on")
    git(repository, "switch", "-q", "work")
    assert report_of.base_commit("main", repository) == left
    assert report_of.base_commit(None, repository) == left, "main is the default where there is no origin"


@needs_git
def test_the_base_itself_is_compared_with_the_commit_before(repository: Path) -> None:
    first, _ = save(repository, "one"), save(repository, "two")
    assert report_of.base_commit("main", repository) == first


@needs_git
def test_what_is_not_committed_is_compared_with_head(repository: Path) -> None:
    save(repository, "one")
    head = save(repository, "two")
    (repository / "src/a").write_text("three", "utf-8")
    assert report_of.base_commit("main", repository) == head


@needs_git
def test_where_there_is_no_other_commit_it_says_why(repository: Path, tmp_path: Path) -> None:
    with pytest.raises(report_of.Nothing):  # no commit at all
        report_of.base_commit(None, repository)
    save(repository, "one")
    with pytest.raises(report_of.Nothing, match="no commit before it"):
        report_of.base_commit(None, repository)
    save(repository, "two")
    with pytest.raises(report_of.Nothing, match="no commit is called elsewhere"):
        report_of.base_commit("elsewhere", repository)
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{repository}", "shallow")
    with pytest.raises(report_of.Nothing, match="shallow clone"):
        report_of.base_commit(None, tmp_path / "shallow")
    with pytest.raises(report_of.Nothing):
        report_of.base_commit(None, tmp_path / "nowhere")


@needs_git
def test_a_checkout_is_taken_away_again(repository: Path) -> None:
    old, _ = save(repository, "one"), save(repository, "two")
    with report_of.checkout(old, repository) as tree:
        assert (tree / "src/a").read_text("utf-8") == "one"
    assert not tree.exists()
    assert len(git(repository, "worktree", "list").splitlines()) == 1


# ---------------------------------------------------------------------------------------------- what is a change

FITS = {"verdict": "FITS", "step_seconds": 10.0, "peak_bytes": 100.0}


@pytest.mark.parametrize(
    ("before", "after", "category", "time", "memory"),
    [
        (FITS, FITS, "same", 0.0, 0.0),
        (FITS, {**FITS, "step_seconds": 10.005}, "same", 0.0005, 0.0),
        (FITS, {**FITS, "step_seconds": 11.0}, "time", 0.1, 0.0),
        (FITS, {**FITS, "peak_bytes": 90.0}, "memory", 0.0, -0.1),
        (FITS, {**FITS, "step_seconds": 5.0, "peak_bytes": 200.0}, "time", -0.5, 1.0),
        (FITS, {**FITS, "verdict": "OVER", "peak_bytes": 150.0}, "verdict", 0.0, 0.5),
        ({**FITS, "strategy": "tp1"}, {**FITS, "strategy": "tp2"}, "plan", 0.0, 0.0),
        (FITS, {"verdict": "REFUSED", "codes": ["MW-C1"]}, "verdict", None, None),
        ({"verdict": "REFUSED", "codes": ["MW-C1"]}, {"verdict": "REFUSED", "codes": ["MW-C2"]}, "answer", None, None),
        ({"error": "no such model"}, FITS, "answer", None, None),
        (None, FITS, "new", None, None),
        (FITS, None, "gone", None, None),
    ],
)
def test_categories(before: Any, after: Any, category: str, time: float | None, memory: float | None) -> None:
    found = report_of.change("p", before, after)
    assert found.category == category
    for value, expected in ((found.time, time), (found.memory, memory)):
        assert value == (None if expected is None else pytest.approx(expected))


def test_gains_and_regressions_are_told_by_the_distance_from_the_measurement() -> None:
    """Signs do not matter: from +20 % to -5 % is a gain of 15 points, from -2 % to +10 % a regression of 8."""
    before = {
        "a": {"error": 0.2},
        "b": {"error": -0.02},
        "c": {"error": 0.05},
        "d": {"error": 0.3},
        "e": {"error": None},
    }
    after = {
        "a": {"error": -0.05},
        "b": {"error": 0.1},
        "c": {"error": -0.05},
        "d": {"error": None},
        "e": {"error": 0.1},
    }
    throughput, memory = report_of.errors(before, after)
    assert [(row.id, round(row.nearer, 6)) for row in throughput.gains] == [("a", 0.15)]
    assert [(row.id, round(row.nearer, 6)) for row in throughput.regressions] == [("b", -0.08)]
    assert (throughput.only_before, throughput.only_after) == (1, 1)
    assert throughput.summary("before")["median"] == pytest.approx(0.05)
    assert throughput.summary("after")["bias"] == pytest.approx(0.0, abs=1e-12)
    assert not memory.rows


def test_the_report_puts_the_largest_first_and_counts_the_rest() -> None:
    grid = [report_of.Change(id=f"p{i}", category="time", time=i / 100, memory=0.0) for i in range(1, 6)]
    lines = list(report_of.report("abc one", grid, [], most=2))
    text = "\n".join(lines)
    assert "5 points: 5 time" in text and "from +1.0% to +5.0%" in text
    assert [line.split()[-1] for line in lines if line.startswith("  ") and "more" not in line] == ["p5", "p4"]
    assert "3 more" in text


def test_rows_that_one_revision_cannot_read_are_said() -> None:
    with pytest.raises(report_of.Unread, match="before: AttributeError"):
        report_of.errors({"error": "AttributeError: validate"}, {})
    assert report_of.errors(None, None) == []


# ---------------------------------------------------------------------------------------------- as a whole

TWO = """
[[estimate]]
models = ["llama-3.1-8b"]
clusters = ["h100-sxm:8", "a100-sxm-80gb:8"]
job = { seq_len = 4096, global_batch = 8 }
strategies = [{ framework = "fsdp", sharding = "zero3", recompute = "full" }]
"""


@needs_git
@pytest.mark.slow
def test_a_slower_constant_is_seen_where_it_counts(tmp_path: Path) -> None:
    """In a clone: halve the memory bandwidth of an H100. The H100 point slows down, the A100 point stays."""
    checkout_or_skip()
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "--no-hardlinks", str(ROOT), str(clone))
    for name in ("prediction_change.py", "prediction_grid.py"):
        shutil.copy(ROOT / "tools" / name, clone / "tools" / name)
    (clone / "tools/prediction_grid.toml").write_text(TWO, "utf-8")
    entry = clone / "src/meshwright/catalog/data/accelerators/h100-sxm.toml"
    halved = re.subn(r"(memory_bandwidth = \{ value = )3350", r"\g<1>1675", entry.read_text("utf-8"))
    assert halved[1] == 1
    entry.write_text(halved[0], "utf-8")

    def run(*arguments: str) -> str:
        command = [sys.executable, str(clone / "tools/prediction_change.py"), "HEAD", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    found = json.loads(run("--json"))
    assert found["counts"] == {"time": 1, "same": 1}
    [moved] = found["changes"]
    assert "h100-sxm:8" in moved["id"] and 0.02 < moved["time"] < 0.5 and moved["memory"] == 0.0
    assert "1 time, 1 same" in run()
    assert len(git(clone, "worktree", "list").splitlines()) == 1


@needs_git
def test_a_shallow_clone_says_that_there_is_nothing_to_compare(tmp_path: Path) -> None:
    checkout_or_skip()
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{ROOT}", "clone")
    for name in ("prediction_change.py", "prediction_grid.py", "prediction_grid.toml"):
        shutil.copy(ROOT / "tools" / name, tmp_path / "clone/tools" / name)
    git(tmp_path / "clone", "add", "-A")
    git(tmp_path / "clone", "commit", "-q", "--amend", "--allow-empty", "-m", "as it is")
    command = [sys.executable, str(tmp_path / "clone/tools/prediction_change.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout.startswith("nothing to compare:")
