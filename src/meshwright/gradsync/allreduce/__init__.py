"""All-reduce, reduce-scatter and all-gather as readable code over point-to-point messages.

One file per algorithm; each has `all_reduce(peers, flat, combine)` on a flat tensor in place. `ALGORITHMS` is the
table: to add one, write its file and enter it here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from meshwright.errors import InputError, UnknownNameError
from meshwright.gradsync.allreduce import (
    auto,
    binary_tree,
    direct,
    double_binary_tree,
    halving_doubling,
    hierarchical,
    recursive_doubling,
    ring,
    torus,
)
from meshwright.gradsync.peers import Peers, backend_name, chunks_of
from meshwright.gradsync.reduction import combine_for, named, reduce_op
from meshwright.gradsync.runner import Work, run, start
from meshwright.messages import N_, Text

Algorithm = Callable[[Peers, torch.Tensor, Any], None]

ALGORITHMS: dict[str, Algorithm] = {
    "ring": ring.all_reduce,
    "recursive_doubling": recursive_doubling.all_reduce,
    "halving_doubling": halving_doubling.all_reduce,
    "direct": direct.all_reduce,
    "binary_tree": binary_tree.all_reduce,
    "double_tree": double_binary_tree.all_reduce,
    "torus_2d": torus.all_reduce,
    "hierarchical": hierarchical.all_reduce,
}
SCATTERING: dict[str, Any] = {"ring": ring, "direct": direct}  # those with a reduce-scatter and an all-gather of theirs
CHOICES = ("auto", "backend", *ALGORITHMS)


def all_reduce(
    tensor: torch.Tensor,
    op: Any = "sum",
    *,
    group: dist.ProcessGroup | None = None,
    algorithm: str = "auto",
    async_op: bool = False,
    timeout: float | None = None,
    local: int | None = None,
) -> Work | None:
    """Reduce `tensor` in place over the group: every rank ends with the same bits.

    `op`: sum, avg, product, min, max, or torch's ReduceOp. `algorithm`: one of `CHOICES`; "backend" is torch's own.
    `timeout`: seconds after which a silent peer is an error (default: the group's). `local`: ranks per node.
    With `async_op` a `Work` is returned, and the collectives of a group run in the order of the calls.
    """
    _known(algorithm, CHOICES)
    group = group if group is not None else dist.group.WORLD
    name = named(op)
    body = _all_reduce_body(tensor, name, group, algorithm, timeout, local)
    if async_op:
        return start(group, tensor.device, body)
    run(group, tensor.device, body)
    return None


def _all_reduce_body(
    tensor: torch.Tensor, op: str, group: dist.ProcessGroup, algorithm: str, timeout: float | None, local: int | None
) -> Callable[[], torch.Tensor]:
    combine = combine_for(op, tensor.dtype)
    device = tensor.device

    def body() -> torch.Tensor:
        if algorithm == "backend":
            dist.all_reduce(tensor, reduce_op(op), group=group)
        else:
            with Flat(tensor, group) as flat:
                reduce_flat(Peers(group, timeout=timeout, local=local), flat, combine, algorithm)
        if op == "avg":
            tensor.div_(group.size())
        return tensor

    del device
    return body


def reduce_flat(peers: Peers, flat: torch.Tensor, combine: Any, algorithm: str = "auto") -> None:
    """All-reduce a flat contiguous tensor in place, in this thread."""
    if peers.size == 1 or not flat.numel():
        return
    if algorithm == "auto":
        algorithm = auto.choose(peers, flat.numel() * flat.element_size(), flat.device)
    ALGORITHMS[algorithm](peers, flat, combine)


def reduce_scatter(
    output: torch.Tensor,
    input: torch.Tensor,
    op: Any = "sum",
    *,
    group: dist.ProcessGroup | None = None,
    algorithm: str = "direct",
    async_op: bool = False,
    timeout: float | None = None,
) -> Work | None:
    """Rank r's `output` becomes the reduction of the r-th of W equal parts of every rank's `input` (kept as it is)."""
    module = SCATTERING[_known(algorithm, SCATTERING)]
    group = group if group is not None else dist.group.WORLD
    name = named(op)
    combine = combine_for(name, input.dtype)
    _parts_match(output, input, group.size())

    def body() -> torch.Tensor:
        with Flat(input.clone(), group) as flat:
            peers = Peers(group, timeout=timeout)
            chunks = chunks_of(flat, peers.size)
            module.reduce_scatter(peers, chunks, combine)
            output.copy_(chunks[peers.rank].view(output.shape))
        return output.div_(group.size()) if name == "avg" else output

    return _launched(group, input.device, body, async_op)


def all_gather(
    output: torch.Tensor,
    input: torch.Tensor,
    *,
    group: dist.ProcessGroup | None = None,
    algorithm: str = "direct",
    async_op: bool = False,
    timeout: float | None = None,
) -> Work | None:
    """The r-th of W equal parts of `output` becomes rank r's `input`."""
    module = SCATTERING[_known(algorithm, SCATTERING)]
    group = group if group is not None else dist.group.WORLD
    _parts_match(input, output, group.size())

    def body() -> torch.Tensor:
        with Flat(output, group) as flat:
            peers = Peers(group, timeout=timeout)
            chunks = chunks_of(flat, peers.size)
            chunks[peers.rank].copy_(input.reshape(-1))
            module.all_gather(peers, chunks)
        return output

    return _launched(group, output.device, body, async_op)


class Flat:
    """A flat contiguous view of a tensor; where there is none (or gloo cannot read the device) a copy, copied back."""

    def __init__(self, tensor: torch.Tensor, group: dist.ProcessGroup) -> None:
        self._tensor = tensor
        staged = tensor.device.type != "cpu" and backend_name(group, tensor.device) == "gloo"
        source = tensor.detach()
        self.flat = (source.cpu() if staged else source).contiguous().view(-1)
        self._copied = staged or not tensor.is_contiguous()

    def __enter__(self) -> torch.Tensor:
        return self.flat

    def __exit__(self, kind: Any, *rest: object) -> None:
        if kind is None and self._copied:
            self._tensor.detach().copy_(self.flat.view(self._tensor.shape))


def _launched(group: Any, device: torch.device, body: Callable[[], Any], async_op: bool) -> Work | None:
    if async_op:
        return start(group, device, body)
    run(group, device, body)
    return None


def _known(algorithm: str, choices: Any) -> str:
    if algorithm not in choices:
        raise UnknownNameError("algorithm", algorithm, choices)
    return algorithm


def _parts_match(part: torch.Tensor, whole: torch.Tensor, parts: int) -> None:
    if part.numel() * parts != whole.numel() or part.dtype != whole.dtype:
        raise InputError(
            Text(
                N_("{parts} parts of {part} elements are not {whole} elements of the same dtype"),
                parts=parts, part=part.numel(), whole=whole.numel(),
            ),
            where="output",
            fix=Text(N_("pad the whole to a multiple of the number of ranks")),
        )  # fmt: skip
