"""What all compressing hooks with error feedback do around their codec.

c = C(g + e) travels, e' = g + e - c stays. e' is written only when the collective has succeeded and its result is
finite: an aborted step, or one that a loss scaler will skip, leaves the errors as they were.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from meshwright.gradsync.state import Bucket, CommHookState
from meshwright.gradsync.wire import Wire


class Reduced(NamedTuple):
    """What a codec gives back: the mean over the ranks, what this rank put into it, and whether the wire was finite."""

    mean: torch.Tensor
    contributed: torch.Tensor
    finite: bool


Codec = Callable[[torch.Tensor, Bucket, Wire], Reduced]


def reduced_with_feedback(state: CommHookState, raw: Any, codec: Codec) -> torch.futures.Future[torch.Tensor]:
    """Run `codec` on the corrected gradient of a bucket in the background; plain all-reduce while warming up."""
    bucket = state.bucket(raw)
    warming_up = state.warming_up

    def body() -> torch.Tensor:
        buffer, wire = bucket.buffer, state.wire()
        if warming_up or state.ranks == 1:
            return plain(state, bucket)
        corrected = buffer.to(torch.float32, copy=True)
        error = None
        if state.error_feedback:
            error = state.errors.of(bucket.names, bucket.lengths, buffer.device)
            corrected += error
        result = codec(corrected, bucket, wire)
        if error is not None and result.finite:
            torch.sub(corrected, result.contributed, out=error)
        return buffer.copy_(result.mean)

    return state.launch(bucket, body)


def plain(state: CommHookState, bucket: Bucket) -> torch.Tensor:
    """All-reduce of the bucket as it is."""
    if state.ranks > 1:
        bucket.buffer.mul_(1.0 / state.ranks)
        state.wire().all_reduce(bucket.buffer)
    return bucket.buffer


def is_finite(values: torch.Tensor) -> bool:
    """Whether no value is infinite or not a number."""
    return bool(torch.isfinite(values).all())
