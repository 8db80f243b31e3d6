"""A measurement file: what is written is read back, and a file that cannot be true is refused with its place."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from measured import all_reduce, measurements, sample

from meshwright.bench.records import SCHEMA, Measurements, Sample, as_document, load, read
from meshwright.errors import InputError
from meshwright.serialize import document, dumps

positive = st.floats(1e-9, 1e18)
samples = st.builds(
    lambda fast, more, work, n, shape, unit: sample(
        seconds=fast * more, seconds_min=fast, work=work, n=n, shape=shape, unit=unit
    ),
    st.floats(1e-9, 1e3), st.floats(1, 10), positive, st.integers(1, 10**6),
    st.dictionaries(st.text(min_size=1, max_size=8), st.integers(1, 2**40), min_size=1, max_size=6),
    st.sampled_from(["FLOP", "B"]),
)  # fmt: skip


def through_json(found: Measurements) -> Measurements:
    return read(json.loads(dumps(document(SCHEMA, found))))


@given(st.lists(samples, max_size=4))
def test_what_is_written_is_read_back(found: list[Sample]) -> None:
    written = measurements(samples=tuple(found))
    assert through_json(written) == written


def test_a_file_names_its_schema_and_carries_rates(tmp_path: Path) -> None:
    path = tmp_path / "measured.json"
    path.write_text(dumps(as_document(measurements(), [{"predicted_seconds": 1.6e-3}])), "utf-8")
    written = json.loads(path.read_text("utf-8"))
    assert written["schema"] == "meshwright.bench-device/1"
    first = written["samples"][0]
    assert first["rate"] == pytest.approx(2 * 8192**3 / 1.75e-3)
    assert first["predicted_seconds"] == 1.6e-3
    assert written["steps"][0]["rate"] == pytest.approx(2.6e13 / 0.11)
    assert load(path) == measurements()


def test_rates_are_work_over_time() -> None:
    """An all-reduce of 1 GiB over 8 ranks in 4.5 ms: 418 GB/s bus bandwidth, as nccl-tests counts (2·7/8)."""
    assert all_reduce().rate == pytest.approx(417.6e9, rel=1e-3)


def changed(**fields: Any) -> dict[str, Any]:
    return {**as_document(measurements()), **fields}


BROKEN: list[tuple[str, Any, str]] = [
    ("no object", [1, 2], "meshwright.bench-device"),
    ("another document", {"schema": "meshwright.plan/1"}, "meshwright.bench-device"),
    ("a later version", changed(schema="meshwright.bench-device/2"), "meshwright.bench-device/2"),
    ("no device", changed(device=None), "device"),
    ("a sample that is text", changed(samples=["fast"]), "samples[0]"),
    ("an unknown unit", changed(samples=[{**as_document(measurements())["samples"][0], "unit": "m"}]), "unit"),
]


@pytest.mark.parametrize(("data", "said"), [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN])
def test_what_is_no_measurement_file_is_refused(data: Any, said: str) -> None:
    with pytest.raises(InputError) as caught:
        read(data, where="measured.json")
    assert said in str(caught.value) and caught.value.where == "measured.json"
    assert caught.value.fix is not None and "meshwright bench device --save" in str(caught.value.fix)


IMPOSSIBLE: dict[str, tuple[Measurements, str]] = {
    "no time": (measurements(samples=(sample(seconds=0.0, seconds_min=0.0),)), "samples[0]"),
    "negative work": (measurements(samples=(sample(), sample(work=-1.0))), "samples[1]"),
    "a side of nothing": (measurements(samples=(sample(shape={"m": 0}),)), "samples[0]"),
    "least above median": (measurements(samples=(sample(seconds_min=1.0),)), "least time is above the median"),
    "never run": (measurements(samples=(sample(n=0),)), "nothing was repeated"),
    "a step of no time": (
        measurements(steps=(dataclasses.replace(measurements().steps[0], seconds=0.0, seconds_min=0.0),)), "steps[0]"
    ),
    "no memory": (
        measurements(device=dataclasses.replace(measurements().device, memory_bytes=0.0)), "device"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_what_cannot_be_true_is_refused_with_its_place(name: str) -> None:
    found, said = IMPOSSIBLE[name]
    with pytest.raises(InputError, match="cannot be true") as caught:
        through_json(found)
    assert said in str(caught.value)


def test_a_file_that_is_not_json(tmp_path: Path) -> None:
    path = tmp_path / "measured.json"
    path.write_text("8192 x 8192: fast", "utf-8")
    with pytest.raises(InputError, match="not JSON") as caught:
        load(path)
    assert caught.value.where == str(path)


def test_reading_needs_no_torch() -> None:
    import subprocess
    import sys

    code = "import sys; import meshwright.bench.records; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
