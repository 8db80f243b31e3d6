"""Fits recover what made the data, stay near what is known without it, and never see what they are judged on."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("scipy")

from meshwright.calibrate import Free, Observation, fit, held_out, observations
from meshwright.calibrate.bands import bands, covered, widening
from meshwright.calibrate.fit import predict
from meshwright.calibrate.folds import HeldOut
from meshwright.calibrate.free import free_constants
from meshwright.calibrate.observe import family, publisher
from meshwright.catalog.constants import constants, overlaid
from meshwright.errors import InputError
from meshwright.validate import validate

with (Path(__file__).parents[1] / "data/measured_runs/rows.csv").open(newline="", encoding="utf-8") as file:
    BASE = next(row for row in csv.DictReader(file) if row["id"] == "kor22-003")
RATE = Free(id="kernels.hopper.matmul_flops_per_joule", value=0.9e12, low=0.5e12, high=1.6e12)
OVERHEAD = Free(id="software.megatron-core.step_overhead", value=0.02, low=0.001, high=0.4)


@pytest.fixture(scope="module")
def runs() -> tuple[Observation, ...]:
    """A Megatron run on H100 at several sizes of batch and model: each weighs the constants differently."""
    fixed = {"step_time_s": "1", "tokens_per_s_per_gpu": "", "dp": "", "accelerator": "h100-sxm", "n_gpus": "8",
             "tp": "8", "pp": "1", "vpp": "", "year": "2024", "precision": "bf16"}  # fmt: skip
    made = [
        {**BASE, **fixed, "id": f"made-{batch}-{layers}", "global_batch": str(batch), "n_layers": str(layers)}
        for batch in (8, 64, 512)
        for layers in (4, 32)
    ]
    content = io.StringIO()
    writer = csv.DictWriter(content, list(BASE))
    writer.writeheader()
    writer.writerows(made)
    found = observations(validate(content.getvalue().encode()).rows)
    assert len(found) == len(made) and all(run.weight for run in found)
    return found


def made_by(runs: tuple[Observation, ...], **values: float) -> tuple[Observation, ...]:
    """The runs as they would have been measured were the constants these."""
    free = [RATE, OVERHEAD]
    point = np.log([values.get("rate", RATE.value), values.get("overhead", OVERHEAD.value)])
    return tuple(replace(r, log_seconds=float(s)) for r, s in zip(runs, predict(free, point, runs), strict=True))


def test_constants_that_made_the_data_are_found(runs: tuple[Observation, ...]) -> None:
    wide = [replace(RATE, low=1e11, high=1e13), replace(OVERHEAD, low=1e-5, high=40.0)]
    true = made_by(runs, rate=0.7e12, overhead=0.1)
    many = tuple(replace(r, weight=100.0) for r in true)  # certain of them: what was known before hardly pulls
    found = fit(many, wide)
    assert found.values[RATE.id] == pytest.approx(0.7e12, rel=0.02)
    assert found.values[OVERHEAD.id] == pytest.approx(0.1, rel=0.1)


def test_a_fit_stays_in_the_range_and_near_what_is_known(runs: tuple[Observation, ...]) -> None:
    far = tuple(replace(r, log_seconds=r.log_seconds + 3.0) for r in made_by(runs))
    found = fit(far, [RATE])
    assert RATE.low <= found.values[RATE.id] < RATE.value
    unknown = tuple(replace(r, weight=1e-9) for r in far[:1]) + tuple(replace(r, weight=0.0) for r in far[1:])
    assert fit(unknown, [RATE]).values[RATE.id] == pytest.approx(RATE.value, rel=1e-4)


def test_one_wild_run_moves_little(runs: tuple[Observation, ...]) -> None:
    true = made_by(runs, rate=0.8e12)
    wild = (replace(true[0], log_seconds=true[0].log_seconds + 2.0), *true[1:])
    assert fit(wild, [RATE]).values[RATE.id] == pytest.approx(fit(true, [RATE]).values[RATE.id], rel=0.15)


def test_what_is_left_out_does_not_count(runs: tuple[Observation, ...]) -> None:
    """A group that is a factor of three off is predicted as if it had never been seen."""
    true = made_by(runs, rate=0.8e12)
    odd = (replace(true[0], source="odd", log_seconds=true[0].log_seconds + math.log(3)), *true[1:])
    known = fit(odd, [RATE])
    apart = held_out(odd, known, "source")
    rest = fit(odd[1:], [RATE])
    alone = predict([RATE], rest.point, odd[:1])
    assert apart[0].log_seconds == pytest.approx(float(alone[0]), abs=0.02)
    made = odd[0].log_seconds - math.log(3)  # what the constants behind the data give
    assert 1 + apart[0].error == pytest.approx(3 * math.exp(made - float(alone[0])), rel=0.02)


def test_nothing_to_learn_from_is_said(runs: tuple[Observation, ...]) -> None:
    with pytest.raises(InputError, match="no run of the file can be fitted"):
        fit(tuple(replace(r, weight=0.0) for r in runs), [RATE])


def test_overlaid_values_reach_the_model_and_leave_no_trace(runs: tuple[Observation, ...]) -> None:
    before = predict([RATE], np.log([RATE.value]), runs)
    kept = constants("kernels", "hopper")["matmul_flops_per_joule"]
    with overlaid({RATE.id: 0.6e12}):
        assert constants("kernels", "hopper")["matmul_flops_per_joule"] == 0.6e12
    assert constants("kernels", "hopper")["matmul_flops_per_joule"] == kept
    assert predict([RATE], np.log([RATE.value]), runs) == pytest.approx(before)
    assert (predict([RATE], np.log([0.6e12]), runs) > before).all()


@pytest.mark.parametrize("free", free_constants(), ids=lambda f: f.id)
def test_free_constants_lie_in_their_range_and_say_where_they_come_from(free: Free) -> None:
    assert free.low <= free.value <= free.high and free.low < free.high
    kind, name, key = free.id.split(".", 2)
    assert key in constants(kind, name)


def test_groups_are_named_without_release_and_size() -> None:
    assert publisher("Megatron-Bridge performance summary 25.11 NeMo Container") == publisher(
        "Megatron-Bridge performance summary 26.04.01 NeMo Container"
    )
    assert publisher("DGX Cloud Benchmarking v24.11.1 (grok1/README_314b.md)") == publisher(
        "DGX Cloud Benchmarking v25.02 (llama3.1/README_8b.md)"
    )
    assert family("Llama3-70B (12-layer cut)") == family("Llama3-8B") == "llama3"


def fake(runs: tuple[Observation, ...], ratios: list[float], publishers: list[str]) -> list[HeldOut]:
    return [
        HeldOut(run=replace(runs[0], publisher=p, source=p), group=p, log_seconds=runs[0].log_seconds - math.log(ratio))
        for ratio, p in zip(ratios, publishers, strict=True)
    ]


def test_bands_are_percentiles_over_several_sources(runs: tuple[Observation, ...]) -> None:
    ratios = list(np.linspace(0.8, 1.2, 41))
    two = fake(runs, ratios, ["a", "b"] * 20 + ["a"])
    band = bands(two)["any"]
    assert (band.low, band.high) == (pytest.approx(0.82), pytest.approx(1.18))
    assert (band.runs, band.sources) == (41, 2)
    assert bands(fake(runs, ratios, ["a"] * 41)) == {}  # one source says how it measures
    assert bands(two, 2.0)["any"].high == pytest.approx(1.18**2)


def test_coverage_counts_sources_that_gave_no_band(runs: tuple[Observation, ...]) -> None:
    ratios = [0.95, 1.0, 1.05] * 5 + [1.5]
    sources = ["a", "b", "c"] * 5 + ["odd"]
    inside = covered(fake(runs, ratios, sources))
    assert inside[-1] is False and sum(inside) >= 10
    assert widening(fake(runs, ratios, sources), [True] * 16) > 1.0
