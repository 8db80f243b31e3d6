"""`meshwright convert`: one framework's configuration as another's."""

from __future__ import annotations

from typing import Any

import click

from meshwright.cli import render
from meshwright.cli.commands.estimate import refused
from meshwright.cli.commands.export import write_all
from meshwright.cli.configuration import TARGET, content_of, target_of
from meshwright.cli.options import OUTPUT, option, verb
from meshwright.cli.output import Answer, Screen
from meshwright.messages import N_


@verb(
    "convert",
    help=N_(
        "Read the configuration of one framework and write it for another, with the table of settings that map and of"
        " those that have no counterpart. Exits with 1 when rules forbid the strategy in the other framework."
    ),
    examples=(
        "convert pretrain.sh --cluster h100-sxm:64 --to deepspeed",
        "convert ds_config.json --model llama-3.1-8b --cluster h100-sxm:8 --to megatron --dir run/",
    ),
)
@click.argument("file")
@option(
    "--to",
    "to",
    metavar="FORMAT",
    required=True,
    help=N_("The framework to write for: deepspeed, megatron, torchtitan or accelerate."),
)
@option("--dir", "folder", metavar="DIR", section=OUTPUT, envvar=None, help=N_("Write the files into this folder."))
@TARGET
def command(screen: Screen, file: str, to: str, folder: str | None, from_: str | None, **options: Any) -> int:
    """Convert one file."""
    from meshwright import api
    from meshwright.serialize import document
    from meshwright.spec.estimate import Refusal

    source, where = content_of(file)
    converted = api.convert(source, to, target_of(screen, options), format=from_ or "", where=where)
    if isinstance(converted.exported, Refusal):
        return screen.answer(refused(converted.exported, converted.checked.problem))
    if folder is not None:
        write_all(screen, converted.exported, folder)
    return screen.answer(
        Answer(
            kind="convert",
            document=lambda: document("convert", render.configuration.converted_record(converted)),
            draw=lambda view: render.configuration.draw_converted(converted, view, folder),
            grid=lambda: render.configuration.counterparts_grid(converted),
            yes=not converted.checked.errors,
        )
    )
