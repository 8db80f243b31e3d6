"""FSDP2: what its interface lets us replace, the reduce-scatter of each unit, by an algorithm of ours or in int8.

`fully_shard` reduces shards itself, in an order that is fixed when a unit is wrapped, so error feedback is kept by the
name of the unit. Half precision needs nothing of ours: `MixedPrecisionPolicy(reduce_dtype=torch.bfloat16)`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from meshwright.errors import InputError, UnknownNameError
from meshwright.gradsync.allreduce import SCATTERING, reduce_scatter
from meshwright.gradsync.hooks.blocks import layout_of
from meshwright.gradsync.hooks.int8 import dequantise, packed, quantise, unpacked
from meshwright.gradsync.hooks.lossy import is_finite
from meshwright.gradsync.names import unwrapped
from meshwright.gradsync.reduction import named
from meshwright.gradsync.runner import run
from meshwright.gradsync.wire import Wire, WireCount
from meshwright.messages import N_, Text

CHOICES = (*SCATTERING, "int8")


def reduce_by(module: nn.Module, algorithm: str, *, block: int = 256, error_feedback: bool = True) -> dict[str, Any]:
    """Replace the reduce-scatter of every FSDP2 unit of `module`; gives the reducers by the name of the unit."""
    if algorithm not in CHOICES:
        raise UnknownNameError("algorithm", algorithm, CHOICES)
    units = {name: unit for name, unit in module.named_modules() if hasattr(unit, "set_custom_reduce_scatter")}
    if not units:
        raise InputError(
            Text(N_("the module has no unit of FSDP2")),
            where=type(module).__name__,
            fix=Text(N_("call fully_shard first, or {call} for DDP"), call="gradsync.register_comm_hook"),
        )
    reducers: dict[str, Any] = {}
    for name, unit in units.items():
        reducer = Int8Shards(block, error_feedback) if algorithm == "int8" else Shards(algorithm)
        unit.set_custom_reduce_scatter(reducer)
        reducers[unwrapped(name) or "model"] = reducer
    return reducers


class Shards:
    """A reduce-scatter by one of our algorithms, as FSDP2 calls it."""

    def __init__(self, algorithm: str = "direct") -> None:
        self.algorithm = algorithm

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Memory for its input and output."""
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: Any, op: Any, async_op: bool = False
    ) -> Any:
        """Rank r's output becomes the reduction of the r-th part of the inputs."""
        return reduce_scatter(
            output_tensor, input_tensor, _mean_or_sum(op), group=group, algorithm=self.algorithm, async_op=async_op
        )


class Int8Shards(Shards):
    """A reduce-scatter whose parts travel as int8 in blocks; what rounding lost is added to the next gradient."""

    def __init__(self, block: int = 256, error_feedback: bool = True) -> None:
        super().__init__("int8")
        self.block, self.error_feedback = block, error_feedback
        self.error: torch.Tensor | None = None
        self.count = WireCount()

    def __call__(
        self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: Any, op: Any, async_op: bool = False
    ) -> None:
        """As `Shards`; done when it returns."""
        name = _mean_or_sum(op)
        run(group, input_tensor.device, lambda: self._reduce(output_tensor, input_tensor, group, name))

    def _reduce(self, output: torch.Tensor, whole: torch.Tensor, group: dist.ProcessGroup, op: str) -> None:
        ranks, part = group.size(), output.numel()
        layout = layout_of((part,) * ranks, self.block)
        corrected = whole.to(torch.float32, copy=True).view(-1)
        if self.error is not None:
            corrected += self.error.to(corrected.device)
        values, scales = quantise(layout.pack(corrected))
        rows = len(scales) // ranks
        messages = [packed(v, s) for v, s in zip(values.split(rows), scales.split(rows), strict=True)]
        total = torch.zeros(rows, self.block, dtype=torch.float32, device=corrected.device)
        for message in Wire(group, self.count).all_to_all(torch.stack(messages)):
            total += dequantise(*unpacked(message, rows))
        self.count.bucket(part, output.element_size(), ranks)
        flat = total.view(-1)[:part]
        output.copy_((flat / ranks if op == "avg" else flat).view(output.shape))
        if self.error_feedback and is_finite(scales):
            self.error = corrected - layout.unpack(dequantise(values, scales))

    def state_dict(self) -> dict[str, Any]:
        """The error of this rank."""
        return {} if self.error is None else {"error": self.error.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take it over; the world has to have the size it was saved with."""
        self.error = state["error"].clone() if "error" in state else None


def _mean_or_sum(op: Any) -> str:
    if "PREMUL" in str(getattr(op, "op", op)).upper():
        raise InputError(
            Text(N_("a factor of its own for the gradient division is not supported")),
            where="set_gradient_divide_factor",
            fix=Text(N_("leave it at its default, or divide the loss")),
        )
    return named(op)
