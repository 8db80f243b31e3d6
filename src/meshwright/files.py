"""Files that a user names: read whole but bounded, and decoded; whatever fails is one `InputError` with its fix."""

from __future__ import annotations

import codecs
import re
import sys
from pathlib import Path

from meshwright.errors import InputError
from meshwright.messages import N_, Text

# Editors and shells of Windows save text in these; the longer marks stand first because they begin like the shorter.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


# What the system and Python's parsers say most often; anything else is passed on as it is.
_SAID = (
    N_("No such file or directory"), N_("Permission denied"), N_("Is a directory"), N_("Not a directory"),
    N_("File exists"), N_("No space left on device"), N_("File name too long"), N_("Read-only file system"),
    N_("Expecting value"), N_("Expecting ',' delimiter"), N_("Expecting ':' delimiter"), N_("Extra data"),
    N_("Expecting property name enclosed in double quotes"), N_("Unterminated string starting at"),
    N_("Illegal trailing comma before end of object"), N_("Illegal trailing comma before end of array"),
    N_("Expected '=' after a key in a key/value pair"), N_("Invalid statement"), N_("Invalid value"),
    N_("Unclosed array"), N_("Unterminated string"), N_("Cannot overwrite a value"), N_("Invalid hex value"),
    N_("Expected newline or end of document after a statement"), N_("Invalid initial character for a key part"),
    N_("Expected ']' at the end of a table declaration"), N_("Unclosed inline table"),
)  # fmt: skip
# How the parsers of TOML and of JSON say where.
_AT = re.compile(
    r"(?P<what>.*?)(?: \(at (?:end of document|line (?P<line>\d+), column (?P<column>\d+))\)"
    r"|: line (?P<row>\d+) column (?P<place>\d+) \(char \d+\))",
    re.DOTALL,
)


def reason_of(error: BaseException) -> Text:
    """What the system or a parser says went wrong, without the path, which the message names already."""
    message = getattr(error, "strerror", None) or str(error) or type(error).__name__
    placed = _AT.fullmatch(message)
    if placed is None:
        return said(message)
    what, line = said(placed["what"]), placed["line"] or placed["row"]
    if line is None:
        return Text(N_("{what}, at the end of the file"), what=what)
    column = placed["column"] or placed["place"]
    return Text(N_("{what}, at line {line}, column {column}"), what=what, line=line, column=column)


def said(message: str) -> Text:
    """A message of the system, translated where it is a known one."""
    return Text(message) if message in _SAID else Text(N_("{note}"), note=message)


def is_file(path: str | Path) -> bool:
    """Whether there is such a file that may be looked at; a folder that is closed to us holds none."""
    try:
        return Path(path).is_file()
    except (OSError, ValueError):  # too long for a name, no permission, a NUL in it
        return False


def read_stdin(*, largest: int, hint: str) -> bytes:
    """Standard input, at most `largest` bytes; `hint` is an example of a pipe, for who forgot to write one."""
    if sys.stdin is None or sys.stdin.isatty():
        raise InputError(
            Text(N_("standard input is to be read, but nothing is piped into it")),
            where="-",
            fix=Text(N_("write it like {examples}"), examples=hint),
        )
    return bounded(sys.stdin.buffer.read(largest + 1), largest=largest, where="-")


def read_bytes(path: str | Path, *, largest: int, fix: Text) -> bytes:
    """The content of a file of at most `largest` bytes; never more is read, so that a device cannot fill the memory."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(largest + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise InputError(
            Text(N_("cannot read the file: {reason}"), reason=reason_of(error)), where=str(path), fix=fix
        ) from None
    return bounded(content, largest=largest, where=str(path))


def bounded(content: bytes, *, largest: int, where: str) -> bytes:
    """`content` if it has at most `largest` bytes."""
    if len(content) > largest:
        raise InputError(
            Text(N_("larger than {limit} MB: this is not the file that is expected here"), limit=largest // 10**6),
            where=where,
            fix=Text(N_("check the path")),
        )
    return content


def decode(content: str | bytes, *, where: str) -> str:
    """The text in `content`: UTF-8, or UTF-16 or UTF-32 that says so with a byte order mark."""
    if isinstance(content, str):
        return content.removeprefix("\ufeff")
    encoding = next((name for mark, name in _MARKS if content.startswith(mark)), "utf-8")
    try:
        return content.decode(encoding)
    except UnicodeDecodeError:
        raise InputError(
            Text(N_("not a text file in UTF-8")), where=where, fix=Text(N_("save it as text in UTF-8"))
        ) from None
