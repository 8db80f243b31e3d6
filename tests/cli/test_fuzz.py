"""Whatever is typed, piped or edited by hand: an exit code of the contract, one JSON document, or one error and fix."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright import api
from meshwright.cli.main import cli
from meshwright.errors import InputError
from meshwright.serialize import document, dumps

CLUSTER = ("--cluster", "h100-sxm:8")
WILD = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**30), 10**30), st.floats(), st.text(max_size=20), st.just("\ud800"),
    st.lists(st.integers(), max_size=3), st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
    st.sampled_from([0, -1, 1, 2, 7, 1e308, 10**400, "1f1b", "{x:>999999999}", "nvswitch"]),
)  # fmt: skip


def call(*arguments: str, stdin: bytes = b"") -> Result:
    """One invocation that must keep the contract."""
    result = CliRunner().invoke(cli, list(arguments), input=stdin)
    said = f"{arguments}: {result.exit_code}\n{result.stderr}"
    assert result.exit_code in (0, 1, 2, 3), said
    assert "Traceback" not in result.stderr
    if result.exit_code in (2, 3):
        assert result.stdout == "" and "try: " in result.stderr and len(result.stderr) < 4000, said
    elif "--json" in arguments:
        json.loads(result.stdout, parse_constant=lambda name: pytest.fail(f"{name} in {said}"))
    return result


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from _paths(item, (*path, key))


def _edited(original: Any, path: tuple[Any, ...], value: Any, delete: bool) -> Any:
    """A copy with one value replaced or deleted."""
    changed = copy.deepcopy(original)
    at = changed
    for key in path[:-1]:
        at = at[key]
    if delete:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return changed


VALUES = ("", "0", "-1", "1.5", "nan", "inf", "1e400", "0x10", "１６", "²", "9" * 5000, "x" * 20000, "8,8", "4,8",
          "1,0", "true", "1e-400", "a\nb", "{x}", "%s", "📈", "..", "/", "~nouser", "\ud800")  # fmt: skip
OPTIONS = ("--cluster", "--seq", "--gbs", "--precision", "--tokens", "--software", "--price", "--tp", "--vpp", "--mbs",
           "--zero", "--hsdp", "--recompute-ops", "--config", "--set", "--lang")  # fmt: skip


@pytest.mark.parametrize("option", OPTIONS)
def test_any_value_of_any_option(option: str) -> None:
    for value in VALUES:
        call("estimate", "gpt2", *CLUSTER, option, value, "--json")


@pytest.mark.parametrize("value", VALUES)
def test_any_name_of_any_thing(value: str) -> None:
    for verb in (["explain"], ["compare", value], ["catalog", "show"], ["catalog", "add"], ["estimate", *CLUSTER]):
        call(*verb, "--", value)
    call("explain", "zero", "--plan", value)


@pytest.mark.parametrize("value", ["4,8", "8,8", "1,0", "1_0"])
def test_a_comma_between_two_numbers_is_no_thousands_separator(value: str) -> None:
    with pytest.raises(InputError):
        api.whole(value, "devices")
    assert api.whole("1,024", "devices") == 1024


CONFIG = {
    "model_type": "mixtral", "hidden_size": 512, "intermediate_size": 1024, "num_attention_heads": 8,
    "num_key_value_heads": 4, "num_hidden_layers": 4, "vocab_size": 32000, "num_local_experts": 4,
    "num_experts_per_tok": 2, "max_position_embeddings": 4096, "tie_word_embeddings": False,
}  # fmt: skip


@given(st.sampled_from(sorted(CONFIG)), WILD, st.booleans())
def test_any_config(key: str, value: Any, delete: bool) -> None:
    text = json.dumps(_edited(CONFIG, (key,), value, delete)).encode()
    call("estimate", "-", *CLUSTER, "--json", stdin=text)


@given(st.binary(max_size=200))
def test_any_bytes_on_standard_input(content: bytes) -> None:
    call("estimate", "-", *CLUSTER, stdin=content)
    call("explain", "-", "zero", stdin=content)


DEEP = [b"[" * 100_000, b'{"a":' * 100_000, b"9" * 6000, b'{"x": ' + b"9" * 6000 + b"}", b"a = " + b"[" * 100_000]


@pytest.mark.parametrize("content", DEEP, ids=range(len(DEEP)))
def test_nested_or_long_beyond_what_parsers_take(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "deep.json"
    path.write_bytes(content)
    name = str(path)
    for arguments in (["estimate", name, *CLUSTER], ["explain", name, "zero"], ["catalog", "validate", name],
                      ["estimate", "gpt2", "--cluster", name], ["estimate", "gpt2", "--config", name]):  # fmt: skip
        call(*arguments)


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    problem = api.problem(model="gpt2", cluster="h100-sxm:16")
    strategy, _ = api.strategy(problem, tensor=2)
    written: dict[str, Any] = json.loads(dumps(document("estimate", api.estimate(problem, strategy), problem=problem)))
    return written


@settings(max_examples=120)
@given(st.data())
def test_any_result_edited_by_hand(result: dict[str, Any], tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    paths = [p for p in _paths(result) if p[0] in ("problem", "strategy", "assumptions", "step_seconds", "time")]
    path = data.draw(st.sampled_from(paths))
    changed = _edited(result, path, data.draw(WILD), data.draw(st.booleans()))
    file = tmp_path_factory.getbasetemp() / "edited.json"
    file.write_text(json.dumps(changed), "utf-8")
    call("explain", str(file), data.draw(st.sampled_from(["mfu", "zero", "memory", "bubble"])), "--json")
    call("compare", str(file), str(file), "--json")


PROJECT = {
    "model": {"name": "gpt2", "path": "config.json"},
    "cluster": {"name": "h100-sxm:8", "price": 2.0, "nic_bandwidth": "400Gb/s", "node_size": 8},
    "job": {"seq_len": 1024, "global_batch": 64, "precision": "bf16", "dropout": True, "data_time": 0.1},
    "strategy": {"tensor": 2, "layers_per_stage": [6, 6], "recompute_ops": ["mlp"], "framework": "megatron"},
    "constraints": {"tensor": [1, 2], "max_memory_fraction": 0.9, "top": 3},
}  # fmt: skip
TOML = st.one_of(st.booleans(), st.integers(-(10**18), 10**18), st.text("abc /~é", max_size=8),
                 st.just([1, 2]), st.just({}))  # fmt: skip


@given(st.sampled_from([p for p in _paths(PROJECT) if not isinstance(p[-1], int)]), TOML)
def test_any_project_file(tmp_path_factory: pytest.TempPathFactory, path: tuple[Any, ...], value: Any) -> None:
    import tomlkit

    file = tmp_path_factory.getbasetemp() / "project.toml"
    file.write_text(tomlkit.dumps(_edited(PROJECT, path, value, delete=False)), "utf-8")
    for verb in ("estimate", "plan"):
        call(verb, "--config", str(file), "--json")


# ------------------------------------------------------------------------------------------------ the world around it


def shell(line: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """A line of bash in which `mw` is the command."""
    full = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "NO_COLOR": "1", **environ}
    full.pop("FORCE_COLOR", None)
    mw = f'mw() {{ "{sys.executable}" -m meshwright "$@"; }}; {line}'
    return subprocess.run(["bash", "-c", mw], capture_output=True, text=True, check=False, env=full, errors="replace")


def test_a_stream_of_another_encoding_gets_valid_json_and_plain_letters() -> None:
    done = shell("mw explain zero --lang es --json; mw estimate nope --lang es", PYTHONIOENCODING="ascii:strict")
    assert done.stdout.isascii() and json.loads(done.stdout)["subject"]
    assert done.returncode == 2 and done.stderr.isascii() and "prueba" in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a full disk")
def test_a_full_disk_closed_streams_and_a_folder_that_is_gone(tmp_path: Path) -> None:
    lines = ("mw explain zero >/dev/full", "mw explain zero >&-", "mw explain nothing 2>&-", "mw explain - zero <&-",
             "mkdir gone; cd gone; rmdir ../gone; mw explain zero >/dev/null")  # fmt: skip
    done = shell(f"cd {tmp_path}; " + "; ".join(f"{line}; echo $? >>{tmp_path}/codes" for line in lines))
    assert (tmp_path / "codes").read_text().split() == ["2", "0", "2", "2", "0"], done.stderr
    assert "Traceback" not in done.stderr and "internal" not in done.stderr
