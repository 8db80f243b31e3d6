"""`meshwright bench device`: what the accelerator here reaches, beside what is predicted for it."""

from __future__ import annotations

from typing import Any

from meshwright.cli import render
from meshwright.cli.options import OUTPUT, option, verb
from meshwright.cli.output import Answer, Screen, check_target, write_file
from meshwright.messages import N_


@verb(
    "device",
    help=N_(
        "Measure matrix products, grouped products, attention, memory-bound kernels, copies, collectives and one"
        " training step on the device here, and compare each with what is predicted for it. Needs the extra torch."
        " Under torchrun, or with --processes, collectives between the processes are measured too."
    ),
    examples=(
        "bench device --save measured.json",
        "bench device --seconds 60 --only gemm,attention",
        "bench device --processes 8 --json",
        "bench device --from measured.json --all",
    ),
)
@option("--seconds", metavar="SECONDS", default="120", show_default=True, envvar=None,
        help=N_("How long it may take, up to 300."))  # fmt: skip
@option("--device", metavar="NAME", envvar=None, help=N_("cuda, cuda:1, cpu, …; default: the accelerator here."))
@option("--accelerator", metavar="ID", envvar=None,
        help=N_("Entry of the catalogue to compare with, where the name of the device does not tell it."))  # fmt: skip
@option("--processes", metavar="N", default="1", envvar=None,
        help=N_("Processes on this host between which collectives are measured."))  # fmt: skip
@option("--only", metavar="PART,…", envvar=None,
        help=N_("Only these parts: gemm, grouped_gemm, attention, memory, collectives, step."))  # fmt: skip
@option("--from", "source", metavar="FILE", envvar=None,
        help=N_("Show a file of measurements beside what is predicted today; - reads stdin."))  # fmt: skip
@option("--save", metavar="FILE", section=OUTPUT, envvar=None, help=N_("Also write the measurements to FILE, as JSON."))
@option("--all", "whole", is_flag=True, section=OUTPUT, envvar=None, help=N_("Show every sample."))
def command(screen: Screen, only: str | None, source: str | None, save: str | None, whole: bool, **options: Any) -> int:
    """Measure (or read), write the file if one is wanted, and answer."""
    from meshwright import api
    from meshwright.cli.language import say
    from meshwright.serialize import dumps

    parts = tuple(part.strip() for part in (only or "").split(",") if part.strip())
    for target in (save, screen.output):
        check_target(target, force=screen.force)
    with screen.progress() as progress:
        measured = None if source else api.bench_device(parts=parts, progress=progress, **options)
    found = api.bench_device_file(source) if source else measured
    if found is None:  # another rank of a launcher tells
        return 0
    if save is not None:
        path = write_file(save, dumps(found.document) + "\n", force=screen.force)
        screen.note(say(N_("written to {path}"), path=path))
    return screen.answer(
        Answer(
            kind="bench-device",
            document=lambda: found.document,
            draw=lambda view: render.bench_device.draw(found, view, whole=whole),
            grid=lambda: render.bench_device.grid(found),
            lines=lambda: [*found.document["samples"], *found.document["steps"]],
            yes=bool(found.measured.samples or found.measured.steps),
        )
    )
