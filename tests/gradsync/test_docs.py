"""The page on averaging is true: its program runs under torchrun and prints the number it states."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.gradsync
pytest.importorskip("torch", reason="torch is not installed (extra `torch`)")

ROOT = Path(__file__).resolve().parents[2]
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def programs(page: str) -> list[str]:
    return PYTHON.findall((ROOT / "docs" / "how-to" / page).read_text("utf-8"))


def test_the_worked_example_prints_exactly_what_the_page_says(tmp_path: Path) -> None:
    script = tmp_path / "worked.py"
    script.write_text(programs("average-gradients-correctly.md")[0], "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.splitlines() == ["3.1875"], done.stderr[-2000:]


@pytest.mark.parametrize("page", ["average-gradients-correctly", "elastic-training"])
def test_both_languages_show_the_same_programs(page: str) -> None:
    """Comments apart."""
    bare = [[re.sub(r"\s*#.*", "", program) for program in programs(f"{page}{ending}.md")] for ending in ("", ".es")]
    assert bare[0] == bare[1]
    for program in bare[0]:
        compile(program, page, "exec")
