"""Every sentence a person reads: a template with named placeholders, translated at the edge.

The core builds `Text(N_("needs {need}, has {have}"), need=..., have=...)`; nothing is concatenated.
A shell renders it in the reader's language with `render`. `N_` only marks a template for extraction by Babel.
"""

from __future__ import annotations

import gettext
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

LOCALE_DIR = Path(__file__).parent / "locale"
LANGUAGES = ("en", "es")


def N_(template: str) -> str:
    """Mark `template` for translation; returns it unchanged."""
    return template


@dataclass(frozen=True, slots=True, init=False)
class Text:
    """A translatable sentence: English template (the message id) and the values for its placeholders."""

    template: str
    values: Mapping[str, Any] = field(default_factory=dict)

    def __init__(self, template: str, **values: Any) -> None:
        object.__setattr__(self, "template", template)
        object.__setattr__(self, "values", values)

    def render(self, language: str = "en") -> str:
        """The sentence in `language`, placeholders filled (nested `Text` values are rendered too)."""
        values = {k: v.render(language) if isinstance(v, Text) else v for k, v in self.values.items()}
        return translate(self.template, language).format(**values)

    def __str__(self) -> str:
        return self.render("en")


@lru_cache(maxsize=len(LANGUAGES))
def _catalogue(language: str) -> Callable[[str], str]:
    if language == "en":
        return lambda message: message
    return gettext.translation("meshwright", LOCALE_DIR, languages=[language]).gettext


def translate(template: str, language: str) -> str:
    """`template` in `language`, unfilled; the empty string stays empty (gettext would return its header)."""
    return _catalogue(language)(template) if template else ""


def pick_language(requested: str | None = None, environ: Mapping[str, str] | None = None) -> str:
    """The language to speak: `--lang`, then MESHWRIGHT_LANG, LC_ALL, LC_MESSAGES, LANG, then English."""
    environ = os.environ if environ is None else environ
    for value in (requested, *(environ.get(k) for k in ("MESHWRIGHT_LANG", "LC_ALL", "LC_MESSAGES", "LANG"))):
        if value:
            code = value.replace("-", "_").split("_")[0].split(".")[0].lower()
            return code if code in LANGUAGES else "en"
    return "en"
