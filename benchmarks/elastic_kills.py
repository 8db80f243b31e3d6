"""Kill workers of a real torchrun job with SIGKILL, again and again, and compare its loss curve with one left alone.

Run: .venv-torch/bin/python benchmarks/elastic_kills.py [--kills 20] [--ranks 2] [--sharded]
Fails when a kill is not survived, a committed step is lost, or a loss differs in one bit.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from meshwright.gradsync import elastic

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples" / "elastic_gpt" / "train.py"
SMALL = ("--layers", "1", "--width", "32", "--context", "32", "--global-batch", "12", "--micro-batches", "12")
PATIENCE = 120.0  # seconds to wait for anything


@dataclass(frozen=True, slots=True)
class Kill:
    """One kill and what became of it."""

    kind: str
    rank: int
    saving: bool  # a save was under way and did not become a checkpoint
    committed: int  # newest step committed when it happened
    reached: int  # last step in the journal
    resumed: int  # step that the next start went on from
    seconds: float  # from the kill until training went on

    @property
    def lost_steps(self) -> int:
        """Steps that had to be trained again."""
        return self.reached - self.resumed


class Job:
    """A torchrun agent with its workers, writing to a folder."""

    def __init__(
        self,
        out: Path,
        options: Sequence[str],
        launcher: Sequence[str],
        *,
        log: str = "output.txt",
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self.out = out
        out.mkdir(parents=True, exist_ok=True)
        self.log = out / log
        paths = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
        self._log = self.log.open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", *launcher, str(EXAMPLE), "--out", str(out), *options],
            env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", **(variables or {})},
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )

    def workers(self) -> dict[int, int]:
        """Process ids of the live workers by rank."""
        found = {}
        for pid in children(self.process.pid):
            try:
                variables = dict(
                    v.split(b"=", 1) for v in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") if b"=" in v
                )
            except OSError:
                continue
            if b"RANK" in variables:
                found[int(variables[b"RANK"])] = pid
        return found

    def journal(self) -> list[dict[str, object]]:
        """What the job has noted so far."""
        path = self.out / "journal.jsonl"
        return elastic.entries(path) if path.exists() else []

    def wait(self, seconds: float) -> int:
        """Its exit code."""
        try:
            return self.process.wait(seconds)
        finally:
            self.end()

    def end(self) -> None:
        """Make sure that nothing of it is left."""
        if self.process.poll() is None:
            pids = [*children(self.process.pid), self.process.pid]
            for pid in pids:
                _kill(pid)
            self.process.wait()
        self._log.close()

    def output(self) -> str:
        """The end of what it printed."""
        return self.log.read_text("utf-8", "replace")[-3000:]


def children(pid: int) -> list[int]:
    """Process ids of the children."""
    try:
        return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def until(what: str, condition: Callable[[], object], job: Job, pause: float = 0.02) -> None:
    """Wait for a condition; a job that ended or hangs is an error with its output."""
    end = time.monotonic() + PATIENCE
    while not condition():
        if job.process.poll() is not None:
            raise RuntimeError(f"the job ended while waiting for {what}:\n{job.output()}")
        if time.monotonic() > end:
            raise RuntimeError(f"no {what} within {PATIENCE} s:\n{job.output()}")
        time.sleep(pause)


def standalone(ranks: int, restarts: int) -> list[str]:
    """Options of torchrun for one node."""
    return ["--standalone", f"--nproc-per-node={ranks}", f"--max-restarts={restarts}", "--monitor-interval=0.1"]


def left_alone(out: Path, options: Sequence[str], ranks: int) -> elastic.Curve:
    """The curve of a job that nobody disturbs."""
    job = Job(out, options, standalone(ranks, 0))
    if job.wait(1200) != 0:
        raise RuntimeError(job.output())
    return elastic.curve(out / "journal.jsonl")


def kills(job: Job, kinds: Sequence[str], seed: int) -> Iterator[Kill]:
    """Kill a random worker once per kind, at a random moment of that kind; wait until the job trains again."""
    chance = random.Random(seed)
    checkpoints = job.out / "checkpoints"
    for kind in kinds:
        starts = _starts(job)
        _wait_for_moment(kind, job, checkpoints, chance)
        workers = job.workers()
        while not workers:  # between two generations
            time.sleep(0.05)
            workers = job.workers()
        rank = chance.choice(sorted(workers))
        reached, newest = last_step(job), committed(checkpoints)
        if not _kill(workers[rank]):
            continue
        begin = time.monotonic()
        torn = list(checkpoints.glob(".step-*.partial"))
        starts = max(starts, _starts(job))
        until("restart", lambda starts=starts: _starts(job) > starts, job)  # type: ignore[misc]
        resumed = [int(e["step"]) for e in job.journal() if e["kind"] == "start"][-1]  # type: ignore[call-overload]
        yield Kill(kind, rank, bool(torn), newest, max(reached, newest), resumed, time.monotonic() - begin)


def _wait_for_moment(kind: str, job: Job, checkpoints: Path, chance: random.Random) -> None:
    """Some time after a step; while a save is under way; or while workers come back from a kill just before."""
    steps = _steps(job)
    until("step", lambda: _steps(job) > steps, job)
    if kind == "training":
        time.sleep(chance.uniform(0, 1.5))
        return
    if kind == "starting":
        _kill(chance.choice(sorted(job.workers().values())))
        time.sleep(chance.uniform(0, 6))
        return
    until("save", lambda: any(checkpoints.glob(".step-*.partial")), job, pause=0.001)
    time.sleep(chance.uniform(0, 0.02))


def _starts(job: Job) -> int:
    return sum(e["kind"] == "start" for e in job.journal())


def _steps(job: Job) -> int:
    return sum(e["kind"] == "step" for e in job.journal())


def last_step(job: Job) -> int:
    """The step that the journal ends with."""
    steps = [int(e["step"]) for e in job.journal() if e["kind"] == "step"]  # type: ignore[call-overload]
    return steps[-1] if steps else 0


def committed(checkpoints: Path) -> int:
    """Step of the newest checkpoint in a folder."""
    return max((int(p.name.removeprefix("step-")) for p in checkpoints.glob("step-*")), default=0)


def main() -> int:
    """Print a line per kill and a summary; 1 when anything was lost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sharded", action="store_true")
    args = parser.parse_args()
    options = [*SMALL, f"--steps={args.steps}", f"--every={args.every}", *(["--sharded"] if args.sharded else [])]
    kinds = [("saving", "training", "starting", "training")[i % 4] for i in range(args.kills)]
    folder = Path(tempfile.mkdtemp(prefix="elastic-kills-"))
    try:
        alone = left_alone(folder / "alone", options, args.ranks)
        job = Job(folder / "killed", options, standalone(args.ranks, 3 * args.kills))
        done = []
        try:
            for kill in kills(job, kinds, args.seed):
                done.append(kill)
                print(
                    f"{len(done):3}  {kill.kind:8}  rank {kill.rank}  {'mid-save' if kill.saving else '':8}"
                    f"  at step {kill.reached:4}  committed {kill.committed:4}  resumed at {kill.resumed:4}"
                    f"  after {kill.seconds:4.1f} s",
                    flush=True,
                )
            code = job.wait(1200)
        finally:
            job.end()
        return report(done, args.kills, code, alone, elastic.curve(folder / "killed" / "journal.jsonl"))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def report(done: Sequence[Kill], wanted: int, code: int, alone: elastic.Curve, killed: elastic.Curve) -> int:
    """The figures; 1 when anything was lost."""
    lost = [kill for kill in done if kill.resumed < kill.committed]
    equal = alone.loss == killed.loss and not killed.differing
    print(
        f"{len(done)} of {wanted} kills survived, {sum(k.saving for k in done)} of them in the middle of a save;"
        f" exit code {code}\n"
        f"committed steps lost: {len(lost)} times; steps trained again: {killed.repeated},"
        f" median {statistics.median(k.lost_steps for k in done):.0f} a kill\n"
        f"from kill to training: median {statistics.median(k.seconds for k in done):.1f} s,"
        f" longest {max(k.seconds for k in done):.1f} s\n"
        f"loss curves of {len(alone.loss)} steps equal bit for bit: {'yes' if equal else 'NO'}"
    )
    return int(not (equal and not lost and code == 0 and len(done) == wanted))


if __name__ == "__main__":
    sys.exit(main())
