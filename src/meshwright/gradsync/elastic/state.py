"""What a checkpoint holds of a training run, and how it comes back on another number of ranks."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

from meshwright.gradsync.elastic import rng
from meshwright.gradsync.elastic.order import derived_seed

SHARED, OF_RANK = "shared", "rank"
Reshard = Literal["average", "zero"]


class Stateful(Protocol):
    """Schedulers and the like: the same state on every rank."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: Any, /) -> Any: ...


class HookState(Protocol):
    """State of a communication hook: every rank has its own."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: Any, reshard: Reshard = "average") -> Any: ...


@dataclass(slots=True, kw_only=True)
class Parts:
    """Everything that a step changes."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    scheduler: Stateful | None = None
    hook_state: HookState | None = None
    extra: Mapping[str, Stateful] = field(default_factory=dict)

    @property
    def shared(self) -> dict[str, Stateful]:
        """Parts whose state is the same on all ranks."""
        return {**({} if self.scheduler is None else {"scheduler": self.scheduler}), **self.extra}


def tensors(parts: Parts) -> dict[str, Any]:
    """Model and optimizer by parameter name, sharded as they are: DCP writes and reads these on any world size."""
    model, optimizer = get_state_dict(parts.model, parts.optimizer)
    return {"model": model, "optimizer": optimizer}


def to_save(parts: Parts, rank: int) -> dict[str, Any]:
    """State of this rank as DCP takes it; what is not a tensor of the model travels packed."""
    state = tensors(parts)
    if rank == 0:
        state[SHARED] = packed({name: part.state_dict() for name, part in parts.shared.items()})
    own: dict[str, Any] = {"rng": rng.capture()}
    if parts.hook_state is not None:
        own["hook"] = parts.hook_state.state_dict()
    state[f"{OF_RANK}/{rank}"] = packed(own)
    return state


def put_back(parts: Parts, loaded: Mapping[str, Any], rank: int, *, before: int, now: int, reshard: Reshard) -> None:
    """Load what DCP read: `before` ranks wrote it, `now` ranks go on."""
    set_state_dict(
        parts.model,
        parts.optimizer,
        model_state_dict=loaded["model"],
        optim_state_dict=loaded["optimizer"],
    )
    shared = unpacked(loaded[SHARED])
    for name, part in parts.shared.items():
        part.load_state_dict(shared[name])
    own = {r: unpacked(loaded[f"{OF_RANK}/{r}"]) for r in ranks_to_read(parts, rank, before, now)}
    if rank in own:
        rng.restore(own[rank]["rng"])
    else:
        rng.seed_everything(derived_seed(torch.initial_seed(), rank))
    if parts.hook_state is not None:
        _put_hook_back(parts.hook_state, [own[r].get("hook") for r in sorted(own)], before == now, reshard)


def ranks_to_read(parts: Parts, rank: int, before: int, now: int) -> Sequence[int]:
    """Whose packed state this rank needs: its own, or, where a hook's state is dealt anew, everybody's."""
    if before != now and parts.hook_state is not None:
        return range(before)
    return [rank] if rank < before else []


def _put_hook_back(hook: HookState, states: list[Any], same_world: bool, reshard: Reshard) -> None:
    """One state for one's own; the list of all that were, by rank, where the world has another size."""
    present = [state for state in states if state is not None]
    if present:
        hook.load_state_dict(present[0] if same_world else present, reshard=reshard)


def packed(value: Any) -> torch.Tensor:
    """Any state as bytes in a tensor; a snapshot, so that training may go on while it is written."""
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return torch.frombuffer(bytearray(buffer.getvalue()), dtype=torch.uint8)


def unpacked(raw: torch.Tensor) -> Any:
    """What was packed, on the CPU; only numbers, strings, containers and tensors can come out."""
    return torch.load(io.BytesIO(raw.numpy().tobytes()), weights_only=True, map_location="cpu")
