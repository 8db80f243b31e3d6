"""`meshwright bench`: the table of kinds, refusals, and how measurements are drawn. Measuring itself: tests/judges."""

from __future__ import annotations

import csv
import dataclasses
import importlib.util
import io
import json
from pathlib import Path

import pytest
from measured import measurements

from meshwright import api
from meshwright.bench.device import compared
from meshwright.cli.commands.bench import KINDS

without_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="torch is installed here")


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The api answering with measurements made by hand."""
    monkeypatch.setattr(api, "bench_device", lambda **_: compared(measurements()))
    return monkeypatch


def test_the_help_lists_every_kind_in_both_languages(run):
    english, spanish = run("bench", "--help"), run("bench", "--help", "--lang", "es")
    assert english.exit_code == spanish.exit_code == 0
    assert all(kind in english.stdout and kind in spanish.stdout for kind in KINDS)
    assert "Kinds:" in english.stdout and "Clases:" in spanish.stdout


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_module_with_its_own_help(run, kind):
    result = run("bench", kind, "--help")
    assert result.exit_code == 0
    assert f"meshwright bench {kind}" in result.stdout


@without_torch
def test_without_torch_it_names_the_extra(run):
    result = run("bench", "device", "--seconds", "5")
    assert (result.exit_code, result.stdout) == (3, "")
    assert "meshwright[torch]" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("device", "--only", "gemmm"), "gemm, grouped_gemm"),
        (("device", "--seconds", "4000"), "nearest legal value is 300"),
        (("device", "--seconds", "soon"), "--seconds"),
        (("device", "--processes", "1.5"), "whole number"),
        (("device", "--accelerator", "h1000"), "did you mean"),
        (("devize",), "devize"),
    ],
)
def test_wrong_usage_is_two_and_names_the_fix(run, arguments, said):
    result = run("bench", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr and "Traceback" not in result.stderr


def test_rates_shares_and_ratios_are_drawn(run, answered):
    """8192³ in 1.75 ms is 628 TFLOP/s, 64 % of 989; a copy of 1 GiB in 0.8 ms is 2.68 TB/s, 80 % of 3.35."""
    text = run("bench", "device").stdout
    assert "628 TFLOP/s" in text and "64%" in text
    assert "2.68 TB/s" in text and "80%" in text
    assert "NVIDIA H100 80GB HBM3" in text and "1,755 MHz" in text
    assert "no time was left for it" in text


def test_furthest_off_stands_first(run, answered):
    """A send that takes ten times as long as predicted leads the list."""
    slow = dataclasses.replace(measurements().samples[0], seconds=1.75e-2, seconds_min=1.7e-2, shape={"m": 8192,
                               "n": 8192, "k": 8191})  # fmt: skip
    found = compared(measurements(samples=(*measurements().samples, slow)))
    answered.setattr(api, "bench_device", lambda **_: found)
    text = run("bench", "device").stdout
    rows = text[text.index("Where the model is furthest off") :].splitlines()[4:]
    assert "k 8,191" in rows[0] + rows[1]


def test_an_unknown_device_shows_rates_only(run, answered):
    nameless = measurements(device=dataclasses.replace(measurements().device, accelerator=None))
    answered.setattr(api, "bench_device", lambda **_: compared(nameless))
    text = run("bench", "device").stdout
    assert "628 TFLOP/s" in text and "--accelerator" in text
    assert "predicted" not in text.replace("nothing is predicted", "")


def test_spanish(run, answered):
    text = run("bench", "device", "--lang", "es").stdout
    assert "Mejores ritmos" in text and "producto de matrices" in text and "Un paso de entrenamiento" in text


def test_ascii_and_width(run, answered):
    result = run("bench", "device", "--ascii", "--lang", "es")
    assert result.stdout.isascii()
    assert max(map(len, result.stdout.splitlines())) <= 100


def test_json_is_the_measurement_file_with_predictions(run, answered):
    document = json.loads(run("bench", "device", "--json").stdout)
    assert document["schema"] == "meshwright.bench-device/1"
    assert all(line["predicted_seconds"] > 0 and line["rate"] > 0 for line in document["samples"])
    assert document["steps"][0]["predicted_peak_bytes"] > 1e9


def test_save_writes_the_same_file_beside_the_tables(run, answered, tmp_path: Path):
    from meshwright.bench.records import load

    target = tmp_path / "measured.json"
    result = run("bench", "device", "--save", str(target))
    assert result.exit_code == 0 and "628 TFLOP/s" in result.stdout and str(target) in result.stderr
    assert load(target) == measurements()


@pytest.mark.parametrize("option", ["--save", "--output"])
def test_a_file_that_exists_is_refused_before_anything_is_measured(run, monkeypatch, tmp_path: Path, option):
    def measured(**_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(api, "bench_device", measured)
    target = tmp_path / "measured.json"
    target.write_text("mine", "utf-8")
    result = run("bench", "device", option, str(target))
    assert result.exit_code == 2 and "--force" in result.stderr
    assert target.read_text("utf-8") == "mine"


def test_csv_and_jsonl_have_a_line_per_sample(run, answered):
    rows = list(csv.reader(io.StringIO(run("bench", "device", "--format", "csv").stdout)))
    assert len(rows) == 1 + len(measurements().samples)
    lines = run("bench", "device", "--jsonl").stdout.splitlines()
    assert len(lines) == len(measurements().samples) + 1


def test_nothing_measured_is_a_no(run, answered):
    answered.setattr(api, "bench_device", lambda **_: compared(measurements(samples=(), steps=())))
    assert run("bench", "device").exit_code == 1


def test_another_rank_of_a_launcher_says_nothing(run, answered):
    answered.setattr(api, "bench_device", lambda **_: None)
    result = run("bench", "device", "--json")
    assert (result.exit_code, result.output) == (0, "")


def test_a_file_is_shown_without_torch_beside_what_is_predicted_today(run, tmp_path: Path):
    from meshwright.bench.records import as_document
    from meshwright.serialize import dumps

    path = tmp_path / "measured.json"
    path.write_text(dumps(as_document(measurements(), [{"predicted_seconds": 123.0}])), "utf-8")
    text = run("bench", "device", "--from", str(path)).stdout
    assert "628 TFLOP/s" in text and "64%" in text
    found = json.loads(run("bench", "device", "--from", str(path), "--json").stdout)
    assert 0 < found["samples"][0]["predicted_seconds"] < 0.01, "not what an earlier release predicted"


@pytest.mark.parametrize(
    ("text", "said"),
    [("{}", "meshwright.bench-device"), ("8192", "meshwright.bench-device"), ("fast", "not JSON"), ("", "not JSON")],
)
def test_a_file_that_holds_something_else_is_refused(run, tmp_path: Path, text, said):
    path = tmp_path / "measured.json"
    path.write_text(text, "utf-8")
    result = run("bench", "device", "--from", str(path))
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr and "--save" in result.stderr
