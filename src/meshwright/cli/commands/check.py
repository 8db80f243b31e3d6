"""`meshwright check`: configurations judged, for people, for CI and for editors."""

from __future__ import annotations

from typing import Any

import click

from meshwright.cli import render
from meshwright.cli.configuration import TARGET, content_of, target_of
from meshwright.cli.options import verb
from meshwright.cli.output import Answer, Screen
from meshwright.messages import N_


@verb(
    "check",
    help=N_(
        "Check configurations of frameworks: settings that are misspelt, of the wrong type, in conflict or without"
        " effect, batch arithmetic, what the framework refuses, and, where model and cluster are known, whether the run"
        " fits and how fast it is. Each finding names the nearest legal values. Exits with 1 on errors, or when it does"
        " not fit. --format sarif and github are for code scanning and for annotations in pull requests."
    ),
    examples=(
        "check ds_config.json --model llama-3.1-8b --cluster h100-sxm:8",
        "check ds_config.json --trainer-args training_args.json --devices 8",
        "check pretrain.sh --cluster h100-sxm:64 --format github",
    ),
    forms=("sarif", "github"),
)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@TARGET
def command(screen: Screen, files: tuple[str, ...], from_: str | None, **options: Any) -> int:
    """Check each file."""
    from meshwright import api
    from meshwright.cli import annotations
    from meshwright.serialize import to_json

    target = target_of(screen, options)
    checked = []
    for file in files:
        source, where = content_of(file)
        checked.append((where, api.check(source, target, format=from_ or "", where=where)))
    return screen.answer(
        Answer(
            kind="check",
            document=lambda: render.configuration.check_document(checked, to_json),
            draw=lambda view: render.configuration.draw_checks(checked, view),
            grid=lambda: render.configuration.findings_grid(checked),
            lines=lambda: render.configuration.finding_lines(checked),
            yes=all(c.passes for _, c in checked),
            forms={
                "sarif": lambda: annotations.sarif(checked),
                "github": lambda: annotations.github(checked),
            },
        )
    )
