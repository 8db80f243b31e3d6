"""Launch scripts read as bash would set them (bash itself is the judge), and never run."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.frameworks.shell import read_script

SCRIPT = """\
# a comment with --flags
export CUDA_DEVICE_MAX_CONNECTIONS=1   # why
GPUS=8; NODES=${NODES:-4}
WORLD=$((GPUS * NODES))
TP=${TP:-8} ; NAME="a b"
ONE="--alpha 1 \\
  --beta $TP"
ARGS=(
  --gamma "$NAME"  # inside
  --delta 'x $TP y'
  --epsilon=$((WORLD/2))
)
ARGS+=(--zeta)
torchrun --nproc_per_node $GPUS run.py $ONE "${ARGS[@]}" \\
  --eta ${UNSET:-none} --theta a\\ b "q\\"r"
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash to compare with")
@pytest.mark.parametrize("environment", [{}, {"NODES": "16", "TP": "2"}])
def test_the_command_is_what_bash_makes_of_it(environment: dict[str, str], tmp_path: Path) -> None:
    probe = tmp_path / "torchrun"
    probe.write_text('#!/bin/bash\nfor word in "$@"; do printf "%s\\n" "$word"; done\n')
    probe.chmod(0o755)
    done = subprocess.run(
        ["bash", "-c", SCRIPT], capture_output=True, text=True, check=True,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", **environment},
    )  # fmt: skip
    script = read_script(SCRIPT, environment)
    assert script.launches == [["torchrun", *done.stdout.splitlines()]]
    assert script.environment["CUDA_DEVICE_MAX_CONNECTIONS"] == "1"


def test_what_only_a_running_shell_knows_stays_as_written() -> None:
    script = read_script("python run.py --dir $(date +%s) --x $UNKNOWN --y ${ALSO}/z `id`")
    assert script.commands == [
        ["python", "run.py", "--dir", "$(date +%s)", "--x", "$UNKNOWN", "--y", "${ALSO}/z", "`id`"]
    ]


def test_nothing_is_executed(tmp_path: Path) -> None:
    target = tmp_path / "made"
    read_script(f'X=$(touch {target})\n`touch {target}`\ntouch {target}\npython -c \'open("{target}", "w")\'')
    assert not target.exists()


def test_variables_that_double_stay_bounded() -> None:
    start = time.monotonic()
    script = read_script("A=xxxxxxxx\n" + 'A="$A$A"\n' * 60 + "python run.py $A")
    assert len(script.variables["A"]) <= 200_000
    assert time.monotonic() - start < 5


@pytest.mark.parametrize("text", ["A=$((9**9**9))", "A=$((1/0))", "A=$((" + "(" * 400 + "))", "A=$(((1+2)*x))"])
def test_sums_that_are_none_stay_as_written(text: str) -> None:
    assert str(read_script(text).variables["A"]).startswith("$((")


def test_slurm_options() -> None:
    script = read_script("#SBATCH --nodes=4\n#SBATCH -N 8\n#SBATCH --gres=gpu:h100:8\n")
    assert script.scheduler == {"nodes": "4", "N": "8", "gres": "gpu:h100:8"}


@given(st.text(alphabet="ab$(){}[]@'\"\\`#;|&=-+ \n1:", max_size=120))
def test_any_text_is_read(text: str) -> None:
    read_script(text)


def test_a_megabyte_is_read_in_seconds() -> None:
    start = time.monotonic()
    for text in ("(" * 10**6, '"' * 10**6, "a " * 5 * 10**5, "${" * 5 * 10**5, "$((" * 3 * 10**5, "\\\n" * 5 * 10**5):
        read_script(text)
    assert time.monotonic() - start < 30
