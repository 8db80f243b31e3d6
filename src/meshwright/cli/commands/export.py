"""`meshwright export`: a strategy as the configuration of a framework."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from meshwright.cli import render
from meshwright.cli.commands.estimate import refused
from meshwright.cli.options import JOB, MODEL_ARGUMENT, OUTPUT, RECOMPUTE_OPS, option, partition, verb
from meshwright.cli.output import Answer, Screen, write_file
from meshwright.cli.request import problem_of, sharding_of, with_assumptions
from meshwright.errors import InputError, UsageError
from meshwright.messages import N_, Text


@verb(
    "export",
    help=N_(
        "Write a strategy, given by its degrees or as a row of a plan, as the files of a framework. What the framework"
        " cannot express is listed, never dropped. Exits with 1 when rules forbid the strategy."
    ),
    examples=(
        "export llama-3.1-8b --cluster h100-sxm:8 --zero 3 --gbs 128 --to deepspeed",
        "export --plan plan.json --rank 2 --to deepspeed --dir run/",
    ),
)
@MODEL_ARGUMENT
@option(
    "--to",
    "to",
    metavar="FORMAT",
    required=True,
    help=N_("The framework to write for: deepspeed, megatron, torchtitan or accelerate."),
)
@option("--framework-version", "version", metavar="VERSION",
        help=N_("Version of the framework; default: the one its judge has."))  # fmt: skip
@option("--plan", "plan", metavar="FILE", envvar=None, help=N_("A plan or an estimate written by --json."))
@option("--rank", metavar="N", help=N_("Which row of the plan (default 1)."))
@option("--dir", "folder", metavar="DIR", section=OUTPUT, envvar=None, help=N_("Write the files into this folder."))
@JOB
@partition(many=False)
@RECOMPUTE_OPS
def command(screen: Screen, to: str, version: str | None, plan: str | None, rank: str | None, folder: str | None,
            **options: Any) -> int:  # fmt: skip
    """Write the files of one strategy."""
    from meshwright import api
    from meshwright.serialize import document
    from meshwright.spec.estimate import Refusal

    problem, strategy = _planned(plan, rank) if plan else _given(screen, options, to)
    exported = api.export(problem, strategy, to, version=version or "")
    if isinstance(exported, Refusal):
        return screen.answer(refused(exported, problem))
    if folder is not None:
        write_all(screen, exported, folder)
    return screen.answer(
        Answer(
            kind="export",
            document=lambda: document("export", exported, problem=problem, strategy=strategy),
            draw=lambda view: render.configuration.draw_exported(exported, problem, strategy, view, folder),
            grid=lambda: render.configuration.settings_grid(exported),
            lines=lambda: [{"name": name, "value": value} for name, value in exported.settings],
        )
    )


def _given(screen: Screen, options: dict[str, Any], to: str) -> tuple[Any, Any]:
    """Problem and strategy from options; the framework is the one that is written for."""
    from meshwright import api

    problem = problem_of(screen, options)
    options["framework"] = options.get("framework") or api.framework_of(to)
    strategy, assumed = api.strategy(problem, screen.settings, sharding=sharding_of(options), **options)
    return with_assumptions(problem, assumed), strategy


def _planned(plan: str, rank: str | None) -> tuple[Any, Any]:
    """Problem and strategy of a row of a result file."""
    from meshwright import api
    from meshwright.serialize import load_result

    result = load_result(plan)
    number = api.whole(rank or 1, "top", where="--rank")
    if number > len(result.strategies):
        raise UsageError(
            Text(N_("the file has {count} strategies"), count=len(result.strategies)),
            where="--rank",
            fix=Text(N_("the nearest legal value is {value}"), value=max(len(result.strategies), 1)),
        )
    return result.problem, result.strategies[number - 1][1]


def write_all(screen: Screen, exported: Any, folder: str) -> None:
    """Every file into the folder; none is overwritten unless --force."""
    from meshwright.cli.language import say
    from meshwright.files import reason_of

    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise InputError(
            Text(N_("cannot write the file: {reason}"), reason=reason_of(error)),
            where=folder,
            fix=Text(N_("name a file in a folder you can write to")),
        ) from None
    for file in exported.files:
        path = write_file(str(Path(folder) / file.name), file.text, force=screen.force)
        screen.note(say(N_("written to {path}"), path=path))
