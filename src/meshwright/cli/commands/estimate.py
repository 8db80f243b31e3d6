"""`meshwright estimate`: one strategy, its memory, time and cost."""

from __future__ import annotations

from typing import Any

from meshwright.cli import render
from meshwright.cli.options import JOB, MODEL_ARGUMENT, RECOMPUTE_OPS, partition, verb
from meshwright.cli.output import Answer, Screen
from meshwright.cli.request import problem_of, sharding_of, with_assumptions
from meshwright.messages import N_


@verb(
    "estimate",
    help=N_("Does this strategy fit, how long does a step take, and what binds it? Exits with 1 when it does not fit."),
    examples=(
        "estimate llama-3.1-70b --cluster h100-sxm:64 --tp 8 --pp 2 --seq 8192 --gbs 128",
        "estimate ./config.json --cluster a100-80g:16 --framework fsdp --zero 3 --json",
    ),
)
@MODEL_ARGUMENT
@JOB
@partition(many=False)
@RECOMPUTE_OPS
def command(screen: Screen, **options: Any) -> int:
    """Evaluate one strategy."""
    from meshwright import api
    from meshwright.serialize import document
    from meshwright.spec.estimate import Refusal

    problem = problem_of(screen, options)
    strategy, assumed = api.strategy(problem, screen.settings, sharding=sharding_of(options), **options)
    problem = with_assumptions(problem, assumed)
    estimate = api.estimate(problem, strategy)
    if isinstance(estimate, Refusal):
        return screen.answer(refused(estimate, problem))

    return screen.answer(
        Answer(
            kind="estimate",
            document=lambda: document("estimate", estimate, problem=problem),
            draw=lambda view: render.estimate.draw(estimate, problem, view),
            grid=lambda: render.estimate.grid(estimate),
            yes=estimate.verdict != "OVER" and not any(f.severity == "error" for f in estimate.findings),
        )
    )


def refused(refusal: Any, problem: Any) -> Answer:
    """The answer for a strategy that rules forbid."""
    from meshwright.serialize import document

    return Answer(
        kind="refusal",
        document=lambda: document("refusal", refusal, problem=problem),
        draw=lambda view: render.estimate.draw_refusal(refusal, problem),
        grid=lambda: render.estimate.refusal_grid(refusal),
        yes=False,
    )
