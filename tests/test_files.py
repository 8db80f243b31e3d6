"""Reading files that a user names: bounded, decoded, and always with a fix."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from meshwright import files
from meshwright.errors import InputError
from meshwright.messages import Text

FIX = Text("use {option}", option="--config")


@pytest.mark.parametrize("path", ["/does/not/exist", "/", "a\0b", "x" * 5000])
def test_what_cannot_be_read_is_one_error_with_its_fix(path: str) -> None:
    with pytest.raises(InputError) as caught:
        files.read_bytes(path, largest=10, fix=FIX)
    assert caught.value.fix is FIX and caught.value.where == path
    assert not files.is_file(path)


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs an endless file")
def test_an_endless_file_does_not_fill_the_memory() -> None:
    with pytest.raises(InputError, match="larger than"):
        files.read_bytes("/dev/zero", largest=1_000_000, fix=FIX)


def test_exactly_as_large_as_allowed(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"12345")
    assert files.read_bytes(path, largest=5, fix=FIX) == b"12345"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_every_encoding_that_says_what_it_is(encoding: str) -> None:
    assert files.decode("á € 🚀".encode(encoding), where="x") == "á € 🚀"


def test_other_bytes_are_refused() -> None:
    with pytest.raises(InputError, match="UTF-8") as caught:
        files.decode(b"\x80\x81", where="x")
    assert caught.value.fix is not None


@pytest.mark.parametrize("stdin", [None, "terminal"])
def test_nothing_piped_is_an_error_not_a_wait(stdin: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Terminal() if stdin else None)
    with pytest.raises(InputError, match="piped"):
        files.read_stdin(largest=10, hint="cat x | meshwright plan -")
