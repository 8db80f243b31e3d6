"""The shell contract of the design, for every verb: streams, forms, exit codes, languages, errors."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from meshwright import api
from meshwright.cli.verbs import VERBS
from meshwright.errors import MissingExtraError
from meshwright.messages import Text

CALLS = {
    "estimate": ["estimate", "m", "--cluster", "c", "--tp", "8", "--pp", "4"],
    "plan": ["plan", "m", "--cluster", "c"],
    "scale": ["scale", "m", "--cluster", "c"],
    "size": ["size", "m", "--cluster", "c", "--deadline", "30d", "--tokens", "1T"],
    "explain": ["explain", "mfu"],
    "compare": ["compare", "--model", "m", "--cluster", "c", "--with", "tp8 pp4", "--with", "tp8 pp2"],
}
LISTS = ("plan", "scale", "size")
verbs = pytest.mark.parametrize("verb", CALLS)


@verbs
def test_json_is_one_document_and_stderr_silent(verb, run, stubbed):
    result = run(*CALLS[verb], "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["schema"] == f"meshwright.{verb}/1"
    assert document["meshwright_version"]
    assert result.stderr == ""


@verbs
def test_json_keys_stay_english(verb, run, stubbed):
    english, spanish = run(*CALLS[verb], "--json"), run(*CALLS[verb], "--json", "--lang", "es")
    assert json.loads(english.stdout) == json.loads(spanish.stdout)


@pytest.mark.parametrize("verb", LISTS)
def test_jsonl_is_one_object_per_line(verb, run, stubbed):
    lines = run(*CALLS[verb], "--jsonl").stdout.splitlines()
    assert len(lines) >= 3
    assert all(isinstance(json.loads(line), dict) for line in lines)


def test_jsonl_of_something_that_is_no_list(run, stubbed):
    result = run(*CALLS["estimate"], "--jsonl")
    assert result.exit_code == 2
    assert "--json" in result.stderr


@verbs
def test_csv_has_a_head_and_equal_rows(verb, run, stubbed):
    rows = list(csv.reader(io.StringIO(run(*CALLS[verb], "--format", "csv").stdout)))
    assert len(rows) > 1
    assert len({len(row) for row in rows}) == 1


@verbs
def test_markdown_is_a_table(verb, run, stubbed):
    lines = run(*CALLS[verb], "--format", "md").stdout.splitlines()
    assert lines[1].replace("-", "").replace("|", "").strip() == ""
    assert all(line.startswith("| ") and line.endswith(" |") for line in lines)


@verbs
@pytest.mark.parametrize("language", ["en", "es"])
def test_ascii_is_ascii(verb, language, run, stubbed):
    result = run(*CALLS[verb], "--ascii", "--lang", language)
    assert result.exit_code == 0
    assert result.stdout.isascii()


@verbs
def test_width_is_fixed_without_a_terminal(verb, run, stubbed):
    assert max(map(len, run(*CALLS[verb]).stdout.splitlines())) <= 100


@verbs
def test_plain_has_no_box_art(verb, run, stubbed):
    assert not set("─━┼╋└") & set(run(*CALLS[verb], "--format", "plain").stdout)


@verbs
def test_colour_only_on_demand(verb, run, stubbed, monkeypatch):
    assert "\x1b[" not in run(*CALLS[verb]).stdout
    assert "\x1b[" in run(*CALLS[verb], "--color", "always").stdout
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in run(*CALLS[verb]).stdout
    assert "\x1b[" not in run(*CALLS[verb], "--color", "never").stdout


def test_no_color_wins_over_a_terminal_but_not_over_force():
    from meshwright.cli.output import wants_color

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert wants_color("auto", Terminal(), {})
    assert not wants_color("auto", Terminal(), {"NO_COLOR": "1"})
    assert not wants_color("auto", Terminal(), {"TERM": "dumb"})
    assert wants_color("auto", io.StringIO(), {"NO_COLOR": "1", "FORCE_COLOR": "1"})
    assert wants_color("always", io.StringIO(), {"NO_COLOR": "1"})


@verbs
def test_output_file_is_written_once(verb, run, stubbed, tmp_path: Path):
    target = tmp_path / "result.json"
    first = run(*CALLS[verb], "--json", "-o", str(target))
    assert first.exit_code == 0 and first.stdout == ""
    before = target.read_text("utf-8")
    assert json.loads(before)["schema"] == f"meshwright.{verb}/1"
    again = run(*CALLS[verb], "--json", "-o", str(target))
    assert again.exit_code == 2 and "--force" in again.stderr and target.read_text("utf-8") == before
    assert run(*CALLS[verb], "--json", "-o", str(target), "--force").exit_code == 0


def test_exit_one_when_the_answer_is_no(run, stubbed, samples):
    stubbed.setattr(api, "estimate", lambda *_: samples.estimate("OVER"))
    stubbed.setattr(api, "plan", lambda *_, **__: samples.plan(fits=False))
    assert run(*CALLS["estimate"]).exit_code == 1
    result = run(*CALLS["plan"])
    assert result.exit_code == 1
    assert "NOTHING FITS" in result.stdout and "tp4" in result.stdout, "the closest misses are still shown"
    assert run(*CALLS["plan"], "--exit-zero").exit_code == 0


def test_refusal_is_an_answer(run, stubbed, samples):
    from meshwright.spec.estimate import Refusal

    estimate = samples.estimate()
    stubbed.setattr(api, "estimate", lambda *_: Refusal(strategy=estimate.strategy, findings=estimate.findings))
    result = run(*CALLS["estimate"])
    assert result.exit_code == 1 and "MW-X001" in result.stdout
    assert json.loads(run(*CALLS["estimate"], "--json").stdout)["schema"] == "meshwright.refusal/1"


@pytest.mark.parametrize("verb", [name for name, verb in VERBS.items() if not verb.module])
def test_verbs_of_later_releases_say_so(verb, run):
    result = run(verb, "some", "--flag", "x")
    assert result.exit_code == 3
    assert result.stdout == "" and "later release" in result.stderr


def test_missing_extra_is_three(run, stubbed):
    def missing(*_: object, **__: object) -> None:
        raise MissingExtraError(Text("no model is given"))

    stubbed.setattr(api, "plan", missing)
    assert run(*CALLS["plan"]).exit_code == 3


def test_internal_error_is_seventy_with_a_report_and_no_traceback(run, stubbed):
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("inside")

    stubbed.setattr(api, "plan", broken)
    result = run(*CALLS["plan"])
    assert result.exit_code == 70
    assert "Traceback" not in result.stderr and "ZeroDivisionError" in result.stderr
    report = Path(result.stderr.split()[-1])
    assert "Traceback" in report.read_text("utf-8")
    report.unlink()


def test_interrupt_is_130(run, stubbed):
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    stubbed.setattr(api, "plan", interrupted)
    assert run(*CALLS["plan"]).exit_code == 130


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["plann"], "plan"),
        (["estimte", "x"], "estimate"),
        (["plan", "m", "--clustr", "c"], "--cluster"),
        (["plan", "m", "--global-batch-size", "8"], "called --gbs"),
        (["estimate", "m", "--tensor_model_parallel_size=8"], "called --tp"),
        (["estimate", "m", "--cluster", "c", "--zero", "7"], "0, 1, 2, 3"),
        (["plan", "m", "--set", "job.sequence=3"], "job.seq_len"),
        (["plan", "m", "--set", "nonsense"], "--set job.dropout=true"),
        (["estimate", "m", "--config", "/does/not/exist.toml"], "/does/not/exist.toml"),
        (["explain", "/does/not/exist.json", "mfu"], "/does/not/exist.json"),
    ],
)
def test_wrong_usage_is_two_and_names_the_fix(arguments, expected, run, stubbed):
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert expected in result.stderr
    assert "Traceback" not in result.stderr


@verbs
def test_help_in_both_languages(verb, run):
    english, spanish = run(verb, "--help"), run("--lang", "es", verb, "--help")
    assert english.exit_code == spanish.exit_code == 0
    assert "Usage:" in english.stdout and "Uso:" in spanish.stdout
    assert "Show this message" not in spanish.stdout
    assert "Output:" not in spanish.stdout


@pytest.mark.parametrize("verb", [name for name, verb in VERBS.items() if verb.module])
def test_the_examples_of_the_help_are_calls_of_the_verb(verb, run):
    """Every example starts with the verb, and names only options the verb has."""
    lines = run(verb, "--help").stdout.splitlines()
    shown = lines[lines.index("Examples:") + 1 :]
    end = shown.index("")
    examples, described = [line.strip() for line in shown[:end]], "\n".join(shown[end:])
    assert examples
    for example in examples:
        words = example.split()
        assert words[:2] == ["meshwright", verb]
        assert all(word in described for word in words if word.startswith("--"))


@pytest.mark.parametrize("arguments", [("catalog", "list", "accelerators"), ("catalog", "--help"), ("plan", "--help")])
def test_the_language_may_stand_anywhere(arguments, run):
    """Before the verb, behind a verb that has verbs of its own, and at the end: the same Spanish."""
    first = run("--lang", "es", *arguments)
    assert first.exit_code == 0
    for place in range(1, len(arguments) + 1):
        moved = run(*arguments[:place], "--lang", "es", *arguments[place:])
        assert (moved.exit_code, moved.stdout) == (0, first.stdout)


def test_language_from_the_environment(run, monkeypatch):
    monkeypatch.setenv("LANG", "es_ES.UTF-8")
    assert "Uso:" in run("--help").stdout
    monkeypatch.setenv("MESHWRIGHT_LANG", "en")
    assert "Usage:" in run("--help").stdout


def test_errors_in_spanish(run):
    result = run("plann", "--lang", "es")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ningún verbo")


def test_version(run):
    from meshwright import __version__

    assert run("--version").stdout == f"meshwright {__version__}\n"


def test_help_imports_click_only():
    code = (
        "import sys; from meshwright.cli.main import cli\n"
        "try: cli.main(['--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'numpy', 'rich', 'pydantic', 'pint', 'scipy', 'jinja2'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def test_broken_pipe_is_quiet():
    command = f"{sys.executable} -m meshwright explain --help | head -c 5"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stderr == ""


def test_progress_is_silent_for_a_second_and_off_a_terminal(monkeypatch, capsys):
    from meshwright.cli import output

    clock = iter([0.0, 0.5, 1.5, 1.55, 3.0])
    monkeypatch.setattr(output.time, "monotonic", lambda: next(clock))
    bar = output.Progress(active=True)
    bar(0.1, "early")
    assert capsys.readouterr().err == ""
    bar(0.5, "now")
    assert "50%" in capsys.readouterr().err
    bar(0.6, "too soon")
    assert capsys.readouterr().err == ""
    output_off = output.Progress.__new__(output.Progress)
    output_off.active, output_off.start, output_off.last, output_off.shown = False, -10.0, -10.0, False
    output_off(0.9, "off")
    assert capsys.readouterr().err == ""
