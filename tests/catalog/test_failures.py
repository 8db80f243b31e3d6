"""Failure rates and storage of the catalogue, and files of a user's own that say something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshwright.catalog import failures as known
from meshwright.catalog.constants import names
from meshwright.errors import InputError, UnknownNameError

DAY = 86400.0


@pytest.mark.parametrize("name", names("failures"))
def test_every_rate_lies_in_its_range(name: str) -> None:
    source = known.failure_source(name)
    assert 0 < source.low < source.rate < source.high
    assert 1e-3 < source.rate * DAY < 30e-3, "a few in a thousand node-days, as every published system"
    assert sum(cause.share for cause in source.causes) == pytest.approx(1)


@pytest.mark.parametrize("name", names("storage"))
def test_storage_never_gives_a_node_more_than_all_or_its_cards(name: str) -> None:
    for nodes in (1, 64, 4096):
        found = known.storage(name, nodes, 50e9)
        assert 0 < found.node_write <= min(found.write, 50e9) and 0 < found.node_read <= min(found.read, 50e9)


def test_storage_that_grows_with_the_cluster() -> None:
    """20 nodes of the 'better' grade write 20 GB/s and read 40; one node alone writes at most 4."""
    found = known.storage("superpod-better", 20, 400e9)
    assert (found.write, found.read, found.node_write, found.node_read) == (20e9, 40e9, 4e9, 8e9)
    assert known.storage("tectonic", 20, 400e9).write == known.storage("tectonic", 2000, 400e9).write == 2e12


def test_unknown_names_say_which_are_close() -> None:
    with pytest.raises(UnknownNameError) as caught:
        known.failure_source("lamma-3-405b")
    assert "llama-3-405b" in str(caught.value.fix)


OWN = """id = "mine"
title = "Our cluster"
[constants.rate]
value = {value}
unit = "{unit}"
basis = "measured"
source = "incident reports"
{more}
[constants.node_size]
value = 4
unit = "1"
basis = "documented"
source = "rack plan"
"""


def own(folder: Path, kind: str, text: str) -> None:
    (folder / kind).mkdir(parents=True, exist_ok=True)
    (folder / kind / "mine.toml").write_text(text, "utf-8")


def test_a_rate_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MESHWRIGHT_CATALOG", str(tmp_path))
    own(tmp_path, "failures", OWN.format(value=0.004, unit="1/node/day", more="range = [0.003, 0.006]"))
    source = known.failure_source("mine")
    assert (source.rate * DAY, source.low * DAY, source.high * DAY) == pytest.approx((0.004, 0.003, 0.006))
    assert source.node_size == 4 and source.causes


@pytest.mark.parametrize(
    ("value", "unit", "more"),
    [("-1", "1/node/day", ""), ("nan", "1/node/day", ""), ('"x"', "1/node/day", ""), ("0", "1/node/day", ""),
     ("0.004", "1/node/week", ""), ("0.004", "1/node/day", 'range = ["a", 1]'), ("0.004", "1/node/day", "range = [1]"),
     ("inf", "1/node/day", ""), ("true", "parsec", "")],
)  # fmt: skip
def test_what_makes_no_sense_names_the_file(
    value: str, unit: str, more: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MESHWRIGHT_CATALOG", str(tmp_path))
    own(tmp_path, "failures", OWN.format(value=value, unit=unit, more=more))
    with pytest.raises(InputError) as caught:
        known.failure_source("mine")
    assert "mine.toml" in caught.value.where and "constants.rate" in str(caught.value)


@pytest.mark.parametrize("text", ["", "constants = 3\n", "[constants]\nwrite = 4\n", "[constants.write]\nvalue = 1\n"])
def test_storage_that_says_nothing_is_refused(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MESHWRIGHT_CATALOG", str(tmp_path))
    own(tmp_path, "storage", text)
    with pytest.raises(InputError):
        known.storage("mine", 8, 1e9)
