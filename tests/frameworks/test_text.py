"""Text that means harm: nothing runs, nothing blows up, every refusal is an InputError with a fix."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright import api
from meshwright.errors import InputError
from meshwright.frameworks.text import read_json, read_yaml

BOMB = "a: &a [x, x]\n" + "\n".join(f"b{i}: &b{i} [*a, *a]" for i in range(20))


@pytest.mark.parametrize(
    "text",
    ["[" * 10**6, '{"a":' * 10**5, '{"a": NaN}', '{"a": Infinity}', "[1, 2]", "3", "", "{", "\x00", '{"a": 1e5'],
)
def test_json_that_is_no_configuration(text: str) -> None:
    with pytest.raises(InputError) as caught:
        read_json(text, where="x")
    assert caught.value.fix is not None


def test_json_nested_deeper_than_a_configuration() -> None:
    with pytest.raises(InputError, match="40"):
        read_json('{"a":' * 60 + "1" + "}" * 60, where="x")


def test_keys_that_stand_twice_are_told() -> None:
    assert read_json('{"a": 1, "a": 2, "b": {"c": 1, "c": 1}}', where="x") == ({"a": 2, "b": {"c": 1}}, ["c", "a"])


@pytest.mark.parametrize(
    "text",
    [
        BOMB,
        "a: &x 1\nb: *x",
        "a: !!python/object/apply:os.system ['touch /tmp/pwned']",
        "!!python/object:os.system x",
        "a: !include /etc/passwd",
        "[" * 10**6,
        "a: [" * 100,
        "- 1\n- 2",
        "a: 'b",
        "\t",
    ],
)
def test_yaml_that_is_no_configuration(text: str, tmp_path: Path) -> None:
    start = time.monotonic()
    with pytest.raises(InputError) as caught:
        read_yaml(text, where="x")
    assert caught.value.fix is not None
    assert time.monotonic() - start < 20
    assert not Path("/tmp/pwned").exists()


def test_plain_yaml_is_read_with_keys_that_stand_twice() -> None:
    assert read_yaml("a: 1\nb:\n  c: true\n  d: [1, x]\na: 2\n", where="x") == (
        {"a": 1, "b": {"c": True, "d": [1, "x"]}},
        ["a"],
    )


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig", "utf-32"])
def test_encodings_that_say_what_they_are(encoding: str) -> None:
    content = json.dumps({"train_batch_size": 8, "_": "ñ"}).encode(encoding)
    assert read_json(content, where="x")[0]["train_batch_size"] == 8


def test_an_encoding_that_does_not() -> None:
    with pytest.raises(InputError, match="UTF-8"):
        read_json("ñandú".encode("latin-1"), where="x")


@given(st.binary(max_size=400), st.sampled_from(api.formats()))
def test_any_bytes_are_read_or_refused(content: bytes, format: str) -> None:
    try:
        api.check(content, api.Target(devices=8), format=format)
    except InputError as error:
        assert error.fix is not None


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.data())
def test_any_value_of_any_setting_is_read_or_refused(data: st.DataObject) -> None:
    from meshwright.frameworks.deepspeed.fields import TABLE
    from meshwright.frameworks.text import nested

    names = data.draw(st.lists(st.sampled_from([f.name for f in TABLE.fields]), max_size=6, unique=True))
    names = [n for n in names if not any(o != n and (o.startswith(f"{n}.") or n.startswith(f"{o}.")) for o in names)]
    text = json.dumps(nested({name: data.draw(_VALUES) for name in names}))
    try:
        found = api.check(text.encode("utf-8", "surrogatepass"), api.Target(devices=8), format="deepspeed")
    except InputError as error:
        assert error.fix is not None
        return
    for finding in found.findings:
        assert finding.message.render("es") and finding.fix is not None
