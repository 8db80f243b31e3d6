"""Where results and notes go, and in which form: stdout for the result, stderr for everything else."""

from __future__ import annotations

import codecs
import io
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from meshwright.cli.language import say, tell
from meshwright.errors import InputError
from meshwright.files import is_file, reason_of
from meshwright.messages import N_, Text

if TYPE_CHECKING:
    from meshwright.settings import Settings

FORMATS = ("table", "plain", "csv", "md")
GLYPHS = "█│●→"  # a stream that writes these writes everything we draw
WIDTH = 100  # where there is no terminal to ask
NARROWEST, WIDEST = 80, 120


def wants_color(choice: str, stream: TextIO, environ: Mapping[str, str] | None = None) -> bool:
    """`--color`, then FORCE_COLOR, then NO_COLOR, then a dumb terminal, then whether `stream` is a terminal."""
    environ = os.environ if environ is None else environ
    if choice != "auto":
        return choice == "always"
    if environ.get("FORCE_COLOR"):
        return True
    if environ.get("NO_COLOR") or environ.get("TERM") == "dumb":
        return False
    return bool(getattr(stream, "isatty", lambda: False)())


class Verbatim(str):
    """The text of a file: printed as it is, however long its lines are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The main table of a result: keys for machines, heads for people, cells as text and raw values in base units."""

    keys: tuple[str, ...]
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    raw: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a verb found: the record for JSON, how to draw it, its main table, and whether the answer is yes."""

    kind: str
    document: Callable[[], Mapping[str, Any]]
    draw: Callable[[View], Iterable[Any]]
    grid: Callable[[], Grid]
    lines: Callable[[], Sequence[Mapping[str, Any]]] | None = None  # for --jsonl
    yes: bool = True
    forms: Mapping[str, Callable[[], str]] = field(default_factory=dict)  # texts for other programs, by --format


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """How results are to be drawn."""

    width: int = WIDTH
    ascii: bool = False
    plain: bool = False
    exact: bool = False

    def value(self, value: Any, unit: str) -> str:
        """A quantity: three figures with a prefix, or exactly in its base unit."""
        from meshwright import units

        if self.exact and isinstance(value, (int, float)) and not isinstance(value, bool):
            return f"{value:,.12g} {unit}".strip()
        return units.show(value, unit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """One invocation's choices about output."""

    json: bool = False
    jsonl: bool = False
    format: str = "table"
    output: str | None = None
    force: bool = False
    color: str = "auto"
    ascii: bool = False
    exact: bool = False
    quiet: bool = False
    verbose: bool = False
    exit_zero: bool = False
    settings: Settings = field(default=None)  # type: ignore[assignment]

    @property
    def talks(self) -> bool:
        """Whether notes go to stderr."""
        return not self.quiet and (self.verbose or not (self.json or self.jsonl))

    def note(self, text: str) -> None:
        """A remark beside the result."""
        if self.talks:
            click.echo(text, err=True)

    def answer(self, answer: Answer) -> int:
        """Print or write the result; the exit code says yes or no."""
        self._write(self._text(answer))
        return 0 if answer.yes or self.exit_zero else 1

    def _text(self, answer: Answer) -> str:
        bare = self.ascii or not self._stream_writes(GLYPHS)
        if self.jsonl:
            from meshwright.serialize import dumps

            if answer.lines is None:
                raise InputError(
                    Text(N_("this result is not a list")),
                    where="--jsonl",
                    fix=Text(N_("use {option}"), option="--json"),
                )
            return "".join(dumps(line, indent=None, ascii=bare) + "\n" for line in answer.lines())
        if self.json:
            from meshwright.serialize import dumps

            return dumps(answer.document(), ascii=bare) + "\n"
        if self.format in answer.forms:
            text = answer.forms[self.format]()
        elif self.format == "csv":
            text = _csv(answer.grid())
        elif self.format == "md":
            text = _markdown(answer.grid())
        else:
            text = self._drawn(answer)
        return to_ascii(text) if self.ascii or not self._stream_writes(text) else text

    def _stream_writes(self, text: str) -> bool:
        """Whether the place the result goes to can hold these characters."""
        return writes(sys.stdout if self.output in (None, "-") else None, text)

    def _drawn(self, answer: Answer) -> str:
        from rich.console import Console

        stream = sys.stdout
        color = self.output in (None, "-") and self.format != "plain" and wants_color(self.color, stream)
        color = color or self.color == "always"
        width = _width(stream) if self.output in (None, "-") else WIDTH
        ascii = self.ascii or not self._stream_writes(GLYPHS)
        console = Console(
            file=io.StringIO(), width=width, force_terminal=color, no_color=not color, highlight=False, markup=False,
            emoji=False, color_system="standard" if color else None, legacy_windows=False, _environ={},
        )  # fmt: skip
        view = View(width=width, ascii=ascii, plain=self.format == "plain", exact=self.exact)
        for part in answer.draw(view):
            if isinstance(part, Verbatim):
                console.file.write(f"{part}\n")
            else:
                console.print(part)
        text = console.file.getvalue()  # type: ignore[attr-defined]
        return "".join(line.rstrip() + "\n" for line in text.splitlines())

    def _write(self, text: str) -> None:
        if self.output in (None, "-"):
            if sys.stdout is not None:  # None: closed by the caller (`>&-`), who wants the exit code only
                sys.stdout.write(text)
                sys.stdout.flush()
            return
        path = write_file(str(self.output), text, force=self.force)
        self.note(say(N_("written to {path}"), path=path))

    def progress(self) -> Progress:
        """A bar on stderr, only on a terminal and only when the work takes longer than a second."""
        return Progress(active=self.talks and sys.stderr is not None and sys.stderr.isatty())


class Progress:
    """A callable `(fraction, message)`; silent during its first second."""

    DELAY, EVERY, CELLS = 1.0, 0.1, 30

    def __init__(self, *, active: bool) -> None:
        self.active = active
        self.start = self.last = time.monotonic()
        self.shown = False

    def __call__(self, fraction: float, message: Any = "") -> None:
        now = time.monotonic()
        if not self.active or now - self.start < self.DELAY or now - self.last < self.EVERY:
            return
        self.last, self.shown = now, True
        full = round(self.CELLS * min(max(fraction, 0.0), 1.0))
        bar = "#" * full + "." * (self.CELLS - full)
        sys.stderr.write(f"\r[{bar}] {100 * fraction:3.0f}% {tell(message):<40.40}")
        sys.stderr.flush()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self.shown:
            sys.stderr.write("\r" + " " * (self.CELLS + 50) + "\r")
            sys.stderr.flush()


def check_target(name: str | None, *, force: bool) -> None:
    """Refuse a file that `write_file` would refuse, before work is spent on what it is to hold."""
    if name not in (None, "-") and not force and is_file(str(name)):
        raise _exists(Path(str(name)))


def _exists(path: Path) -> InputError:
    return InputError(
        Text(N_("the file exists already and is not overwritten")),
        where=str(path),
        fix=Text(N_("use {option}"), option="--force"),
    )


def write_file(name: str, text: str, *, force: bool) -> Path:
    """Write a file of the user's; one that exists stays as it is, unless `force`."""
    path = Path(name)
    try:
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise _exists(path) from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise InputError(
            Text(N_("cannot write the file: {reason}"), reason=reason_of(error)),
            where=str(path),
            fix=Text(N_("name a file in a folder you can write to")),
        ) from error
    return path


def _width(stream: TextIO) -> int:
    if not getattr(stream, "isatty", lambda: False)():
        return WIDTH
    import shutil

    return min(max(shutil.get_terminal_size((WIDTH, 24)).columns, NARROWEST), WIDEST)


def writes(stream: TextIO | None, text: str) -> bool:
    """Whether `stream` (None: a file in UTF-8) can hold every character of `text`; a lone surrogate fits nowhere."""
    try:
        text.encode("utf-8" if stream is None else stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _spell(error: UnicodeError) -> tuple[str, int]:
    """Codec error handler: what a stream cannot encode is spelled in ASCII."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return to_ascii(error.object[error.start : error.end]), error.end


SPELLED = "meshwright-spelled"  # the name of that handler
codecs.register_error(SPELLED, _spell)


def forgive(*streams: TextIO | None) -> None:
    """Let no character, of a name in a file or of Spanish, be an error on a stream of another encoding."""
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=SPELLED)


# One for one, so that columns stay aligned.
_ASCII = str.maketrans({
    "·": "-", "×": "x", "→": ">", "±": "~", "…": ".", "≤": "<", "≥": ">", "²": "2", "µ": "u", "—": "-", "–": "-",
    "█": "#", "▓": "%", "▒": "=", "░": ":", "│": "|", "─": "-", "┆": "!", "●": "*", "○": "o", "•": "+", "◆": "@",
    "└": "`", "├": "|", "┌": "+", "┐": "+", "┘": "+", "┼": "+", "┴": "+", "┬": "+", "╵": "'", "▲": "^",
    "▏": "|", "━": "=",
    "“": '"', "”": '"', "’": "'", "¿": "?", "¡": "!", "Ψ": "P", "α": "a", "β": "b", "√": "v", "−": "-",
})  # fmt: skip


def to_ascii(text: str) -> str:
    """The text in ASCII, column for column: symbols by a table, letters without their accents."""
    import unicodedata

    text = text.translate(_ASCII)
    if text.isascii():
        return text
    bare = "".join(c for c in unicodedata.normalize("NFD", text) if not unicodedata.combining(c))
    return bare.encode("ascii", "replace").decode("ascii")


def _csv(grid: Grid) -> str:
    import csv

    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(grid.keys)
    writer.writerows([["" if cell is None else cell for cell in row] for row in grid.raw])
    return buffer.getvalue()


def _markdown(grid: Grid) -> str:
    def line(cells: Iterable[str]) -> str:
        return "| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in cells) + " |\n"

    return line(grid.heads) + line("---" for _ in grid.heads) + "".join(line(row) for row in grid.rows)
