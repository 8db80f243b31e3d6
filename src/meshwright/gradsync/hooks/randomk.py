"""Random-k: all ranks send the same randomly drawn places, so that values add up in an all-reduce without indices."""

import zlib

import torch
import torch.distributed as dist

from meshwright.gradsync.hooks.lossy import Reduced, is_finite, reduced_with_feedback
from meshwright.gradsync.hooks.topk import kept_values
from meshwright.gradsync.state import Bucket, CommHookState
from meshwright.gradsync.wire import Wire


class RandomKState(CommHookState):
    """`ratio`: the part of each parameter that is sent."""

    def __init__(
        self, process_group: dist.ProcessGroup | None = None, *, ratio: float = 0.01, **options: object
    ) -> None:
        super().__init__(process_group, **options)  # type: ignore[arg-type]
        self.ratio = ratio


def randomk_hook(state: RandomKState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Mean at places that are drawn anew each step, the same on all ranks."""
    step = state.step

    def codec(corrected: torch.Tensor, bucket: Bucket, wire: Wire) -> Reduced:
        places = drawn_places(bucket, state, step).to(corrected.device)
        sent = corrected[places].to(bucket.buffer.dtype)
        if not is_finite(corrected.sum()):  # else an infinity that is not drawn would be kept, and seen by nobody
            sent.fill_(float("nan"))
        contributed = torch.zeros_like(corrected)
        contributed[places] = sent.to(corrected.dtype)
        total = sent.div(state.ranks)
        wire.all_reduce(total)
        mean = torch.zeros_like(corrected)
        mean[places] = total.to(mean.dtype)
        return Reduced(mean, contributed, is_finite(total))

    return reduced_with_feedback(state, bucket, codec)


def drawn_places(bucket: Bucket, state: RandomKState, step: int) -> torch.Tensor:
    """Places in the flat bucket, drawn for each parameter by seed, step and name: alike on all ranks."""
    found, first = [], 0
    for name, length in zip(bucket.names, bucket.lengths, strict=True):
        seed = zlib.crc32(f"{state.seed} {step} {name}".encode())
        found.append(drawn(length, kept_values(length, state.ratio), seed) + first)
        first += length
    return torch.cat(found)


def drawn(elements: int, kept: int, seed: int) -> torch.Tensor:
    """One random place in each of `kept` equal strata: distinct, every place about equally likely, sorted."""
    generator = torch.Generator().manual_seed(seed)
    edges = torch.arange(kept + 1, dtype=torch.int64) * elements // kept
    widths = edges[1:] - edges[:-1]
    inside = (torch.rand(kept, generator=generator, dtype=torch.float64) * widths).long()
    return edges[:-1] + torch.minimum(inside, widths - 1)
