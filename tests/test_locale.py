"""Every sentence has its Spanish twin with the same placeholders, and what is compiled is what is written."""

from __future__ import annotations

import ast
import gettext
import string
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "meshwright"

pytest.importorskip("babel")
sys.path.insert(0, str(ROOT / "tools"))
import catalogue  # noqa: E402


def _strings(message: object) -> tuple[str, ...]:
    return message if isinstance(message, tuple) else (str(message),)


def _fields(text: str) -> set[str]:
    return {name.split("!")[0] for _, name, _, _ in string.Formatter().parse(text) if name is not None}


def _has_words(text: str) -> bool:
    """Whether anything is left to translate beside placeholders."""
    return any(c.isalpha() for literal, _, _, _ in string.Formatter().parse(text) for c in literal)


@pytest.fixture(scope="module", params=catalogue.LANGUAGES)
def language(request: pytest.FixtureRequest) -> str:
    return request.param


def test_every_marked_sentence_is_in_the_catalogue_and_translated(language: str) -> None:
    written = catalogue.load(language)
    absent, empty = [], []
    for message in catalogue.template(with_click=False):
        if not message.id:
            continue
        twin = written.get(message.id)
        if twin is None:
            absent.append(message.id)
        elif not all(_strings(twin.string)) or twin.fuzzy:
            empty.append(message.id)
    assert not absent, "run `make locale`"
    assert not empty, "translate them in the .po file, then run `make locale`"


def test_nothing_is_left_over(language: str) -> None:
    wanted = catalogue.template()
    ours = [m for m in catalogue.load(language) if m.id and m.locations]
    assert [m.id for m in ours if m.id not in wanted] == [], "run `make locale`"


def test_placeholders_match(language: str) -> None:
    wrong = []
    for message in catalogue.load(language):
        if not message.id or not all(_strings(message.string)):
            continue
        expected = set().union(*map(_fields, _strings(message.id)))
        for translation in _strings(message.string):
            found = _fields(translation)
            if (found - expected) or (len(_strings(message.id)) == 1 and found != expected):
                wrong.append((message.id, translation))
    assert not wrong


def test_compiled_equals_written(language: str) -> None:
    path = catalogue.po_path(language).with_suffix(".mo")
    with path.open("rb") as file:
        compiled = gettext.GNUTranslations(file)
    for message in catalogue.load(language):
        if message.id and not message.fuzzy and isinstance(message.id, str) and message.string:
            assert compiled.gettext(message.id) == message.string, "run `make locale`"


def test_sentences_are_marked() -> None:
    """`Text("…")` without `N_` would never be translated, and an f-string never matches its template."""
    unmarked = []
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not (isinstance(node, ast.Call) and node.args):
                continue
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            first = node.args[0]
            literal = isinstance(first, ast.JoinedStr) or (
                isinstance(first, ast.Constant) and isinstance(first.value, str) and _has_words(first.value)
            )
            if name in ("Text", "say") and literal:
                unmarked.append(f"{path.relative_to(ROOT)}:{node.lineno}")
            if name == "N_" and not (isinstance(first, ast.Constant) and isinstance(first.value, str)):
                unmarked.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not unmarked
