"""Kernels that memory binds: norms, element-wise passes, copies, the optimizer update, and the way to the host.

`work` counts the bytes that must be read and written at least; a kernel that moves more shows as a lower rate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from meshwright.bench.gemm import BYTES, matrix
from meshwright.bench.machine import Machine, host_free_bytes
from meshwright.bench.sweep import Call, Case, ascending

ELEMENTS = (2**16, 2**20, 2**23, 2**25, 2**27)
ROWS = ((512, 1024), (2048, 4096), (8192, 4096), (8192, 8192))  # tokens × width
COPIES = (2**20, 2**24, 2**28, 2**30)  # bytes
NORM_BACKWARD = 1.5  # input and gradient read, gradient written: three passes for two


def cases(machine: Machine) -> list[Case]:
    """All of them, those that move little first."""
    passes = [_pass(machine, name, n) for n in ELEMENTS for name in _PASSES]
    norms = [
        _norm(machine, name, phase, *side) for side in ROWS for name in _NORMS for phase in ("forward", "backward")
    ]
    copies = [_copy(machine, size) for size in COPIES]
    pinned = [size for size in COPIES if size < 0.05 * host_free_bytes() and machine.device.type == "cuda"]
    host = [_host_copy(machine, way, size) for size in pinned for way in WAYS]
    updates = [_update(machine, n) for n in ELEMENTS[1:]]
    return ascending([*passes, *norms, *copies, *host, *updates])


# ---------------------------------------------------------------------------------------------- element-wise


def _silu(machine: Machine, n: int) -> Call:
    x = matrix(machine, "bf16", n)
    return lambda: machine.torch.nn.functional.silu(x)


def _add(machine: Machine, n: int) -> Call:
    x, y, out = (matrix(machine, "bf16", n) for _ in range(3))
    return lambda: machine.torch.add(x, y, out=out)


def _cast(machine: Machine, n: int) -> Call:
    x, out = matrix(machine, "fp32", n), matrix(machine, "bf16", n)
    return lambda: out.copy_(x)


_PASSES: dict[str, tuple[Callable[[Machine, int], Call], float, str]] = {  # maker, bytes per element, what is called
    "silu": (_silu, 4.0, "torch.nn.functional.silu"),
    "add": (_add, 6.0, "torch.add"),
    "cast": (_cast, 6.0, "fp32 to bf16"),
}


def _pass(machine: Machine, name: str, n: int) -> Case:
    make, each, kernel = _PASSES[name]
    return Case(
        kind=name, phase="", kernel=kernel, shape={"elements": n}, dtype="bf16", work=each * n, unit="B",
        size=each * n, make=lambda: make(machine, n),
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------- norms


def _rms(torch: Any, x: Any, weight: Any) -> Any:
    return torch.nn.functional.rms_norm(x, weight.shape, weight, 1e-5)


def _layer(torch: Any, x: Any, weight: Any) -> Any:
    return torch.nn.functional.layer_norm(x, weight.shape, weight)


_NORMS: dict[str, Callable[[Any, Any, Any], Any]] = {"rms_norm": _rms, "layer_norm": _layer}


def _norm(machine: Machine, name: str, phase: str, rows: int, width: int) -> Case:
    backward = phase == "backward"
    tensor = BYTES["bf16"] * rows * width
    return Case(
        kind=name, phase=phase, kernel=f"torch.nn.functional.{name}", shape={"rows": rows, "width": width},
        dtype="bf16", work=2.0 * tensor * (NORM_BACKWARD if backward else 1.0), unit="B",
        size=tensor * (10.0 if backward else 6.0),
        make=lambda: _make_norm(machine, _NORMS[name], backward, rows, width),
    )  # fmt: skip


def _make_norm(machine: Machine, norm: Callable[[Any, Any, Any], Any], backward: bool, rows: int, width: int) -> Call:
    torch = machine.torch
    x, weight = (matrix(machine, "bf16", *sides).requires_grad_(backward) for sides in ((rows, width), (width,)))
    if not backward:
        return lambda: norm(torch, x, weight)
    out = norm(torch, x, weight)
    upstream = torch.randn_like(out)
    return lambda: torch.autograd.grad(out, (x, weight), upstream, retain_graph=True)


# ---------------------------------------------------------------------------------------------- copies and update

WAYS = ("host_to_device", "device_to_host")


def _copy(machine: Machine, size: int) -> Case:
    def make() -> Call:
        source, target = (machine.torch.zeros(size, dtype=machine.torch.uint8, device=machine.device) for _ in "ab")
        return lambda: target.copy_(source)

    return Case(
        kind="copy", phase="", kernel="Tensor.copy_", shape={"bytes": size}, dtype="uint8", work=2.0 * size, unit="B",
        size=2.0 * size, make=make,
    )  # fmt: skip


def _host_copy(machine: Machine, way: str, size: int) -> Case:
    """From or to pinned memory of the host."""

    def make() -> Call:
        torch = machine.torch
        far = torch.zeros(size, dtype=torch.uint8, device=machine.device)
        near = torch.zeros(size, dtype=torch.uint8, pin_memory=True)
        source, target = (near, far) if way == "host_to_device" else (far, near)
        return lambda: target.copy_(source, non_blocking=True)

    return Case(
        kind=way, phase="", kernel="Tensor.copy_ pinned", shape={"bytes": size}, dtype="uint8", work=float(size),
        unit="B", size=float(size), make=make,
    )  # fmt: skip


def _update(machine: Machine, n: int) -> Case:
    """AdamW in one kernel, everything fp32: the parameter and both moments read and written, the gradient read."""

    def make() -> Call:
        torch = machine.torch
        parameter = torch.nn.Parameter(matrix(machine, "fp32", n))
        parameter.grad = matrix(machine, "fp32", n)
        return torch.optim.AdamW([parameter], lr=1e-4, fused=True).step

    return Case(
        kind="adamw", phase="", kernel="torch.optim.AdamW fused", shape={"elements": n}, dtype="fp32", work=28.0 * n,
        unit="B", size=16.0 * n, make=make,
    )  # fmt: skip
