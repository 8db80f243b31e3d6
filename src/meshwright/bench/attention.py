"""Fused attention, forward and backward, by every kernel that torch has for it on this device."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from meshwright.bench.gemm import matrix
from meshwright.bench.machine import Machine
from meshwright.bench.sweep import Call, Case, ascending
from meshwright.engine.operators import keys_per_query

# batch, sequence, heads, key-value heads, width of queries and keys, width of values
SHAPES = (
    (1, 256, 4, 4, 64, 64),
    (1, 1024, 12, 12, 64, 64),
    (1, 4096, 32, 8, 128, 128),  # Llama-3.1 8B
    (1, 8192, 32, 8, 128, 128),
    (1, 8192, 8, 1, 128, 128),  # 70B, tensor parallel 8
    (1, 4096, 4, 4, 128, 128),  # few heads: the last wave is not full
    (4, 2048, 32, 8, 128, 128),
    (8, 1024, 32, 8, 128, 128),
    (1, 4096, 128, 128, 192, 128),  # DeepSeek-V3
    (1, 32768, 8, 1, 128, 128),
    (1, 4096, 32, 32, 64, 64),
)
BACKWARD_RATIO = 2.5  # five products instead of two


def cases(machine: Machine) -> list[Case]:
    """Shapes × kernels × directions, causal, bf16."""
    kernels = _kernels(machine)
    return ascending(_case(machine, phase, name, *shape) for shape in SHAPES for name in kernels for phase in PHASES)


PHASES = ("forward", "backward")


def _kernels(machine: Machine) -> Sequence[str]:
    """Names of torch's kernels: all fused ones on a GPU, its choice elsewhere."""
    if machine.device.type == "cuda":
        return ("FLASH_ATTENTION", "CUDNN_ATTENTION") if machine.backend == "cuda" else ("FLASH_ATTENTION",)
    return ("FLASH_ATTENTION",) if machine.device.type == "cpu" else ("",)


def _case(
    machine: Machine, phase: str, kernel: str, batch: int, seq: int, heads: int, kv_heads: int, qk: int, v: int
) -> Case:
    forward = 2.0 * batch * seq * keys_per_query(seq, None, True) * heads * (qk + v)
    tensors = 2.0 * batch * seq * (heads * (qk + v) + kv_heads * (qk + v))
    if not kernel:  # torch may choose the one that writes all scores down
        tensors += 8.0 * batch * heads * seq * seq
    backward = phase == "backward"
    return Case(
        kind="attention", phase=phase, kernel=f"sdpa {kernel.lower().removesuffix('_attention')}".strip(),
        shape={"batch": batch, "seq": seq, "heads": heads, "kv_heads": kv_heads, "qk_dim": qk, "v_dim": v},
        dtype="bf16", work=forward * (BACKWARD_RATIO if backward else 1.0), unit="FLOP",
        size=tensors * (3.0 if backward else 1.0),
        make=lambda: _make(machine, kernel, backward, batch, seq, heads, kv_heads, qk, v),
    )  # fmt: skip


def _make(
    machine: Machine, kernel: str, backward: bool, batch: int, seq: int, heads: int, kv_heads: int, qk: int, v: int
) -> Call:
    torch = machine.torch
    sides = ((heads, qk), (kv_heads, qk), (kv_heads, v))
    query, key, value = (matrix(machine, "bf16", batch, n, seq, width).requires_grad_(backward) for n, width in sides)

    def attend() -> Any:
        with _only(kernel):
            return torch.nn.functional.scaled_dot_product_attention(
                query, key, value, is_causal=True, enable_gqa=heads != kv_heads
            )

    if not backward:
        return attend
    out = attend()
    upstream = torch.randn_like(out)
    return lambda: torch.autograd.grad(out, (query, key, value), upstream, retain_graph=True)


def _only(kernel: str) -> Any:
    """A context in which torch may take this kernel only; without a name, any."""
    if not kernel:
        return nullcontext()
    from torch.nn.attention import SDPBackend, sdpa_kernel

    return sdpa_kernel([getattr(SDPBackend, kernel)])
