"""Click, taught to speak the reader's language, to show examples first, and to load verbs only when called."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import click

from meshwright.cli.language import say
from meshwright.cli.verbs import LATER, VERBS
from meshwright.errors import MissingExtraError, UsageError
from meshwright.messages import N_, Text

OTHER = N_("Options")


class Option(click.Option):
    """An option whose help is a message id; `section` is the heading it stands under."""

    def __init__(self, *args: Any, section: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.section = section

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """The help record, translated."""
        original, self.help = self.help, say(self.help) if self.help else self.help
        try:
            return super().get_help_record(ctx)
        finally:
            self.help = original


class _Speaking(click.Command):
    """What commands and groups share: translated help, examples first, a help option made anew per language."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """Click caches this option with its text; the language may differ next time."""
        self._help_option = None
        return super().get_help_option(ctx)

    def get_short_help_str(self, limit: int = 45) -> str:
        """First line of the translated help."""
        return say(self.help) if self.help else ""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Options under the headings of their sections, in the order in which these appear."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if record is not None:
                sections.setdefault(getattr(parameter, "section", "") or OTHER, []).append(record)
        for section, records in sections.items():
            with formatter.section(say(section)):
                formatter.write_dl(records)
        if isinstance(self, click.Group):
            self.format_commands(ctx, formatter)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Examples, then the description."""
        if self.examples:
            with formatter.section(say(N_("Examples"))):
                for example in self.examples:
                    formatter.write(f"{'':>{formatter.current_indent}}meshwright {example}\n")
        if self.help:
            formatter.write_paragraph()
            with formatter.indentation():
                formatter.write_text(say(self.help))


class Command(_Speaking):
    """A verb."""


class Group(_Speaking, click.Group):
    """A verb with verbs of its own (`catalog`)."""

    command_class = Command


class Kind(NamedTuple):
    """One line of a table of kinds: the module whose `command` it is, and its one-line help."""

    module: str
    help: str


class Kinds(Group):
    """A verb whose kinds stand in a table, one file each, imported when it is called (`bench`)."""

    def __init__(self, *args: Any, kinds: Mapping[str, Kind], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.kinds = kinds

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the table."""
        return list(self.kinds)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the kind."""
        kind = self.kinds.get(cmd_name)
        return importlib.import_module(kind.module).command if kind else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table."""
        with formatter.section(say(N_("Kinds"))):
            formatter.write_dl([(name, say(kind.help)) for name, kind in self.kinds.items()])


class Root(Group):
    """All verbs, each imported when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the table."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the verb, or make the one that says it waits."""
        verb = VERBS.get(cmd_name)
        if verb is None:
            return None
        if not verb.module:
            return _waiting(cmd_name, verb.help)
        return importlib.import_module(f"meshwright.cli.commands.{verb.module}").command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The verb, or an error that names the closest ones."""
        name = args[0]
        if not name.startswith("-") and name not in VERBS:
            import difflib

            close = difflib.get_close_matches(name, VERBS, n=3, cutoff=0.5)
            raise UsageError(
                Text(N_("no verb is called '{name}'"), name=name[:60]),
                fix=Text(N_("did you mean {names}?"), names=", ".join(close))
                if close
                else Text(N_("see `{command} --help`"), command="meshwright"),
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Verbs by group; those that wait share one line."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for name, verb in VERBS.items():
            groups.setdefault(verb.group, []).append((name, say(verb.help)))
        waiting = groups.pop(LATER, [])
        for group, rows in groups.items():
            with formatter.section(say(group)):
                formatter.write_dl(rows)
        if waiting:
            with formatter.section(say(LATER)):
                formatter.write_text(", ".join(name for name, _ in waiting))


def _waiting(name: str, help: str) -> Command:
    def callback(arguments: tuple[str, ...]) -> None:
        raise MissingExtraError(
            Text(N_("`{verb}` waits for a later release and is not built yet"), verb=name),
            where=name,
            fix=Text(N_("what works today: {names}"), names=", ".join(n for n, v in VERBS.items() if v.module)),
        )

    return Command(
        name,
        callback=callback,
        help=help,
        params=[click.Argument(["arguments"], nargs=-1, type=click.UNPROCESSED)],
        context_settings={"ignore_unknown_options": True},
    )
