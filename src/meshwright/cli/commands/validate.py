"""`meshwright validate`: predictions against measured runs."""

from __future__ import annotations

from typing import Any

import click

from meshwright.cli import render
from meshwright.cli.options import OUTPUT, option, verb
from meshwright.cli.output import Answer, Screen, write_file
from meshwright.errors import UsageError
from meshwright.messages import N_, Text

GROUPS = ("source", "publisher", "model")


@verb(
    "validate",
    help=N_(
        "Predict every measured run of a CSV file and say how far off the prediction is: throughput with its interval,"
        " and peak memory, by accelerator, framework, precision, parallelism, scale and tier, beside a naive guess."
        " FILE has the columns of a table of published runs; - reads stdin. Exits with 1 when no row could be compared."
    ),
    examples=(
        "validate measured_runs.csv --tier A,A-",
        "validate measured_runs.csv --html accuracy.html",
        "validate measured_runs.csv --leave-out source",
        "validate - --json < runs.csv",
    ),
)
@click.argument("file")
@option("--tier", metavar="NAME,…", help=N_("Only rows of these tiers, e.g. A,A-."))
@option("--leave-out", "leave_out", metavar="GROUP", type=click.Choice(GROUPS),
        help=N_("Predict every run by constants fitted without its source, publisher or model (minutes)."))  # fmt: skip
@option("--html", metavar="FILE", section=OUTPUT, envvar=None,
        help=N_("Also write one page with the scatter plot and the errors by factor."))  # fmt: skip
@option("--worst", metavar="N", type=click.IntRange(0, 10_000), default=10, section=OUTPUT,
        help=N_("How many of the rows that are furthest off to show."))  # fmt: skip
def command(screen: Screen, file: str, tier: str | None, leave_out: str | None, html: str | None, worst: int) -> int:
    """Compare, and write the page if one is wanted."""
    from meshwright import api
    from meshwright.cli.language import current, say
    from meshwright.files import read_stdin
    from meshwright.serialize import document

    hint = "cat runs.csv | meshwright validate -"
    runs: Any = read_stdin(largest=LARGEST, hint=hint) if file == "-" else file
    tiers = tuple(part.strip() for part in (tier or "").split(",") if part.strip())
    if html == "-":
        raise UsageError(
            Text(N_("the page goes to a file; stdout is for the result")),
            where="--html",
            fix=Text(N_("name one, e.g. {examples}"), examples="--html accuracy.html"),
        )
    with screen.progress() as progress:
        found = api.validate(runs, tiers=tiers, leave_out=leave_out or "", progress=progress)
    if html is not None:
        screen.note(say(N_("written to {path}"), path=write_file(html, found.html(current()), force=screen.force)))

    return screen.answer(
        Answer(
            kind="validate",
            document=lambda: document("validate", found.document),
            draw=lambda view: render.validate.draw(found, view, worst=worst),
            grid=lambda: render.validate.grid(found),
            lines=lambda: found.lines,
            yes=found.summary.compared > 0,
        )
    )


LARGEST = 64 * 10**6  # bytes of standard input
