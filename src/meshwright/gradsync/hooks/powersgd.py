"""PowerSGD: each matrix travels as two thin factors, found by one step of power iteration, with error feedback.

Vogels et al. 2019, algorithm 1. As torch's hook, with state by parameter name, the small tensors in the same message
as the first factors (two all-reduces instead of three), and a first step that need not wait for rebuilt buckets.
"""

import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from meshwright.formulas.compression import low_rank_pays
from meshwright.gradsync.hooks.lossy import is_finite, plain
from meshwright.gradsync.state import Bucket, CommHookState
from meshwright.gradsync.wire import Wire


class PowerSGDState(CommHookState):
    """`rank` of the factors; `least_ratio`: matrices whose factors are not that many times smaller go as they are.

    `warm_start`: begin with the last step's factor. `start_iter`: dense steps first, while gradients change fast.
    """

    def __init__(
        self,
        process_group: dist.ProcessGroup | None = None,
        *,
        rank: int = 4,
        least_ratio: float = 2.0,
        warm_start: bool = True,
        start_iter: int = 10,
        **options: object,
    ) -> None:
        super().__init__(process_group, start_iter=start_iter, **options)  # type: ignore[arg-type]
        self.rank, self.least_ratio, self.warm_start = rank, least_ratio, warm_start
        self.factors: dict[str, torch.Tensor] = {}

    def shared_by_name(self) -> dict[str, Any]:
        """The right factors, equal on all ranks."""
        return {"factors": {name: q.clone() for name, q in self.factors.items()}}

    def load_shared(self, shared: Mapping[str, Any]) -> None:
        """Take them over."""
        self.factors = {name: q.clone() for name, q in shared["factors"].items()}


class Matrix(NamedTuple):
    """One compressed parameter: its name, corrected gradient and place of the result, each rows × columns, and rank."""

    name: str
    gradient: torch.Tensor
    result: torch.Tensor
    rank: int


def powersgd_hook(state: PowerSGDState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Mean of the gradients as products of thin factors."""
    seen = state.bucket(bucket)
    warming_up, step = state.warming_up, state.step
    return state.launch(seen, lambda: plain(state, seen) if warming_up else _reduce(state, seen, step))


def _reduce(state: PowerSGDState, bucket: Bucket, step: int) -> torch.Tensor:
    buffer, wire = bucket.buffer, state.wire()
    error = None
    corrected = buffer
    if state.error_feedback:
        error = state.errors.of(bucket.names, bucket.lengths, buffer.device)
        corrected = buffer.float() + error
    elif buffer.dtype != torch.float32:
        corrected = buffer.float()
    else:
        corrected = buffer.clone()
    matrices, rest = _sorted_out(state, bucket, corrected)
    small, lefts = _first_message(state, bucket, matrices, rest, wire, step)
    rights, finite = _second_message(state, bucket, matrices, lefts, wire)
    finite = finite and is_finite(small)
    for matrix, left, right in zip(matrices, lefts, rights, strict=True):
        if buffer.dtype == left.dtype:
            torch.matmul(left, right.t(), out=matrix.result)
        else:
            matrix.result.copy_(left @ right.t())
    for (_, place), mean in zip(rest, small.split([p.numel() for _, p in rest]), strict=True):
        place.view(-1).copy_(mean)
    if error is not None and finite:
        _keep_error(bucket, matrices, corrected, error)
    return buffer


def _sorted_out(state: PowerSGDState, bucket: Bucket, corrected: torch.Tensor) -> Any:
    """The matrices that are worth two factors, and (gradient, place of the result) of the rest."""
    gradients, results = bucket.pieces(corrected), bucket.pieces(bucket.buffer)
    matrices: list[Matrix] = []
    rest = []
    for name, gradient in gradients.items():
        rows = gradient.shape[0] if gradient.dim() > 1 else 1
        columns = gradient.numel() // max(rows, 1)
        rank = min(rows, columns, state.rank)
        if gradient.dim() > 1 and low_rank_pays(rows, columns, rank, state.least_ratio):
            shape = (rows, columns)
            matrices.append(Matrix(name, gradient.view(shape), results[name].view(shape), rank))
        else:
            rest.append((gradient, results[name]))
    return matrices, rest


def _first_message(
    state: PowerSGDState, bucket: Bucket, matrices: list[Matrix], rest: Any, wire: Wire, step: int
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """All-reduce what is not compressed together with P = M Q; gives the mean of the former and P orthonormal."""
    sizes = [m.gradient.shape[0] * m.rank for m in matrices]
    small = sum(gradient.numel() for gradient, _ in rest)
    message = torch.empty(small + sum(sizes), dtype=torch.float32, device=bucket.buffer.device)
    if rest:
        torch.cat([gradient.reshape(-1) for gradient, _ in rest], out=message[:small])
        message[:small].div_(state.ranks)
    lefts = (
        [p.view(-1, m.rank) for m, p in zip(matrices, message[small:].split(sizes), strict=True)] if matrices else []
    )
    for matrix, left in zip(matrices, lefts, strict=True):
        torch.matmul(matrix.gradient, _right(state, matrix, step), out=left)
    _summed(message, bucket, wire)
    return message[:small], [torch.linalg.qr(left).Q if is_finite(left) else left for left in lefts]


def _second_message(
    state: PowerSGDState, bucket: Bucket, matrices: list[Matrix], lefts: list[torch.Tensor], wire: Wire
) -> tuple[list[torch.Tensor], bool]:
    """All-reduce Q = Mᵀ P: the mean of the right factors, and whether it is finite."""
    if not matrices:
        return [], True
    sizes = [m.gradient.shape[1] * m.rank for m in matrices]
    message = torch.empty(sum(sizes), dtype=torch.float32, device=bucket.buffer.device)
    rights = [q.view(-1, m.rank) for m, q in zip(matrices, message.split(sizes), strict=True)]
    for matrix, left, right in zip(matrices, lefts, rights, strict=True):
        torch.matmul(matrix.gradient.t(), left, out=right)
    message /= state.ranks
    _summed(message, bucket, wire)
    finite = is_finite(message) and all(is_finite(left) for left in lefts)
    if state.warm_start and finite:
        state.factors.update({m.name: right.clone() for m, right in zip(matrices, rights, strict=True)})
    return rights, finite


def _summed(message: torch.Tensor, bucket: Bucket, wire: Wire) -> None:
    """All-reduce in the precision of the bucket, so that a narrower one composed around this hook narrows the wire."""
    if bucket.buffer.dtype == message.dtype:
        wire.all_reduce(message)
        return
    narrow = message.to(bucket.buffer.dtype)
    wire.all_reduce(narrow)
    message.copy_(narrow)


def _right(state: PowerSGDState, matrix: Matrix, step: int) -> torch.Tensor:
    """The factor to start from: the last one, or a random orthonormal one that all ranks draw alike."""
    known = state.factors.get(matrix.name) if state.warm_start else None
    shape = (matrix.gradient.shape[1], matrix.rank)
    if known is not None and known.shape == shape:
        return known.to(matrix.gradient.device)
    seed = zlib.crc32(f"{state.seed} {0 if state.warm_start else step} {matrix.name}".encode())
    drawn = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return torch.linalg.qr(drawn).Q.to(matrix.gradient.device)


def _keep_error(bucket: Bucket, matrices: list[Matrix], corrected: torch.Tensor, error: torch.Tensor) -> None:
    """e = (g + e) - result for the compressed ones; nothing is left of those that travelled as they are."""
    compressed = {m.name for m in matrices}
    left_out = bucket.pieces(error)
    mine, results = bucket.pieces(corrected), bucket.pieces(bucket.buffer)
    for name, place in left_out.items():
        if name in compressed:
            torch.sub(mine[name], results[name], out=place)
        else:
            place.zero_()
