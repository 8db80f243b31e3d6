"""One row against its prediction: the numbers are those of `estimate` on the same problem."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from validate_runs import DATA, HEADS, ROWS, changed, table

from meshwright import api
from meshwright.spec import Estimate
from meshwright.validate import Compared, compare, validate
from meshwright.validate.compare import memory_reading
from meshwright.validate.express import express
from meshwright.validate.rows import read_runs

GIB = 2**30


def compared(*rows: dict[str, str]) -> tuple[Compared, ...]:
    return compare(read_runs(table(*rows), where="x"))


@pytest.mark.parametrize("id", ["lf-001", "kor22-003", "simumax-003", "tt-001", "vtrain-001", "zoo-001"])
def test_a_prediction_is_that_of_estimate(id: str) -> None:
    (found,) = compared(ROWS[id])
    (run,) = read_runs(table(ROWS[id]), where="x")
    expressed = express(run)
    estimate = api.estimate(expressed.problem, expressed.strategies[0])
    assert isinstance(estimate, Estimate)  # it ran: no rule may forbid it
    assert found.predicted == estimate.tokens_per_second_per_device
    assert found.error == pytest.approx(found.predicted / float(ROWS[id]["tokens_per_s_per_gpu"]) - 1)
    assert found.interval is not None
    low, high = estimate.step_interval
    assert found.interval == pytest.approx(tuple(found.predicted * estimate.step_seconds / x for x in (high, low)))


def test_recompute_not_stated_spans_the_choices() -> None:
    unknown, *stated = compared(
        changed("dgxc-301"), *(changed("dgxc-301", recompute=mode) for mode in ("none", "selective", "full"))
    )
    assert unknown.assumed_recompute in ("none", "selective", "full")
    assert unknown.interval is not None
    chosen = next(c for c in stated if c.estimate and c.estimate.strategy.recompute == unknown.assumed_recompute)
    assert unknown.predicted == chosen.predicted
    for c in stated:
        assert c.estimate is not None and c.interval is not None
        if c.estimate.verdict != "OVER":
            assert unknown.interval[0] <= c.interval[0] <= c.interval[1] <= unknown.interval[1]


def test_memory_chooses_the_recompute_that_fits_it_best() -> None:
    (unknown,) = compared(ROWS["nt-003"])
    errors = {}
    for mode in ("none", "selective", "full"):
        (found,) = compared(changed("nt-003", recompute=mode))
        errors[mode] = abs(found.memory_error or 0)
    assert errors[unknown.assumed_recompute] == min(errors.values())


@pytest.mark.parametrize(
    ("id", "size", "counted"),
    [
        ("simumax-003", 41.951e9, "allocated"),  # the note repeats it as 39.07 GiB max_allocated
        ("tt-001", 82.4 * GIB, "reserved"),  # "mem in GiB": torchtitan logs the reserved peak
        ("st-001", 16.3 * GIB, "reserved"),  # "mem = max reserved GiB"
        ("bs-002", 73 * GIB, "process"),  # nvidia-smi
    ],
)
def test_the_unit_and_the_kind_of_a_peak(id: str, size: float, counted: str) -> None:
    (run,) = read_runs(table(ROWS[id]), where="x")
    reading = memory_reading(run)
    assert reading is not None
    assert (reading.bytes, reading.counted) == (pytest.approx(size), counted)


def test_exact_bytes_in_the_notes_win() -> None:
    note = "mem-max-allocated-bytes 2839190528.0; mem-allocated 678556160 (rank 0 logger)"
    (run,) = read_runs(table(changed(peak_mem_gb="2.8", notes=note)), where="x")
    reading = memory_reading(run)
    assert reading is not None
    assert (reading.bytes, reading.counted) == (2839190528.0, "allocated")


def test_what_is_counted_orders_the_predictions() -> None:
    notes = ("max allocated GiB", "max reserved GiB", "nvidia-smi GiB")
    peaks = [c.predicted_peak or 0 for c in compared(*(changed(peak_mem_gb="60", notes=note) for note in notes))]
    assert peaks[0] < peaks[1] < peaks[2]


def test_a_row_with_memory_only_is_compared() -> None:
    (found,) = compared(changed("tt-001", tokens_per_s_per_gpu="", step_time_s=""))
    assert found.skipped is None
    assert (found.error, found.measured) == (None, None)
    assert found.memory_error is not None


def test_a_thousand_rows_take_seconds() -> None:
    import time

    rows = list(ROWS.values()) * (1000 // len(ROWS) + 1)
    start = time.perf_counter()
    assert len(validate(table(*rows[:1000])).rows) == 1000
    assert time.perf_counter() - start < 20


def test_progress_reaches_the_end() -> None:
    seen: list[float] = []
    validate(DATA.read_bytes(), progress=lambda share, _: seen.append(share))
    assert len(seen) == len(ROWS)
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


NUMBERS = st.one_of(
    st.integers(0, 4096).map(str),
    st.sampled_from(["", "0", "1", "2", "8", "64", "1e30", "-1", "nan", "inf", "1e-300"]),
    st.floats(allow_nan=True, allow_infinity=True).map(str),
)  # fmt: skip
WORDS = st.one_of(
    st.text(max_size=30),
    st.sampled_from(["MLA", "MoE every 2nd layer", "sliding window 0", "head_dim 0", "qk", "hybrid", "zero1", "hsdp",
                     "fsdp 0", "full", "selective:", "selective:,+", "unknown", "fp8-", "nvfp4", "tf32", "jax", "torch",
                     "h100-sxm", "tpu-v5p", "mi300x", "./x.toml", "0 GiB", "1 GiB allocated", "CPU Adam offload", "M",
                     "max-allocated-bytes 000000", "llama-3.1-8b", "param offload"]),
)  # fmt: skip
COUNTS = [h for h in HEADS if h not in ("id", "source", "source_ref", "model", "other_arch", "accelerator", "sharding",
          "sharding_note", "precision", "recompute", "optimizer", "framework", "tier", "notes")]  # fmt: skip
BASES = [id for id in ROWS if id not in ("bs-040", "tn-004", "mb-011", "mx-129")]


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(base=st.sampled_from(BASES), data=st.data())
def test_no_cell_can_stop_a_file(base: str, data: st.DataObject) -> None:
    """Any cells, any number of them: each row is predicted with finite numbers, or says why not."""
    names = data.draw(st.lists(st.sampled_from(HEADS), min_size=1, max_size=6, unique=True))
    cells = {name: data.draw(NUMBERS if name in COUNTS else WORDS, label=name) for name in names}
    found, whole = compared({**ROWS[base], **cells}, ROWS["lf-001"])
    assert whole.skipped is None
    if found.skipped is None:
        assert found.predicted is not None and 0 < found.predicted < 1e12
        assert found.interval is not None and 0 < found.interval[0] <= found.interval[1]
        assert found.error is not None or found.memory_error is not None
    else:
        reason = str(found.skipped)
        assert reason
        assert "the engine cannot evaluate it" not in reason, (cells, reason)
