"""Project files: found upwards, layered, checked, with the nearest fix."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright import settings
from meshwright.errors import InputError


def test_found_upwards_and_layered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user = tmp_path / "config" / "meshwright" / "config.toml"
    user.parent.mkdir(parents=True)
    user.write_text("[job]\nseq_len = 1024\nprecision = 'fp16'\n", "utf-8")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    project = tmp_path / "project"
    deep = project / "a" / "b"
    deep.mkdir(parents=True)
    (project / "meshwright.toml").write_text('model = "llama"\n[job]\nseq_len = 2048\n', "utf-8")
    loaded = settings.load(start=deep)
    assert loaded.path == project / "meshwright.toml"
    assert loaded.get("model", "name") == "llama"
    assert loaded.section("job") == {"seq_len": 2048, "precision": "fp16"}
    over = loaded.overlaid(settings.parse_assignments(["job.seq_len=4096", "job.dropout=true"]))
    assert over.section("job") == {"seq_len": 4096, "precision": "fp16", "dropout": True}
    assert settings.load(start=deep, discover=False).sections == {}


def test_pyproject(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.meshwright]\ncluster = "h100:8"\n', "utf-8")
    assert settings.load(start=tmp_path).get("cluster", "name") == "h100:8"


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("[jobs]\nseq_len = 1\n", "job"),
        ("[job]\nseqlen = 1\n", "job.seq_len"),
        ("[strategy]\ntensor_parallel = 8\n", "strategy.sequence_parallel"),
        ("job = 3\n", "[job]"),
    ],
)
def test_unknown_settings_name_the_closest(tmp_path: Path, text: str, fix: str) -> None:
    path = tmp_path / "meshwright.toml"
    path.write_text(text, "utf-8")
    with pytest.raises(InputError) as caught:
        settings.load(path)
    assert fix in str(caught.value.fix)
    assert caught.value.where == str(path)


def test_broken_toml(tmp_path: Path) -> None:
    path = tmp_path / "meshwright.toml"
    path.write_bytes(b"\xff[job")
    with pytest.raises(InputError):
        settings.load(path)


@given(st.text(max_size=40))
def test_assignments_never_crash(text: str) -> None:
    try:
        settings.parse_assignments([text])
    except InputError as error:
        assert error.where == "--set"


def test_an_unknown_key_lists_everything_its_section_knows() -> None:
    with pytest.raises(InputError) as caught:
        settings.check({"job": {"seq": 8192}}, where="meshwright.toml")
    assert all(f"job.{name}" in str(caught.value.fix) for name in ("seq_len", "global_batch", "precision"))
    assert "strategy." not in str(caught.value.fix)
