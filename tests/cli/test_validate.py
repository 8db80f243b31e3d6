"""`meshwright validate` as a command: the document, filters, stdin, the page, exit codes."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROWS = Path(__file__).parents[1] / "data/measured_runs/rows.csv"
CALL = ("validate", str(ROWS))
KEYS = ["id", "predicted_tokens_per_s_per_gpu", "measured_tokens_per_s_per_gpu", "error", "interval",
        "predicted_peak_bytes", "measured_peak_bytes", "memory_error", "skipped", "tier", "accelerator",
        "framework"]  # fmt: skip


def one_tier(tmp_path: Path, tier: str) -> str:
    """A file with the rows of one tier only."""
    lines = ROWS.read_text("utf-8").splitlines()
    kept = [row for row in csv.DictReader(lines) if row["tier"] == tier]
    out = io.StringIO()
    writer = csv.DictWriter(out, lines[0].split(","))
    writer.writeheader()
    writer.writerows(kept)
    path = tmp_path / "rows.csv"
    path.write_text(out.getvalue(), "utf-8")
    return str(path)


def test_the_document_has_exactly_its_keys(run):
    result = run(*CALL, "--json")
    assert result.exit_code == 0
    assert result.stderr == ""
    document = json.loads(result.stdout)
    assert list(document) == ["schema", "meshwright_version", "rows", "summary"]
    assert document["schema"] == "meshwright.validate/1"
    assert all(list(row) == KEYS for row in document["rows"])
    assert len(document["rows"]) == len(list(csv.DictReader(ROWS.read_text("utf-8").splitlines())))
    for row in document["rows"]:
        if row["skipped"] is None and row["error"] is not None:
            rate, measured = row["predicted_tokens_per_s_per_gpu"], row["measured_tokens_per_s_per_gpu"]
            assert row["error"] == pytest.approx(rate / measured - 1)
            assert len(row["interval"]) == 2
        if row["memory_error"] is not None:
            assert row["memory_error"] == pytest.approx(row["predicted_peak_bytes"] / row["measured_peak_bytes"] - 1)


def test_keys_and_reasons_stay_english(run):
    assert run(*CALL, "--json").stdout == run(*CALL, "--json", "--lang", "es").stdout


def test_jsonl_is_one_row_a_line(run):
    lines = [json.loads(line) for line in run(*CALL, "--jsonl").stdout.splitlines()]
    assert lines == json.loads(run(*CALL, "--json").stdout)["rows"]


def test_csv_has_a_column_per_key(run):
    rows = list(csv.reader(io.StringIO(run(*CALL, "--format", "csv").stdout)))
    assert rows[0] == KEYS
    assert {len(row) for row in rows} == {len(KEYS)}


def test_tiers_filter(run):
    tiers = {row["tier"] for row in json.loads(run(*CALL, "--tier", "A,a-", "--json").stdout)["rows"]}
    assert tiers == {"A", "A-"}
    assert run(*CALL, "--tier", "Z").exit_code == 2


def test_stdin_is_a_file_too(run):
    assert run("validate", "-", "--json", input=ROWS.read_bytes()).stdout == run(*CALL, "--json").stdout


def test_one_when_no_row_could_be_compared(run, tmp_path):
    assert run("validate", one_tier(tmp_path, "C")).exit_code == 1
    assert run("validate", one_tier(tmp_path, "C"), "--exit-zero").exit_code == 0


@pytest.mark.parametrize("content", ["", "a,b\n1,2\n", ROWS.read_text("utf-8").splitlines()[0]])
def test_two_for_what_is_no_table(run, tmp_path, content):
    path = tmp_path / "bad.csv"
    path.write_text(content, "utf-8")
    result = run("validate", str(path))
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "try:" in result.stderr


def test_two_for_a_file_that_is_not_there(run):
    assert run("validate", "nowhere.csv").exit_code == 2


@pytest.mark.parametrize("language", ["en", "es"])
def test_the_text_names_groups_worst_rows_and_reasons(run, language):
    text = run(*CALL, "--lang", language).stdout
    for words in ("a100-sxm-80gb", "megatron", "mx-110", "C"):
        assert words in text
    assert run(*CALL, "--lang", language, "--ascii").stdout.isascii()
    assert len(run(*CALL, "--worst", "0").stdout.splitlines()) < len(run(*CALL).stdout.splitlines())


def test_the_page_is_written_once_and_with_force_again(run, tmp_path):
    page = tmp_path / "page.html"
    assert run(*CALL, "--html", str(page), "--lang", "es").exit_code == 0
    assert '<html lang="es">' in page.read_text("utf-8")
    assert run(*CALL, "--html", str(page)).exit_code == 2
    assert run(*CALL, "--html", str(page), "--force").exit_code == 0
    assert '<html lang="en">' in page.read_text("utf-8")


def test_the_page_does_not_mix_with_the_result(run):
    assert run(*CALL, "--html", "-").exit_code == 2


def test_no_progress_where_nobody_looks(tmp_path):
    done = subprocess.run([sys.executable, "-m", "meshwright", *CALL, "--json"], capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stderr == ""
