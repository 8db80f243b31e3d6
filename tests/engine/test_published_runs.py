"""Step times of published runs that no constant was fitted to, and how measured runs move with batch and size."""

from __future__ import annotations

import importlib.util
import statistics
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from meshwright.catalog.hardware import cluster
from meshwright.catalog.models import model
from meshwright.engine.evaluate import estimate_legal
from meshwright.engine.flops import model_flops_per_token
from meshwright.spec.estimate import Estimate
from meshwright.spec.job import Job
from meshwright.spec.plan import Problem
from meshwright.spec.strategy import Strategy

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def benchmark(name: str) -> ModuleType:
    """A script of `benchmarks/` as a module: test and benchmark predict with the same lines."""
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


korthikanti = benchmark("korthikanti")
llama3 = benchmark("llama3_405b")

# ------------------------------------------------------------------------- Korthikanti et al. 2022, arXiv 2205.05198

TABLE_5 = {  # seconds: full recompute; selective with sequence parallelism
    "megatron-22b": (1.42, 1.10),
    "megatron-175b": (18.13, 13.75),
    "megatron-530b": (49.05, 37.83),
    "megatron-1t": (94.42, 71.49),
}
# Megatron-LM README: MFU and HFU in per cent, selective recompute with sequence parallelism.
UTILISATION = {
    "megatron-22b": (41.5, 43.7),
    "megatron-175b": (51.4, 52.8),
    "megatron-530b": (56.0, 57.0),
    "megatron-1t": (56.3, 57.0),
}


def run_of(name: str) -> Any:
    return next(r for r in korthikanti.RUNS if r.model == name)


def test_eight_step_times() -> None:
    errors = []
    for name, seconds in TABLE_5.items():
        for recompute, measured in zip(("full", "selective"), seconds, strict=True):
            errors.append(korthikanti.predict(run_of(name), recompute).step_seconds / measured - 1)
    assert max(map(abs, errors)) <= 0.10
    assert statistics.fmean(map(abs, errors)) <= 0.07


@pytest.mark.parametrize("name", TABLE_5)
def test_gain_of_selective_recompute(name: str) -> None:
    """29 to 32 per cent in the paper; two points either way."""
    full, selective = TABLE_5[name]
    ours = (
        korthikanti.predict(run_of(name), "full").step_seconds
        / korthikanti.predict(run_of(name), "selective").step_seconds
    )
    assert ours == pytest.approx(full / selective, abs=0.035)


@pytest.mark.parametrize("name", UTILISATION)
def test_model_flops_follow_the_paper(name: str) -> None:
    """Appendix A: 72 B L s h² (1 + s/6h + V/12hL) per step; with the paper's own time that is its MFU."""
    run, spec = run_of(name), model(name)
    h, layers, seq = spec.hidden, spec.layers, 2048
    formula = 72 * run.global_batch * layers * seq * h**2 * (1 + seq / (6 * h) + spec.vocab / (12 * h * layers))
    ours = model_flops_per_token(spec, seq).training * run.global_batch * seq
    assert ours == pytest.approx(formula, rel=1e-9)
    assert 100 * ours / (TABLE_5[name][1] * run.devices * 312e12) == pytest.approx(UTILISATION[name][0], abs=0.2)


@pytest.mark.parametrize("name", UTILISATION)
def test_utilisation(name: str) -> None:
    estimate = korthikanti.predict(run_of(name), "selective")
    assert 100 * estimate.mfu == pytest.approx(UTILISATION[name][0], abs=2.5)
    assert 100 * estimate.hfu == pytest.approx(UTILISATION[name][1], abs=2.5)
    assert estimate.peak_dtype == "fp16" and estimate.mfu < estimate.hfu


# --------------------------------------------------------------------------- Llama 3 405B, arXiv 2407.21783, table 4


@pytest.mark.parametrize(("devices", "published"), [(8192, 430.0), (16384, 400.0)])
def test_llama_405b(devices: int, published: float) -> None:
    run = next(r for r in llama3.RUNS if r.devices == devices)
    estimate = llama3.predict(run)
    assert estimate.strategy.devices == devices and estimate.micro_batches == 2048 // run.data
    assert llama3.tflops(estimate, devices) == pytest.approx(published, rel=0.10)


def test_llama_405b_loses_from_8k_to_16k() -> None:
    """Half the micro-batches per pipeline: 7 % less in the paper."""
    small, large = (llama3.tflops(llama3.predict(r), r.devices) for r in llama3.RUNS)
    assert 0.03 < 1 - large / small < 0.12


# --------------------------------------------------------------------------------------- how measured runs move


def bloom(batch: int) -> Estimate:
    problem = Problem(
        model=model("bloom-176b"),
        cluster=cluster("dgx-a100-80gb:384"),
        job=Job(seq_len=2048, global_batch=batch, software="megatron-deepspeed"),
    )
    strategy = Strategy(tensor=4, pipeline=12, data=8, micro_batch=2, recompute="full", sequence_parallel=False)
    return estimate_legal(problem, strategy)


def test_bloom_sweep_of_batch_sizes() -> None:
    """48 nodes, TP4 PP12 DP8 MBS2 (BigScience chronicle, 182B): the start of the line over its slope, and its shape."""
    measured = {512: 35.77, 1024: 59.65, 1536: 83.11, 2048: 107.12}
    ours = {batch: bloom(batch).step_seconds for batch in measured}
    slope, start = np.polyfit(list(measured), list(measured.values()), 1)
    our_slope, our_start = np.polyfit(list(ours), list(ours.values()), 1)
    assert our_start / our_slope == pytest.approx(start / slope, rel=0.35)  # sequences' worth of bubble and optimizer
    assert ours[512] / ours[2048] == pytest.approx(measured[512] / measured[2048], rel=0.1)
    assert our_slope == pytest.approx(slope, rel=0.3)


def test_bloom_at_a_batch_of_sixteen_is_mostly_bubble() -> None:
    """8 TFLOP/s at batch 16 (one micro-batch) against 150 at 2,048."""
    small, large = bloom(16), bloom(2048)
    ratio = small.hfu / large.hfu
    assert 0.03 < ratio < 0.15  # 8/150 = 0.053
    bubble = small.time.find("bubble")
    assert bubble is not None and bubble.value > 0.6 * small.step_seconds and small.bound_by == "bubble"


def mlperf_405b(data: int, micro_batches: int) -> Estimate:
    problem = Problem(
        model=model("llama-3.1-405b"),
        cluster=cluster(f"h100-sxm:{128 * data}"),
        job=Job(seq_len=8192, global_batch=data * micro_batches, precision="fp8"),
    )
    strategy = Strategy(
        tensor=8, pipeline=8, virtual=8, context=2, data=data, schedule="interleaved", sharding="zero1", precision="fp8"
    )
    return estimate_legal(problem, strategy)


def test_mlperf_405b_strong_scaling() -> None:
    """TP8 PP8 CP2 VP8, 288 to 24 micro-batches: 334.5, 324.4, 322.5, 320.4, 296.4 tokens/s per GPU (MLPerf 5.0)."""
    points = [(4, 288, 334.5), (16, 72, 324.4), (64, 24, 296.4)]
    ours = [mlperf_405b(data, m).tokens_per_second_per_device for data, m, _ in points]
    assert ours == sorted(ours, reverse=True)
    assert ours[-1] / ours[0] == pytest.approx(points[-1][2] / points[0][2], abs=0.08)
    for value, (_, _, measured) in zip(ours, points, strict=True):
        assert value == pytest.approx(measured, rel=0.3)
