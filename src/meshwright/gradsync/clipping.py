"""One norm over all gradients and all shards, then one factor for all: clipping that does not depend on the layout.

Clip after the reduction, after the decompression, after unscaling; never per bucket and never per shard.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Partial, Replicate

from meshwright.errors import InputError
from meshwright.gradsync.group import Group, gathered_objects, my_rank
from meshwright.gradsync.names import Parameters, named
from meshwright.gradsync.nonfinite import NonFiniteGradientError, first_not_finite
from meshwright.messages import N_, Text

Shard = tuple[str, torch.Tensor, tuple[Group, ...]]  # name, what this rank holds, groups over which the rest lies


def total_norm(parameters: Parameters, norm_type: float = 2.0, *, shard_group: Group = None) -> torch.Tensor:
    """Norm of the whole gradient, the same plain tensor on every rank.

    Gradients that are DTensors are summed over the mesh dimensions they are sharded along, and counted once where
    they are replicated. Plain gradients are replicas, or, with `shard_group`, each rank's own piece.
    """
    shards = list(_shards(parameters, shard_group))
    if not shards:
        return torch.zeros(())
    parts: dict[tuple[Group, ...], list[torch.Tensor]] = {}
    for _, local, groups in shards:
        parts.setdefault(groups, []).append(local)
    powers = [_over_groups(_power(local, norm_type), groups, norm_type) for groups, local in parts.items()]
    together = torch.stack([p.to(powers[0].device) for p in powers])
    if math.isinf(norm_type):
        return together.max()
    return together.sum() ** (1.0 / norm_type)


def clip_grad_norm_(
    parameters: Parameters,
    max_norm: float,
    norm_type: float = 2.0,
    *,
    shard_group: Group = None,
    inverse_scale: float = 1.0,
    error_if_nonfinite: bool = False,
) -> torch.Tensor:
    """Scale all gradients by one factor so that their whole norm is at most `max_norm`; returns the norm before.

    `inverse_scale` undoes a loss scale first, in the same pass. The norm that comes back is whole: log it as it is.
    """
    if not isinstance(parameters, torch.nn.Module):
        parameters = list(parameters)
    norm = total_norm(parameters, norm_type, shard_group=shard_group) * inverse_scale
    if error_if_nonfinite and not torch.isfinite(norm):
        raise NonFiniteGradientError.named(*_first_anywhere(parameters, shard_group))
    factor = torch.clamp(max_norm / (norm + 1e-6), max=1.0) * inverse_scale
    with torch.no_grad():
        for _, local, _ in _shards(parameters, shard_group):
            local.mul_(factor.to(local.device, local.dtype))
    return norm


def _first_anywhere(parameters: Parameters, shard_group: Group) -> tuple[int, str]:
    """Rank and parameter of a gradient that is not finite, asked around all groups that hold parts of the norm."""
    found = first_not_finite(parameters)
    for group in dict.fromkeys(g for _, _, groups in _shards(parameters, shard_group) for g in groups):
        found = next((other for other in gathered_objects(found, group) if other[1]), found)
    return found


def _shards(parameters: Parameters, shard_group: Group) -> Iterator[Shard]:
    for name, parameter in named(parameters):
        gradient = parameter.grad
        if gradient is None:
            continue
        if isinstance(gradient, DTensor):
            yield name, gradient.to_local(), _groups_of(name, gradient)
        else:
            yield name, gradient.detach(), () if shard_group is None else (shard_group,)


def _groups_of(name: str, gradient: DTensor) -> tuple[Group, ...]:
    """The mesh dimensions along which a gradient is cut; a partial sum has no norm yet."""
    groups = []
    for dimension, placement in enumerate(gradient.placements):
        if isinstance(placement, Partial):
            raise InputError(
                Text(N_("rank {rank}: the gradient of {name} is not reduced yet"), rank=my_rank(), name=name),
                where="clip_grad_norm_",
                fix=Text(N_("reduce it first, then clip: a norm of parts is not the norm of their sum")),
            )
        if not isinstance(placement, Replicate):
            groups.append(gradient.device_mesh.get_group(dimension))
    return tuple(groups)


def _power(local: Sequence[torch.Tensor], norm_type: float) -> torch.Tensor:
    """Sum of |g|^p over what this rank holds (the largest |g| for p = inf), in float32 or wider."""
    wide = [t if t.dtype == torch.float64 else t.float() for t in local]
    norms = torch.stack([torch.linalg.vector_norm(t, norm_type) if t.numel() else t.new_zeros(()) for t in wide])
    return norms.max() if math.isinf(norm_type) else (norms**norm_type).sum()


def _over_groups(power: torch.Tensor, groups: Sequence[Group], norm_type: float) -> torch.Tensor:
    for group in groups:
        dist.all_reduce(power, op=dist.ReduceOp.MAX if math.isinf(norm_type) else dist.ReduceOp.SUM, group=group)
    return power
