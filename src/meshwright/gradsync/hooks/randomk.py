"""Random-k: all ranks send the same randomly drawn places, so that values add up in an all-reduce without indices."""

import zlib

import torch
import torch.distributed as dist

from meshwright.gradsync.hooks.lossy import Reduced, is_finite, reduced_with_feedback
from meshwright.gradsync.hooks.topk import kept_values
from meshwright.gradsync.state import Bucket, CommHookState
from meshwright.gradsync.wire import Wire


class RandomKState(CommHookState):
    """`ratio`: the part of each bucket that is sent."""

    def __init__(self, process_group: dist.ProcessGroup | None = None, *, ratio: float = 0.01, **options: object) -> None:
        super().__init__(process_group, **options)  # type: ignore[arg-type]
        self.ratio = ratio


def randomk_hook(state: RandomKState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Mean at places that are drawn anew each step, the same on all ranks."""
    step = state.step

    def codec(corrected: torch.Tensor, bucket: Bucket, wire: Wire) -> Reduced:
        places = drawn(corrected.numel(), kept_values(corrected.numel(), state.ratio), seed_of(state.seed, step, bucket))
        places = places.to(corrected.device)
        sent = corrected[places].to(bucket.buffer.dtype)
        contributed = torch.zeros_like(corrected)
        contributed[places] = sent.to(corrected.dtype)
        total = sent.div(state.ranks)
        wire.all_reduce(total)
        mean = torch.zeros_like(corrected)
        mean[places] = total.to(mean.dtype)
        return Reduced(mean, contributed, is_finite(total))

    return reduced_with_feedback(state, bucket, codec)


def seed_of(seed: int, step: int, bucket: Bucket) -> int:
    """A seed that all ranks share and that differs by step and bucket."""
    return zlib.crc32(f"{seed} {step} {' '.join(bucket.names)}".encode())


def drawn(elements: int, kept: int, seed: int) -> torch.Tensor:
    """One random place in each of `kept` equal strata: distinct, every place about equally likely, sorted."""
    generator = torch.Generator().manual_seed(seed)
    edges = torch.arange(kept + 1, dtype=torch.int64) * elements // kept
    widths = edges[1:] - edges[:-1]
    inside = (torch.rand(kept, generator=generator, dtype=torch.float64) * widths).long()
    return edges[:-1] + torch.minimum(inside, widths - 1)
