"""The error tree. Each error says what, where, why and the nearest fix, and carries its exit code.

MeshwrightError                 anything we raise on purpose
├── UsageError        exit 2    wrong flags, unreadable or invalid input
│   ├── InputError              a file or value that cannot be understood (knows where)
│   └── UnknownNameError        a catalogue name nobody knows (knows the closest names)
└── MissingExtraError exit 3    a needed extra is not installed, or a part that waits for a later release

"Does not fit" is an answer, not an error: see `spec.finding`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from meshwright.messages import N_, Text

EXIT_OK = 0
EXIT_NO = 1
EXIT_USAGE = 2
EXIT_MISSING = 3
EXIT_INTERNAL = 70


class MeshwrightError(Exception):
    """Base of all deliberate errors; `text` is translatable, `fix` the nearest remedy, `where` a path or flag."""

    exit_code = EXIT_INTERNAL
    code = "internal"

    def __init__(self, text: Text, *, where: str = "", fix: Text | None = None) -> None:
        super().__init__(str(text))
        self.text = text
        self.where = where
        self.fix = fix


class UsageError(MeshwrightError):
    """Wrong usage or invalid input."""

    exit_code = EXIT_USAGE
    code = "usage"


class InputError(UsageError):
    """An input that cannot be read or makes no sense."""

    code = "input"


class UnknownNameError(UsageError):
    """A name that resolves to nothing, or to several things."""

    code = "unknown-name"

    def __init__(self, what: str | Text, name: str, known: Iterable[str], *, ambiguous: bool = False) -> None:
        known, name = sorted(known), name[:80]
        lower = {k.lower(): k for k in known}
        near = difflib.get_close_matches(name.lower(), lower, n=4, cutoff=0.5)
        close = known if ambiguous else [lower[k] for k in near]
        if ambiguous:
            text = Text(N_("{what} '{name}' is ambiguous"), what=what, name=name)
        else:
            text = Text(N_("no {what} is called '{name}'"), what=what, name=name)
        fix = (
            Text(N_("did you mean {names}?"), names=", ".join(close[:8]))
            if close
            else Text(N_("see `meshwright catalog list`"))
        )
        super().__init__(text, where=name, fix=fix)
        self.known = known
        self.ambiguous = ambiguous


class MissingExtraError(MeshwrightError):
    """Something that needs an extra which is not installed."""

    exit_code = EXIT_MISSING
    code = "missing-extra"
