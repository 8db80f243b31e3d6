"""`meshwright bench allreduce`: the algorithms of gradsync here, in the terms of nccl-tests."""

from __future__ import annotations

from typing import Any

from meshwright.cli import render
from meshwright.cli.options import option, verb
from meshwright.cli.output import Answer, Screen
from meshwright.messages import N_


@verb(
    "allreduce",
    help=N_(
        "Run real all-reduces between processes of this machine (or, under torchrun, between its ranks) and print time,"
        " algorithm and bus bandwidth by size and algorithm, beside the backend's own all-reduce and the cost model."
        " Needs the extra torch."
    ),
    examples=(
        "bench allreduce --ranks 2",
        "bench allreduce --ranks 4 --sizes 64KiB,4MiB --algorithms ring,direct,auto",
        "bench allreduce --ranks 8 --json",
    ),
)
@option("--ranks", metavar="N", default="2", envvar=None, help=N_("Processes to start; torchrun sets its own."))
@option("--sizes", metavar="BYTES,…", default="1KiB,16KiB,256KiB,1MiB,4MiB,16MiB", show_default=True, envvar=None,
        help=N_("Sizes of the tensors."))  # fmt: skip
@option("--algorithms", metavar="NAME,…", envvar=None, help=N_("Only these; default: all, with auto and backend."))
@option("--local", metavar="N", envvar=None, help=N_("Ranks that share a node, for the hierarchical algorithm."))
@option("--rounds", metavar="N", default="5", envvar=None, help=N_("Blocks of calls per algorithm and size."))
@option("--calibrate", "calibrated", is_flag=True, envvar=None,
        help=N_("Correct the cost model by timing each algorithm first."))  # fmt: skip
def command(screen: Screen, sizes: str, algorithms: str | None, **options: Any) -> int:
    """Measure and answer; ranks other than the first of a launcher say nothing."""
    from meshwright import api
    from meshwright.serialize import document

    names = tuple(part.strip() for part in (algorithms or "").split(",") if part.strip())
    found = api.bench_allreduce(sizes=[part.strip() for part in sizes.split(",")], algorithms=names, **options)
    if found is None:
        return 0
    return screen.answer(
        Answer(
            kind="bench-allreduce",
            document=lambda: document("bench-allreduce", found.document),
            draw=lambda view: render.bench_sync.draw_allreduce(found, view),
            grid=lambda: render.bench_sync.grid(found),
            lines=lambda: found.lines,
        )
    )
