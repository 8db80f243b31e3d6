"""The reader's language during one invocation, and what is said in it. Imports nothing heavy."""

from __future__ import annotations

import gettext
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from meshwright.messages import LOCALE_DIR, Text, pick_language

_current: ContextVar[str] = ContextVar("language", default="en")


def current() -> str:
    """The language of this invocation."""
    return _current.get()


def say(template: str, **values: Any) -> str:
    """`template` (marked with N_) in the reader's language, filled."""
    return Text(template, **values).render(_current.get())


def tell(text: Text | str | None) -> str:
    """A `Text` of a record in the reader's language; plain strings are looked up as they are."""
    if text is None:
        return ""
    return text.render(_current.get()) if isinstance(text, Text) else say("{text}", text=_translated(text))


def _translated(text: str) -> str:
    from meshwright.messages import translate

    return translate(text, _current.get())


def requested(arguments: Sequence[str]) -> str | None:
    """The value of `--lang` in raw arguments, before anything is parsed: help and errors need it too."""
    for i, argument in enumerate(arguments):
        if argument == "--":
            break
        if argument == "--lang" and i + 1 < len(arguments):
            return arguments[i + 1]
        if argument.startswith("--lang="):
            return argument.partition("=")[2]
    return None


@contextmanager
def speaking(arguments: Sequence[str]) -> Iterator[str]:
    """Set the language for one invocation, for our own texts and for click's (which go through gettext)."""
    language = pick_language(requested(arguments))
    token = _current.set(language)
    domain, before = gettext.textdomain(), os.environ.get("LANGUAGE")
    gettext.bindtextdomain("meshwright", str(LOCALE_DIR))
    gettext.textdomain("meshwright")
    os.environ["LANGUAGE"] = language
    try:
        yield language
    finally:
        gettext.textdomain(domain)
        if before is None:
            os.environ.pop("LANGUAGE", None)
        else:
            os.environ["LANGUAGE"] = before
        _current.reset(token)
