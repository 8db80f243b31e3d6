"""Advice on communication hooks: the answer, the options with times, bytes, memory and risk, what was assumed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from meshwright.cli.language import say, tell
from meshwright.cli.output import Grid, View
from meshwright.cli.render import parts
from meshwright.messages import N_
from meshwright.units import show_bytes, show_percent, show_seconds

KEYS = ("hook", "wire_bytes", "communication_seconds", "compression_seconds", "exposed_seconds", "step_seconds",
        "memory_bytes", "risk")  # fmt: skip


def draw(advice: Any, problem: Any, view: View) -> Iterable[Any]:
    """Headline, reasons, table, what else helps, assumptions."""
    dense, best = advice.options[0], advice.best
    yield parts.line(parts.problem_line(problem), "dim")
    text = N_("recommended: {hook}, buckets of {bucket}; step {step}, {gain} faster than a plain all-reduce")
    if best is dense:
        text = N_("recommended: the plain all-reduce, buckets of {bucket}; step {step}")
    gain = show_percent(1 - best.step_seconds / dense.step_seconds, 0)
    yield parts.line(say(text, hook=best.hook, bucket=show_bytes(advice.bucket_bytes),
                         step=show_seconds(best.step_seconds), gain=gain), "bold")  # fmt: skip
    yield from parts.bullets(advice.reasons)
    text = N_("all-reduce of {size}: {comm} against a backward pass of {backward}, the last of {n} micro-batches")
    yield parts.line(say(text, size=show_bytes(advice.gradient_bytes), comm=show_seconds(dense.communication_seconds),
                         backward=show_seconds(advice.backward_seconds), n=advice.micro_batches))  # fmt: skip
    if advice.algorithm:
        yield parts.line(say(N_("fastest algorithm for a bucket: {name}"), name=advice.algorithm))
    if not advice.hidden and advice.local_sgd_period > 1:
        text = N_("or synchronise every {steps} steps (local SGD, DiLoCo): the all-reduce is then 1 % of the time")
        yield parts.line(say(text, steps=f"{advice.local_sgd_period:,}"))
    yield parts.heading(say(N_("Hooks")))
    heads = (say(N_("hook")), say(N_("sent per rank")), say(N_("communication")), say(N_("compression")),
             say(N_("exposed")), say(N_("step")), say(N_("more memory")), say(N_("risk")))  # fmt: skip
    mark = next(i for i, option in enumerate(advice.options) if option is best)
    yield parts.table(heads, [_row(option, view) for option in advice.options], view, left=(0, 7), mark=mark)
    yield from parts.assumptions_part(advice.assumptions)


def _row(option: Any, view: View) -> tuple[str, ...]:
    seconds = (option.communication_seconds, option.compression_seconds, option.exposed_seconds, option.step_seconds)
    return (option.hook, view.value(option.wire_bytes, "B"), *(view.value(s, "s") for s in seconds),
            view.value(option.memory_bytes, "B"), tell(option.risk))  # fmt: skip


def grid(advice: Any) -> Grid:
    """One line per hook."""
    raw = tuple(tuple(tell(o.risk) if k == "risk" else getattr(o, k) for k in KEYS) for o in advice.options)
    rows = tuple(tuple(f"{c:.6g}" if isinstance(c, float) else str(c) for c in row) for row in raw)
    return Grid(keys=KEYS, heads=KEYS, rows=rows, raw=raw)
