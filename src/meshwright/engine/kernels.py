"""Seconds of one operator on one accelerator, forward and backward."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from meshwright.catalog.constants import constants, names, remembers_constants
from meshwright.engine.operators import Operator
from meshwright.formulas.numeric import minimum, where
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
    permute_memory: float  # rows gathered by index
    loss_memory: float  # cross entropy over the vocabulary
    units: int
    tile_m: float
    tile_n: float
    k_ramp: float
    weight_gradient: float
    grouped_ramp: float  # rows of one expert at which a grouped product runs at half a plain one's rate
    grouped_weight_gradient: float
    attention_wide_forward: float  # share of the attention rate that heads wider than 128 keep
    attention_wide_backward: float
    attention_width: float  # head width at which the exponentials take as long as the products
    ring_loss: float  # share of the attention rate lost to a long ring
    forward_waves: float
    backward_waves: float
    partly_aligned: float  # share of the rate where an operand row is no multiple of 64 bytes
    unaligned: float  # where it is not even one of 16 bytes
    launch: float
    host_launch: float
    contention: float
    casts: bool
    cast_bytes: float  # moved to quantise one element both ways
    element: float


def dense_peak(accelerator: Accelerator, dtype: str) -> float:
    """Dense peak of `dtype`; bf16 falls back to fp16 (V100), tf32 to fp32, fp16 to bf16 (TPU). [FLOP/s]"""
    peaks = accelerator.peak_flops
    fallback = {"bf16": "fp16", "fp16": "bf16", "tf32": "fp32", "fp8": "bf16", "fp4": "fp8", "fp32": "bf16"}
    while dtype not in peaks:
        dtype = fallback[dtype]
    return peaks[dtype]


@remembers_constants(maxsize=256)
def rates(accelerator: Accelerator, precision: str, attention_kernel: str = "best", cast_bytes: float = 4.0) -> Rates:
    """Achievable rates: datasheet peak × best measured share × share sustained in long runs."""
    known = names("kernels")
    c = constants("kernels", accelerator.architecture if accelerator.architecture in known else "default")
    plain = PLAIN_DTYPE.get(precision, "bf16")
    low = LOW_PRECISION.get(precision, plain)
    ceiling = accelerator.matmul_ceiling
    plain_ceiling = ceiling.get(plain, ceiling.get("bf16", c.get("matmul_ceiling", 0.8)))
    low_ceiling = ceiling.get(low, plain_ceiling)
    peak, low_peak = dense_peak(accelerator, plain), dense_peak(accelerator, low)
    watts = accelerator.power_watts or math.inf
    sustained = min(peak * plain_ceiling * c["matmul_sustained"], watts * (c["matmul_flops_per_joule"] or math.inf))
    low_name = "low_flops_per_joule" if low == "fp8" else "fp4_flops_per_joule"
    low_limit = watts * (c[low_name] or math.inf) if low in ("fp8", "fp4") else sustained
    low_sustained = min(low_peak * low_ceiling * c["matmul_sustained"], low_limit)
    kernel = c[f"attention_{attention_kernel}"]
    return Rates(
        matmul=sustained,
        low_matmul=low_sustained,
        attention_forward=peak * c["attention_forward"] * kernel,
        attention_backward=peak * c["attention_backward"] * kernel,
        scan=peak * c["scan_efficiency"],
        memory=accelerator.memory_bandwidth * c["memory_efficiency"],
        permute_memory=accelerator.memory_bandwidth * c["permute_efficiency"],
        loss_memory=accelerator.memory_bandwidth * c["loss_efficiency"],
        units=accelerator.compute_units,
        tile_m=c["tile_m"],
        tile_n=c["tile_n"],
        k_ramp=c["k_ramp"],
        weight_gradient=c["weight_gradient"],
        grouped_ramp=c["grouped_ramp"],
        grouped_weight_gradient=c["grouped_weight_gradient"],
        attention_wide_forward=c["attention_wide_forward"],
        attention_wide_backward=c["attention_wide_backward"],
        attention_width=c["attention_width"],
        ring_loss=c["ring_attention_loss"],
        forward_waves=c["attention_forward_waves"],
        backward_waves=c["attention_backward_waves"],
        partly_aligned=c["partly_aligned"],
        unaligned=c["unaligned"],
        launch=c["launch"],
        host_launch=c["host_launch"],
        contention=c["contention"],
        casts=precision in LOW_PRECISION,
        cast_bytes=cast_bytes,
        element=4.0 if precision in ("fp32", "tf32") else 2.0,
    )


def _product(flops: Any, m: Any, n: Any, k: Any, batch: Any, peak: float, out_bytes: float, r: Rates) -> Any:
    traffic = batch * (r.element * (m * k + k * n) + out_bytes * m * n)
    used = minimum(wave_utilisation(m, n, batch, r.tile_m, r.tile_n, r.units), 1.0)
    return matmul_time(flops, traffic, k, used, peak, r.memory, r.k_ramp)


def _alignment(length: Any, r: Rates) -> Any:
    """Share of the rate that rows of `length` elements allow: tensor cores load whole 64-byte sectors best."""
    line, vector = 64.0 / r.element, 16.0 / r.element
    return where(length % line == 0, 1.0, where(length % vector == 0, r.partly_aligned, r.unaligned))


def _three_products(op: Operator, r: Rates, peak: Any, weight_peak: Any) -> tuple[Any, Any, Any]:
    """Forward product, data gradient and weight gradient (accumulated in fp32): three products of the same FLOPs."""
    m, n, k, b = op.m, op.n, op.k, op.batch
    aligned = minimum(_alignment(n, r), _alignment(k, r))
    peak, weight_peak = peak * aligned, weight_peak * aligned
    flops = matmul_flops(m, n, k, b)
    forward = _product(flops, m, n, k, b, peak, r.element, r)
    data = _product(flops, m, k, n, b, peak, r.element, r)
    return forward, data, _product(flops, n, k, m, b, weight_peak, 8.0, r)


def linear_times(op: Operator, r: Rates) -> tuple[Any, Any, Any]:
    """Seconds of the forward product, the data gradient and the weight gradient of a linear layer or of experts.

    Launches and casts are not in them.
    """
    if op.kind == "grouped_matmul":
        peak = r.low_matmul if r.casts else r.matmul
        return _three_products(op, r, peak * op.m / (op.m + r.grouped_ramp), peak * r.grouped_weight_gradient)
    peak = r.low_matmul if op.low_precision else r.matmul
    return _three_products(op, r, peak, peak * r.weight_gradient)


def _with_casts(op: Operator, r: Rates, forward: Any, backward: Any) -> tuple[Any, Any]:
    """Quantise the input row- and column-wise, likewise the gradient: read 2 bytes, write 1 + 1, where it is fused."""
    m, n, k, b = op.m, op.n, op.k, op.batch
    return forward + r.cast_bytes * m * k * b / r.memory, backward + r.cast_bytes * m * n * b / r.memory


def _linear(op: Operator, r: Rates) -> tuple[Any, Any]:
    forward, data, weight = linear_times(op, r)
    cast = r.casts and (op.low_precision or op.kind == "grouped_matmul")
    return _with_casts(op, r, forward, data + weight) if cast else (forward, data + weight)


def _batched(op: Operator, r: Rates) -> tuple[Any, Any]:
    """Score and value products of unfused attention: the backward pass has two products of the same size."""
    m, n, k, b = op.m, op.n, op.k, op.batch
    peak = r.matmul * minimum(_alignment(n, r), _alignment(k, r))
    forward = _product(matmul_flops(m, n, k, b), m, n, k, b, peak, r.element, r)
    return forward, 2.0 * forward


def _attention(op: Operator, r: Rates) -> tuple[Any, Any]:
    """Fused attention: useful rate × x/(x + waves lost), x = thread-block waves (128 queries each)."""
    waves = op.m * op.batch / (128.0 * r.units)
    kept = 1.0 - r.ring_loss * (1.0 - 1.0 / op.ring)  # a ring of c pieces: smaller kernels, partial sums merged
    narrow = minimum(op.n / 2.0, 128.0)  # one exponential per query and key for less work in the products
    kept = kept * narrow / (narrow + r.attention_width) * (128.0 + r.attention_width) / 128.0
    wide = op.n > 256  # queries and keys wider than the 128 that kernels are built for: fewer blocks in flight
    forward_peak = r.attention_forward * kept * where(wide, r.attention_wide_forward, 1.0)
    forward_peak = forward_peak * waves / (waves + r.forward_waves)
    forward = roofline_time(op.flops, op.traffic, forward_peak, r.memory)
    work = op.flops * op.backward_ratio
    peak = r.attention_backward * kept * where(wide, r.attention_wide_backward, 1.0)
    peak = peak * waves / (waves + r.backward_waves)
    return forward, roofline_time(work, op.traffic * 2.0, peak, r.memory)


def _memory(op: Operator, r: Rates) -> tuple[Any, Any]:
    forward = op.traffic / r.memory
    return forward, forward * op.backward_ratio


def _permute(op: Operator, r: Rates) -> tuple[Any, Any]:
    """Rows gathered by index reach less of the bandwidth than a pass in order."""
    forward = op.traffic / r.permute_memory
    return forward, forward * op.backward_ratio


def _loss(op: Operator, r: Rates) -> tuple[Any, Any]:
    """Cross entropy over the vocabulary: reductions in fp32."""
    forward = op.traffic / r.loss_memory
    return forward, forward * op.backward_ratio


def _scan(op: Operator, r: Rates) -> tuple[Any, Any]:
    forward = roofline_time(op.flops, op.traffic, r.scan, r.memory)
    return forward, forward * op.backward_ratio


def operator_flops(op: Operator) -> Any:
    """Forward arithmetic of `op`; element-wise passes count none. [FLOP]"""
    if op.kind in ("attention", "scan"):
        return op.flops
    return 0.0 if op.kind in ("memory", "permute", "loss") else matmul_flops(op.m, op.n, op.k, op.batch)


_KINDS: dict[str, Callable[[Operator, Rates], tuple[Any, Any]]] = {
    "matmul": _linear,
    "grouped_matmul": _linear,
    "batched_matmul": _batched,
    "attention": _attention,
    "memory": _memory,
    "permute": _permute,
    "loss": _loss,
    "scan": _scan,
}


def operator_time(op: Operator, r: Rates) -> tuple[Any, Any]:
    """Forward and backward seconds of `op`, launch gaps included (one kernel forward, two backward)."""
    forward, backward = _KINDS[op.kind](op, r)
    return forward + r.launch, backward + 2.0 * r.launch
