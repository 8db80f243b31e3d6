"""`meshwright scale`: what more devices buy."""

from __future__ import annotations

from typing import Any

from meshwright.cli import render
from meshwright.cli.options import JOB, MAX_MEMORY, MODEL_ARGUMENT, RECOMPUTE_OPS, option, partition, verb
from meshwright.cli.output import Answer, Screen
from meshwright.cli.request import constraints_of, problem_of
from meshwright.messages import N_


@verb(
    "scale",
    help=N_(
        "Throughput, MFU, exposed communication and cost against the number of devices, each with its best strategy;"
        " names the count beyond which more devices buy little, and what binds there."
    ),
    examples=(
        "scale llama-3.1-70b --cluster h100-sxm:16384 --gbs 2048",
        "scale llama-3.1-8b --cluster h100-sxm:1024 --devices 8,64,512 --mode growing-batch --jsonl",
    ),
)
@MODEL_ARGUMENT
@JOB
@option("--devices", metavar="N,…",
        help=N_("Device counts; default: a ladder from what holds the model to 16 times the cluster."))  # fmt: skip
@option("--mode", metavar="NAME", help=N_("fixed-batch (strong scaling) or growing-batch (weak scaling)."))
@MAX_MEMORY
@partition(many=True)
@RECOMPUTE_OPS
def command(screen: Screen, **options: Any) -> int:
    """Plan at each count."""
    from meshwright import api
    from meshwright.serialize import document, to_json

    counts = [part for part in (options.pop("devices") or "").split(",") if part.strip()]
    mode = options.pop("mode") or "fixed-batch"
    problem = problem_of(screen, options)
    limits = constraints_of(screen, options)
    with screen.progress() as progress:
        scaling = api.scale(problem, counts, mode=mode, constraints=limits, progress=progress)

    return screen.answer(
        Answer(
            kind="scale",
            document=lambda: document("scale", scaling),
            draw=lambda view: render.scale.draw(scaling, view),
            grid=lambda: render.scale.grid(scaling.points),
            lines=lambda: [to_json(point) for point in scaling.points],
            yes=any(point.estimate is not None for point in scaling.points),
        )
    )
