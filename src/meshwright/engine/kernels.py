"""Seconds of one operator on one accelerator, forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from meshwright.catalog.constants import constants, names
from meshwright.engine.operators import Operator
from meshwright.formulas.numeric import minimum
from meshwright.formulas.roofline import matmul_flops, matmul_time, roofline_time, wave_utilisation
from meshwright.spec.cluster import Accelerator

LOW_PRECISION = {"fp8": "fp8", "mxfp8": "fp8", "nvfp4": "fp4"}
PLAIN_DTYPE = {"fp32": "fp32", "tf32": "tf32", "fp16": "fp16"}


@dataclass(frozen=True, slots=True)
class Rates:
    """What the kernels of one accelerator reach under one precision recipe. Rates in FLOP/s and B/s."""

    matmul: float
    low_matmul: float  # matrices that the recipe runs in fp8 or fp4
    attention_forward: float
    attention_backward: float
    scan: float
    memory: float
    units: int
    tile_m: float
    tile_n: float
    k_ramp: float
    weight_gradient: float
    grouped: float
    grouped_weight_gradient: float
    ring_loss: float  # share of the attention rate lost to a long ring
    forward_waves: float
    backward_waves: float
    launch: float
    host_launch: float
    contention: float
    casts: bool
    element: float


def dense_peak(accelerator: Accelerator, dtype: str) -> float:
    """Dense peak of `dtype`; bf16 falls back to fp16 (V100), tf32 to fp32, fp16 to bf16 (TPU). [FLOP/s]"""
    peaks = accelerator.peak_flops
    fallback = {"bf16": "fp16", "fp16": "bf16", "tf32": "fp32", "fp8": "bf16", "fp4": "fp8", "fp32": "bf16"}
    while dtype not in peaks:
        dtype = fallback[dtype]
    return peaks[dtype]


@lru_cache(maxsize=256)
def rates(accelerator: Accelerator, precision: str, attention_kernel: str = "best") -> Rates:
    """Achievable rates: datasheet peak × best measured share × share sustained in long runs."""
    known = names("kernels")
    c = constants("kernels", accelerator.architecture if accelerator.architecture in known else "default")
    plain = PLAIN_DTYPE.get(precision, "bf16")
    low = LOW_PRECISION.get(precision, plain)
    ceiling = accelerator.matmul_ceiling
    plain_ceiling = ceiling.get(plain, ceiling.get("bf16", c.get("matmul_ceiling", 0.8)))
    low_ceiling = ceiling.get(low, plain_ceiling)
    peak, low_peak = dense_peak(accelerator, plain), dense_peak(accelerator, low)
    sustained = c["matmul_sustained"]
    kernel = c[f"attention_{attention_kernel}"]
    return Rates(
        matmul=peak * plain_ceiling * sustained,
        low_matmul=low_peak * low_ceiling * sustained,
        attention_forward=peak * c["attention_forward"] * kernel,
        attention_backward=peak * c["attention_backward"] * kernel,
        scan=peak * c["scan_efficiency"],
        memory=accelerator.memory_bandwidth * c["memory_efficiency"],
        units=accelerator.compute_units,
        tile_m=c["tile_m"],
        tile_n=c["tile_n"],
        k_ramp=c["k_ramp"],
        weight_gradient=c["weight_gradient"],
        grouped=c["grouped_matmul"],
        grouped_weight_gradient=c["grouped_weight_gradient"],
        ring_loss=c["ring_attention_loss"],
        forward_waves=c["attention_forward_waves"],
        backward_waves=c["attention_backward_waves"],
        launch=c["launch"],
        host_launch=c["host_launch"],
        contention=c["contention"],
        casts=precision in LOW_PRECISION,
        element=4.0 if precision in ("fp32", "tf32") else 2.0,
    )


def _product(flops: Any, m: Any, n: Any, k: Any, batch: Any, peak: float, out_bytes: float, r: Rates) -> Any:
    traffic = batch * (r.element * (m * k + k * n) + out_bytes * m * n)
    used = minimum(wave_utilisation(m, n, batch, r.tile_m, r.tile_n, r.units), 1.0)
    return matmul_time(flops, traffic, k, used, peak, r.memory, r.k_ramp)


def _three_products(op: Operator, r: Rates, peak: float, weight_peak: float) -> tuple[Any, Any]:
    """Forward product, and data and weight gradient (accumulated in fp32): three products of the same FLOPs."""
    m, n, k, b = op.m, op.n, op.k, op.batch
    flops = matmul_flops(m, n, k, b)
    forward = _product(flops, m, n, k, b, peak, r.element, r)
    backward = _product(flops, m, k, n, b, peak, r.element, r) + _product(flops, n, k, m, b, weight_peak, 8.0, r)
    return forward, backward


def _with_casts(op: Operator, r: Rates, forward: Any, backward: Any) -> tuple[Any, Any]:
    """Quantise the input row- and column-wise, likewise the gradient: read 2 bytes, write 1 + 1."""
    m, n, k, b = op.m, op.n, op.k, op.batch
    return forward + 4.0 * m * k * b / r.memory, backward + 4.0 * m * n * b / r.memory


def _matmul(op: Operator, r: Rates) -> tuple[Any, Any]:
    peak = r.low_matmul if op.low_precision else r.matmul
    times = _three_products(op, r, peak, peak * r.weight_gradient)
    return _with_casts(op, r, *times) if op.low_precision and r.casts else times


def _grouped(op: Operator, r: Rates) -> tuple[Any, Any]:
    peak = r.low_matmul if r.casts else r.matmul
    times = _three_products(op, r, peak * r.grouped, peak * r.grouped_weight_gradient)
    return _with_casts(op, r, *times) if r.casts else times


def _batched(op: Operator, r: Rates) -> tuple[Any, Any]:
    """Score and value products of unfused attention: the backward pass has two products of the same size."""
    m, n, k, b = op.m, op.n, op.k, op.batch
    forward = _product(matmul_flops(m, n, k, b), m, n, k, b, r.matmul, r.element, r)
    return forward, 2.0 * forward


def _attention(op: Operator, r: Rates) -> tuple[Any, Any]:
    """Fused attention: useful rate × x/(x + waves lost), x = thread-block waves (128 queries each)."""
    waves = op.m * op.batch / (128.0 * r.units)
    kept = 1.0 - r.ring_loss * (1.0 - 1.0 / op.ring)  # a ring of c pieces: smaller kernels, partial sums merged
    forward_peak = r.attention_forward * kept * waves / (waves + r.forward_waves)
    forward = roofline_time(op.flops, op.traffic, forward_peak, r.memory)
    work = op.flops * op.backward_ratio
    peak = r.attention_backward * kept * waves / (waves + r.backward_waves)
    return forward, roofline_time(work, op.traffic * 2.0, peak, r.memory)


def _memory(op: Operator, r: Rates) -> tuple[Any, Any]:
    forward = op.traffic / r.memory
    return forward, forward * op.backward_ratio


def _scan(op: Operator, r: Rates) -> tuple[Any, Any]:
    forward = roofline_time(op.flops, op.traffic, r.scan, r.memory)
    return forward, forward * op.backward_ratio


def operator_flops(op: Operator) -> Any:
    """Forward arithmetic of `op`; element-wise passes count none. [FLOP]"""
    if op.kind in ("attention", "scan"):
        return op.flops
    return 0.0 if op.kind == "memory" else matmul_flops(op.m, op.n, op.k, op.batch)


_KINDS: dict[str, Callable[[Operator, Rates], tuple[Any, Any]]] = {
    "matmul": _matmul,
    "grouped_matmul": _grouped,
    "batched_matmul": _batched,
    "attention": _attention,
    "memory": _memory,
    "scan": _scan,
}


def operator_time(op: Operator, r: Rates) -> tuple[Any, Any]:
    """Forward and backward seconds of `op`, launch gaps included (one kernel forward, two backward)."""
    forward, backward = _KINDS[op.kind](op, r)
    return forward + r.launch, backward + 2.0 * r.launch
