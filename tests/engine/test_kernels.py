"""Seconds of single kernels: against 905 measured efficiencies, datasheet bounds, and properties."""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.catalog.hardware import accelerator
from meshwright.engine.kernels import Rates, dense_peak, operator_time, rates
from meshwright.engine.operators import Operator

# Best measured bf16 matrix products (shared/validation/breakdowns_megatron.md, section 4: MAMF), TFLOP/s.
BEST_MATMUL = {"a100-sxm-80gb": 271.2, "h100-sxm": 794.5, "b200-sxm": 1745.0, "b300-sxm": 1769.0}
CATALOGUE = [
    "a100-sxm-80gb",
    "h100-sxm",
    "h200-sxm",
    "b200-sxm",
    "v100-sxm-32gb",
    "mi300x",
    "rtx-4090",
    "gaudi2",
    "tpu-v5p",
    "trainium2",
]


def matmul(m: float, n: float, k: float, batch: float = 1, low: bool = False, kind: str = "matmul") -> Operator:
    return Operator("x", "x", kind, m, n, k, batch, low_precision=low)


def attention(seq: int, heads: float, widths: int = 256) -> Operator:
    keys = (seq + 1) / 2
    flops = 2 * seq * keys * heads * widths
    return Operator("x", "x", "attention", seq, widths, keys, heads, flops, 4 * seq * heads * widths, 2.5)


def silent(r: Rates) -> Rates:
    """Without launch gaps: the kernel alone."""
    return replace(r, launch=0.0)


# ------------------------------------------------------------------------------------------------ measured kernels


def measured(shared: Path) -> Iterator[tuple[str, str, dict[str, str], float]]:
    path = shared / "validation" / "kernel_efficiency.csv"
    if not path.is_file():
        pytest.skip("no kernel_efficiency.csv")
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            shape = dict(part.strip().split("=") for part in row["shape"].split(","))
            yield row["gpu"], row["op"], shape, float(row["efficiency_of_peak"]) * float(row["peak_tflops"]) * 1e12


def predicted(r: Rates, op: str, shape: dict[str, str]) -> float | None:
    """Rate as the table counts it [FLOP/s]; attention counts the whole square. None: not a kernel of ours."""
    if op == "matmul" and shape["out_dtype"] == "bf16":
        m, n, k = (int(shape[x]) for x in "mnk")
        return 2 * m * n * k / float(operator_time(matmul(m, n, k), r)[0])
    if op == "group_matmul" and shape["stage"] == "fwd":
        m, n, k, groups = (int(shape[x]) for x in ("M", "N", "K", "ng"))
        return 2 * m * n * k * groups / float(operator_time(matmul(m, n, k, groups, kind="grouped_matmul"), r)[0])
    if op.startswith("sdp"):
        kernel = attention(
            int(shape["seq_len"]), int(shape["head_num"]), int(shape["qk_head_dim"]) + int(shape["v_head_dim"])
        )
        forward, backward = operator_time(kernel, r)
        return float(2 * kernel.flops / forward if op == "sdp_fwd" else 2 * 2.5 * kernel.flops / backward)
    return None


@pytest.mark.parametrize(
    ("gpu", "id", "op", "limit"),
    [
        ("A100-PCIe", "a100-pcie-80gb", "matmul", 0.05),
        ("A100-PCIe", "a100-pcie-80gb", "group_matmul", 0.2),
        ("A100-PCIe", "a100-pcie-80gb", "sdp_fwd", 0.15),
        ("A100-PCIe", "a100-pcie-80gb", "sdp_bwd", 0.15),
        ("B200-SXM", "b200-sxm", "matmul", 0.1),
        ("B200-SXM", "b200-sxm", "group_matmul", 0.25),
        ("B200-SXM", "b200-sxm", "sdp_fwd", 0.3),
        ("B200-SXM", "b200-sxm", "sdp_bwd", 0.15),
    ],
)
def test_measured_efficiencies(shared: Path, gpu: str, id: str, op: str, limit: float) -> None:
    """Median absolute error over all shapes of a kind (MooreThreads/SimuMax, measured by them)."""
    r = silent(rates(accelerator(id), "bf16"))
    errors = []
    for where, what, shape, rate in measured(shared):
        if (where, what) == (gpu, op) and (ours := predicted(r, op, shape)) is not None:
            errors.append(ours / rate - 1)
    assert len(errors) >= 4
    assert statistics.median(map(abs, errors)) < limit


@pytest.mark.parametrize(("id", "tflops"), BEST_MATMUL.items())
def test_large_products_stay_under_the_best_ever_measured(id: str, tflops: float) -> None:
    r = silent(rates(accelerator(id), "bf16"))
    for size in (4096, 8192, 16384):
        seconds, _ = operator_time(matmul(size, size, size), r)
        assert 0.6 * tflops < 2 * size**3 / seconds / 1e12 <= tflops


def test_attention_of_an_h100_is_what_the_papers_saw() -> None:
    """FlashAttention-3 (arXiv 2407.08608; read off its figures: causal, 16k): about 640 forward, 550 backward;
    FlashAttention-2 on the same device about 370 and 320 TFLOP/s."""
    device = accelerator("h100-sxm")
    kernel = attention(16384, 16)
    for name, forward_range, backward_range in (("best", (450, 660), (400, 580)), ("flash2", (300, 430), (250, 400))):
        forward, backward = operator_time(kernel, silent(rates(device, "bf16", name)))
        assert forward_range[0] < kernel.flops / forward / 1e12 < forward_range[1]
        assert backward_range[0] < 2.5 * kernel.flops / backward / 1e12 < backward_range[1]


# ------------------------------------------------------------------------------------------------------- properties


@pytest.mark.parametrize("id", CATALOGUE)
@pytest.mark.parametrize("precision", ["bf16", "fp8", "fp32"])
def test_no_kernel_beats_its_device(id: str, precision: str) -> None:
    device = accelerator(id)
    r = silent(rates(device, precision))
    low = "fp8" if precision == "fp8" else precision
    peak = dense_peak(device, low)
    for op in (
        matmul(4096, 4096, 4096, low=True),
        matmul(1, 4096, 4096),
        matmul(512, 2048, 1024, 16, kind="grouped_matmul"),
    ):
        forward, backward = operator_time(op, r)
        work = 2 * op.m * op.n * op.k * op.batch
        assert forward >= work / peak and backward >= 2 * work / peak
        assert math.isfinite(forward + backward)
    copy = Operator("x", "x", "memory", traffic=1e9)
    assert operator_time(copy, r)[0] >= 1e9 / device.memory_bandwidth


@given(
    st.sampled_from(["matmul", "grouped_matmul", "batched_matmul"]),
    st.lists(st.tuples(*[st.floats(1, 1e5)] * 3, st.floats(1, 64)), min_size=1, max_size=4),
    st.sampled_from(["bf16", "fp8"]),
)
def test_columns_equal_numbers(kind: str, rows: list[tuple[float, ...]], precision: str) -> None:
    r = rates(accelerator("h100-sxm"), precision)
    columns = [np.array(c) for c in zip(*rows, strict=True)]
    forward, backward = operator_time(Operator("x", "x", kind, *columns, low_precision=True), r)
    for i, row in enumerate(rows):
        single = operator_time(Operator("x", "x", kind, *row, low_precision=True), r)
        assert (forward[i], backward[i]) == pytest.approx(single, rel=1e-12)


@given(st.floats(16, 1e5), st.floats(16, 1e5), st.floats(16, 1e5))
def test_a_faster_device_is_never_slower(m: float, n: float, k: float) -> None:
    r = rates(accelerator("h100-sxm"), "bf16")
    faster = replace(r, matmul=2 * r.matmul, memory=2 * r.memory)
    slow, fast = operator_time(matmul(m, n, k), r), operator_time(matmul(m, n, k), faster)
    assert fast[0] <= slow[0] <= 2 * fast[0] and fast[1] <= slow[1] <= 2 * fast[1]


def test_low_precision_pays_its_casts() -> None:
    """fp8 products of a large square gain, a skinny one loses to quantisation."""
    device = accelerator("h100-sxm")
    plain, low = rates(device, "bf16"), rates(device, "fp8")
    big, thin = matmul(8192, 8192, 8192, low=True), matmul(8192, 64, 8192, low=True)
    assert 1.4 < sum(operator_time(big, plain)) / sum(operator_time(big, low)) < 2
    assert sum(operator_time(thin, low)) > sum(operator_time(thin, plain))
    head = matmul(8192, 8192, 8192)  # not part of the recipe
    assert operator_time(head, low) == operator_time(head, plain)


def test_launch_gap_is_one_kernel_forward_and_two_backward() -> None:
    r = rates(accelerator("h100-sxm"), "bf16")
    with_gap, without = operator_time(matmul(64, 64, 64), r), operator_time(matmul(64, 64, 64), silent(r))
    assert with_gap[0] - without[0] == pytest.approx(r.launch) and with_gap[1] - without[1] == pytest.approx(
        2 * r.launch
    )


@pytest.mark.parametrize(
    ("id", "asked", "used"),
    [
        ("v100-sxm-32gb", "bf16", "fp16"),
        ("tpu-v5p", "fp16", "bf16"),
        ("a100-sxm-80gb", "fp8", "bf16"),
        ("h100-sxm", "fp4", "fp8"),
    ],
)
def test_missing_formats_fall_back(id: str, asked: str, used: str) -> None:
    device = accelerator(id)
    assert asked not in device.peak_flops
    assert dense_peak(device, asked) == device.peak_flops[used]
