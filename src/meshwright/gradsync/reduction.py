"""What an all-reduce does with two values: sum, mean, product, least, largest, for every dtype."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from meshwright.errors import InputError
from meshwright.messages import N_, Text

Combine = Callable[[torch.Tensor, torch.Tensor], Any]

NAMES = ("sum", "avg", "product", "min", "max")
_INTO: dict[str, Combine] = {
    "sum": lambda into, other: into.add_(other),
    "avg": lambda into, other: into.add_(other),
    "product": lambda into, other: into.mul_(other),
    "min": lambda into, other: torch.minimum(into, other, out=into),
    "max": lambda into, other: torch.maximum(into, other, out=into),
}
_SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}


def named(op: Any) -> str:
    """The name of a reduction given as a word or as torch's ReduceOp."""
    word = op if isinstance(op, str) else str(getattr(op, "op", op)).rsplit(".", 1)[-1]
    name = {"mean": "avg", "prod": "product"}.get(word.lower(), word.lower())
    if name not in NAMES:
        raise InputError(
            Text(N_("'{name}' is not a reduction that is known here"), name=word),
            where="op",
            fix=Text(N_("choose one of {names}"), names=", ".join(NAMES)),
        )
    return name


def combine_for(op: str, dtype: torch.dtype) -> Combine:
    """In-place `into ∘ other` for tensors of this dtype."""
    if op == "avg" and not (dtype.is_floating_point or dtype.is_complex):
        raise InputError(
            Text(N_("a mean of {dtype} would be cut to whole numbers"), dtype=str(dtype)),
            where="op",
            fix=Text(N_("use sum and divide, or a floating-point tensor")),
        )
    into = _INTO[op]
    if dtype in _SIGNED and op in ("sum", "product"):  # two's complement: the same bits, and torch has the kernel
        signed = _SIGNED[dtype]
        return lambda a, b: into(a.view(signed), b.view(signed))
    if dtype.is_floating_point and dtype.itemsize == 1:  # float8 has no arithmetic of its own
        return lambda a, b: a.copy_(into(a.float(), b.float()))
    if dtype == torch.bool and op in ("sum", "max"):
        return lambda a, b: a.logical_or_(b)
    if dtype == torch.bool and op in ("product", "min"):
        return lambda a, b: a.logical_and_(b)
    return into


def reduce_op(op: str) -> Any:
    """The same reduction for the backend's own collectives; a mean is a sum there, divided by the caller."""
    return {"sum": dist.ReduceOp.SUM, "avg": dist.ReduceOp.SUM, "product": dist.ReduceOp.PRODUCT,
            "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX}[op]  # fmt: skip
