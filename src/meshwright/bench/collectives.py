"""Collectives between processes here: under torchrun in its group, else between processes started for it.

Over NCCL (RCCL) between GPUs, over Gloo between CPUs. Every decision (how often, whether at all) is agreed between
the ranks, so that none waits for a call the others leave out.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from meshwright.bench.machine import Machine, choose
from meshwright.bench.records import Sample, Skipped
from meshwright.bench.sweep import Budget
from meshwright.errors import UsageError
from meshwright.formulas.collectives import bus_factor
from meshwright.messages import N_, Text
from meshwright.serialize import dumps, from_json, to_json

PAYLOADS = (2**10, 2**14, 2**18, 2**22, 2**25, 2**28, 2**30)
SHARE_OF_FREE = 0.2
LEAST, MOST = 5, 20
LEAST_BATCH_SECONDS = 1e-3  # a repeat is at least this long: it is timed by the clock of the host
MOST_BATCH = 50
HOPE = 4.0  # a larger payload may reach a better rate, up to this many times the best so far
ELEMENT = 4  # bytes of fp32
GRACE = 60.0  # seconds to start the processes and connect them
LEAST_SHARE = 0.4  # of the time given to collectives, where starting the processes took most of it
Found = list[Sample | Skipped]


# ---------------------------------------------------------------------------------------------- who takes part


def launched() -> bool:
    """Whether a launcher (torchrun, or one that sets the same variables) started this process as one of several."""
    return int(os.environ.get("WORLD_SIZE") or 1) > 1 and "RANK" in os.environ


def rank() -> int:
    """This process among those of the launcher."""
    return int(os.environ["RANK"]) if launched() else 0


def local_rank() -> int:
    """This process among those of its host."""
    return int(os.environ.get("LOCAL_RANK") or 0)


def in_launched_group(machine: Machine, seconds: float) -> Found:
    """Measure in the group of the launcher; the samples are those of rank 0, other ranks have an empty list."""
    with _group(machine, "env://", rank(), int(os.environ["WORLD_SIZE"]), seconds):
        local = int(os.environ.get("LOCAL_WORLD_SIZE") or os.environ["WORLD_SIZE"])
        return _measure(machine, Budget(seconds), local)


def between_processes(machine: Machine, processes: int, budget: Budget, seconds: float) -> Found:
    """Start `processes` processes on this host, measure between them, and end them."""
    count = machine.torch.cuda.device_count() if machine.device.type == "cuda" else processes
    if processes > count:
        raise UsageError(
            Text(N_("{processes} processes need as many devices; {count} are here"), processes=processes, count=count),
            where="--processes",
            fix=Text(N_("the nearest legal value is {value}"), value=str(count)),
        )
    torch_processes: Any = machine.torch.multiprocessing
    with tempfile.TemporaryDirectory(prefix="meshwright-") as folder:
        started = torch_processes.spawn(
            _one_process,
            (machine.device.type, processes, time.time() + seconds, LEAST_SHARE * seconds, folder),
            nprocs=processes,
            join=False,
        )
        ended_badly = (torch_processes.ProcessRaisedException, torch_processes.ProcessExitedException)
        try:
            _wait(started, budget, seconds + GRACE)
            return _collected(Path(folder))
        except (*ended_badly, OSError) as error:  # TimeoutError is one of these
            lines = [line for line in str(error).strip().splitlines() if line.strip()]
            said = lines[-1][:200] if lines else type(error).__name__
            return [
                left_out(machine, processes, Text(N_("the processes did not come to an end: {reason}"), reason=said))
            ]
        finally:
            for process in started.processes:
                if process.is_alive():
                    process.terminate()


def left_out(machine: Machine, processes: int, reason: Text) -> Skipped:
    """No collective at all, and why."""
    kernel = "nccl" if machine.device.type == "cuda" else "gloo"
    return Skipped(kind="collectives", phase="", kernel=kernel, shape={"ranks": processes}, dtype="fp32", reason=reason)


def _wait(started: Any, budget: Budget, most: float) -> None:
    """Until all processes are over; a process that failed raises here."""
    end = time.monotonic() + most
    while not started.join(timeout=0.5):
        budget.tell(Text(N_("collectives between {processes} processes"), processes=len(started.processes)))
        if time.monotonic() > end:
            raise TimeoutError


def _collected(folder: Path) -> Found:
    text = (folder / "found.json").read_text("utf-8")
    samples, skipped = json.loads(text)
    return [*from_json(tuple[Sample, ...], samples), *from_json(tuple[Skipped, ...], skipped)]


def _one_process(rank: int, device: str, processes: int, until: float, least: float, folder: str) -> None:
    """What each started process does, `until` then or for `least` seconds; the first leaves what it found in a file."""
    import torch

    warnings.simplefilter("ignore")  # as in the process that started this one
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // processes))
    machine = choose(torch, f"{device}:{rank}" if device == "cuda" else device)
    with _group(machine, f"file://{folder}/meeting", rank, processes, GRACE):
        seconds = max(until - time.time(), least)
        found = _measure(machine, Budget(seconds), processes)
    if rank == 0:
        parts = [tuple(x for x in found if isinstance(x, kind)) for kind in (Sample, Skipped)]
        (Path(folder) / "found.json").write_text(dumps(to_json(parts)), "utf-8")


@contextmanager
def _group(machine: Machine, meeting: str, rank: int, ranks: int, seconds: float) -> Iterator[None]:
    on_gpu = machine.device.type == "cuda"
    machine.torch.distributed.init_process_group(
        "nccl" if on_gpu else "gloo", init_method=meeting, rank=rank, world_size=ranks,
        timeout=timedelta(seconds=seconds + GRACE), device_id=machine.device if on_gpu else None,
    )  # fmt: skip
    try:
        yield
    finally:
        machine.torch.distributed.destroy_process_group()


# ---------------------------------------------------------------------------------------------- measuring


@dataclass(frozen=True, slots=True)
class _Ring:
    """The group and what its members agree on."""

    machine: Machine
    ranks: int
    local: int

    @property
    def distributed(self) -> Any:
        return self.machine.torch.distributed

    def highest(self, values: Sequence[float]) -> list[float]:
        """For each value the highest of all ranks."""
        found = self.machine.torch.tensor(values, dtype=self.machine.torch.float64).to(self.machine.device)
        self.distributed.all_reduce(found, op=self.distributed.ReduceOp.MAX)
        return [float(value) for value in found.tolist()]


def _measure(machine: Machine, budget: Budget, local: int) -> Found:
    distributed = machine.torch.distributed
    ring = _Ring(machine, distributed.get_world_size(), local)
    found: Found = []
    sizes = [(operation, payload) for payload in PAYLOADS for operation in _CALLS]
    rates: dict[str, float] = {}  # bytes of payload per second, the best so far
    for i, (operation, payload) in enumerate(sizes):
        share = ring.highest([budget.left])[0] / (len(sizes) - i)
        one = _one(ring, operation, payload, share, payload / rates[operation] / HOPE if operation in rates else 0.0)
        if isinstance(one, Sample):
            rates[operation] = max(rates.get(operation, 0.0), payload / one.seconds)
        found.append(one)
    return found if distributed.get_rank() == 0 else []


def _one(ring: _Ring, operation: str, payload: int, share: float, expected: float) -> Sample | Skipped:
    """One collective of one size. A refusal is agreed on too: where one rank cannot, none goes on."""
    machine = ring.machine
    ranks = 2 if operation == "p2p" else ring.ranks
    elements = max(payload // ELEMENT // ring.ranks, 1) * ring.ranks
    shape = {"ranks": ranks, "local": min(ring.local, ranks), "payload": elements * ELEMENT}
    names: dict[str, Any] = {
        "kind": operation, "phase": "", "kernel": ring.distributed.get_backend(), "shape": shape, "dtype": "fp32"
    }  # fmt: skip
    cramped = ring.highest([2.0 * payload - SHARE_OF_FREE * machine.free_bytes()])[0] > 0
    if cramped:
        return Skipped(**names, reason=Text(N_("the device ran out of memory")))
    allowed = 2 * share if payload > PAYLOADS[0] else math.inf  # the smallest is always measured
    if expected * (LEAST + 2) > allowed or allowed <= 0:
        return Skipped(**names, reason=Text(N_("no time was left for it")))
    refusal, seconds = "", 0.0
    try:
        call = _CALLS[operation](ring, elements)
        call()
        seconds = _timed(machine, call, 1)
    except (RuntimeError, NotImplementedError, ValueError) as error:
        refusal = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
    refused, guess = ring.highest([float(bool(refusal)), seconds])
    if refused:
        return Skipped(**names, reason=Text(N_("this device or this torch cannot do it: {reason}"), reason=refusal))
    guess = max(guess, 1e-7)
    if guess * LEAST > allowed:
        return Skipped(**names, reason=Text(N_("no time was left for it")))
    batch = max(1, min(math.ceil(LEAST_BATCH_SECONDS / guess), MOST_BATCH))
    repeats = max(LEAST, min(int(share / (guess * batch)), MOST))
    times = ring.highest([_after_all(ring, call, batch) for _ in range(repeats)])
    return Sample(
        **names, seconds=statistics.median(times), seconds_min=min(times), n=repeats, calls=batch,
        work=shape["payload"] * float(bus_factor(operation, ranks)), unit="B",
    )  # fmt: skip


def _after_all(ring: _Ring, call: Callable[[], object], batch: int) -> float:
    """Seconds per call, started when all ranks are there."""
    ring.distributed.barrier()
    return _timed(ring.machine, call, batch)


def _timed(machine: Machine, call: Callable[[], object], batch: int) -> float:
    machine.synchronize()
    start = time.perf_counter()
    for _ in range(batch):
        call()
    machine.synchronize()
    return (time.perf_counter() - start) / batch


# ---------------------------------------------------------------------------------------------- the calls


def _buffer(ring: _Ring, elements: int) -> Any:
    """Zeros, which stay zero however often they are summed."""
    return ring.machine.torch.zeros(elements, device=ring.machine.device, dtype=ring.machine.torch.float32)


def _all_reduce(ring: _Ring, elements: int) -> Callable[[], object]:
    whole = _buffer(ring, elements)
    return lambda: ring.distributed.all_reduce(whole)


def _all_gather(ring: _Ring, elements: int) -> Callable[[], object]:
    whole, part = _buffer(ring, elements), _buffer(ring, elements // ring.ranks)
    gather = _named(ring, "all_gather_single", "all_gather_into_tensor")
    return lambda: gather(whole, part)


def _reduce_scatter(ring: _Ring, elements: int) -> Callable[[], object]:
    whole, part = _buffer(ring, elements), _buffer(ring, elements // ring.ranks)
    scatter = _named(ring, "reduce_scatter_single", "reduce_scatter_tensor")
    return lambda: scatter(part, whole)


def _named(ring: _Ring, *names: str) -> Any:
    """A function of torch.distributed by the first of its names that this torch knows: newer ones first."""
    return next(getattr(ring.distributed, name) for name in names if hasattr(ring.distributed, name))


def _p2p(ring: _Ring, elements: int) -> Callable[[], object]:
    """The first rank sends to the second, the others look on."""
    message, me = _buffer(ring, elements), ring.distributed.get_rank()
    if me == 0:
        return lambda: ring.distributed.send(message, 1)
    return (lambda: ring.distributed.recv(message, 0)) if me == 1 else (lambda: None)


_CALLS: dict[str, Callable[[_Ring, int], Callable[[], object]]] = {
    "all_reduce": _all_reduce, "all_gather": _all_gather, "reduce_scatter": _reduce_scatter, "p2p": _p2p,
}  # fmt: skip
