"""Gradients and parameters averaged by hand: without DDP, with weights, with ranks that have nothing to add."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch.distributed.tensor import DTensor

from meshwright.errors import InputError
from meshwright.gradsync.agreement import agree_on_parameters
from meshwright.gradsync.flat import Reduction, all_reduce_coalesced_flat
from meshwright.gradsync.group import Group, gathered, my_rank, rank_in
from meshwright.gradsync.names import Parameters, named
from meshwright.messages import N_, Text


def average_gradients(
    parameters: Parameters,
    group: Group = None,
    *,
    weight: float | None = None,
    op: Literal["mean", "sum"] = "mean",
    bucket_cap_mb: float = 25,
    dtype: torch.dtype | None = None,
    ordered: bool = False,
    async_op: bool = False,
) -> Reduction:
    """Replace every gradient by its mean (or sum) over the ranks.

    With `weight`, the mean of means that counts every token once: pass how many tokens (or samples) this rank's local
    mean was taken over. A rank of weight 0 adds nothing, even where its gradient is NaN (a mean over no tokens).
    A parameter that some ranks did not use counts as zero there; one that no rank used keeps `None`.
    """
    pairs = named(parameters)
    for name, parameter in pairs:
        _refuse_what_is_no_dense_replica(name, parameter)
    mine = _checked(weight)
    unused = any(p.grad is None for _, p in pairs)
    everyone = agree_on_parameters(pairs, (mine, unused), group, where="average_gradients")
    used = _used(pairs, group) if any(row[1] for row in everyone) else [p for _, p in pairs]
    for parameter in used:
        if parameter.grad is None or mine == 0:
            parameter.grad = torch.zeros_like(parameter)
    return all_reduce_coalesced_flat(
        [p.grad for p in used if p.grad is not None],
        group,
        factor=1.0 if op == "sum" and weight is None else _share(everyone, group),
        bucket_cap_mb=bucket_cap_mb,
        dtype=dtype,
        ordered=ordered,
        async_op=async_op,
    )


def average_parameters(
    parameters: Parameters, group: Group = None, *, weight: float | None = None, bucket_cap_mb: float = 25
) -> Reduction:
    """Replace every parameter by its mean over the ranks, weighted where `weight` is given."""
    pairs = named(parameters)
    everyone = agree_on_parameters(pairs, (_checked(weight),), group, where="average_parameters")
    return all_reduce_coalesced_flat(
        [p.detach() for _, p in pairs], group, factor=_share(everyone, group), bucket_cap_mb=bucket_cap_mb
    )


def _checked(weight: float | None) -> float:
    if weight is not None and not (math.isfinite(weight) and weight >= 0):
        raise InputError(
            Text(N_("rank {rank}: the weight of its mean is {weight}"), rank=my_rank(), weight=str(weight)),
            where="weight",
            fix=Text(N_("pass the number of tokens or samples that this rank's mean was taken over")),
        )
    return 1.0 if weight is None else float(weight)


def _share(everyone: Sequence[Sequence[float]], group: Group) -> float:
    """My weight over all weights; where nobody has anything, nothing."""
    return everyone[rank_in(group)][0] / (sum(row[0] for row in everyone) or 1.0)


def _used(pairs: Sequence[tuple[str, torch.Tensor]], group: Group) -> list[torch.Tensor]:
    """The parameters that have a gradient on any rank."""
    table = gathered([float(p.grad is not None) for _, p in pairs], group)
    return [p for i, (_, p) in enumerate(pairs) if any(row[i] for row in table)]


def _refuse_what_is_no_dense_replica(name: str, parameter: torch.Tensor) -> None:
    if isinstance(parameter, DTensor):
        raise InputError(
            Text(N_("rank {rank}: parameter {name} is sharded"), rank=my_rank(), name=name),
            where="average_gradients",
            fix=Text(N_("FSDP2 reduces the gradients of its shards itself; average only what is replicated")),
        )
    if parameter.grad is not None and parameter.grad.is_sparse:
        raise InputError(
            Text(N_("rank {rank}: the gradient of {name} is sparse"), rank=my_rank(), name=name),
            where="average_gradients",
            fix=Text(N_("build the embedding with sparse=False")),
        )
