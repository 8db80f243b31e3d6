"""Run every `$ meshwright …` of the READMEs and docs, and write what it prints beneath it.

    python tools/docs_output.py            refresh all pages
    python tools/docs_output.py --check    exit 1 if a page is out of date (digits and spaces do not count)

A fence ```console may say `head=N` (keep N lines, then …) and `exit=N` (expected code, 0 otherwise). The commands of
one page run in order in one empty folder that sees `docs/`, so that a page may use a file it wrote.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from click.testing import CliRunner

ROOT = Path(__file__).resolve().parents[1]
FENCE = re.compile(r"^```console *(?P<info>[^\n]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
CUT = "…"


@dataclass(frozen=True, slots=True)
class Run:
    """One command of a page: what to run, what it should exit with, how much of its output the page shows."""

    command: str
    exit_code: int
    head: int
    documented: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """What a command printed, cut as the page asks."""

    exit_code: int
    lines: tuple[str, ...]
    complaint: str


def pages() -> list[Path]:
    """READMEs and docs, generated reference pages apart."""
    found = [*ROOT.glob("README*.md"), *(ROOT / "docs").rglob("*.md")]
    return sorted(p for p in found if "reference" not in p.parts)


def runs(body: str, info: str) -> Iterator[Run]:
    """The commands of one fence with the output documented beneath each."""
    options = dict(part.split("=") for part in info.split())
    command, lines = "", []  # type: str, list[str]
    for line in [*body.splitlines(), "$ "]:
        if line.startswith("$ "):
            if command:
                yield Run(command, int(options.get("exit", 0)), int(options.get("head", 0)), tuple(lines))
            command, lines = line[2:], []
        else:
            lines.append(line)


def run(item: Run) -> Result:
    """Run one command in this process, in the current folder."""
    from meshwright.cli.main import cli

    words = shlex.split(item.command)
    if words[0] != "meshwright":
        raise ValueError(f"only meshwright commands belong in a console fence: {item.command}")
    result = CliRunner().invoke(cli, words[1:])
    lines = [line.rstrip() for line in result.stdout.splitlines()]
    while lines and not lines[-1]:
        lines.pop()
    if item.head and len(lines) > item.head:
        lines = [*lines[: item.head], CUT]
    return Result(result.exit_code, tuple(lines), result.stderr)


@contextmanager
def folder() -> Iterator[None]:
    """An empty working folder that sees `docs/`, with a catalogue of its own."""
    before, catalogue = Path.cwd(), os.environ.get("MESHWRIGHT_CATALOG")
    with tempfile.TemporaryDirectory() as path:
        os.chdir(path)
        Path("docs").symlink_to(ROOT / "docs")
        os.environ["MESHWRIGHT_CATALOG"] = "my-catalogue"
        try:
            yield
        finally:
            os.chdir(before)
            os.environ.pop("MESHWRIGHT_CATALOG")
            if catalogue is not None:
                os.environ["MESHWRIGHT_CATALOG"] = catalogue


def refreshed(text: str) -> str:
    """A page with the output of its commands as they print it now; what fails is reported and left as it was."""

    def replace(match: re.Match[str]) -> str:
        info, out = match["info"].strip(), []
        for item in runs(match["body"], info):
            result = run(item)
            if result.exit_code == item.exit_code:
                out += [f"$ {item.command}", *result.lines]
                continue
            print(f"{item.command}\n  exits with {result.exit_code}: {result.complaint}", file=sys.stderr)
            out += [f"$ {item.command}", *item.documented]
        return f"```console {info}".rstrip() + "\n" + "\n".join(out) + "\n```"

    with folder():
        return FENCE.sub(replace, text)


def shape(text: str) -> str:
    """A text without what changes when a constant is calibrated: digits, spaces, bars, ms or s."""
    return re.sub(r"\b(ms|s)\b|[\d.,kMBT%$ ─━█▓▒░·●○┆•]+", "", text)


def main() -> int:
    """Refresh or check all pages."""
    stale = []
    for page in pages():
        old = page.read_text("utf-8")
        new = refreshed(old)
        if "--check" not in sys.argv:
            page.write_text(new, "utf-8")
        elif shape(old) != shape(new):
            stale.append(page)
    for page in stale:
        print(f"{page.relative_to(ROOT)} is out of date: run python tools/docs_output.py", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
