"""Blocks that never straddle two parameters, so that what a compressor does to a gradient does not depend on how DDP
cuts the model into buckets: a resumed run, whose first step has other buckets, goes on bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch


@dataclass(frozen=True, slots=True)
class Layout:
    """How a flat bucket becomes rows of `block` elements: each parameter padded with zeros to whole rows."""

    lengths: tuple[int, ...]
    block: int
    rows: tuple[int, ...]  # of each parameter

    def pack(self, flat: torch.Tensor) -> torch.Tensor:
        """Rows × block; a view where no parameter needs padding."""
        if all(n % self.block == 0 for n in self.lengths):
            return flat.view(-1, self.block)
        packed = torch.zeros(sum(self.rows) * self.block, dtype=flat.dtype, device=flat.device)
        torch._foreach_copy_(self._places(packed), list(flat.split(list(self.lengths))))
        return packed.view(-1, self.block)

    def unpack(self, rows: torch.Tensor) -> torch.Tensor:
        """The flat bucket again."""
        if all(n % self.block == 0 for n in self.lengths):
            return rows.reshape(-1)
        return torch.cat(self._places(rows.reshape(-1)))

    def _places(self, packed: torch.Tensor) -> list[torch.Tensor]:
        parts = packed.split([r * self.block for r in self.rows])
        return [part[:n] for part, n in zip(parts, self.lengths, strict=True)]

    def owners(self, ranks: int) -> torch.Tensor:
        """Row numbers by owning rank, ranks × width: each parameter's rows are dealt out evenly, in order.

        Shares are filled up with a row number one past the last, which stands for a row of zeros.
        """
        shares: list[list[int]] = [[] for _ in range(ranks)]
        first = 0
        for count in self.rows:
            for rank in range(ranks):
                shares[rank] += range(first + rank * count // ranks, first + (rank + 1) * count // ranks)
            first += count
        width = max(map(len, shares))
        return torch.tensor([share + [first] * (width - len(share)) for share in shares], dtype=torch.int64)


def layout_of(lengths: Sequence[int], block: int) -> Layout:
    """The layout of a bucket whose parameters have these lengths."""
    return _layout(tuple(lengths), block)


@lru_cache(maxsize=256)
def _layout(lengths: tuple[int, ...], block: int) -> Layout:
    return Layout(lengths, block, tuple(-(-n // block) for n in lengths))


@lru_cache(maxsize=256)
def owners_of(layout: Layout, ranks: int) -> torch.Tensor:
    """`layout.owners`, made once."""
    return layout.owners(ranks)
