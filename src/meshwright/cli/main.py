"""Entry point: language, exit codes, and errors that teach. Imports click only."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from typing import Any

import click

from meshwright import __version__
from meshwright.cli.click_parts import Option, Root
from meshwright.cli.elsewhere import our_name
from meshwright.cli.language import say, speaking, tell
from meshwright.cli.output import forgive
from meshwright.errors import EXIT_INTERNAL, EXIT_USAGE, MeshwrightError
from meshwright.files import reason_of
from meshwright.messages import LANGUAGES, N_, Text

EXIT_INTERRUPTED = 130


class Shell(Root):
    """The root group; `main` holds the contract of exit codes and streams, also under click's test runner."""

    def main(self, args: Sequence[str] | None = None, **extra: Any) -> Any:  # type: ignore[override]
        """Run, and always leave with one of 0, 1, 2, 3, 70, 130."""
        arguments = list(sys.argv[1:] if args is None else args)
        extra.pop("standalone_mode", None)
        extra.setdefault("prog_name", "meshwright")
        forgive(sys.stdout, sys.stderr)
        with speaking(arguments):
            sys.exit(self._run(arguments, extra))

    def _run(self, arguments: list[str], extra: dict[str, Any]) -> int:
        try:
            code = super().main(arguments, standalone_mode=False, **extra)
            if sys.stdout is not None:
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
            if isinstance(error, click.NoSuchOption) and (ours := our_name(error)):
                text = Text(N_("No such option {name!r}."), name=error.option_name)
                complain(tell(text), fix=say(N_("here it is called {name}"), name=ours))
                return EXIT_USAGE
            complain(error.format_message(), fix=say(N_("see `{command} --help`"), command=command))
            return EXIT_USAGE
        except click.ClickException as error:
            complain(error.format_message())
            return EXIT_USAGE
        except BrokenPipeError:
            _drop_output()
            return 0
        except OSError as error:  # a full disk, a folder that is gone: nothing that a report of a bug would mend
            _drop_output()
            text = Text(N_("the system refused: {reason}"), reason=reason_of(error))
            complain(tell(text), where=str(error.filename or ""), fix=say(N_("check the disk and the permissions")))
            return EXIT_USAGE
        except MeshwrightError as error:
            if error.exit_code == EXIT_INTERNAL:
                return _internal(error, arguments)
            complain(tell(error.text), where=error.where, fix=tell(error.fix))
            return error.exit_code
        except Exception as error:
            return _internal(error, arguments)


def _drop_output() -> None:
    """Point stdout at nothing, so that what is still buffered for a reader that went away can be closed quietly."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def complain(what: str, *, where: str = "", fix: str = "") -> None:
    """One error on stderr: what, where, and the nearest fix."""
    lines = [say(N_("error: {what}"), what=_clipped(what))]
    if where and f"'{where}'" not in what:  # not said twice
        lines.append(say(N_("  where: {where}"), where=_clipped(where)))
    if fix:
        lines.append(say(N_("  try:   {fix}"), fix=_clipped(fix)))
    click.echo("\n".join(lines), err=True)


def _clipped(text: str, most: int = 1000) -> str:
    """A sentence with a value of the user's in it, which may be a megabyte, at a length that can be read."""
    return text if len(text) <= most else f"{text[: most - 100]} … {text[-90:]}"


def _internal(error: Exception, arguments: list[str]) -> int:
    report = "".join(traceback.format_exception(error))
    said = say(N_("internal error: {error}"), error=f"{type(error).__name__}: {error}".splitlines()[0])
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="meshwright-", suffix=".txt", delete=False, encoding="utf-8", errors="backslashreplace"
        ) as file:
            file.write(f"meshwright {__version__}\nPython {sys.version}\narguments: {arguments}\n\n{report}")
    except OSError:  # nowhere to write: the report itself, then
        complain(said)
        click.echo(report, err=True)
        return EXIT_INTERNAL
    complain(said, fix=say(N_("report it with the file {path}"), path=file.name))
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
