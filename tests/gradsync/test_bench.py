"""The verbs that measure, and the example, as a user runs them: real processes, JSON, exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.gradsync
torch = pytest.importorskip("torch", reason="torch is not installed (extra `torch`)")

ROOT = Path(__file__).parents[2]


def meshwright(*arguments: str, launcher: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *launcher, "-m", "meshwright", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment, check=False)


def test_allreduce_in_the_terms_of_nccl_tests() -> None:
    found = meshwright(
        "bench", "allreduce", "--ranks", "3", "--sizes", "4KiB,1MiB", "--algorithms", "ring,direct,backend,auto",
        "--rounds", "1", "--json",
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    document = json.loads(found.stdout)
    assert document["schema"] == "meshwright.bench-allreduce/1" and document["ranks"] == 3
    assert len(document["timings"]) == 8
    for row in document["timings"]:
        assert row["algorithm_bandwidth"] == pytest.approx(row["payload"] / row["seconds"])
        assert row["bus_bandwidth"] == pytest.approx(row["algorithm_bandwidth"] * 2 * 2 / 3)  # PERFORMANCE.md
        assert row["least"] <= row["seconds"]
        assert (row["modelled"] is None) == (row["name"] == "backend")


def test_hooks_under_torchrun_say_bytes_once() -> None:
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    found = meshwright(
        "bench", "hooks", "--size", "1MiB", "--hooks", "allreduce,bf16,torch:bf16", "--rounds", "1", "--json",
        launcher=launcher,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    rows = {row["name"]: row for row in json.loads(found.stdout)["timings"]}  # one document: rank 1 says nothing
    assert rows["bf16"]["sent"] == rows["allreduce"]["sent"] / 2
    assert rows["torch:bf16"]["sent"] is None


def test_wrong_names_and_uneven_nodes_are_refused_before_anything_runs() -> None:
    from click.testing import CliRunner

    from meshwright.cli.main import cli

    wrong = CliRunner().invoke(cli, ["bench", "hooks", "--hooks", "powersdg"])
    assert wrong.exit_code == 2 and "powersgd" in wrong.stderr
    uneven = CliRunner().invoke(cli, ["bench", "allreduce", "--ranks", "3", "--local", "2"])
    assert uneven.exit_code == 2 and "--local" in uneven.stderr


def test_the_example_trains_with_a_hook() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    script = ROOT / "examples" / "ddp_gpt" / "train.py"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    flags = {
        "--hook": "powersgd",
        "--narrow": "bf16",
        "--dense-steps": 2,
        "--steps": 21,
        "--accumulate": 2,
        "--batch": 2,
    }
    command += [str(word) for pair in flags.items() for word in pair]
    found = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment, check=False)
    assert found.returncode == 0, found.stderr
    losses = [float(line.split()[3]) for line in found.stdout.splitlines() if line.startswith("step")]
    assert losses[-1] < losses[0] - 1
    assert "x less" in found.stdout
