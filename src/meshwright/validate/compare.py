"""One measured run against its prediction: throughput with its interval, and peak memory as the source counts it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from meshwright.engine.evaluate import estimate_legal
from meshwright.engine.memory import stated_error
from meshwright.errors import MeshwrightError
from meshwright.messages import N_, Text
from meshwright.spec.estimate import Estimate
from meshwright.spec.plan import Problem
from meshwright.validate.express import Expressed, Skipped, express
from meshwright.validate.rows import MeasuredRun

Progress = Callable[[float, Any], None]
Counted = Literal["allocated", "reserved", "process"]
GB, GIB = 1e9, 2.0**30


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryReading:
    """A measured peak: how many bytes, and of what (tensors, the allocator's hold, or the whole process)."""

    bytes: float
    counted: Counted
    last_rank: bool = False  # of the last pipeline stage, not of the one with the largest peak


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One row: the prediction beside what was measured, or why there is none. Rates are tokens/s per device."""

    run: MeasuredRun
    problem: Problem | None = None
    estimate: Estimate | None = None
    predicted: float | None = None
    measured: float | None = None
    interval: tuple[float, float] | None = None
    predicted_peak: float | None = None
    measured_peak: float | None = None
    counted: Counted = "process"
    assumed_recompute: str = ""  # the choice taken where the row does not state it
    skipped: Text | None = None

    @property
    def accelerator(self) -> str:
        """The catalogue's id of the accelerator, whatever the row calls it."""
        return self.run.accelerator if self.problem is None else self.problem.cluster.accelerator.id

    @property
    def error(self) -> float | None:
        """Predicted over measured tokens/s, minus one."""
        return None if self.predicted is None or self.measured is None else self.predicted / self.measured - 1

    @property
    def memory_error(self) -> float | None:
        """Predicted over measured peak, minus one."""
        if self.predicted_peak is None or self.measured_peak is None:
            return None
        return self.predicted_peak / self.measured_peak - 1

    @property
    def inside(self) -> bool | None:
        """Whether what was measured lies in the interval."""
        if self.interval is None or self.measured is None:
            return None
        return self.interval[0] <= self.measured <= self.interval[1]


def compare(runs: Sequence[MeasuredRun], *, progress: Progress | None = None) -> tuple[Compared, ...]:
    """Every run against its prediction, in order."""
    out = []
    for i, run in enumerate(runs):
        out.append(compare_run(run))
        if progress is not None:
            progress((i + 1) / len(runs), run.id)
    return tuple(out)


def compare_run(run: MeasuredRun) -> Compared:
    """Predict one run; what cannot be predicted says why."""
    try:
        return _compared(run)
    except Skipped as reason:
        return Compared(run=run, skipped=reason.text)
    except MeshwrightError as error:
        return Compared(run=run, skipped=error.text)
    except (ArithmeticError, ValueError, LookupError, TypeError) as error:
        # The engine takes legal strategies; a row may hold one that never ran, and must not stop a thousand others.
        text = Text(N_("the engine cannot evaluate it ({error})"), error=type(error).__name__)
        return Compared(run=run, skipped=text)


def _compared(run: MeasuredRun) -> Compared:
    measured, reading = run.measured_tokens_per_second, memory_reading(run)
    if measured is None and reading is None:
        raise Skipped(Text(N_("neither throughput nor memory was measured")))
    expressed = express(run)
    estimates = [estimate_legal(expressed.problem, strategy) for strategy in expressed.strategies]
    possible = [e for e in estimates if _may_fit(e)] or _with_chunked_loss(expressed) or estimates
    chosen = _likeliest(possible, reading)
    intervals = [interval_of(e) for e in possible]
    interval = (min(low for low, _ in intervals), max(high for _, high in intervals))
    counted: Counted = "process" if reading is None else reading.counted
    peak = peak_of(chosen, counted, last_rank=reading is not None and reading.last_rank)
    if not all(math.isfinite(x) and x > 0 for x in (chosen.tokens_per_second_per_device, *interval, peak)):
        raise Skipped(Text(N_("the engine cannot evaluate it ({error})"), error="not finite"))
    return Compared(
        run=run,
        problem=expressed.problem,
        estimate=chosen,
        predicted=chosen.tokens_per_second_per_device,
        measured=measured,
        interval=interval,
        predicted_peak=peak,
        measured_peak=None if reading is None else reading.bytes,
        counted=counted,
        assumed_recompute=chosen.strategy.recompute if len(estimates) > 1 else "",
    )


def _with_chunked_loss(expressed: Expressed) -> list[Estimate]:
    """The settings that fit once the loss is computed by chunks: the run trained, and may have done so unsaid."""
    unsaid = [replace(strategy, loss="chunked") for strategy in expressed.strategies if strategy.loss == "auto"]
    return [e for e in (estimate_legal(expressed.problem, strategy) for strategy in unsaid) if _may_fit(e)]


def _may_fit(estimate: Estimate) -> bool:
    """Whether the run could have had this setting: it fits, or its excess is within the error of the memory model."""
    error = stated_error(estimate.strategy)
    return estimate.peak_bytes * (1 - error) <= estimate.capacity_bytes


def _likeliest(estimates: Sequence[Estimate], reading: MemoryReading | None) -> Estimate:
    """The setting whose memory is nearest the measured peak; none measured: the quickest of what may fit."""
    if reading is None:
        return min(estimates, key=lambda e: e.step_seconds)
    return min(
        estimates, key=lambda e: abs(math.log(peak_of(e, reading.counted, last_rank=reading.last_rank) / reading.bytes))
    )


def interval_of(estimate: Estimate) -> tuple[float, float]:
    """90 % band of tokens/s per device, from the band of the step time."""
    low, high = estimate.step_interval
    work = estimate.tokens_per_second_per_device * estimate.step_seconds
    return work / high, work / low


# ---------------------------------------------------------------------------------------------- memory


def peak_of(estimate: Estimate, counted: Counted, *, last_rank: bool = False) -> float:
    """The predicted peak, counted as the measurement was; of the last pipeline stage, or of the one that needs most."""
    device = max(estimate.stages, key=lambda stage: stage.stage).device if last_rank else estimate.memory
    outside = {child.name: float(child.value) for child in device.children}
    reserve, context = outside.get("reserve", 0.0), outside.get("context", 0.0)
    peak = float(device.value)
    if counted == "allocated":
        return peak - reserve - context
    return peak - context if counted == "reserved" else peak


# What a framework's own log prints where the source does not say.
_PRINTS: dict[str, Counted] = {
    "torchtitan": "reserved", "fsdp": "reserved", "deepspeed": "reserved", "nanotron": "reserved",
    "megatron-deepspeed": "process", "megatron": "allocated",
}  # fmt: skip
_EXACT = re.compile(r"max-allocated-bytes (\d{6,18}(?:\.\d+)?)")
_IN_GIB = re.compile(r"(\d+(?:\.\d+)?) GiB")


def memory_reading(run: MeasuredRun) -> MemoryReading | None:
    """The measured peak in bytes, by what the notes say of its unit and of what was counted."""
    if not run.peak_mem_gb or "peak_mem_gb" in dict(run.malformed):
        return None
    if exact := _EXACT.search(run.notes):
        # A scalar of Megatron's TensorBoard log, which the last rank writes (megatron/training/global_vars.py).
        return MemoryReading(bytes=float(exact.group(1)), counted="allocated", last_rank=True)
    return MemoryReading(bytes=run.peak_mem_gb * unit_of(run), counted=counted_of(run))


def unit_of(run: MeasuredRun) -> float:
    """Bytes of one unit of the peak as printed.

    Notes that repeat the peak in GiB settle it. GPU tools and torch count in powers of two, also where they print
    "GB"; Megatron's logs give decimal units, and so does a note that says GB and not GiB.
    """
    stated = [float(value) for value in _IN_GIB.findall(run.notes)]
    if any(abs(value * GIB / GB / run.peak_mem_gb - 1) < 2e-3 for value in stated if run.peak_mem_gb):
        return GB
    if "GiB" in run.notes or "MiB" in run.notes:
        return GIB
    return GB if run.framework.lower() == "megatron" else GIB


def counted_of(run: MeasuredRun) -> Counted:
    """What the peak counts: the first word for it in the notes, else what the framework's log prints."""
    words = (("allocated", "alloc"), ("reserved", "reserved"), ("process", "nvidia-smi"))
    places = [(run.notes.lower().find(word), kind) for kind, word in words]
    found = sorted((place, kind) for place, kind in places if place >= 0)
    if found:
        return found[0][1]  # type: ignore[return-value]
    return _PRINTS.get(run.framework.lower(), "allocated")


# ---------------------------------------------------------------------------------------------- selection


def of_compared(rows: Iterable[Compared], tiers: Sequence[str]) -> tuple[Compared, ...]:
    """Compared runs of the tiers named; all where none is."""
    wanted = {tier.strip().upper() for tier in tiers}
    return tuple(c for c in rows if not wanted or c.run.tier in wanted)


def of_tiers(runs: Iterable[MeasuredRun], tiers: Sequence[str]) -> tuple[MeasuredRun, ...]:
    """Runs of the tiers named; of all where none is."""
    return tuple(run for run in runs if not tiers or run.tier in tiers)
