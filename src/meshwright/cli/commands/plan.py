"""`meshwright plan`: the best strategies for a model, a cluster and a goal."""

from __future__ import annotations

from typing import Any

from meshwright.cli import render
from meshwright.cli.options import FAILURES, JOB, MAX_MEMORY, MODEL_ARGUMENT, RECOMPUTE_OPS, option, partition, verb
from meshwright.cli.output import Answer, Screen
from meshwright.cli.request import constraints_of, problem_of, resilience_of
from meshwright.errors import UsageError
from meshwright.messages import N_, Text


@verb(
    "plan",
    help=N_(
        "Search every legal strategy and rank those that fit. Degrees and methods given here constrain the search,"
        " one value or several (--tp 4,8). Exits with 1 when nothing fits."
    ),
    examples=(
        "plan llama-3.1-70b --cluster h100-sxm:512 --seq 8192 --gbs 512",
        "plan deepseek-v3 --cluster h100-sxm:2048 --goal memory --tokens 15T",
        "plan ./config.json --cluster a100-80g:64 --framework fsdp --max-memory 90% --json -o plan.json",
    ),
)
@MODEL_ARGUMENT
@JOB
@option(
    "--goal",
    metavar="NAME",
    help=N_("fastest (on a fixed cluster also the cheapest), goodput (failures counted) or memory (most to spare)."),
)
@option("--top", metavar="N", help=N_("How many strategies to show."))
@MAX_MEMORY
@partition(many=True)
@RECOMPUTE_OPS
@FAILURES
def command(screen: Screen, **options: Any) -> int:
    """Search and rank."""
    from meshwright import api
    from meshwright.serialize import document, to_json

    settings = screen.settings
    goal = options.pop("goal") or settings.get("constraints", "goal", "fastest")
    top = options.pop("top") or settings.get("constraints", "top", 10)
    problem = problem_of(screen, options)
    limits = constraints_of(screen, options)
    resilience, _ = _survival(goal, options)
    with screen.progress() as progress:
        plan = api.plan(problem, goal=goal, constraints=limits, top=top, resilience=resilience, progress=progress)

    return screen.answer(
        Answer(
            kind="plan",
            document=lambda: document("plan", plan),
            draw=lambda view: render.plan.draw(plan, view),
            grid=lambda: render.plan.grid(plan),
            lines=lambda: [to_json(ranked) for ranked in plan.ranked],
            yes=plan.best is not None,
        )
    )


def _survival(goal: str, options: dict[str, Any]) -> tuple[Any, bool]:
    """What is said of failures, which only one goal listens to."""
    resilience, said = resilience_of(options)
    if said and goal != "goodput":
        raise UsageError(
            Text(N_("failures do not change the order of goal {goal}"), goal=goal),
            where="--failures",
            fix=Text(N_("use {option}"), option="--goal goodput"),
        )
    return resilience, said
