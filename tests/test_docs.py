"""The READMEs and docs are true: their commands run, their links lead somewhere, both languages say the same."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))
import docs_output  # noqa: E402

PAGES = docs_output.pages()
WITH_COMMANDS = [page for page in PAGES if docs_output.FENCE.search(page.read_text("utf-8"))]
TWINS = [(page.with_suffix("").with_suffix(".md"), page) for page in PAGES if page.name.endswith(".es.md")]
BASH = re.compile(r"^```bash\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=name_of)
def test_every_command_of_a_page_runs(page: Path) -> None:
    """Exit codes are those the page states, and the first line printed is the documented one, digits apart."""
    with docs_output.folder():
        for match in docs_output.FENCE.finditer(page.read_text("utf-8")):
            for item in docs_output.runs(match["body"], match["info"]):
                result = docs_output.run(item)
                assert result.exit_code == item.exit_code, f"{item.command}\n{result.complaint}"
                assert bool(result.lines) == bool(item.documented), f"{item.command}: run python tools/docs_output.py"
                for printed, documented in zip(result.lines[:1], item.documented, strict=False):
                    assert docs_output.shape(printed) == docs_output.shape(documented), item.command


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_to_files(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text("utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    text = page.read_text("utf-8")
    code = [*BASH.findall(text), *re.findall(r"`(make [^`]*)`", text)]
    assert {t for part in code for t in re.findall(r"\bmake ([a-z]+)", part)} <= targets


def commands(page: Path) -> list[str]:
    """Commands of a page without what may differ between languages."""
    text = page.read_text("utf-8")
    found = [item.command for m in docs_output.FENCE.finditer(text) for item in docs_output.runs(m["body"], m["info"])]
    for spanish, english in (("--lang es ", ""), ("burbuja", "bubble"), ('"paralelismo de datos"', "data-parallel")):
        found = [command.replace(spanish, english) for command in found]
    return found


@pytest.mark.parametrize(("english", "spanish"), TWINS, ids=[name_of(p) for _, p in TWINS])
def test_both_languages_have_the_same_parts(english: Path, spanish: Path) -> None:
    texts = [page.read_text("utf-8") for page in (english, spanish)]
    for pattern in (r"^#+ ", r"^```", r"^\|", r"^- "):
        counts = [len(re.findall(pattern, re.sub(docs_output.FENCE, "```\n```", text), re.MULTILINE)) for text in texts]
        assert counts[0] == counts[1], pattern
    assert commands(english) == commands(spanish)
    assert all("--lang es" in line for line in re.findall(r"^\$ .*", texts[1], re.MULTILINE))


def test_readme_names_every_verb_that_works() -> None:
    from meshwright.cli.verbs import VERBS

    text = (ROOT / "README.md").read_text("utf-8")
    assert [verb for verb, spec in VERBS.items() if spec.module and f"`{verb}`" not in text] == []


@pytest.mark.parametrize("path", sorted((ROOT / "docs/examples").glob("*.toml")), ids=lambda p: p.name)
def test_examples_are_toml(path: Path) -> None:
    assert tomllib.loads(path.read_text("utf-8"))
