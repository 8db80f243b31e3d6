"""Constants of kernels, software, memory and accuracy: each with unit, basis and source; names and inheritance."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from meshwright.catalog import load, verbs
from meshwright.catalog.constants import DATA, constants, names
from meshwright.errors import UnknownNameError

KINDS = ("kernels", "software", "memory", "accuracy", "failures", "storage", "recovery")
BASES = {"documented", "measured", "fitted", "modelled", "assumed"}
FILES = [path for kind in KINDS for path in sorted((DATA / kind).glob("*.toml"))]


@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_every_constant_has_a_unit_a_basis_and_a_source(path: Any) -> None:
    document = tomllib.loads(path.read_text("utf-8"))
    assert document["id"] == path.stem and document["title"]
    for name, entry in document["constants"].items():
        assert {"value", "unit", "basis", "source"} <= set(entry), name
        assert entry["basis"] in BASES and entry["source"].strip(), name
        if "range" in entry:
            low, high = entry["range"]
            assert low <= entry["value"] <= high, name


def test_a_file_inherits_what_it_does_not_say() -> None:
    own, parent = constants("kernels", "hopper"), constants("kernels", "default")
    assert own["matmul_sustained"] != parent["matmul_sustained"]
    assert own["host_launch"] == parent["host_launch"]
    assert constants("software", "megatron-2022")["fused_attention"] is False
    assert constants("software", "megatron-2022")["gradient_bytes"] == 4


def test_an_unknown_name_says_which_there_are() -> None:
    with pytest.raises(UnknownNameError, match="megatron-cor"):
        constants("software", "megatron-cor")
    assert "megatron-core" in names("software")


def test_software_and_kernels_are_entries_of_the_catalogue() -> None:
    listed = {(row.kind, row.id) for row in verbs.list_entries("software")}
    assert ("software", "megatron-core") in listed
    shown = verbs.show("hopper", "kernels")
    assert {v.name for v in shown.values} >= {"constants.matmul_sustained", "constants.attention_forward"}
    assert all(v.source and v.basis for v in shown.values)
    assert set(load.NOUNS) >= set(verbs.listed_kinds())
