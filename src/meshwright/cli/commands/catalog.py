"""`meshwright catalog list|show|add|validate`: what is known, and from where."""

from __future__ import annotations

from typing import Any

import click

from meshwright.cli import render
from meshwright.cli.click_parts import Group
from meshwright.cli.options import language, option, verb
from meshwright.cli.output import Answer, Grid, Screen
from meshwright.errors import UnknownNameError
from meshwright.messages import N_

command = Group(
    "catalog",
    help=N_("Models, accelerators, nodes, clusters, links and prices: every value with its source and basis."),
    examples=("catalog list", "catalog list models qwen", "catalog show h100-sxm", "catalog validate my-node.toml"),
    context_settings={"help_option_names": ["-h", "--help"]},
    params=[language()],
)

KIND = option("--kind", metavar="KIND", envvar=None,
              help=N_("accelerators, nodes, clusters, links, prices or models."))  # fmt: skip


@verb("list", help=N_("List entries, of one kind or all, whose name contains a text."),
      examples=("catalog list", "catalog list accelerators", "catalog list models llama --jsonl"))  # fmt: skip
@click.argument("kind", required=False)
@click.argument("contains", required=False, default="")
def list_command(screen: Screen, kind: str | None, contains: str) -> int:
    """List."""
    from meshwright.serialize import document, to_json

    rows = _rows(kind, contains)
    return screen.answer(
        Answer(
            kind="catalog-list",
            document=lambda: document("catalog-list", {"entries": rows}),
            draw=lambda view: render.catalog.draw_list(rows, view),
            grid=lambda: render.catalog.list_grid(rows),
            lines=lambda: [to_json(row) for row in rows],
            yes=bool(rows),
        )
    )


def _rows(kind: str | None, contains: str) -> Any:
    """Entries; a single word that is no kind is looked for in the names of all kinds."""
    from meshwright import api

    try:
        return api.catalog_list(kind, contains)
    except UnknownNameError:
        found = [] if contains or kind is None else api.catalog_list(None, kind)
        if not found:
            raise
        return found


@verb("show", help=N_("Show one entry: every value with unit, basis, source and date."),
      examples=("catalog show h100-sxm", "catalog show llama-3.1-70b --json"))  # fmt: skip
@click.argument("name")
@KIND
def show_command(screen: Screen, name: str, kind: str | None) -> int:
    """Show."""
    from meshwright import api
    from meshwright.serialize import document

    entry = api.catalog_show(name, kind)
    return screen.answer(
        Answer(
            kind="catalog-entry",
            document=lambda: document("catalog-entry", entry),
            draw=lambda view: render.catalog.draw_entry(entry, view),
            grid=lambda: render.catalog.entry_grid(entry),
        )
    )


@verb("add", help=N_("Check a TOML file and add it to your own catalogue."),
      examples=("catalog add my-node.toml", "catalog add my-model.toml --replace"))  # fmt: skip
@click.argument("file")
@KIND
@option("--replace", is_flag=True, envvar=None, help=N_("Replace an entry of the same name in your catalogue."))
def add_command(screen: Screen, file: str, kind: str | None, replace: bool) -> int:
    """Add."""
    from meshwright import api
    from meshwright.serialize import document

    added = api.catalog_add(file, kind=kind, replace=replace)
    row = (added.kind, added.id, added.path, added.replaces)
    return screen.answer(
        Answer(
            kind="catalog-added",
            document=lambda: document("catalog-added", added),
            draw=lambda view: render.catalog.draw_added(added, view),
            grid=lambda: Grid(
                keys=("kind", "id", "path", "replaces"),
                heads=("kind", "id", "path", "replaces"),
                rows=(row,),
                raw=(row,),
            ),
        )
    )


@verb("validate", help=N_("Check files, folders or the whole catalogue. Exits with 1 when something is wrong."),
      examples=("catalog validate", "catalog validate my-node.toml"))  # fmt: skip
@click.argument("files", nargs=-1)
def validate_command(screen: Screen, files: tuple[str, ...]) -> int:
    """Validate."""
    from meshwright import api
    from meshwright.serialize import document, to_json

    findings = api.catalog_validate(files)
    broken: Any = [f for f in findings if f.severity == "error"]
    return screen.answer(
        Answer(
            kind="catalog-findings",
            document=lambda: document("catalog-findings", {"findings": findings}),
            draw=lambda view: render.catalog.draw_findings(findings, view),
            grid=lambda: render.catalog.findings_grid(findings),
            lines=lambda: [to_json(finding) for finding in findings],
            yes=not broken,
        )
    )


for each in (list_command, show_command, add_command, validate_command):
    command.add_command(each)
