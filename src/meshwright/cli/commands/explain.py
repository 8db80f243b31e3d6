"""`meshwright explain`: a term of a result, a rule code, a formula or a concept."""

from __future__ import annotations

from typing import Any

import click

from meshwright.cli import render
from meshwright.cli.options import JOB, option, verb
from meshwright.cli.output import Answer, Screen
from meshwright.cli.request import problem_of
from meshwright.errors import InputError
from meshwright.files import is_file
from meshwright.messages import N_, Text


@verb(
    "explain",
    help=N_(
        "What it is, when it is right, what it costs: for a concept (data-parallel, zero, bubble, mfu), a rule code"
        " (MW-…), a formula, or a term of a result. With a result file, the numbers are those of that result."
    ),
    examples=(
        "explain",
        "explain tensor-parallel",
        "explain plan.json bubble",
        "explain zero --plan plan.json",
        "explain pipeline-parallel --model llama-3.1-70b --cluster h100-sxm:64",
    ),
)
@click.argument("words", nargs=-1, metavar="[RESULT] SUBJECT")
@option("--plan", "result", metavar="FILE", envvar=None, help=N_("A result written by --json."))
@option("--model", metavar="MODEL", help=N_("Explain with the numbers of this model and cluster."))
@JOB
def command(screen: Screen, words: tuple[str, ...], result: str | None, **options: Any) -> int:
    """Explain one thing."""
    from meshwright import api
    from meshwright.serialize import document, load_result
    from meshwright.spec import Estimate
    from meshwright.spec.plan import Plan

    if not words and result is None:
        return _list(screen)
    subject, result = _subject(words, result)
    plan = estimate = problem = None
    if result is not None:
        read = load_result(result)
        problem = read.problem
        plan = read.record if isinstance(read.record, Plan) else None
        estimate = read.record if isinstance(read.record, Estimate) else None
    elif options.get("model") and (options.get("cluster") or screen.settings.section("cluster")):
        problem = problem_of(screen, options)
    explanation = api.explain(subject, plan=plan, estimate=estimate, problem=problem)

    return screen.answer(
        Answer(
            kind="explain",
            document=lambda: document("explain", explanation),
            draw=lambda view: render.explain.draw(explanation, view),
            grid=lambda: render.explain.grid(explanation),
        )
    )


def _list(screen: Screen) -> int:
    """Everything that can be explained."""
    from meshwright import api
    from meshwright.serialize import document, to_json

    subjects = api.explainable()
    return screen.answer(
        Answer(
            kind="explain-list",
            document=lambda: document("explain-list", {"subjects": subjects}),
            draw=lambda view: render.explain.draw_list(subjects, view),
            grid=lambda: render.explain.list_grid(subjects),
            lines=lambda: [to_json(subject) for subject in subjects],
        )
    )


def _subject(words: tuple[str, ...], result: str | None) -> tuple[str, str | None]:
    """The subject, and the result file where it is given first."""
    if (
        result is None
        and len(words) > 1
        and (words[0] == "-" or words[0].endswith(".json") or "/" in words[0] or is_file(words[0]))
    ):
        return " ".join(words[1:]), words[0]
    if not words:
        raise InputError(
            Text(N_("nothing to explain is given")),
            where="SUBJECT",
            fix=Text(N_("name one, e.g. {examples}"), examples="tensor-parallel, zero, bubble, mfu"),
        )
    return " ".join(words), result
