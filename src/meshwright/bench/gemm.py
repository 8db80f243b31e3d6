"""Matrix products: squares, the projections of real models and their gradients, short sides, odd sides, by dtype."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from meshwright.bench.machine import Machine
from meshwright.bench.records import Sample
from meshwright.bench.sweep import Budget, Call, Case, Pace, ascending, once, sample_of
from meshwright.formulas.roofline import matmul_flops

SQUARES = (256, 512, 1024, 2048, 4096, 8192, 16384)
# Rows n and inner side k of the projections of Llama-3.1 8B (whole) and 70B (eighth: tensor parallel 8), and a head.
PROJECTIONS = (
    (6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336),
    (1280, 8192), (8192, 1024), (7168, 8192), (8192, 3584), (32064, 8192),
)  # fmt: skip
SMALL_PROJECTIONS = ((768, 768), (2304, 768), (3072, 768), (768, 3072))  # a model that a CPU or a laptop trains
TOKENS = (8192, 2048)
SHORT_ROWS = (16, 64, 256, 1024)  # of 4096 × 4096
SHORT_INNER = (64, 128, 256, 512, 1024)  # of 8192 × 8192
ODD = ((4096, 4224, 4096), (4224, 4096, 4096), (4000, 4096, 4096), (4096, 4096, 4100))
# groups (experts of one rank), rows per group, columns, inner: Mixtral, DeepSeek-V3, Qwen3-30B, and a small one
GROUPS = (
    (4, 128, 256, 128), (16, 512, 1536, 2048), (16, 512, 2048, 768), (8, 2048, 28672, 4096), (8, 2048, 4096, 14336),
    (32, 512, 4096, 7168), (32, 512, 7168, 2048), (32, 128, 4096, 7168),
)  # fmt: skip
PHASES = ("forward", "data_gradient", "weight_gradient")
BLOCK = 2**20 + 7  # values that are drawn; not a multiple of a row

BYTES = {"bf16": 2, "fp16": 2, "fp32": 4, "tf32": 4, "fp8": 1}


def torch_dtype(torch: Any, name: str) -> Any:
    """The dtype of torch that our name means; tf32 is a way to multiply fp32."""
    names = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "tf32": "float32", "fp8": "float8_e4m3fn"}
    return getattr(torch, names[name])


def matrix(machine: Machine, dtype: str, *sides: int) -> Any:
    """Normal random values, as the power that a product draws depends on them; a large one repeats a block of them."""
    torch = machine.torch
    kind = torch_dtype(torch, "bf16" if dtype == "fp8" else dtype)
    count = math.prod(sides)
    block = torch.randn(min(count, BLOCK), device=machine.device, dtype=kind)
    values = block if count <= BLOCK else block.repeat(-(-count // BLOCK))[:count]
    return values.view(sides).to(torch_dtype(torch, dtype))


# ---------------------------------------------------------------------------------------------- plain products


def products(machine: Machine) -> list[Case]:
    """Every plain product, squares first and from small to large, so that what comes after knows how long it takes."""
    squares = [_product(machine, "bf16", "forward", side, side, side) for side in SQUARES]
    layers = [
        _product(machine, "bf16", phase, *gradient_shape(phase, tokens, n, k))
        for pairs, counts in ((PROJECTIONS, TOKENS), (SMALL_PROJECTIONS, TOKENS[1:]))
        for n, k in pairs
        for tokens in counts
        for phase in PHASES
    ]
    edges = [_product(machine, "bf16", "forward", m, 4096, 4096) for m in SHORT_ROWS]
    edges += [_product(machine, "bf16", "forward", 8192, 8192, k) for k in SHORT_INNER]
    edges += [_product(machine, "bf16", "forward", *sides) for sides in ODD]
    others = [_product(machine, dtype, "forward", n, n, n) for dtype in other_dtypes(machine) for n in SQUARES[1:]]
    return [*squares, *ascending([*layers, *edges]), *others]


def other_dtypes(machine: Machine) -> Sequence[str]:
    """Beside bf16: what this device multiplies in a way of its own."""
    if machine.device.type != "cuda":
        return ("fp32",)
    capability = machine.torch.cuda.get_device_capability(machine.device)
    fp8 = machine.backend == "rocm" or capability >= (8, 9)
    return ("fp16", "fp32", "tf32", "fp8") if fp8 else ("fp16", "fp32", "tf32")


def gradient_shape(phase: str, m: int, n: int, k: int) -> tuple[int, int, int]:
    """m, n, k of the product of a phase of a linear layer that takes k values to n for m tokens."""
    return {"forward": (m, n, k), "data_gradient": (m, k, n), "weight_gradient": (n, k, m)}[phase]


def _product(machine: Machine, dtype: str, phase: str, m: int, n: int, k: int) -> Case:
    low = dtype == "fp8"
    return Case(
        kind="gemm", phase=phase, kernel="torch._scaled_mm" if low else "torch.mm", shape={"m": m, "n": n, "k": k},
        dtype=dtype, work=matmul_flops(m, n, k), unit="FLOP",
        size=BYTES[dtype] * (m * k + k * n) + 2 * m * n * (1 + low),
        make=lambda: _scaled(machine, m, n, k) if low else _plain(machine, dtype, phase, m, n, k),
    )  # fmt: skip


def _plain(machine: Machine, dtype: str, phase: str, m: int, n: int, k: int) -> Call:
    """One product in the layout that the phase has in a linear layer with weights stored n × k."""
    torch = machine.torch
    left = matrix(machine, dtype, k, m).t() if phase == "weight_gradient" else matrix(machine, dtype, m, k)
    right = matrix(machine, dtype, n, k).t() if phase == "forward" else matrix(machine, dtype, k, n)
    out = torch.empty(m, n, device=machine.device, dtype=left.dtype)
    if machine.device.type == "cuda" and dtype in ("fp32", "tf32"):
        _multiply_fp32_as(torch, dtype)
    return lambda: torch.mm(left, right, out=out)


def _multiply_fp32_as(torch: Any, dtype: str) -> None:
    """Whether products of fp32 matrices are rounded to tf32 from now on; newer torch has another switch for it."""
    switch = torch.backends.cuda.matmul
    if hasattr(switch, "fp32_precision"):
        switch.fp32_precision = "tf32" if dtype == "tf32" else "ieee"
    else:
        switch.allow_tf32 = dtype == "tf32"


def _scaled(machine: Machine, m: int, n: int, k: int) -> Call:
    """One fp8 product with a scale per tensor, to bf16."""
    torch = machine.torch
    left, right = matrix(machine, "fp8", m, k), matrix(machine, "fp8", n, k).t()
    scale = torch.ones((), device=machine.device)
    return lambda: torch._scaled_mm(left, right, scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16)


# ---------------------------------------------------------------------------------------------- grouped products


def grouped(machine: Machine) -> list[Case]:
    """Products of the experts of one rank in one call, and their gradients."""
    return ascending(_grouped(machine, phase, *shape) for shape in GROUPS for phase in PHASES)


def _grouped(machine: Machine, phase: str, groups: int, rows: int, columns: int, inner: int) -> Case:
    one_call = hasattr(machine.torch.nn.functional, "grouped_mm")
    m, n, k = gradient_shape(phase, rows, columns, inner)
    return Case(
        kind="grouped_gemm", phase=phase, kernel="torch.nn.functional.grouped_mm" if one_call else "torch.mm by group",
        shape={"groups": groups, "m": m, "n": n, "k": k}, dtype="bf16", work=matmul_flops(m, n, k, groups),
        unit="FLOP", size=2.0 * groups * (m * k + k * n + m * n),
        make=lambda: (_in_one_call if one_call else _group_by_group)(machine, phase, groups, m, n, k),
    )  # fmt: skip


def _operands(machine: Machine, phase: str, groups: int, m: int, n: int, k: int) -> tuple[Any, Any]:
    """Tokens of all groups lie behind one another; weights have a group per matrix, stored as a linear layer does."""
    if phase == "weight_gradient":
        return matrix(machine, "bf16", groups * k, m).t(), matrix(machine, "bf16", groups * k, n)
    tokens = matrix(machine, "bf16", groups * m, k)
    if phase == "forward":
        return tokens, matrix(machine, "bf16", groups, n, k).transpose(1, 2)
    return tokens, matrix(machine, "bf16", groups, k, n)


def _in_one_call(machine: Machine, phase: str, groups: int, m: int, n: int, k: int) -> Call:
    torch = machine.torch
    left, right = _operands(machine, phase, groups, m, n, k)
    each = k if phase == "weight_gradient" else m
    ends = torch.arange(1, groups + 1, device=machine.device, dtype=torch.int32) * each
    return lambda: torch.nn.functional.grouped_mm(left, right, offs=ends)


def _group_by_group(machine: Machine, phase: str, groups: int, m: int, n: int, k: int) -> Call:
    torch = machine.torch
    left, right = _operands(machine, phase, groups, m, n, k)
    if phase == "weight_gradient":
        pairs = list(zip(left.chunk(groups, 1), right.chunk(groups, 0), strict=True))
    else:
        pairs = list(zip(left.chunk(groups, 0), right.unbind(0), strict=True))
    return lambda: [torch.mm(a, b) for a, b in pairs]


# ---------------------------------------------------------------------------------------------- long runs

STEADY = 0.02  # two windows that differ by less are the same
WINDOWS = 20


def largest_square(machine: Machine, seconds: float) -> Case | None:
    """The largest square product of which fifty take no longer than `seconds`."""
    best = None
    for case in products(machine)[: len(SQUARES)]:
        if case.size > 0.2 * machine.free_bytes():
            break
        spent = once(case.make(), machine, again=True)
        if spent * 50 > seconds and best is not None:
            break
        best = case
        if spent * 10 > seconds:  # the next is eight times as large
            break
    return best


def settle(machine: Machine, seconds: float, pace: Pace) -> None:
    """Multiply until the rate no longer changes, or for `seconds`: clocks rise from idle and fall under load."""
    case = largest_square(machine, seconds)
    if case is not None:
        found = windows(machine, case.make(), seconds, steady=lambda found: _level(found[-3:]))
        pace.learn(case, min(found.seconds))


def _level(found: Sequence[float]) -> bool:
    return len(found) == 3 and max(found) <= min(found) * (1 + STEADY)


def windows(machine: Machine, call: Call, seconds: float, steady: Callable[[Sequence[float]], bool]) -> _Windows:
    """Windows of equal length without a pause between their calls, until they are `steady` or the time is over."""
    guess = once(call, machine, again=True)
    calls = max(1, int(seconds / WINDOWS / guess))
    found: list[float] = []
    budget = Budget(seconds)
    while not found or (budget.left > 0 and not steady(found)):
        found += machine.elapsed([call], calls, 1, flush=False)
    return _Windows(found, calls)


class _Windows(NamedTuple):
    """Seconds per call of each window, and the calls in one."""

    seconds: list[float]
    calls: int


def sustained(machine: Machine, seconds: float, pace: Pace) -> Iterable[Sample]:
    """The largest square product for as long as a step runs it: the rate that the power limit leaves."""
    case = largest_square(machine, seconds)
    if case is not None:
        found = windows(machine, case.make(), seconds, steady=lambda _: False)
        late = found.seconds[len(found.seconds) // 2 :]
        yield sample_of(replace(case, kind="gemm_sustained"), late, found.calls, pace)
