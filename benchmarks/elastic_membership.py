"""Take a node out of a real elastic torchrun job and bring one back: 4, 3, 4 workers with the same global batch.

Run: .venv-torch/bin/python benchmarks/elastic_membership.py
Four launchers on this machine stand for four nodes (--nnodes 3:4). One is killed with its worker, later another joins.
Fails when the job stops, a committed step is lost, or a loss is further than 1e-3 from that of a job left alone.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from elastic_kills import SMALL, Job, children, committed, last_step, left_alone, until

from meshwright.gradsync import elastic

TOLERANCE = 1e-3


def node(out: Path, options: Sequence[str], port: int, number: int) -> Job:
    """One launcher with one worker."""
    quick = "join_timeout=120,last_call_timeout=3,keep_alive_interval=1,keep_alive_max_attempt=5"
    launcher = ["--nnodes=3:4", "--nproc-per-node=1", "--max-restarts=20", "--monitor-interval=0.1", "--rdzv-id=job",
                "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", f"--rdzv-conf={quick}"]  # fmt: skip
    # With the store shared, a launcher that joins later waits for a key that the others wrote in an earlier round only.
    own_store = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    return Job(out, options, launcher, log=f"node-{number}.txt", variables=own_store)


def starts(job: Job) -> list[tuple[int, int]]:
    """Step and world size of each start so far."""
    return [(int(e["step"]), int(e["world_size"])) for e in job.journal() if e["kind"] == "start"]  # type: ignore[call-overload]


def wait_for(world_size: int, job: Job) -> tuple[int, float]:
    """Wait until the job trains on so many workers; the step it went on from, and the seconds it took."""
    begin = time.monotonic()
    until(f"start on {world_size}", lambda: starts(job) and starts(job)[-1][1] == world_size, job)
    step = starts(job)[-1][0]
    until("step", lambda: last_step(job) > step + 15, job)
    return step, time.monotonic() - begin


def free_port() -> int:
    """A port nobody listens at."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def main() -> int:
    """Print what happened; 1 when it did not go on or the curve went elsewhere."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    args = parser.parse_args()
    options = [*SMALL, f"--steps={args.steps}", "--every=10"]
    folder = Path(tempfile.mkdtemp(prefix="elastic-membership-"))
    nodes: list[Job] = []
    try:
        alone = left_alone(folder / "alone", options, 4)
        out, port = folder / "changing", free_port()
        nodes = [node(out, options, port, number) for number in range(4)]
        wait_for(4, nodes[0])
        lost, before = nodes[-1], committed(out / "checkpoints")
        for pid in [*children(lost.process.pid), lost.process.pid]:
            os.kill(pid, signal.SIGKILL)
        resumed, seconds = wait_for(3, nodes[0])
        kept = resumed >= before
        print(f"4 to 3: a node killed, committed {before}, resumed at {resumed} after {seconds:.1f} s", flush=True)
        nodes.append(node(out, options, port, 4))
        reached = last_step(nodes[0])
        resumed, seconds = wait_for(4, nodes[0])
        print(f"3 to 4: a node joined at step {reached}, resumed at {resumed} after {seconds:.1f} s", flush=True)
        codes = [job.wait(600) for job in nodes if job is not lost]
        curve = elastic.curve(out / "journal.jsonl")
        return report(codes, kept, alone, curve)
    finally:
        for job in nodes:
            job.end()
        shutil.rmtree(folder, ignore_errors=True)


def report(codes: Sequence[int], kept: bool, alone: elastic.Curve, curve: elastic.Curve) -> int:
    """The figures; 1 when something is off."""
    same = alone.loss.keys() == curve.loss.keys()
    far = max((abs(curve.loss[s] / alone.loss[s] - 1) for s in alone.loss if s in curve.loss), default=1.0)
    print(f"exit codes {list(codes)}; steps {len(curve.loss)} of {len(alone.loss)}, {curve.repeated} trained twice")
    print(f"largest relative distance of a loss to the job left alone on 4 workers: {far:.1e} (limit {TOLERANCE})")
    return int(not (same and kept and not any(codes) and far <= TOLERANCE))


if __name__ == "__main__":
    sys.exit(main())
