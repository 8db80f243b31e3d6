"""All-reduce algorithms and hooks as measured here: times by size, bandwidths, a plot, bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from meshwright.cli.language import say
from meshwright.cli.output import Grid, View
from meshwright.cli.render import chart, parts
from meshwright.messages import N_
from meshwright.units import show_bandwidth, show_bytes, show_percent, show_seconds

KEYS = ("name", "payload", "ranks", "seconds", "least", "algorithm_bandwidth", "bus_bandwidth", "modelled", "sent")


def draw_allreduce(found: Any, view: View) -> Iterable[Any]:
    """Headline, one table of times by size, the best of each size in nccl-tests' terms, a plot."""
    yield parts.line(say(N_("all-reduce between {ranks} processes over {backend}"), ranks=found.ranks,
                         backend=found.backend), "bold")  # fmt: skip
    names = list(dict.fromkeys(t.name for t in found.timings))
    payloads = sorted({t.payload for t in found.timings})
    by = {(t.name, t.payload): t for t in found.timings}
    yield parts.heading(say(N_("Time of one call, median")))
    rows = [(name, *(view.value(by[name, p].seconds, "s") for p in payloads)) for name in names]
    yield parts.table((say(N_("algorithm")), *(show_bytes(p) for p in payloads)), rows, view)
    yield parts.heading(say(N_("The best of each size")))
    heads = (say(N_("size")), say(N_("algorithm")), say(N_("time")), "algbw", "busbw", say(N_("against backend")),
             say(N_("cost model")))  # fmt: skip
    yield parts.table(heads, [_best_row(found, p, view) for p in payloads], view, left=(1,))
    yield from _plot(found, names, payloads, view)


def _best_row(found: Any, payload: int, view: View) -> Sequence[str]:
    rows = [t for t in found.timings if t.payload == payload]
    ours = [t for t in rows if t.name not in ("backend", "auto")] or rows
    best = min(ours, key=lambda t: t.seconds)
    backend = next((t for t in rows if t.name == "backend"), None)
    return (
        show_bytes(payload), best.name, view.value(best.seconds, "s"), show_bandwidth(best.algorithm_bandwidth),
        show_bandwidth(best.bus_bandwidth), "-" if backend is None else show_percent(backend.seconds / best.seconds, 0),
        "-" if best.modelled is None else show_seconds(best.modelled),
    )  # fmt: skip


def _plot(found: Any, names: Sequence[str], payloads: Sequence[int], view: View) -> Iterable[Any]:
    if view.plain or len(payloads) < 2:
        return
    best = [(float(p), max(t.bus_bandwidth for t in found.timings if t.payload == p and t.name != "backend"))
            for p in payloads]  # fmt: skip
    backend = [(float(t.payload), t.bus_bandwidth) for t in found.timings if t.name == "backend"]
    rates = [rate for _, rate in (*best, *backend)]
    low, high = min(rates), max(rates)
    x = chart.Axis([(float(p), show_bytes(p)) for p in payloads[:: max(1, len(payloads) // 4)]],
                   payloads[0], payloads[-1])  # fmt: skip
    y = chart.Axis([(low, show_bandwidth(low)), (high, show_bandwidth(high))], low, high)
    yield parts.heading(say(N_("Bus bandwidth by size: the best of ours (●) and the backend (○)")))
    signs = (chart.Curve(backend, "○", "·"), chart.Curve(best, "●", "•"))
    for text in chart.curves(signs, x, y, width=min(72, view.width - 16), height=11, mark=None):
        yield parts.line(text)


def draw_hooks(found: Any, view: View) -> Iterable[Any]:
    """One table: time, bytes, and both against the plain all-reduce."""
    yield parts.line(say(N_("hooks on a bucket of {size} between {ranks} processes over {backend}"),
                         size=show_bytes(found.timings[0].payload), ranks=found.ranks, backend=found.backend),
                     "bold")  # fmt: skip
    plain = next((t for t in found.timings if t.name == "allreduce"), None)
    rows = []
    for t in found.timings:
        ratio = "-" if plain is None else show_percent(t.seconds / plain.seconds, 0)
        less = "-" if t.sent is None or plain is None or not plain.sent else show_percent(t.sent / plain.sent, 1)
        sent = "-" if t.sent is None else show_bytes(t.sent)
        rows.append((t.name, view.value(t.seconds, "s"), ratio, sent, less))
    heads = (say(N_("hook")), say(N_("time")), say(N_("against all-reduce")), say(N_("sent per rank")),
             say(N_("of all-reduce")))  # fmt: skip
    yield parts.table(heads, rows, view)
    yield parts.line(say(N_("a hook that sends less pays where the link is slower than the compression")), "dim")


def grid(found: Any) -> Grid:
    """One line per timing."""
    raw = tuple(tuple(line[key] for key in KEYS) for line in found.lines)
    rows = tuple(tuple("-" if c is None else f"{c:.6g}" if isinstance(c, float) else str(c) for c in r) for r in raw)
    return Grid(keys=KEYS, heads=KEYS, rows=rows, raw=raw)
