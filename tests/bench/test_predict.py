"""What is said beside a measurement: the plan's own model, for the shape and the direction that was measured."""

from __future__ import annotations

import csv
import dataclasses
import re
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from measured import all_reduce, attention, copy, measurements, sample, step

from meshwright import api
from meshwright.bench.predict import model_of, predictions
from meshwright.bench.records import Device, Sample
from meshwright.engine.params import model_params

A100 = dataclasses.replace(measurements().device, name="NVIDIA A100 80GB PCIe", accelerator="a100-pcie-80gb")
B200 = dataclasses.replace(measurements().device, name="NVIDIA B200", accelerator="b200-sxm")
PHASES = {"TN": "forward", "NN": "data_gradient", "NT": "weight_gradient"}
STAGES = {"fwd": "forward", "bwd_grad_act": "data_gradient", "bwd_grad_w": "weight_gradient"}


def said(device: Device, *samples: Sample) -> list[float]:
    found = predictions(measurements(device=device, samples=samples, steps=()))
    return [p.predicted_seconds or 0.0 for p in found]


def published(shared: Path, gpu: str, op: str) -> Iterator[tuple[dict[str, str], float, float]]:
    """Shape, share of the peak and the peak of measured kernels."""
    with (shared / "validation/kernel_efficiency.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["gpu"] == gpu and row["op"] == op:
                shape = dict(re.findall(r"(\w+)=([\w.]+)", row["shape"]))
                yield shape, float(row["efficiency_of_peak"]), float(row["peak_tflops"]) * 1e12


def as_samples(rows: Iterator[tuple[dict[str, str], float, float]], kind: str, phase: str) -> list[Sample]:
    """Published products of one phase as the sweep would have measured them."""
    found = []
    for shape, efficiency, peak in rows:
        own = PHASES.get(shape.get("layout", ""), STAGES.get(shape.get("stage", ""), ""))
        if own != phase or shape.get("b", "1") != "1":
            continue
        sides = {side: int(shape.get(side) or shape[side.upper()]) for side in "mnk"}
        groups = {"groups": int(shape["ng"])} if "ng" in shape else {}
        if "ng" in shape:  # written there for the layer, here for the product
            m, n, k = sides.values()
            order = {"forward": (m, n, k), "data_gradient": (m, k, n), "weight_gradient": (n, k, m)}[phase]
            sides = dict(zip("mnk", order, strict=True))
        work = 2.0 * sides["m"] * sides["n"] * sides["k"] * groups.get("groups", 1)
        seconds = work / (efficiency * peak)
        found.append(sample(kind=kind, phase=phase, shape={**groups, **sides}, work=work, seconds=seconds))
    return found


@pytest.mark.parametrize("phase", PHASES.values())
@pytest.mark.parametrize(("gpu", "device", "off"), [("A100-PCIe", A100, 0.08), ("B200-SXM", B200, 0.08)])
def test_products_of_every_direction_as_published(shared: Path, gpu: str, device: Device, off: float, phase: str):
    """905 kernels measured by others: the median of measured / predicted lies near one in each direction."""
    samples = as_samples(published(shared, gpu, "matmul"), "gemm", phase)
    assert len(samples) > 40
    ratios = [s.seconds / p for s, p in zip(samples, said(device, *samples), strict=True)]
    assert abs(statistics.median(ratios) - 1) < off


@pytest.mark.parametrize("phase", PHASES.values())
def test_grouped_products_as_published(shared: Path, phase: str) -> None:
    samples = as_samples(published(shared, "B200-SXM", "group_matmul"), "grouped_gemm", phase)
    assert len(samples) >= 30
    ratios = [s.seconds / p for s, p in zip(samples, said(B200, *samples), strict=True)]
    assert 0.7 < statistics.median(ratios) < 1.6


@pytest.mark.parametrize(("op", "phase", "ratio"), [("sdp_fwd", "forward", 1.0), ("sdp_bwd", "backward", 2.5)])
def test_attention_as_published(shared: Path, op: str, phase: str, ratio: float) -> None:
    """Their efficiencies count the whole square of a causal kernel; we count the half that is computed."""
    ratios = []
    for shape, efficiency, peak in published(shared, "B200-SXM", op):
        sizes = {key: int(shape[key]) for key in ("batch", "seq_len", "head_num", "kv_head_num", "qk_head_dim",
                                                  "v_head_dim")}  # fmt: skip
        batch, seq, heads, kv, qk, v = sizes.values()
        square = 2.0 * batch * seq * seq * heads * (qk + v) * ratio
        names = {"batch": batch, "seq": seq, "heads": heads, "kv_heads": kv, "qk_dim": qk, "v_dim": v}
        measured = attention(phase=phase, shape=names, work=square / 2, seconds=square / (efficiency * peak))
        ratios.append(measured.seconds / said(B200, measured)[0])
    assert len(ratios) == 32
    assert abs(statistics.median(ratios) - 1) < 0.15


def test_a_copy_reads_and_writes_at_the_achieved_bandwidth() -> None:
    """H100: 3.35 TB/s, of which element-wise kernels reach 68 to 82 % in published breakdowns."""
    [seconds] = said(measurements().device, copy())
    assert 0.68 < 2 * 2**30 / seconds / 3.35e12 < 0.85


def test_all_reduce_inside_a_node_as_nccl_tests_print_it() -> None:
    """Published nccl-tests on eight H100 with NVLS: 400 to 480 GB/s bus bandwidth for a gigabyte."""
    [seconds] = said(measurements().device, all_reduce())
    assert 380e9 < 1.75 * 2**30 / seconds < 490e9


def test_a_group_that_lies_otherwise_than_the_usual_host_is_not_predicted() -> None:
    across = all_reduce(shape={"ranks": 8, "local": 2, "payload": 2**20})
    over_gloo = all_reduce(kernel="gloo")
    found = predictions(measurements(samples=(across, over_gloo), steps=()))
    assert [p.predicted_seconds for p in found] == [None, None]


def test_peaks_are_those_of_the_data_sheet() -> None:
    found = predictions(measurements())
    assert [p.peak for p in found] == [989e12, 989e12, 989e12, 450e9, 3.35e12, 989e12]


def test_an_unknown_device_has_no_prediction() -> None:
    nameless = dataclasses.replace(measurements().device, accelerator=None)
    found = predictions(measurements(device=nameless))
    assert len(found) == 6
    assert all(p.peak is None and p.predicted_seconds is None for p in found)


def test_the_step_is_what_estimate_says_of_the_same_model() -> None:
    """Through the api: the same decoder on one device under FSDP in eager mode."""
    [found] = predictions(measurements(samples=(), steps=(step(),)))
    problem: Any = api.problem(model="llama-3.1-8b", cluster="h100-sxm:1", seq_len=4096, global_batch=1,
                               precision="bf16", optimizer="adamw", software="fsdp-eager")  # fmt: skip
    problem = dataclasses.replace(problem, model=model_of(step().shape))
    strategy, _ = api.strategy(problem, framework="fsdp", sharding="zero3")
    estimate: Any = api.estimate(problem, strategy)
    assert found.predicted_seconds == pytest.approx(estimate.step_seconds)
    whole_copy = 2 * step().parameters  # in bf16, of which FSDP holds two units
    assert 0.75 * estimate.peak_bytes < (found.predicted_peak_bytes or 0.0) < estimate.peak_bytes + whole_copy


def test_the_decoder_has_the_parameters_it_was_measured_with() -> None:
    """By hand: embedding and head, then per block qkv, out, gate and up, down, two norms; a last norm."""
    h, ffn, vocab = 4096, 14336, 32768
    block = h * (4096 + 2 * 1024) + h * h + 3 * h * ffn + 2 * h
    assert model_params(model_of(step().shape)).total == 2 * vocab * h + 4 * block + h == step().parameters
