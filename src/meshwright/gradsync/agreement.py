"""Do all ranks mean the same parameters? Asked before anything is added up, where the answer can still name them."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import torch

from meshwright.errors import InputError
from meshwright.gradsync.group import Group, gathered, gathered_objects, global_rank
from meshwright.messages import N_, Text


def agree_on_parameters(
    pairs: Sequence[tuple[str, torch.Tensor]], facts: Sequence[float], group: Group, *, where: str
) -> list[list[float]]:
    """The `facts` of every rank, by rank, once the lists of parameters are known to be equal; one small message."""
    lines = _lines(pairs)
    table = gathered([len(lines), zlib.crc32("\n".join(lines).encode()), *facts], group)
    if any(row[:2] != table[0][:2] for row in table):
        _say_who_differs(lines, group, where)
    return [row[2:] for row in table]


def _lines(pairs: Sequence[tuple[str, torch.Tensor]]) -> list[str]:
    return [f"{name} {tuple(tensor.shape)}" for name, tensor in pairs]


def _say_who_differs(lines: Sequence[str], group: Group, where: str) -> None:
    everyone = gathered_objects(list(lines), group)
    first = everyone[0]
    for place, theirs in enumerate(everyone[1:], 1):
        if theirs != first:
            at = next(
                (i for i, (a, b) in enumerate(zip(first, theirs, strict=False)) if a != b),
                min(map(len, (first, theirs))),
            )
            raise InputError(
                Text(
                    N_("rank {rank} has parameter {name} where rank {other} has {theirs}"),
                    rank=global_rank(place, group),
                    name=theirs[at] if at < len(theirs) else "-",
                    other=global_rank(0, group),
                    theirs=first[at] if at < len(first) else "-",
                ),
                where=where,
                fix=Text(N_("build the same model on every rank")),
            )
