"""`meshwright size`: the cluster for a deadline or a budget."""

from __future__ import annotations

from typing import Any

from meshwright.cli import render
from meshwright.cli.options import FAILURES, JOB, MAX_MEMORY, MODEL_ARGUMENT, RECOMPUTE_OPS, option, partition, verb
from meshwright.cli.output import Answer, Screen
from meshwright.cli.request import constraints_of, problem_of, resilience_of
from meshwright.messages import N_


@verb(
    "size",
    help=N_(
        "The fewest devices, or the least cost, that trains the tokens before a deadline or within a budget. The"
        " cluster given is the largest that is considered. With --failures (or a rate of your own) failures count."
        " Exits with 1 when no count does it."
    ),
    examples=(
        "size llama-3.1-70b --cluster h100-sxm:4096 --tokens 15T --deadline 60d",
        "size llama-3.1-8b --cluster h100-sxm:1024 --tokens 1T --budget 500k --goal cheapest --json",
    ),
)
@MODEL_ARGUMENT
@JOB
@option("--deadline", metavar="DAYS", help=N_("Time the run may take, e.g. 30d or 6w."))
@option("--budget", metavar="DOLLARS", help=N_("Money the run may cost, e.g. 2M."))
@option("--goal", metavar="NAME", help=N_("fewest or cheapest."))
@MAX_MEMORY
@partition(many=True)
@RECOMPUTE_OPS
@FAILURES
def command(screen: Screen, **options: Any) -> int:
    """Find the count."""
    from meshwright import api
    from meshwright.serialize import document, to_json

    deadline, budget, goal = (options.pop(name) for name in ("deadline", "budget", "goal"))
    problem = problem_of(screen, options)
    limits = constraints_of(screen, options)
    resilience, counted = resilience_of(options)
    with screen.progress() as progress:
        sizing = api.size(
            problem, deadline=deadline, budget=budget, goal=goal or "fewest", constraints=limits,
            resilience=resilience if counted else None, progress=progress,
        )  # fmt: skip

    return screen.answer(
        Answer(
            kind="size",
            document=lambda: document("size", sizing),
            draw=lambda view: render.size.draw(sizing, view),
            grid=lambda: render.size.grid(sizing),
            lines=lambda: [to_json(point) for point in sizing.points],
            yes=sizing.devices is not None,
        )
    )
