"""`meshwright compare`: strategies side by side, from result files or written out."""

from __future__ import annotations

import shlex
from typing import Any

import click

from meshwright.cli import render
from meshwright.cli.options import JOB, option, verb
from meshwright.cli.output import Answer, Screen
from meshwright.cli.request import problem_of, sharding_of, with_assumptions
from meshwright.errors import InputError
from meshwright.messages import N_, Text

_SHORT = {"tp": "tensor", "pp": "pipeline", "vp": "virtual", "vpp": "virtual", "cp": "context", "ep": "expert",
          "etp": "expert_tensor", "dp": "data", "mbs": "micro_batch", "hsdp": "shard"}  # fmt: skip


@verb(
    "compare",
    help=N_(
        "Put strategies side by side: result files written by --json (a plan gives its ranked strategies), or"
        " strategies written out with --with, evaluated for the same model, cluster and job."
    ),
    examples=(
        "compare a.json b.json",
        "compare plan.json --top 3",
        "compare --model llama-3.1-70b --cluster h100-sxm:64 --with 'tp8 pp2' --with 'tp4 pp4 selective'",
    ),
)
@click.argument("files", nargs=-1, metavar="[FILE]...")
@option("--model", metavar="MODEL", help=N_("Model for strategies given by --with."))
@JOB
@option("--with", "written", multiple=True, metavar="WORDS", envvar=None,
        help=N_("A strategy in words, e.g. 'tp8 pp4 zero1 selective'; may be repeated."))  # fmt: skip
@option("--top", metavar="N", help=N_("How many strategies of a plan to compare (default 3)."))
def command(screen: Screen, files: tuple[str, ...], written: tuple[str, ...], top: str | None, **options: Any) -> int:
    """Evaluate and compare."""
    from meshwright import api
    from meshwright.serialize import document, load_result

    limit = api.whole(top or 3, "top", where="--top")
    problem, named = None, []
    assumptions: list[Text] = []
    for name in files:
        result = load_result(name)
        problem = problem or result.problem
        other = result.problem != problem
        several = len(files) == 1 or len(result.strategies) > 1
        chosen = result.strategies[: limit if len(files) == 1 else 1]
        named += [
            (
                f"{name} {label}" if several and len(files) > 1 else label if several else name,
                _own_estimate(result.problem, s, name) if other else s,
            )
            for label, s in chosen
        ]
    if problem is None or options.get("model") or options.get("cluster"):
        problem = problem_of(screen, options)
    for words in written:
        strategy, assumed = api.strategy(problem, screen.settings, **strategy_of(words))
        named.append((words, strategy))
        assumptions += [text for text in assumed if text not in assumptions]
    comparison = api.compare(problem, named)

    shared = with_assumptions(problem, tuple(assumptions))
    return screen.answer(
        Answer(
            kind="compare",
            document=lambda: document("compare", comparison, problem=shared),
            draw=lambda view: render.compare.draw(comparison, shared, view),
            grid=lambda: render.compare.grid(comparison),
        )
    )


def _own_estimate(problem: Any, strategy: Any, name: str) -> Any:
    """The estimate of a strategy on its own file's problem."""
    from meshwright import api
    from meshwright.spec import Refusal

    estimate = api.estimate(problem, strategy)
    if isinstance(estimate, Refusal):
        raise InputError(estimate.findings[0].message, where=name, fix=estimate.findings[0].fix)
    return estimate


def strategy_of(words: str) -> dict[str, Any]:
    """Fields of a strategy from words: degrees with their number, names of methods as they are."""
    from meshwright.spec.strategy import FRAMEWORKS, RECOMPUTES, SCHEDULES

    fields: dict[str, Any] = {}
    for word in shlex.split(words.replace(",", " ")) if words.count("'") % 2 == 0 else words.split():
        key, equals, value = word.partition("=")
        name = key.rstrip("0123456789")
        if name == "zero" or key == "zero":
            fields["sharding"] = sharding_of({"zero": value or key.removeprefix("zero")})
        elif name in _SHORT and (equals or name != key):
            fields[_SHORT[name]] = value or key.removeprefix(name)
        elif key in FRAMEWORKS:
            fields["framework"] = key
        elif key in SCHEDULES:
            fields["schedule"] = key
        elif key in RECOMPUTES and key != "none":
            fields["recompute"] = key
        elif equals and key in ("recompute", "offload", "schedule", "framework", "sharding", "precision"):
            fields[key] = value
        else:
            raise InputError(
                Text(N_("'{word}' is not part of a strategy"), word=word[:40]),
                where="--with",
                fix=Text(
                    N_("write it like {example}, of {words}"),
                    example="'tp8 pp4 mbs1 zero1 selective megatron'",
                    words=", ".join((*_SHORT, "zero", *FRAMEWORKS, *SCHEDULES, "selective", "full", "offload=")),
                ),
            )
    return fields
