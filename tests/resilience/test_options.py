"""What people write about failures: units, names, and the nearest fix where it makes no sense."""

from __future__ import annotations

import pytest

from meshwright.errors import InputError, UnknownNameError, UsageError
from meshwright.resilience.options import options


def test_units_are_understood() -> None:
    o = options({
        "mtti": "3h", "repair": "2d", "interval": "30min", "write": "200GB/s", "read": "400Gb/s", "slowdown": "5%",
        "spare_nodes": "12", "kept": 3, "policy": "two-tier", "recovery": "manual", "spare_kind": "hot",
        "storage": "nfs",
    })  # fmt: skip
    assert (o.mtti, o.repair, o.interval) == (10800, 172800, 1800)
    assert (o.write, o.read, o.slowdown) == (200e9, 50e9, 0.05)
    assert (o.spare_nodes, o.kept, o.mode, o.recovery, o.spare_kind) == (12, 3, "two-tier", "manual", "hot")


def test_a_rate_is_of_a_thousand_node_days() -> None:
    source = options({"rate": "5"}).source
    assert source is not None and source.rate == pytest.approx(5e-3 / 86400)


def test_names_of_the_catalogue() -> None:
    source = options({"failures": "llama-3"}).source
    assert source is not None and source.id == "llama-3-405b"
    with pytest.raises(UnknownNameError, match="nobody"):
        options({"failures": "nobody"})
    with pytest.raises(UnknownNameError, match="floppy"):
        options({"storage": "floppy"})


@pytest.mark.parametrize(
    ("given", "error", "where"),
    [
        ({"policy": "asynch"}, InputError, "--policy"),
        ({"interval": "30"}, InputError, ""),
        ({"interval": "0s"}, InputError, "--interval"),
        ({"kept": "0"}, InputError, "--keep"),
        ({"spare_nodes": "1.5"}, InputError, "--spare-nodes"),
        ({"write": "200Gb"}, InputError, "--storage-write"),
        ({"slowdown": "2000%"}, InputError, "--slow"),
        ({"rate": "-3"}, InputError, "--rate"),
        ({"rate": "3", "failures": "default"}, UsageError, "--failures --rate"),
        ({"mtti": "3h", "failures": "default"}, UsageError, "--failures --mtti"),
        ({"interval": "1h", "steps": "10"}, UsageError, "--interval --steps"),
        ({"trials": "1e9"}, InputError, "--trials"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_fix(given: dict[str, str], error: type, where: str) -> None:
    with pytest.raises(error) as caught:
        options(given)
    assert caught.value.fix and (not where or caught.value.where == where)
