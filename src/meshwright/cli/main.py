"""Entry point: language, exit codes, and errors that teach. Imports click only."""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from typing import Any

import click

from meshwright import __version__
from meshwright.cli.click_parts import Option, Root
from meshwright.cli.language import say, speaking, tell
from meshwright.errors import EXIT_INTERNAL, EXIT_USAGE, MeshwrightError
from meshwright.messages import LANGUAGES, N_

EXIT_INTERRUPTED = 130


class Shell(Root):
    """The root group; `main` holds the contract of exit codes and streams, also under click's test runner."""

    def main(self, args: Sequence[str] | None = None, **extra: Any) -> Any:  # type: ignore[override]
        """Run, and always leave with one of 0, 1, 2, 3, 70, 130."""
        arguments = list(sys.argv[1:] if args is None else args)
        extra.pop("standalone_mode", None)
        extra.setdefault("prog_name", "meshwright")
        with speaking(arguments):
            sys.exit(self._run(arguments, extra))

    def _run(self, arguments: list[str], extra: dict[str, Any]) -> int:
        try:
            code = super().main(arguments, standalone_mode=False, **extra)
            sys.stdout.flush()
            return code if isinstance(code, int) else 0
        except click.exceptions.Exit as stop:
            return stop.exit_code
        except (click.Abort, KeyboardInterrupt):
            complain(say(N_("interrupted")))
            return EXIT_INTERRUPTED
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.format_message(), err=True)
            return EXIT_USAGE
        except click.UsageError as error:
            command = error.ctx.command_path if error.ctx else "meshwright"
            complain(error.format_message(), fix=say(N_("see `{command} --help`"), command=command))
            return EXIT_USAGE
        except click.ClickException as error:
            complain(error.format_message())
            return EXIT_USAGE
        except BrokenPipeError:
            # The reader went away (head, less): point stdout at nothing, so that the interpreter can close it quietly.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        except MeshwrightError as error:
            if error.exit_code == EXIT_INTERNAL:
                return _internal(error, arguments)
            complain(tell(error.text), where=error.where, fix=tell(error.fix))
            return error.exit_code
        except Exception as error:
            return _internal(error, arguments)


def complain(what: str, *, where: str = "", fix: str = "") -> None:
    """One error on stderr: what, where, and the nearest fix."""
    lines = [say(N_("error: {what}"), what=what)]
    if where and where not in what:
        lines.append(say(N_("  where: {where}"), where=where))
    if fix:
        lines.append(say(N_("  try:   {fix}"), fix=fix))
    click.echo("\n".join(lines), err=True)


def _internal(error: Exception, arguments: list[str]) -> int:
    report = "".join(traceback.format_exception(error))
    with tempfile.NamedTemporaryFile("w", prefix="meshwright-", suffix=".txt", delete=False, encoding="utf-8") as file:
        file.write(f"meshwright {__version__}\nPython {sys.version}\narguments: {arguments}\n\n{report}")
    complain(
        say(N_("internal error: {error}"), error=f"{type(error).__name__}: {error}".splitlines()[0]),
        fix=say(N_("report it with the file {path}"), path=file.name),
    )
    if "-v" in arguments or "--verbose" in arguments:
        click.echo(report, err=True)
    return EXIT_INTERNAL


def _version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        click.echo(f"meshwright {__version__}")
        ctx.exit()


@click.group(
    cls=Shell,
    help=N_("Plan the distributed training of a model: partition, memory, speed and cost, before you pay."),
    examples=(
        "plan llama-3.1-70b --cluster h100-sxm:512",
        "estimate llama-3.1-8b --cluster h100-sxm:8 --framework fsdp --mbs 2",
        "explain tensor-parallel",
    ),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--lang", cls=Option, type=click.Choice(LANGUAGES), help=N_("Language of texts; results in JSON keep English keys.")
)
@click.option("--version", cls=Option, is_flag=True, expose_value=False, is_eager=True, callback=_version,
              help=N_("Show the version and exit."))  # fmt: skip
def cli(lang: str | None) -> None:
    """The root command; `--lang` was read before parsing."""


def main() -> None:
    """Console script."""
    cli.main()
