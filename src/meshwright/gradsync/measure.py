"""Time the real collectives and hooks here: blocks of calls, interleaved, the slowest rank's time counts.

As nccl-tests does: a block of calls one after the other, time per call, algorithm and bus bandwidth. The rivals take
turns, so that a disturbance of the machine hits all alike, and the median of the rounds is given beside the least.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch import nn

from meshwright.formulas.collectives import bus_bandwidth, bus_factor
from meshwright.gradsync.allreduce import ALGORITHMS, CHOICES, all_reduce, auto
from meshwright.gradsync.compose import compose
from meshwright.gradsync.hooks import HOOKS
from meshwright.gradsync.peers import Peers
from meshwright.gradsync.registration import PlainBucket

BLOCK_SECONDS = 0.1
MOST_CALLS = 40
TORCH_HOOKS = ("torch:allreduce", "torch:fp16", "torch:bf16", "torch:powersgd")
HOOK_CHOICES = (*(n for n in HOOKS if n != "hierarchical"), "bf16+powersgd", *TORCH_HOOKS)


@dataclass(frozen=True, slots=True)
class Timing:
    """One algorithm (or hook) at one size: seconds per call, the slowest rank's, median and least of the rounds."""

    name: str
    payload: int
    ranks: int
    seconds: float
    least: float
    algorithm_bandwidth: float
    bus_bandwidth: float
    modelled: float | None = None
    sent: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Bench:
    """Timings between `ranks` processes over a backend."""

    ranks: int
    backend: str
    timings: tuple[Timing, ...]

    @property
    def lines(self) -> list[dict[str, Any]]:
        """One object per timing."""
        return [timing.as_dict() for timing in self.timings]

    @property
    def document(self) -> dict[str, Any]:
        """For JSON: bytes, seconds, bytes per second."""
        return {"ranks": self.ranks, "backend": self.backend, "timings": self.lines}


def bench_all_reduce(
    ranks: int, payloads: Sequence[int], names: Sequence[str], *, rounds: int, local: int | None, calibrated: bool
) -> Bench | None:
    """Time all-reduces in `ranks` processes here; None on the other ranks of a launcher."""
    chosen = list(names or CHOICES)
    found = in_processes(ranks, all_reduce_timings, list(payloads), chosen, rounds, local, calibrated)
    return None if found is None else Bench(found[0].ranks, "gloo", tuple(found))


def bench_hooks(ranks: int, payload: int, names: Sequence[str], *, rounds: int) -> Bench | None:
    """Time hooks in `ranks` processes here; None on the other ranks of a launcher."""
    found = in_processes(ranks, hook_timings, payload, list(names or HOOK_CHOICES), rounds)
    return None if found is None else Bench(found[0].ranks, "gloo", tuple(found))


def all_reduce_timings(
    payloads: Sequence[int], names: Sequence[str], rounds: int, local: int | None, calibrated: bool
) -> list[Timing]:
    """Every algorithm at every payload, in this process as one of the group."""
    ranks, cpu = dist.get_world_size(), torch.device("cpu")
    cost = auto.calibrate(local=local) if calibrated else auto.cost_of(Peers(local=local), cpu)
    found = []
    for payload in payloads:
        tensor = torch.zeros(max(payload // 4, 1))
        actions = {name: _reducing(tensor, name, local) for name in names}
        modelled = auto.predicted(cost, payload, ranks, Peers(local=local).local)
        modelled["auto"] = min(seconds for name, seconds in modelled.items() if name in ALGORITHMS)
        for name, (middle, least) in _interleaved(actions, rounds).items():
            found.append(_timing(name, payload, ranks, middle, least, modelled.get(name)))
    return found


def hook_timings(payload: int, names: Sequence[str], rounds: int) -> list[Timing]:
    """Every hook on one bucket of `payload` bytes, as one matrix with 1024 columns and a bias."""
    ranks = dist.get_world_size()
    columns = 1024
    rows = max(payload // 4 // columns, 1)
    parameters = [nn.Parameter(torch.zeros(rows, columns)), nn.Parameter(torch.zeros(columns))]
    gradient = torch.randn(rows * columns + columns, generator=torch.Generator().manual_seed(dist.get_rank()))
    actions, counts = {}, {}
    for name in names:
        action, state = _hooking(name, gradient, parameters)
        action()
        action()
        actions[name], counts[name] = action, state
    found = []
    for name, (middle, least) in _interleaved(actions, rounds).items():
        stats = counts[name].wire_stats() if hasattr(counts[name], "wire_stats") else None
        sent = stats["bytes_sent"] / stats["calls"] if stats and stats["calls"] else None
        found.append(_timing(name, gradient.numel() * 4, ranks, middle, least, None, sent))
    return found


def _hooking(name: str, gradient: torch.Tensor, parameters: list[Any]) -> tuple[Callable[[], Any], Any]:
    if name.startswith("torch:"):
        return _torch_hook(name.removeprefix("torch:"), gradient, parameters)
    outer, _, inner = name.rpartition("+")
    hook, state_type = HOOKS[inner]
    options: dict[str, Any] = {"start_iter": 0} if inner == "powersgd" else {}
    state = state_type(parameters=list(zip(("weight", "bias"), parameters, strict=True)), **options)
    if outer:
        hook = compose({"bf16": torch.bfloat16, "fp16": torch.float16}[outer], hook)
    buffer = gradient.clone()

    def action() -> None:
        buffer.copy_(gradient)
        hook(state, PlainBucket(buffer, parameters, True)).wait()

    return action, state


class TorchBucket(PlainBucket):
    """With what torch's hooks ask besides."""

    def index(self) -> int:
        """Number of the bucket."""
        return 0

    def gradients(self) -> list[torch.Tensor]:
        """Views of each parameter's gradient."""
        pieces = self.buffer().split([p.numel() for p in self.parameters()])
        return [piece.view(p.shape) for piece, p in zip(pieces, self.parameters(), strict=True)]


def _torch_hook(name: str, gradient: torch.Tensor, parameters: list[Any]) -> tuple[Callable[[], Any], Any]:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    state: Any = None
    hook: Any = {"allreduce": default_hooks.allreduce_hook, "bf16": default_hooks.bf16_compress_hook,
                 "fp16": default_hooks.fp16_compress_hook}.get(name)  # fmt: skip
    if name == "powersgd":
        hook = powerSGD_hook.powerSGD_hook
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=4, start_powerSGD_iter=2)
        state.iter = 2
    buffer = gradient.clone()

    def action() -> None:
        buffer.copy_(gradient)
        hook(state, TorchBucket(buffer, parameters, True)).wait()

    return action, state


def _reducing(tensor: torch.Tensor, name: str, local: int | None) -> Callable[[], Any]:
    if name == "backend":
        return lambda: dist.all_reduce(tensor)
    return lambda: all_reduce(tensor, algorithm=name, local=local)


def _timing(name: str, payload: int, ranks: int, middle: float, least: float, modelled: float | None,
            sent: float | None = None) -> Timing:  # fmt: skip
    bus = float(bus_bandwidth(float(payload), middle, bus_factor("all_reduce", ranks)))
    return Timing(name, payload, ranks, middle, least, payload / middle, bus, modelled, sent)


def _interleaved(actions: dict[str, Callable[[], Any]], rounds: int) -> dict[str, tuple[float, float]]:
    """Median and least over the rounds of the seconds per call, each round the slowest rank's."""
    counts = {name: _calls(action) for name, action in actions.items()}
    times: dict[str, list[float]] = {name: [] for name in actions}
    for number in range(rounds):
        order = list(actions)
        order = order[number % len(order) :] + order[: number % len(order)]
        for name in order:
            times[name].append(_slowest(_block(actions[name], counts[name])))
    return {name: (statistics.median(seconds), min(seconds)) for name, seconds in times.items()}


def _calls(action: Callable[[], Any]) -> int:
    action()
    once = _slowest(_block(action, 2))
    return max(1, min(MOST_CALLS, round(BLOCK_SECONDS / max(once, 1e-6))))


def _block(action: Callable[[], Any], calls: int) -> float:
    action()
    dist.barrier()
    began = time.perf_counter()
    for _ in range(calls):
        action()
    return (time.perf_counter() - began) / calls


def _slowest(seconds: float) -> float:
    value = torch.tensor([seconds], dtype=torch.float64)
    dist.all_reduce(value, op=dist.ReduceOp.MAX)
    return float(value.item())


# --- processes -------------------------------------------------------------------------------------------------


def in_processes(ranks: int, function: Callable[..., Any], *arguments: Any) -> Any:
    """`function(*arguments)` in `ranks` gloo processes of this machine; what rank 0 returned.

    Under torchrun this process already is one of them: the group is joined, and other ranks than 0 get None.
    """
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        if not dist.is_initialized():
            dist.init_process_group("gloo")
        result = function(*arguments)
        return result if dist.get_rank() == 0 else None
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(_serve, (ranks, folder, function, arguments), nprocs=ranks)
        return torch.load(Path(folder) / "result", weights_only=False)


def _serve(rank: int, ranks: int, folder: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // ranks))
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    result = function(*arguments)
    if rank == 0:
        torch.save(result, Path(folder) / "result")
    dist.barrier()
    dist.destroy_process_group()
