"""`meshwright recommend-hook`: does gradient communication hide, and if not, what closes the gap."""

from __future__ import annotations

from typing import Any

from meshwright.cli import render
from meshwright.cli.options import JOB, MODEL_ARGUMENT, THE_STRATEGY, option, verb
from meshwright.cli.output import Answer, Screen
from meshwright.cli.request import problem_of
from meshwright.messages import N_


@verb(
    "recommend-hook",
    help=N_(
        "For a DistributedDataParallel run over all devices: does the all-reduce of gradients hide behind the backward"
        " pass, and if not, which communication hook, bucket size, algorithm or local-SGD period closes the gap, at"
        " what risk and memory? Exits with 1 when a copy of the model does not fit one device."
    ),
    examples=(
        "recommend-hook gpt2 --cluster a100-80g:16",
        "recommend-hook llama-3.2-1b --cluster g6e-48xlarge:64 --gbs 64 --json",
    ),
)
@MODEL_ARGUMENT
@JOB
@option("--mbs", "micro_batch", metavar="N", section=THE_STRATEGY, help=N_("Sequences of one micro-batch."))
def command(screen: Screen, micro_batch: str | None, **options: Any) -> int:
    """Weigh the hooks and answer."""
    from meshwright import api
    from meshwright.serialize import document

    problem = problem_of(screen, options)
    advice = api.recommend_hook(problem, micro_batch=micro_batch)
    return screen.answer(
        Answer(
            kind="recommend-hook",
            document=lambda: document("recommend-hook", advice, problem=problem),
            draw=lambda view: render.recommend_hook.draw(advice, problem, view),
            grid=lambda: render.recommend_hook.grid(advice),
            yes=advice.fits,
        )
    )
