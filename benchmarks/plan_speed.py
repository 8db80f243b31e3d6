"""Wall time, start-up included, and peak memory of `meshwright plan` as a command.

Run: `python benchmarks/plan_speed.py [repeats]`. Limits of issue 2: 2 s and 500 MB each.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SECONDS, MEGABYTES = 2.0, 500.0  # limits of each, best of the repeats
COMMANDS = (
    ("gpt-3-175b", "--cluster", "dgx-a100-80gb:1024", "--seq", "2048", "--gbs", "1536"),
    ("deepseek-v3", "--cluster", "h100-sxm:2048", "--seq", "4096", "--gbs", "8192"),
    ("llama-3.1-70b", "--cluster", "h100-sxm:512", "--tokens", "15T"),
    ("llama-3.1-405b", "--cluster", "h100-sxm:16384"),
    ("llama-3.1-405b", "--cluster", "h100-sxm:131072"),
)


def once(command: list[str], environment: dict[str, str]) -> tuple[float, float, int]:
    """Seconds, peak resident megabytes, and exit code of one run."""
    with tempfile.TemporaryFile() as out:
        began = time.perf_counter()
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        process.returncode = code = os.waitstatus_to_exitcode(status)
        if code not in (0, 1) or not out.tell():
            raise SystemExit(f"{' '.join(command)} failed with exit code {code}")
    return seconds, usage.ru_maxrss / 1e3, code


def main() -> int:
    """Best and median of a few runs of each command, and the largest peak; 1 when one is above the limits."""
    failed = False
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    script = Path(sys.executable).with_name("meshwright")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    for arguments in COMMANDS:
        runs = [once([str(script), "plan", *arguments], environment) for _ in range(repeats)]
        seconds = sorted(r[0] for r in runs)
        failed |= seconds[0] > SECONDS or max(r[1] for r in runs) > MEGABYTES
        print(
            f"meshwright plan {' '.join(arguments)}: best {seconds[0]:.2f} s, "
            f"median {seconds[len(seconds) // 2]:.2f} s, peak {max(r[1] for r in runs):.0f} MB, exit {runs[0][2]}",
            flush=True,
        )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
