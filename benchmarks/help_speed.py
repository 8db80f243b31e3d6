"""Wall time of `meshwright --help`, of `plan --help`, and of one estimate as a command (limits: 0.3, 0.3 and 0.5 s).

Run: `python benchmarks/help_speed.py [repeats]`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

COMMANDS = (
    ("--help",),
    ("plan", "--help"),
    ("estimate", "llama-3.1-8b", "--cluster", "h100-sxm:8", "--tp", "2"),
)


def main() -> None:
    """Minimum and median of the repeats."""
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    script = Path(sys.executable).with_name("meshwright")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    for arguments in COMMANDS:
        seconds = []
        for _ in range(repeats):
            began = time.perf_counter()
            done = subprocess.run([str(script), *arguments], capture_output=True, env=environment, check=False)
            seconds.append(time.perf_counter() - began)
            if done.returncode not in (0, 1):
                raise SystemExit(done.stderr.decode()[-500:])
        seconds.sort()
        print(f"meshwright {' '.join(arguments)}: min {seconds[0]:.3f} s, median {seconds[len(seconds) // 2]:.3f} s")


if __name__ == "__main__":
    main()
