"""`recommend-hook` as a user runs it, and `bench` of collectives without torch."""

from __future__ import annotations

import importlib.util
import json

import pytest

CALL = ("recommend-hook", "llama-3.2-1b", "--cluster", "g6e-48xlarge:16", "--gbs", "16", "--seq", "1024")


def test_the_document_has_the_options_in_base_units(run):
    result = run(*CALL, "--json")
    document = json.loads(result.stdout)
    assert document["schema"] == "meshwright.recommend-hook/1"
    assert document["options"][0]["hook"] == "allreduce"
    assert document["recommended"] in {option["hook"] for option in document["options"]}
    assert result.exit_code == (0 if document["fits"] else 1)
    assert document["ranks"] == 16


def test_tables_in_both_languages_name_the_recommendation(run):
    english, spanish = run(*CALL), run(*CALL, "--lang", "es")
    assert "recommended:" in english.stdout and "recomendado:" in spanish.stdout
    assert "powersgd" in english.stdout
    assert run(*CALL, "--ascii").stdout.isascii()


def test_csv_has_one_line_per_hook(run):
    lines = run(*CALL, "--format", "csv").stdout.splitlines()
    assert lines[0].startswith("hook,wire_bytes")
    assert len(lines) == 7


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="torch is installed here")
@pytest.mark.parametrize("kind", ["allreduce", "hooks"])
def test_without_torch_the_extra_is_named_and_the_exit_code_is_3(run, kind):
    result = run("bench", kind)
    assert result.exit_code == 3
    assert "torch" in result.stderr and "pip install" in result.stderr
