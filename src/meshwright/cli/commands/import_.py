"""`meshwright import`: a framework's configuration, every setting accounted for."""

from __future__ import annotations

from typing import Any

import click

from meshwright.cli import render
from meshwright.cli.configuration import READING, content_of, target_of
from meshwright.cli.options import option, verb
from meshwright.cli.output import Answer, Screen
from meshwright.messages import N_


@verb(
    "import",
    help=N_(
        "Read the configuration of a framework and account for every setting: understood, without meaning for planning,"
        " unknown, or in conflict. --format toml writes a project file that every other verb reads."
        " FILE - reads stdin. Exits with 1 when a setting is wrong."
    ),
    examples=(
        "import ds_config.json --devices 8",
        "import ds_config.json --trainer-args training_args.json --format toml -o meshwright.toml",
    ),
    forms=("toml",),
)
@click.argument("file")
@READING
@option("--cluster", metavar="NAME:N", help=N_("Accelerator or node type and number of devices, e.g. h100-sxm:512."))
def command(screen: Screen, file: str, from_: str | None, **options: Any) -> int:
    """Read one file."""
    from meshwright import api
    from meshwright.cli.language import current
    from meshwright.serialize import document

    source, where = content_of(file)
    model, cluster = options["model"], options["cluster"]
    imported = api.import_(source, target_of(screen, options), format=from_ or "", where=where)
    given = {"model": {"name": model} if model else {}, "cluster": {"name": cluster} if cluster else {}}
    return screen.answer(
        Answer(
            kind="import",
            document=lambda: document("import", imported),
            draw=lambda view: render.configuration.draw_imported(imported, view),
            grid=lambda: render.configuration.entries_grid(imported),
            lines=lambda: render.configuration.entry_lines(imported),
            yes=not any(f.severity == "error" for f in imported.findings),
            forms={"toml": lambda: api.project_file(imported, given, current())},
        )
    )
