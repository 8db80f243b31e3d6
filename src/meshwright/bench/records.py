"""What was measured on one machine, as frozen records and as the JSON file that `calibrate` reads. Needs no torch.

A document is `{"schema": "meshwright.bench-device/1", …fields of Measurements…}`; each sample also carries its
`rate`, which follows from its fields and is passed over when the file is read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from meshwright.errors import InputError
from meshwright.messages import N_, Text
from meshwright.serialize import document, read_json, read_record, to_json

SCHEMA = "bench-device"
WRITE_IT = N_("write it with `meshwright bench device --save measured.json`")

PARTS = ("gemm", "grouped_gemm", "attention", "memory", "step", "collectives")


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """The device that was measured."""

    name: str  # as its driver calls it
    backend: str  # cuda, rocm, xpu, mps, cpu
    count: int  # of the same kind, visible here
    memory_bytes: float  # as its driver reports it
    free_bytes: float  # before the first measurement
    compute_units: int | None = None  # SMs, CUs, threads
    cache_bytes: float | None = None  # last level of cache
    capability: str = ""  # compute capability, or instruction set of a CPU
    accelerator: str | None = None  # catalogue id, where it is known


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Clocks, power and temperature at one moment, where the driver tells."""

    moment: str  # start, warm, end
    clock_hz: float | None = None
    clock_limit_hz: float | None = None
    watts: float | None = None
    watts_limit: float | None = None
    celsius: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One kernel or collective of one shape: median and least seconds of a call over `n` timed repeats.

    `work` is what a rate is made of: FLOP of a product or of attention (causal: half the square), bytes that a
    memory-bound kernel reads and writes at least, or bytes a rank puts on the wire in a ring (bus bandwidth).
    Shapes by kind: gemm m n k; grouped_gemm groups m n k (m rows per group); attention batch seq heads kv_heads
    qk_dim v_dim; memory-bound rows width, or elements; copies bytes; collectives ranks local payload (bytes).
    """

    kind: str
    phase: str  # forward, backward, data_gradient, weight_gradient; empty where there is only one
    kernel: str  # the function that was called
    shape: Mapping[str, int]
    dtype: str
    seconds: float
    seconds_min: float
    n: int  # timed repeats
    calls: int  # calls in one repeat, over rotating buffers
    work: float  # of one call
    unit: Literal["FLOP", "B"]

    @property
    def rate(self) -> float:
        """FLOP/s or B/s at the median."""
        return self.work / self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingStep:
    """One training step of a small decoder: forward, backward, optimizer. Memory is above what stood before it."""

    shape: Mapping[str, int]  # hidden heads kv_heads head_dim ffn layers vocab seq micro_batch
    precision: str  # bf16: parameters, gradients and optimizer states in fp32, a bf16 copy of the parameters computes
    optimizer: str
    parameters: int
    seconds: float
    seconds_min: float
    n: int
    forward_seconds: float
    backward_seconds: float
    optimizer_seconds: float
    work: float  # model FLOP of one step
    peak_bytes: float | None  # highest during the step
    peak_basis: Literal["allocated", "resident", ""]  # by torch's allocator, or by the operating system
    state_bytes: float  # parameters and optimizer states, counted tensor by tensor
    saved_bytes: float  # what the forward pass keeps for the backward pass beside parameters, counted likewise

    @property
    def rate(self) -> float:
        """Model FLOP/s at the median."""
        return self.work / self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """Something that was not measured, and why."""

    kind: str
    phase: str
    kernel: str
    shape: Mapping[str, int]
    dtype: str
    reason: Text


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """Everything that was measured on one machine in one go."""

    created: str  # UTC, ISO 8601
    budget_seconds: float
    took_seconds: float
    device: Device
    software: Mapping[str, str]  # python, torch, cuda, cudnn, nccl, driver, system
    readings: tuple[Reading, ...] = ()
    samples: tuple[Sample, ...] = ()
    steps: tuple[TrainingStep, ...] = ()
    skipped: tuple[Skipped, ...] = ()

    def of(self, *kinds: str) -> tuple[Sample, ...]:
        """The samples of some kinds."""
        return tuple(sample for sample in self.samples if sample.kind in kinds)


# ---------------------------------------------------------------------------------------------- writing


def as_document(found: Measurements, predicted: Iterable[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """The JSON document; `predicted` has what the model says of each sample and then of each step, in their order."""
    written = document(SCHEMA, found)
    lines = [*written["samples"], *written["steps"]]
    records: list[Sample | TrainingStep] = [*found.samples, *found.steps]
    for line, record in zip(lines, records, strict=True):
        line["rate"] = record.rate
    for line, values in zip(lines, predicted, strict=False):
        line.update(to_json(values))
    return written


# ---------------------------------------------------------------------------------------------- reading


def load(path: str | Path) -> Measurements:
    """A measurement file (`-` reads standard input)."""
    name = str(path)
    data = read_json(name, hint="meshwright bench device --json | meshwright calibrate -", fix=Text(WRITE_IT))
    return read(data, where=name)


def read(data: Any, *, where: str = "") -> Measurements:
    """A measurement document as records, checked."""
    found = read_record(Measurements, data, kind=SCHEMA, where=where, fix=Text(WRITE_IT))
    for place, reason in _impossible(found):
        raise InputError(
            Text(N_("the measurements cannot be true at {path}: {reason}"), path=place, reason=reason),
            where=where,
            fix=Text(WRITE_IT),
        )
    return found


def _impossible(found: Measurements) -> Iterable[tuple[str, Text]]:
    """What annotations cannot say: times are positive and in order, counts are at least one."""
    for i, sample in enumerate(found.samples):
        yield from _impossible_times(f"samples[{i}]", sample)
    for i, step in enumerate(found.steps):
        yield from _impossible_times(f"steps[{i}]", step)
    if found.device.memory_bytes <= 0 or found.device.count < 1:
        yield "device", Text(N_("times, sizes and work are above zero"))


def _impossible_times(path: str, record: Sample | TrainingStep) -> Iterable[tuple[str, Text]]:
    numbers = (record.seconds, record.seconds_min, record.work, *record.shape.values())
    if not all(math.isfinite(number) and number > 0 for number in numbers):
        yield path, Text(N_("times, sizes and work are above zero"))
    elif record.seconds_min > record.seconds:
        yield path, Text(N_("the least time is above the median"))
    elif record.n < 1:
        yield path, Text(N_("nothing was repeated"))
