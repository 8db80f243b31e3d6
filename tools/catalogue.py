"""`make locale`: extract marked sentences with Babel, update the Spanish catalogue, compile it, say what is missing.

Every `N_("…")` in src/meshwright and every message of click is a message id. Run with `--check` it changes nothing
and fails when the catalogue is not up to date.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.extract import extract
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "meshwright"
LOCALE = SOURCE / "locale"
LANGUAGES = ("es",)
OURS = {"N_": None}
CLICKS = {"_": None, "gettext": None, "ngettext": (1, 2)}


def template(*, with_click: bool = True) -> Catalog:
    """All messages of the source, with the files they stand in; click's without a place."""
    catalog = Catalog(project="meshwright", version="", charset="utf-8", fuzzy=False)
    for path in sorted(SOURCE.rglob("*.py")):
        with path.open("rb") as file:
            for _, message, comments, _ in extract("python", file, OURS, options={"encoding": "utf-8"}):
                if message:
                    place = path.relative_to(ROOT).as_posix()
                    catalog.add(message, locations=[(place, None)], auto_comments=comments, flags=_flags(message))
    if with_click:
        for message in click_messages():
            if message not in catalog:
                catalog.add(message, auto_comments=["click"])
    return catalog


def _flags(message: object) -> list[str]:
    return ["python-brace-format"] if isinstance(message, str) and "{" in message else []


def click_messages() -> list[object]:
    """What click says to users of a command line."""
    import click

    found: dict[object, None] = {}
    folder = Path(click.__file__).parent
    for name in ("core", "decorators", "exceptions", "formatting", "parser", "types"):
        with (folder / f"{name}.py").open("rb") as file:
            for _, message, _, _ in extract("python", file, CLICKS, options={"encoding": "utf-8"}):
                if message:
                    found[message] = None
    return list(found)


def po_path(language: str) -> Path:
    """Where the catalogue of a language lies."""
    return LOCALE / language / "LC_MESSAGES" / "meshwright.po"


def load(language: str) -> Catalog:
    """The catalogue as it is in the repository; empty where there is none yet."""
    path = po_path(language)
    if not path.exists():
        return Catalog(locale=language, project="meshwright", version="", charset="utf-8", fuzzy=False)
    with path.open("rb") as file:
        return read_po(file, locale=language, charset="utf-8")


def updated(language: str) -> Catalog:
    """The catalogue with the messages of the source: new ones empty, vanished ones dropped, nothing guessed."""
    old, wanted = load(language), template()
    fresh = Catalog(locale=language, project="meshwright", version="", charset="utf-8", fuzzy=False)
    # Two forms, as click's own English has; CLDR's third (for millions) never occurs here.
    fresh._num_plurals, fresh._plural_expr = 2, "(n != 1)"
    for message in wanted:
        if not message.id:
            continue
        before = old.get(message.id)
        translation = before.string if before is not None else ""
        places = sorted({place for place, _ in message.locations})
        fresh.add(message.id, translation, [(place, None) for place in places], message.flags, message.auto_comments)
    return fresh


def missing(catalog: Catalog) -> list[str]:
    """Ids without a translation."""
    return [str(m.id) for m in catalog if m.id and not (any(m.string) if isinstance(m.string, tuple) else m.string)]


def po_bytes(catalog: Catalog) -> bytes:
    """The text of the .po file: sorted, without line numbers and dates, so that it changes only when sentences do."""
    buffer = io.BytesIO()
    write_po(buffer, catalog, width=110, sort_output=True, include_lineno=False)
    lines = buffer.getvalue().decode().splitlines(keepends=True)
    dated = ("# FIRST", "# Copyright", '"POT-', '"PO-Rev', '"Generated', '"Last-', '"Language-Team', '"Report-')
    return "".join(line for line in lines if not line.startswith(dated)).encode()


def mo_bytes(catalog: Catalog) -> bytes:
    """The compiled catalogue."""
    buffer = io.BytesIO()
    write_mo(buffer, catalog)
    return buffer.getvalue()


def main(arguments: list[str]) -> int:
    """Update (or with `--check` only compare) every language."""
    failed = False
    for language in LANGUAGES:
        catalog = updated(language)
        text, path = po_bytes(catalog), po_path(language)
        if "--check" in arguments:
            failed |= not path.exists() or path.read_bytes() != text
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text)
            path.with_suffix(".mo").write_bytes(mo_bytes(catalog))
        gaps = missing(catalog)
        print(f"{language}: {len([m for m in catalog if m.id])} messages, {len(gaps)} not translated")
        for gap in gaps:
            print(f"  {gap!r}")
        failed |= bool(gaps)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
