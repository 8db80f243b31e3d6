"""`bench device`: kernels, copies, collectives and one training step of the device here, within a budget of seconds."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshwright.bench import attention, collectives, gemm, memory_bound, step, sweep
from meshwright.bench.machine import Machine, choose, describe, reading, software, torch_or_error
from meshwright.bench.predict import Prediction, predictions
from meshwright.bench.records import PARTS, Measurements, Sample, Skipped, TrainingStep, as_document, load
from meshwright.bench.sweep import Budget, Pace, Progress
from meshwright.messages import N_, Text

SETTLING = 0.04  # of the budget: clocks under load
LONG_RUN = 0.15  # of the time of products: one of them without a pause
# How the rest of the budget is shared; what a part leaves over goes to those behind it.
SHARES: Mapping[str, float] = {
    "gemm": 0.40, "grouped_gemm": 0.10, "attention": 0.16, "memory": 0.12, "step": 0.12, "collectives": 0.10,
}  # fmt: skip
Found = Sample | TrainingStep | Skipped


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceBench:
    """What was measured, and what the model says of each sample and step (in their order)."""

    measured: Measurements
    predicted: tuple[Prediction, ...]

    @property
    def document(self) -> dict[str, Any]:
        """The measurement file, with what was predicted beside each sample."""
        beside = []
        for record, said in zip((*self.measured.samples, *self.measured.steps), self.predicted, strict=True):
            values: dict[str, Any] = {"predicted_seconds": said.predicted_seconds}
            if isinstance(record, TrainingStep):
                values["predicted_peak_bytes"] = said.predicted_peak_bytes
            beside.append(values)
        return as_document(self.measured, beside)


def read(path: str | Path) -> DeviceBench:
    """A measurement file beside what the model says today; needs no torch."""
    return compared(load(path))


def compared(measured: Measurements) -> DeviceBench:
    """Measurements beside what the model says today."""
    return DeviceBench(measured=measured, predicted=predictions(measured))


def measure(
    *,
    seconds: float,
    device: str | None = None,
    accelerator: str | None = None,
    processes: int = 1,
    parts: Sequence[str] = PARTS,
    progress: Progress | None = None,
) -> DeviceBench | None:
    """Measure the device here. Under a launcher every rank takes part in the collectives; None on all but the first."""
    torch = torch_or_error("bench device")
    torch.optim.AdamW([torch.zeros(1, requires_grad=True)])  # loads a compiler that nothing here uses, for seconds
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what torch thinks of the names of its own functions
        return _measure(torch, Budget(seconds, progress), device, accelerator, processes, parts)


def _measure(
    torch: Any, budget: Budget, device: str | None, accelerator: str | None, processes: int, parts: Sequence[str]
) -> DeviceBench | None:
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    if device is None and collectives.launched() and torch.cuda.is_available():
        device = f"cuda:{collectives.local_rank()}"
    machine = choose(torch, device)
    around: list[Found] = []
    if collectives.launched() and "collectives" in parts:
        around = list(collectives.in_launched_group(machine, budget.seconds * SHARES["collectives"]))
        parts = [part for part in parts if part != "collectives"]
    if collectives.rank() > 0:
        return None
    described = describe(machine, accelerator)
    readings = [reading(machine, "start")]
    found = list(_run(machine, budget, parts, processes, lambda: readings.append(reading(machine, "warm"))))
    readings.append(reading(machine, "end"))
    found = [*around, *found]
    return compared(
        Measurements(
            created=created, budget_seconds=budget.seconds, took_seconds=budget.spent, device=described,
            software=software(machine), readings=tuple(readings),
            samples=tuple(x for x in found if isinstance(x, Sample)),
            steps=tuple(x for x in found if isinstance(x, TrainingStep)),
            skipped=tuple(x for x in found if isinstance(x, Skipped)),
        )
    )  # fmt: skip


def _run(
    machine: Machine, budget: Budget, parts: Sequence[str], processes: int, warm: Callable[[], None]
) -> Iterator[Found]:
    """The parts in their order, each with its share of what is left."""
    pace = Pace()
    budget.tell(Text(N_("waiting until the clocks are steady")))
    gemm.settle(machine, SETTLING * budget.seconds, pace)
    warm()
    waiting = [part for part in PARTS if part in parts]
    while waiting:
        share = budget.left * SHARES[waiting[0]] / sum(SHARES[part] for part in waiting)
        yield from _PARTS[waiting.pop(0)](machine, budget, share, pace, processes)


def _products(machine: Machine, budget: Budget, seconds: float, pace: Pace, _: int) -> Iterator[Found]:
    yield from sweep.run(gemm.products(machine), machine, budget, (1 - LONG_RUN) * seconds, pace)
    budget.tell(Text(N_("one product without a pause")))
    yield from gemm.sustained(machine, LONG_RUN * seconds, pace)


def _swept(cases: Callable[[Machine], Sequence[sweep.Case]]) -> Callable[..., Iterable[Found]]:
    def part(machine: Machine, budget: Budget, seconds: float, pace: Pace, _: int) -> Iterable[Found]:
        return sweep.run(cases(machine), machine, budget, seconds, pace)

    return part


def _collectives(machine: Machine, budget: Budget, seconds: float, pace: Pace, processes: int) -> Iterable[Found]:
    if processes == 1:
        return [collectives.left_out(machine, 1, Text(N_("one process only: --processes N or torchrun starts more")))]
    return collectives.between_processes(machine, processes, budget, seconds)


def _step(machine: Machine, budget: Budget, seconds: float, pace: Pace, _: int) -> Iterable[Found]:
    return step.run(machine, budget, seconds, pace)


_PARTS: Mapping[str, Callable[..., Iterable[Found]]] = {
    "gemm": _products, "grouped_gemm": _swept(gemm.grouped), "attention": _swept(attention.cases),
    "memory": _swept(memory_bound.cases), "step": _step, "collectives": _collectives,
}  # fmt: skip
