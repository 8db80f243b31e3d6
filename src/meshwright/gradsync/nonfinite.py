"""Gradients with inf or NaN: one decision for all ranks, and the rank and parameter by name."""

from __future__ import annotations

import torch
from torch.distributed.tensor import DTensor

from meshwright.errors import EXIT_NO, MeshwrightError
from meshwright.gradsync.group import Group, gathered, gathered_objects, my_rank
from meshwright.gradsync.names import Parameters, named
from meshwright.messages import N_, Text


class NonFiniteGradientError(MeshwrightError):
    """A gradient holds inf or NaN; knows `rank` and `parameter`."""

    exit_code = EXIT_NO
    code = "non-finite-gradient"
    rank: int | None = None
    parameter: str | None = None

    @classmethod
    def named(cls, rank: int, parameter: str) -> NonFiniteGradientError:
        """The error that names where it was found."""
        error = cls(
            Text(N_("rank {rank}: the gradient of {name} holds inf or NaN"), rank=rank, name=parameter),
            fix=Text(N_("check the loss of that rank before the reduction; a mean over no tokens is NaN")),
        )
        error.rank, error.parameter = rank, parameter
        return error


def first_not_finite(parameters: Parameters) -> tuple[int, str]:
    """My rank and the first parameter whose gradient is not finite here; an empty name where all are."""
    for name, parameter in named(parameters):
        gradient = parameter.grad
        local = gradient.to_local() if isinstance(gradient, DTensor) else gradient
        if local is not None and not torch.isfinite(local).all():
            return my_rank(), name
    return my_rank(), ""


def all_finite(parameters: Parameters, group: Group = None) -> bool:
    """Whether the gradients of all ranks are finite: the same answer on each, so that all skip the step or none."""
    return not any(row[0] for row in gathered([float(bool(first_not_finite(parameters)[1]))], group))


def check_finite(parameters: Parameters, group: Group = None) -> None:
    """Raise on every rank, naming the first rank and parameter with inf or NaN; call before the reduction."""
    for rank, name in gathered_objects(first_not_finite(parameters), group):
        if name:
            raise NonFiniteGradientError.named(rank, name)
