"""Statistics of a comparison against numpy and by hand."""

from __future__ import annotations

import dataclasses
import statistics

import numpy as np
import pytest
from validate_runs import DATA, ROWS, changed, table

from meshwright.validate import Validation, validate
from meshwright.validate.summary import measured_mfu, naive_errors, scale_of, spread


@pytest.fixture(scope="module")
def found() -> Validation:
    return validate(DATA)


def test_spread_against_numpy() -> None:
    errors = [0.12, -0.3, 0.05, -0.01, 0.44, 0.07, -0.22]
    s = spread(errors, [True, False, True, True, False, True, True])
    assert s is not None
    size = np.abs(errors)
    assert s.n == 7
    assert s.median_abs == pytest.approx(0.12)
    assert s.mean_abs == pytest.approx(size.mean())
    assert s.bias == pytest.approx(np.mean(errors))
    assert s.median_signed == pytest.approx(0.05)
    assert s.p90_abs == pytest.approx(np.percentile(size, 90))
    assert s.coverage == pytest.approx(5 / 7)
    assert spread([]) is None


def test_the_whole_is_made_of_the_rows(found: Validation) -> None:
    errors = [line["error"] for line in found.lines if line["error"] is not None]
    overall = found.summary.overall.throughput
    assert overall is not None
    assert overall.n == len(errors)
    assert overall.median_abs == pytest.approx(statistics.median(map(abs, errors)))
    assert overall.bias == pytest.approx(statistics.mean(errors))
    inside = [line["interval"][0] <= line["measured_tokens_per_s_per_gpu"] <= line["interval"][1]
              for line in found.lines if line["error"] is not None]  # fmt: skip
    assert overall.coverage == pytest.approx(sum(inside) / len(inside))


def test_groups_partition_the_rows(found: Validation) -> None:
    summary = found.summary
    assert summary.compared + summary.skipped == summary.rows == len(ROWS)
    assert sum(n for _, n in summary.reasons) == summary.skipped
    assert summary.overall.throughput is not None
    for factor in ("accelerator", "framework", "precision", "scale", "tier", "source", "accelerator_framework"):
        assert sum(g.throughput.n for g in summary.of(factor) if g.throughput) == summary.overall.throughput.n


def test_features_of_one_group(found: Validation) -> None:
    features = {g.value: g for g in found.summary.of("feature")}
    expected = sum(1 for c in found.rows if c.error is not None and (c.run.tp or 1) > 1)
    assert features["tp"].throughput is not None
    assert features["tp"].throughput.n == expected
    assert {"pp", "ep", "moe", "dense", "dp only"} <= features.keys()


def test_the_naive_guess_leaves_the_source_out() -> None:
    """Three sources on one accelerator: each is guessed from the median MFU of the other two."""
    rates = {"a": (100.0, 120.0), "b": (90.0,), "c": (150.0,)}
    rows = [changed(id=f"{source}{rate}", source=source, tokens_per_s_per_gpu=str(rate))
            for source, values in rates.items() for rate in values]  # fmt: skip
    done = validate(table(*rows)).rows
    shares = {c.run.id: measured_mfu(c) or 0 for c in done}
    assert shares["a100.0"] / shares["b90.0"] == pytest.approx(100 / 90)
    guesses = {"a": (90 + 150) / 2, "b": 120.0, "c": 100.0}  # MFU is proportional to the rate here
    expected = [guesses[c.run.source] / (c.measured or 1) - 1 for c in done]
    assert naive_errors(done) == pytest.approx(expected)


def test_measured_mfu_of_korthikanti() -> None:
    """The row's own note: 0.390 of 312 TFLOP/s, by a FLOP count that differs from ours by the causal mask only."""
    (c,) = validate(table(ROWS["kor22-003"])).rows
    assert measured_mfu(c) == pytest.approx(0.39, rel=0.04)


def test_one_source_alone_has_no_guess() -> None:
    assert naive_errors(validate(table(ROWS["lf-001"])).rows) == [None]


@pytest.mark.parametrize(("devices", "name"), [(1, "1-8"), (8, "1-8"), (9, "9-64"), (512, "65-512"), (8192, ">4096")])
def test_scales(devices: int, name: str) -> None:
    assert scale_of(devices) == name


def test_what_rows_leave_out_and_what_could_not_be_read_is_counted() -> None:
    rows = (changed(gated_mlp="", vocab=""), changed(vocab=""), changed(peak_mem_gb="-1", step_time_s="soon"))
    summary = validate(table(*rows)).summary
    assert (summary.compared, summary.as_usual) == (3, {"gated_mlp": 1, "vocab": 2})
    assert summary.passed_over == {"peak_mem_gb": 1, "step_time_s": 1}


def test_the_naive_guess_does_not_move_with_the_prediction() -> None:
    """A run predicted again without its source achieved what it achieved."""
    rows = [c for c in validate(DATA).rows if c.error is not None]
    moved = [dataclasses.replace(c, predicted=2 * (c.predicted or 0.0)) for c in rows]
    assert naive_errors(moved) == naive_errors(rows)
