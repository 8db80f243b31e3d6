"""What a device reaches: best rates by kind with their share of the data sheet, and where the model is off."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from meshwright.cli.labels import label
from meshwright.cli.language import say, tell
from meshwright.cli.output import Grid, View
from meshwright.cli.render import parts
from meshwright.messages import N_
from meshwright.units import figures, show_bytes, show_percent, show_seconds

SHOWN = 6  # samples of a kind without --all
WORST = 10
KINDS: dict[str, str] = {
    "gemm": N_("matrix product"), "gemm_sustained": N_("matrix product, sustained"),
    "grouped_gemm": N_("grouped product"), "attention": N_("attention"), "silu": N_("SiLU"), "add": N_("addition"),
    "cast": N_("cast"), "rms_norm": N_("RMSNorm"), "layer_norm": N_("LayerNorm"), "adamw": N_("AdamW update"),
    "copy": N_("copy on the device"), "host_to_device": N_("host to device"), "device_to_host": N_("device to host"),
    "p2p": N_("send and receive"), "step": N_("training step"), "collectives": N_("collectives"),
}  # fmt: skip
PHASES: dict[str, str] = {
    "forward": N_("forward"), "backward": N_("backward"), "data_gradient": N_("data gradient"),
    "weight_gradient": N_("weight gradient"),
}  # fmt: skip


def draw(found: Any, view: View, *, whole: bool) -> Iterable[Any]:
    """Headline, one line per kind, samples, what is furthest off, the step, what was left out."""
    measured = found.measured
    yield from headline(measured)
    pairs = list(zip(measured.samples, found.predicted, strict=False))
    if pairs:
        yield parts.heading(say(N_("Best rates by kind")))
        heads, *rows = _known(pairs, [_summary_heads(), *_summary_rows(pairs, view)], 5)
        yield parts.table(heads, rows, view, left=(0, 1, 2))
        yield from samples_part(pairs, view, whole)
        yield from worst_part(pairs, view)
    yield from step_part(measured.steps, found.predicted[len(measured.samples) :], view)
    yield from skipped_part(measured.skipped)


def headline(measured: Any) -> Iterable[Any]:
    """Device, software, how long it took; what is missing where the catalogue does not know the device."""
    device = measured.device
    text = N_("{name} ({backend}) · torch {torch} · {samples} samples in {seconds}")
    yield parts.line(
        say(text, name=device.name, backend=device.backend, torch=measured.software.get("torch", "-"),
            samples=len(measured.samples) + len(measured.steps), seconds=show_seconds(measured.took_seconds)),
        "bold",
    )  # fmt: skip
    if device.accelerator is None:
        text = N_("the catalogue has no entry of this name: nothing is predicted for it (--accelerator names one)")
        yield parts.line(say(text), "yellow")
    else:
        yield parts.line(say(N_("compared with {id} of the catalogue"), id=device.accelerator))
    for reading in measured.readings:
        if reading.clock_hz is not None:
            yield parts.line(_reading(reading), "dim")


def _reading(reading: Any) -> str:
    names = {"start": N_("at the start"), "warm": N_("warm"), "end": N_("at the end")}
    values = (("clock_hz", 1e6, "MHz"), ("watts", 1.0, "W"), ("celsius", 1.0, "°C"))
    said = [f"{getattr(reading, name) / unit:,.0f} {mark}" for name, unit, mark in values if getattr(reading, name)]
    return f"{say(names.get(reading.moment, reading.moment))}: {', '.join(said)}"


# ---------------------------------------------------------------------------------------------- tables


def kind_of(name: str) -> str:
    """A kind in the reader's language."""
    return say(KINDS[name]) if name in KINDS else label(name)


def phase_of(name: str) -> str:
    """A phase in the reader's language."""
    return say(PHASES[name]) if name in PHASES else label(name) if name else ""


def ratio_of(record: Any, said: Any) -> float | None:
    """Time measured over time predicted."""
    return None if not said.predicted_seconds else record.seconds / said.predicted_seconds


def share_of(record: Any, said: Any) -> float | None:
    """Rate over the peak of the data sheet."""
    return None if not said.peak else record.rate / said.peak


def _times(value: float | None) -> str:
    return "-" if value is None else f"{figures(value)}×"


def _percent(value: float | None) -> str:
    return "-" if value is None else show_percent(value, 1 if value < 0.1 else 0)


def _summary_heads() -> Sequence[str]:
    return ("", "", "", "n", say(N_("best")), say(N_("of peak")), say(N_("measured/ predicted")), say(N_("least")),
            say(N_("most")))  # fmt: skip


def _known(pairs: Sequence[tuple[Any, Any]], rows: Sequence[Sequence[str]], columns: int) -> list[Sequence[str]]:
    """Rows without the columns behind the first `columns` where nothing is known of the device."""
    known = any(said.peak for _, said in pairs)
    return [row if known else row[:columns] for row in rows]


def _summary_rows(pairs: Sequence[tuple[Any, Any]], view: View) -> list[Sequence[str]]:
    rows: list[Sequence[str]] = []
    for key in dict.fromkeys((s.kind, s.phase, s.dtype) for s, _ in pairs):
        chosen = [pair for pair in pairs if (pair[0].kind, pair[0].phase, pair[0].dtype) == key]
        best, said = max(chosen, key=lambda pair: pair[0].rate)
        ratios = [ratio for pair in chosen if (ratio := ratio_of(*pair)) is not None]
        off = (statistics.median(ratios), min(ratios), max(ratios)) if ratios else (None,) * 3
        rows.append((kind_of(key[0]), phase_of(key[1]), key[2], f"{len(chosen)}",
                     view.value(best.rate, f"{best.unit}/s"), _percent(share_of(best, said)),
                     *map(_times, off)))  # fmt: skip
    return rows


SHAPE_UNITS = ("payload", "bytes")


def shape_of(shape: Mapping[str, int]) -> str:
    """A shape in a few words; sizes in bytes with a prefix."""
    return " ".join(f"{k} {show_bytes(v) if k in SHAPE_UNITS else f'{v:,}'}" for k, v in shape.items())


def _sample_heads() -> Sequence[str]:
    return (say(N_("shape")), "", "", say(N_("time")), say(N_("rate")), say(N_("of peak")),
            say(N_("measured/ predicted")))  # fmt: skip


def _sample_row(sample: Any, said: Any, view: View) -> Sequence[str]:
    return (shape_of(sample.shape), phase_of(sample.phase), sample.dtype, view.value(sample.seconds, "s"),
            view.value(sample.rate, f"{sample.unit}/s"), _percent(share_of(sample, said)),
            _times(ratio_of(sample, said)))  # fmt: skip


def samples_part(pairs: Sequence[tuple[Any, Any]], view: View, whole: bool) -> Iterable[Any]:
    """The samples of each kind, those with most work first."""
    for kind in dict.fromkeys(s.kind for s, _ in pairs):
        chosen = sorted((pair for pair in pairs if pair[0].kind == kind), key=lambda pair: -pair[0].work)
        shown = chosen if whole else chosen[:SHOWN]
        yield parts.heading(f"{kind_of(kind)} · {' · '.join(dict.fromkeys(s.kernel for s, _ in shown))}")
        heads, *rows = _known(pairs, [_sample_heads(), *(_sample_row(*pair, view) for pair in shown)], 5)
        yield parts.table(heads, rows, view, left=(0, 1, 2))
        if len(chosen) > len(shown):
            yield parts.line(say(N_("{n} more with --all"), n=len(chosen) - len(shown)), "dim")


def worst_part(pairs: Sequence[tuple[Any, Any]], view: View) -> Iterable[Any]:
    """Where the model is wrong on this machine."""
    off = [(abs(math.log(ratio)), pair) for pair in pairs if (ratio := ratio_of(*pair)) is not None]
    if not off:
        return
    yield parts.heading(say(N_("Where the model is furthest off here")))
    rows = [(kind_of(pair[0].kind), *_sample_row(*pair, view)) for _, pair in sorted(off, key=lambda x: -x[0])[:WORST]]
    yield parts.table(("", *_sample_heads()), rows, view, left=(0, 1, 2, 3))


def step_part(steps: Sequence[Any], predicted: Sequence[Any], view: View) -> Iterable[Any]:
    """The training step: time, its parts, memory."""
    for step, said in zip(steps, predicted, strict=True):
        yield parts.heading(say(N_("One training step")))
        yield parts.line(shape_of(step.shape))
        rate = view.value(step.rate, "FLOP/s")
        if said.peak:
            rate = say(N_("{rate} ({share} of peak)"), rate=rate, share=_percent(share_of(step, said)))
        text = N_("{seconds}: forward {forward}, backward {backward}, optimizer {optimizer}; {rate}")
        yield parts.line(
            say(text, seconds=view.value(step.seconds, "s"), forward=view.value(step.forward_seconds, "s"),
                backward=view.value(step.backward_seconds, "s"), optimizer=view.value(step.optimizer_seconds, "s"),
                rate=rate)
        )  # fmt: skip
        text = N_("peak memory {peak}, of which parameters and optimizer {states}, kept for backward {saved}")
        sizes = (step.peak_bytes, step.state_bytes, step.saved_bytes)
        peak, states, saved = (parts.bytes_or_dash(size) for size in sizes)
        yield parts.line(say(text, peak=peak, states=states, saved=saved))
        if said.predicted_seconds is not None:
            text = N_("measured / predicted: time {time}, peak memory {memory}")
            memory = (
                step.peak_bytes / said.predicted_peak_bytes if step.peak_bytes and said.predicted_peak_bytes else None
            )
            yield parts.line(say(text, time=_times(ratio_of(step, said)), memory=_times(memory)))


def skipped_part(skipped: Sequence[Any]) -> Iterable[Any]:
    """What was not measured, by reason."""
    if not skipped:
        return
    yield parts.heading(say(N_("Not measured")))
    counts = Counter((kind_of(case.kind), tell(_template(case.reason))) for case in skipped)
    for (kind, reason), n in counts.most_common():
        yield parts.line(f"{n:>5}  {kind}: {reason}")


def _template(reason: Any) -> Any:
    """A reason without the numbers of one case, so that cases can be counted."""
    return say(N_("not enough memory")) if "need" in reason.values else reason


def grid(found: Any) -> Grid:
    """One line per sample."""
    keys = ("kind", "phase", "kernel", "shape", "dtype", "seconds", "seconds_min", "n", "work", "unit", "rate", "peak",
            "predicted_seconds")  # fmt: skip
    pairs = list(zip(found.measured.samples, found.predicted, strict=False))
    own = keys[:3], keys[4:11]
    raw = tuple(
        (*(getattr(s, key) for key in own[0]), " ".join(f"{k}={v}" for k, v in s.shape.items()),
         *(getattr(s, key) for key in own[1]), said.peak, said.predicted_seconds)
        for s, said in pairs
    )  # fmt: skip
    rows = tuple(tuple("-" if cell is None else f"{cell:.6g}" if isinstance(cell, float) else str(cell) for cell in row)
                 for row in raw)  # fmt: skip
    return Grid(keys=keys, heads=keys, rows=rows, raw=raw)
