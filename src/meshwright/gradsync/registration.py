"""Put a hook to work: on DDP, on a plain module, or on FSDP2 where its interface has a place for it."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from meshwright.errors import InputError
from meshwright.gradsync.hooks import Hook
from meshwright.gradsync.names import named
from meshwright.gradsync.state import CommHookState
from meshwright.messages import N_, Text


def register_comm_hook(module: nn.Module, state: CommHookState, hook: Hook) -> Plain | None:
    """Synchronise the gradients of `module` by `hook`.

    DDP: once per wrapper, as torch demands. FSDP2 (`fully_shard`) reduces shards on its own and has no place for state
    keyed by parameter: refused, with what to use instead. Any other module: a `Plain` handle is returned, whose
    `synchronize()` has to be called between backward and the optimizer step.
    """
    state.name_parameters(module)
    if isinstance(module, DistributedDataParallel):
        module.register_comm_hook(state, hook)
        return None
    if any(hasattr(m, "set_custom_reduce_scatter") for m in module.modules()):
        raise InputError(
            Text(N_("FSDP2 reduces shards of gradients by itself: a DDP hook has no place in it")),
            where=type(module).__name__,
            fix=Text(
                N_("reduce in half precision with MixedPrecisionPolicy(reduce_dtype=…), or use {call}"),
                call="gradsync.fsdp.reduce_by(module, algorithm)",
            ),
        )
    return Plain(module, state, hook)


class Plain:
    """Hooks without DDP: gradients are collected in buckets as they appear, and reduced in the background."""

    def __init__(self, module: nn.Module, state: CommHookState, hook: Hook, *, bucket_cap_mb: float = 25.0) -> None:
        self._state, self._hook = state, hook
        self._cap = bucket_cap_mb * 2**20
        pairs = named(module)
        self._all = list(reversed(pairs))  # gradients come from the last layer to the first
        self._under_way: list[tuple[torch.futures.Future[torch.Tensor], list[torch.Tensor]]] = []

    def synchronize(self) -> None:
        """Reduce every gradient; a parameter without one counts as zero, so that all ranks do the same."""
        waiting: list[tuple[str, torch.Tensor]] = []
        size = 0
        for position, (name, parameter) in enumerate(self._all):
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            waiting.append((name, parameter))
            size += parameter.numel() * parameter.element_size()
            last = position == len(self._all) - 1
            if last or size >= self._cap or self._all[position + 1][1].dtype != parameter.dtype:
                self._start(waiting, last)
                waiting, size = [], 0
        for future, parameters in self._under_way:
            pieces = future.wait().split([p.numel() for p in parameters])
            for parameter, piece in zip(parameters, pieces, strict=True):
                assert parameter.grad is not None
                parameter.grad.copy_(piece.view(parameter.shape))
        self._under_way.clear()

    def _start(self, pairs: list[tuple[str, torch.Tensor]], last: bool) -> None:
        parameters = [p for _, p in pairs]
        flat = torch.cat([p.grad.reshape(-1) for p in parameters if p.grad is not None])
        bucket = PlainBucket(flat, parameters, last)
        self._under_way.append((self._hook(self._state, bucket), parameters))


class PlainBucket:
    """What a hook asks of DDP's GradBucket, over a flat tensor of ours."""

    def __init__(self, buffer: torch.Tensor, parameters: list[torch.Tensor], last: bool) -> None:
        self._buffer, self._parameters, self._last = buffer, parameters, last

    def buffer(self) -> torch.Tensor:
        """The flat gradients."""
        return self._buffer

    def set_buffer(self, buffer: torch.Tensor) -> None:
        """Put another flat tensor in place."""
        self._buffer = buffer

    def parameters(self) -> list[torch.Tensor]:
        """Whose gradients lie in it, in order."""
        return self._parameters

    def is_last(self) -> bool:
        """Whether it is the last of the step."""
        return self._last
