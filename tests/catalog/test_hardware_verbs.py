"""`catalog list|show|add|validate` as functions, and the user's own folder."""

from __future__ import annotations

import pytest

from meshwright.catalog import hardware, load, verbs
from meshwright.errors import InputError, UnknownNameError, UsageError

H100 = (load.DATA / "accelerators" / "h100-sxm.toml").read_text("utf-8")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    own = tmp_path / "own catalogue"
    monkeypatch.setenv(load.ENVIRONMENT, str(own))
    return own


def test_listing():
    rows = verbs.list_entries("accelerators")
    assert {row.id for row in rows} == set(load.ids("accelerators"))
    h100 = next(row for row in rows if row.id == "h100-sxm")
    assert h100.summary["peak_flops.bf16"] == "989 TFLOP/s"
    assert h100.origin == "shipped"
    assert {row.id for row in verbs.list_entries("nodes", "p5en")} == {"p5en-48xlarge"}
    assert {row.kind for row in verbs.list_entries()} >= {"accelerators", "nodes", "clusters", "links", "prices"}
    assert verbs.list_entries("accel") == rows
    assert verbs.list is verbs.list_entries
    with pytest.raises(UnknownNameError):
        verbs.list_entries("planets")


def test_showing_gives_source_and_basis_of_every_value():
    shown = verbs.show("h100-sxm")
    by_name = {value.name: value for value in shown.values}
    assert by_name["peak_flops.bf16"].si == 989e12
    assert by_name["memory"].unit == "GiB" and by_name["memory"].si == 80 * 2**30
    assert by_name["memory_usable"].basis == "assumed"
    assert all(value.source and value.basis and value.date for value in shown.values)
    assert shown.words["architecture"] == "hopper"
    assert verbs.show("h100-sxm", "prices").kind == "prices"
    assert verbs.show("ndr400").id == "infiniband-ndr400"
    with pytest.raises(UnknownNameError, match="catalogue entry"):
        verbs.show("h100-smx")


def test_adding_a_new_accelerator(tmp_path, folder):
    file = tmp_path / "mine.toml"
    file.write_text(H100.replace('id = "h100-sxm"', 'id = "h101"').replace('aliases = ["h100",', 'aliases = ["h101a",'))
    text = file.read_text().replace('default_node = "dgx-h100"\n', "")
    file.write_text("\n".join(line for line in text.splitlines() if not line.startswith("aliases")))
    added = verbs.add(file)
    assert (added.kind, added.id, added.replaces) == ("accelerators", "h101", "")
    assert hardware.accelerator("h101").compute_units == 132
    assert next(row for row in verbs.list_entries("accelerators") if row.id == "h101").origin == "user"
    with pytest.raises(InputError, match="already has"):
        verbs.add(file)
    assert verbs.add(file, replace=True).replaces == "user"
    with pytest.raises(InputError, match="no usual host"):
        hardware.cluster("h101:8")


def test_a_users_file_hides_the_shipped_one(tmp_path, folder):
    file = tmp_path / "h100-sxm.toml"
    file.write_text(H100.replace("value = 3350", "value = 3000"))
    assert hardware.accelerator("h100-sxm").memory_bandwidth == 3350e9
    assert verbs.add(file).replaces == "shipped"
    assert hardware.accelerator("h100").memory_bandwidth == 3000e9
    assert hardware.cluster("h100-sxm:8").accelerator.memory_bandwidth == 3000e9


def test_the_cache_follows_the_file(folder):
    path = folder / "accelerators" / "h100-sxm.toml"
    path.parent.mkdir(parents=True)
    for rate in (3000, 31000):
        path.write_text(H100.replace("value = 3350", f"value = {rate}"))
        assert hardware.accelerator("h100-sxm").memory_bandwidth == rate * 1e9


def test_a_faulty_file_in_the_users_folder_is_named(folder):
    path = folder / "accelerators" / "bad.toml"
    path.parent.mkdir(parents=True)
    path.write_text('id = "bad"\nname = "Bad"\n')
    with pytest.raises(InputError, match="'vendor' is missing") as caught:
        hardware.accelerator("bad")
    assert str(path) in caught.value.where
    assert hardware.accelerator("h100").id == "h100-sxm"


FAULTS = [
    (('"GiB"', '"Gib"'), "MW-CATALOG-VALUE", "unit 'Gib'"),
    (("value = 3350", 'value = "fast"'), "MW-CATALOG-VALUE", "not a number"),
    (("value = 3350", "value = 3350000000"), "MW-CATALOG-VALUE", "outside what is possible"),
    (("value = 3350", "value = nan"), "MW-CATALOG-VALUE", "outside what is possible"),
    (("value = 132", "value = 132.5"), "MW-CATALOG-VALUE", "whole number"),
    (('basis = "measured"', 'basis = "guessed"'), "MW-CATALOG-BASIS", "guessed"),
    (('date = "2026-08-22"', 'date = "last year"'), "MW-CATALOG-DATE", "YYYY-MM-DD"),
    (('kind = "gpu"', 'kind = "toaster"'), "MW-CATALOG-CHOICE", "toaster"),
    (('vendor = "NVIDIA"\n', ""), "MW-CATALOG-MISSING", "vendor"),
    (('vendor = "NVIDIA"', 'seller = "NVIDIA"'), "MW-CATALOG-FIELD", "seller"),
    (('link_id = "nvlink4"', 'link_id = "nvlink44"'), "MW-CATALOG-REFERENCE", "nvlink44"),
    (('default_node = "dgx-h100"', 'default_node = "dgx-a100"'), "MW-CATALOG-REFERENCE", "another accelerator"),
    (("value = 79.2", "value = 80.5"), "MW-CATALOG-MEMORY", "more memory"),
    (("value = 794.5", "value = 995"), "MW-CATALOG-VALUE", "above the peak"),
    (("[peak_flops]", "[peak_flops"), "MW-CATALOG-FILE", "not valid TOML"),
]


@pytest.mark.parametrize(("change", "code", "says"), FAULTS)
def test_validate_finds_each_fault(tmp_path, folder, change, code, says):
    assert change[0] in H100
    file = tmp_path / "h100-sxm.toml"
    file.write_text(H100.replace(change[0], change[1], 1))
    found = verbs.validate([file])
    assert any(f.code == code and says in str(f.message) for f in found), [(f.code, str(f.message)) for f in found]
    with pytest.raises(UsageError):
        verbs.add(file)
    assert not (folder / "accelerators").exists()


def test_validate_a_folder_and_the_whole_catalogue(tmp_path, folder):
    (tmp_path / "h100-sxm.toml").write_text(H100)
    assert verbs.validate([tmp_path]) == []
    (tmp_path / "nothing").mkdir()
    with pytest.raises(InputError, match="no TOML file"):
        verbs.validate([tmp_path / "nothing"])
    assert [f for f in verbs.validate() if f.code != "MW-CATALOG-MODEL"] == []


def test_an_alias_taken_twice_is_found(folder):
    path = folder / "accelerators" / "twin.toml"
    path.parent.mkdir(parents=True)
    path.write_text(H100.replace('id = "h100-sxm"', 'id = "twin"'))
    assert any(f.code == "MW-CATALOG-ALIAS" and "h100" in str(f.message) for f in verbs.validate())


@pytest.mark.parametrize("id", ["../escape", "a/b", "", "UPPER", "x" * 5 + "\\n", 7])
def test_an_id_cannot_leave_the_folder(tmp_path, folder, id):
    file = tmp_path / "x.toml"
    given = f'id = "{id}"' if isinstance(id, str) else f"id = {id}"
    file.write_text(H100.replace('id = "h100-sxm"', given))
    with pytest.raises(UsageError):
        verbs.add(file)


def test_a_folder_that_cannot_be_written(tmp_path, monkeypatch):
    blocker = tmp_path / "file"
    blocker.write_text("")
    monkeypatch.setenv(load.ENVIRONMENT, str(blocker))
    file = tmp_path / "h100-sxm.toml"
    file.write_text(H100)
    with pytest.raises(InputError, match="cannot write") as caught:
        verbs.add(file)
    assert load.ENVIRONMENT in str(caught.value.fix)


def test_a_price_and_a_node_can_be_added(tmp_path, folder):
    price = (load.DATA / "prices" / "h100-sxm.toml").read_text("utf-8")
    (tmp_path / "p.toml").write_text(price.replace("value = 3.47", "value = 3.0"))
    assert verbs.add(tmp_path / "p.toml").kind == "prices"
    assert hardware.cluster("h100-sxm:8").price_per_device_hour == 3.0
