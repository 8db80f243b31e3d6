"""Top-k: each rank sends its k largest values with their places; what is not sent waits in the error feedback."""

from collections.abc import Sequence

import torch
import torch.distributed as dist

from meshwright.formulas.compression import gathered_pairs_wire_bytes
from meshwright.gradsync.hooks.lossy import Reduced, is_finite, reduced_with_feedback
from meshwright.gradsync.state import Bucket, CommHookState
from meshwright.gradsync.wire import Wire


class TopKState(CommHookState):
    """`ratio`: the part of each parameter that is sent, at least one value."""

    def __init__(
        self, process_group: dist.ProcessGroup | None = None, *, ratio: float = 0.01, **options: object
    ) -> None:
        super().__init__(process_group, **options)  # type: ignore[arg-type]
        self.ratio = ratio


def topk_hook(state: TopKState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Mean of the ranks' largest values."""

    def codec(corrected: torch.Tensor, bucket: Bucket, wire: Wire) -> Reduced:
        places = largest_places(corrected, bucket.lengths, state.ratio)
        size = bucket.buffer.element_size()
        state.warn_if_costly("topk_hook", gathered_pairs_wire_bytes(places.numel(), state.ranks, size), bucket)
        values = corrected[places].to(bucket.buffer.dtype)
        gathered = gather_pairs(values, places, wire)
        mean = torch.zeros_like(corrected)
        for their_values, their_places in gathered:  # a place occurs once per rank: no race, the same order everywhere
            mean[their_places] += their_values.to(mean.dtype)
        mean /= state.ranks
        contributed = torch.zeros_like(corrected)
        contributed[places] = values.to(contributed.dtype)
        return Reduced(mean, contributed, all(is_finite(v) for v, _ in gathered))

    return reduced_with_feedback(state, bucket, codec)


def kept_values(elements: int, ratio: float) -> int:
    """How many of `elements` values travel."""
    return min(elements, max(1, round(elements * ratio)))


def largest_places(flat: torch.Tensor, lengths: Sequence[int], ratio: float) -> torch.Tensor:
    """Places of the largest magnitudes of each parameter in a flat bucket."""
    magnitudes = flat.abs()
    found, first = [], 0
    for part, length in zip(magnitudes.split(list(lengths)), lengths, strict=True):
        found.append(part.topk(kept_values(length, ratio), sorted=False).indices.add_(first))
        first += length
    return torch.cat(found)


def gather_pairs(values: torch.Tensor, places: torch.Tensor, wire: Wire) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The values and places of every rank; places travel as 32 bits."""
    message = torch.cat([values.view(torch.uint8), places.to(torch.int32).view(torch.uint8)])
    cut = values.numel() * values.element_size()
    return [
        (row[:cut].clone().view(values.dtype), row[cut:].clone().view(torch.int32).long())
        for row in wire.all_gather(message)
    ]
