"""Run a list of cases within a budget: each is sized against free memory, warmed up, repeated, and told by its median.

A case that would not fit in memory or in time, or that this device cannot do, is left out with its reason.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from meshwright.bench.machine import Machine
from meshwright.bench.records import Sample, Skipped
from meshwright.messages import N_, Text

Progress = Callable[[float, Any], None]
Call = Callable[[], object]

SHARE_OF_FREE = 0.4  # of the free memory, at most, for all buffers of one case
MOST_SETS = 16  # of rotating buffers
LEAST_REPEATS, MOST_REPEATS = 3, 40
HOPE = 3.0  # a larger case may reach a better rate, up to this many times the best so far
PATIENCE = 0.08  # of the time left, that one case may take where its even share is less
LEAST_BATCH_SECONDS = 100e-6  # a repeat is at least this long: events resolve half a microsecond
MOST_BATCH = 256
SHORT = 1e-3  # seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One thing to measure. `make` takes one set of buffers and returns the call over it; `size` is their bytes."""

    kind: str
    phase: str
    kernel: str
    shape: Mapping[str, int]
    dtype: str
    work: float
    unit: Literal["FLOP", "B"]
    size: float
    make: Callable[[], Call]

    def skipped(self, reason: Text) -> Skipped:
        """The case as one that was left out."""
        return Skipped(
            kind=self.kind, phase=self.phase, kernel=self.kernel, shape=self.shape, dtype=self.dtype, reason=reason
        )


@dataclass(slots=True)
class Budget:
    """Seconds that may be spent, and how far they are."""

    seconds: float
    progress: Progress | None = None
    start: float = field(default_factory=time.monotonic)

    @property
    def spent(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.start

    @property
    def left(self) -> float:
        """Seconds that remain."""
        return max(self.seconds - self.spent, 0.0)

    def tell(self, what: Any) -> None:
        """Say what is being measured."""
        if self.progress is not None:
            self.progress(min(self.spent / self.seconds, 1.0), what)


@dataclass(slots=True)
class Pace:
    """The best rates seen so far, by unit (products also by dtype): how long a case should take before it is tried."""

    rates: dict[tuple[str, str], float] = field(default_factory=dict)
    largest: dict[tuple[str, str], float] = field(default_factory=dict)  # work of the largest case seen

    def seconds(self, case: Case) -> float:
        """What one call should take at least; zero while nothing is known."""
        key = _key(case)
        if key not in self.rates:
            return 0.0
        hope = min(max(case.work / self.largest[key], 1.0), HOPE)
        return case.work / (self.rates[key] * hope)

    def learn(self, case: Case, seconds: float) -> None:
        """Remember a rate."""
        key = _key(case)
        self.rates[key] = max(self.rates.get(key, 0.0), case.work / seconds)
        self.largest[key] = max(self.largest.get(key, 0.0), case.work)


def _key(case: Case) -> tuple[str, str]:
    return (case.unit, case.dtype if case.unit == "FLOP" else "")


def run(
    cases: Sequence[Case], machine: Machine, budget: Budget, seconds: float, pace: Pace
) -> Iterator[Sample | Skipped]:
    """Measure `cases` in `seconds`: what one leaves over goes to those behind it."""
    end = budget.spent + seconds
    for i, case in enumerate(cases):
        budget.tell(Text(N_("{note}"), note=f"{case.kind} {case.phase} {shape_words(case.shape)} {case.dtype}"))
        left = end - budget.spent
        share = left / (len(cases) - i)
        try:
            allowed = min(max(2 * share, PATIENCE * left), left) if i else math.inf  # the first is small
            yield _run_one(case, machine, max(share, 0.0), allowed, pace)
        except machine.out_of_memory:
            yield case.skipped(Text(N_("the device ran out of memory")))
        except (RuntimeError, NotImplementedError, TypeError, ValueError) as error:
            reason = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
            yield case.skipped(Text(N_("this device or this torch cannot do it: {reason}"), reason=reason))
        machine.release()


def _run_one(case: Case, machine: Machine, share: float, allowed: float, pace: Pace) -> Sample | Skipped:
    room = machine.free_bytes() * SHARE_OF_FREE
    if case.size > room:
        return case.skipped(Text(N_("needs {need} bytes of memory, {room} may be used"), need=f"{case.size:,.0f}",
                                 room=f"{room:,.0f}"))  # fmt: skip
    if pace.seconds(case) * (LEAST_REPEATS + 2) > allowed or allowed <= 0:
        return case.skipped(Text(N_("no time was left for it")))
    calls = [case.make()]
    guess = once(calls[0], machine, again=pace.seconds(case) * 10 < allowed)
    if machine.events and guess < SHORT:  # the host's clock sees mostly its own call
        guess = min(machine.elapsed(calls, 4, 2))
    pace.learn(case, guess)
    if guess * LEAST_REPEATS > allowed:
        return case.skipped(Text(N_("no time was left for it")))
    sets = min(math.ceil(3 * machine.cache_bytes / case.size), MOST_SETS, int(room / case.size), int(share / guess / 4))
    sets = max(sets, 1)
    calls += [case.make() for _ in range(sets - 1)]
    batch = 1 if guess >= LEAST_BATCH_SECONDS else min(math.ceil(LEAST_BATCH_SECONDS / guess), MOST_BATCH)
    for call in calls[1:]:  # every buffer is touched before it counts
        call()
    repeats = max(LEAST_REPEATS, min(int(share / (guess * batch)), MOST_REPEATS))
    cold = sets * case.size >= 2 * machine.cache_bytes
    seconds = machine.elapsed(calls, batch, repeats, flush=not cold, most=max(2 * share, 0.1), least=LEAST_REPEATS)
    return sample_of(case, seconds, batch, pace)


def once(call: Call, machine: Machine, *, again: bool) -> float:
    """Seconds of one call by the clock of the host; the first one loads and chooses kernels, so a second may count."""
    seconds = 0.0
    for _ in range(2 if again else 1):
        start = time.perf_counter()
        call()
        machine.synchronize()
        seconds = time.perf_counter() - start
    return max(seconds, 1e-9)


def sample_of(case: Case, seconds: Sequence[float], batch: int, pace: Pace) -> Sample:
    """The repeats as a sample."""
    median = statistics.median(seconds)
    pace.learn(case, median)
    return Sample(
        kind=case.kind, phase=case.phase, kernel=case.kernel, shape=case.shape, dtype=case.dtype, seconds=median,
        seconds_min=min(seconds), n=len(seconds), calls=batch, work=case.work, unit=case.unit,
    )  # fmt: skip


def shape_words(shape: Mapping[str, int]) -> str:
    """A shape in a few characters: `m 4,096 n 8,192 k 512`."""
    return " ".join(f"{name} {size:,}" for name, size in shape.items())


def ascending(cases: Iterable[Case]) -> list[Case]:
    """From little work to much: where time is short, what is left out is what takes longest."""
    return sorted(cases, key=lambda case: case.work)
