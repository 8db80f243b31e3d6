"""Parameters with the names by which errors and state speak of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import torch
from torch import nn

Parameters: TypeAlias = nn.Module | Iterable[torch.Tensor] | Iterable[tuple[str, torch.Tensor]]
WRAPPERS = ("module.", "_orig_mod.", "_fsdp_wrapped_module.")  # what DDP, torch.compile and FSDP1 put into names


def named(parameters: Parameters) -> list[tuple[str, torch.Tensor]]:
    """Trainable tensors with names: of a module, of pairs, or plain tensors called `parameter 0`, `parameter 1`, …"""
    if isinstance(parameters, nn.Module):
        return [(unwrapped(name), p) for name, p in parameters.named_parameters() if p.requires_grad]
    pairs: list[tuple[str, torch.Tensor]] = []
    item: Any
    for i, item in enumerate(parameters):
        name, tensor = (f"parameter {i}", item) if isinstance(item, torch.Tensor) else item
        if tensor.requires_grad:
            pairs.append((unwrapped(name), tensor))
    return pairs


def unwrapped(name: str) -> str:
    """The name of a parameter in the model as its author wrote it.

    >>> unwrapped("module.layers.0.weight")
    'layers.0.weight'
    """
    for wrapper in WRAPPERS:
        name = name.removeprefix(wrapper).replace("." + wrapper, ".")
    return name
