"""Seconds that users feel: help, an estimate and plans as whole commands, with their peak memory.

Run: .venv/bin/python benchmarks/startup.py   (fails above the stated limits)
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time

LIMITS = [  # arguments, seconds, MB
    (["--help"], 0.3, 100),
    (["plan", "--help"], 0.3, 100),
    (["estimate", "llama-3.1-70b", "--cluster", "h100-sxm:64", "--tp", "8", "--pp", "2"], 0.5, 200),
    (["plan", "gpt3-175b", "--cluster", "a100-sxm-80gb:1024", "--seq", "2048", "--gbs", "1536"], 2.0, 500),
    (["plan", "deepseek-v3", "--cluster", "h100-sxm:2048"], 2.0, 500),
    (["plan", "llama-3.1-405b", "--cluster", "h100-sxm:16384"], 2.0, 500),
    (["plan", "llama-3.1-405b", "--cluster", "h100-sxm:131072"], 2.0, 500),
]
RUNS = 5


def measure(arguments: list[str]) -> tuple[float, float]:
    """Best wall time of several runs, and the largest resident memory in MB."""
    best, memory = float("inf"), 0.0
    for _ in range(RUNS):
        start = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "meshwright", *arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"},
        )
        _, status, usage = os.wait4(process.pid, 0)
        best = min(best, time.perf_counter() - start)
        memory = max(memory, usage.ru_maxrss / 1024)
        if os.waitstatus_to_exitcode(status) not in (0, 1):
            assert process.stderr is not None
            sys.exit(f"{arguments}: {process.stderr.read().decode()}")
    return best, memory


def main() -> int:
    """Print a line per command; 1 when one is too slow or too large."""
    failed = False
    for arguments, seconds, megabytes in LIMITS:
        wall, memory = measure(arguments)
        over = wall > seconds or memory > megabytes
        failed |= over
        mark = "OVER" if over else "ok"
        print(f"{wall:6.2f} s (limit {seconds}) {memory:6.0f} MB (limit {megabytes})  {mark:4}  {' '.join(arguments)}")
    return int(failed)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.exit(main())
