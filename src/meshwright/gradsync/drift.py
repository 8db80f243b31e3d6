"""Replicas that should be equal and are not: found by checksums of the raw bytes, named by rank and parameter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from meshwright.errors import EXIT_NO, MeshwrightError
from meshwright.gradsync.agreement import agree_on_parameters
from meshwright.gradsync.checksum import checksum
from meshwright.gradsync.group import Group, gathered, gathered_rows, global_rank, world_size
from meshwright.gradsync.names import unwrapped
from meshwright.messages import N_, Text

What = Literal["parameters", "gradients", "buffers"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """One tensor of one rank that differs from what most ranks hold (from the lowest rank where there is no most)."""

    rank: int
    parameter: str
    reference: int  # a rank that holds what most hold
    largest: float | None = None  # largest difference of an element; None when only checksums were compared


class ReplicaDriftError(MeshwrightError):
    """Replicas differ; `drifts` lists every tensor and rank."""

    exit_code = EXIT_NO
    code = "replica-drift"
    drifts: tuple[Drift, ...] = ()


def find_drift(
    module: nn.Module, group: Group = None, *, what: What = "parameters", differences: bool = False
) -> tuple[Drift, ...]:
    """Tensors that are not bit-equal on all ranks; the same answer on every rank, empty when all is well.

    Exchanges eight bytes per tensor and rank. `differences` also sends the tensors that differ, to say by how much.
    """
    pairs = _tensors(module, what)
    agree_on_parameters(pairs, (), group, where="find_drift")
    if world_size(group) == 1 or not pairs:
        return ()
    everyone = gathered_rows(torch.tensor([checksum(t) for _, t in pairs], dtype=torch.int64), group)
    found = []
    for i, (name, tensor) in enumerate(pairs):
        sums = everyone[:, i].tolist()
        if len(set(sums)) == 1:
            continue
        reference = _reference(sums)
        sizes = _differences(tensor, reference, group) if differences else [None] * len(sums)
        for place, value in enumerate(sums):
            if value != sums[reference]:
                found.append(
                    Drift(
                        rank=global_rank(place, group),
                        parameter=name,
                        reference=global_rank(reference, group),
                        largest=sizes[place],
                    )
                )
    return tuple(found)


def check_replicas(
    module: nn.Module, group: Group = None, *, what: What = "parameters", differences: bool = False
) -> None:
    """Raise on every rank when a tensor is not bit-equal on all of them, naming rank and parameter."""
    found = find_drift(module, group, what=what, differences=differences)
    if not found:
        return
    first = found[0]
    template = (
        N_("rank {rank} holds other bits of {name} than rank {reference} ({n} such tensors in all)")
        if first.largest is None
        else N_("rank {rank} is up to {largest} off rank {reference} in {name} ({n} such tensors in all)")
    )
    error = ReplicaDriftError(
        Text(
            template,
            rank=first.rank,
            name=first.parameter,
            reference=first.reference,
            n=len(found),
            largest=f"{first.largest or 0:.3g}",
        ),
        fix=Text(N_("load the last checkpoint; if that rank drifts again, take its device out")),
    )
    error.drifts = found
    raise error


def _tensors(module: nn.Module, what: What) -> list[tuple[str, torch.Tensor]]:
    """Replicated tensors by name. A gradient that is None counts as empty; shards (DTensors) are no replicas."""
    source = module.named_buffers() if what == "buffers" else module.named_parameters()
    pairs = [(unwrapped(name), t) for name, t in source if not isinstance(t, DTensor)]
    if what == "gradients":
        return [(name, t.new_empty(0) if t.grad is None else t.grad) for name, t in pairs]
    return [(name, t.detach()) for name, t in pairs]


def _reference(sums: Sequence[int]) -> int:
    """The place of the first rank that holds what most hold."""
    most = max(Counter(sums).values())
    winner = next(s for s in sums if Counter(sums)[s] == most)
    return sums.index(winner)


def _differences(tensor: torch.Tensor, reference: int, group: Group) -> Sequence[float | None]:
    there = tensor.clone()
    dist.broadcast(there, src=global_rank(reference, group), group=group)
    gap = (tensor.double() - there.double()).abs().max() if tensor.numel() else torch.zeros(())
    return [row[0] for row in gathered([float(gap)], group)]
