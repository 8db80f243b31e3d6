"""Direct: each rank collects its share from all others at once, then sends the sum to all. Ring bytes, two rounds.

Needs a fabric in which every pair talks at full rate (a switch, or one machine). Shares are summed in the order of
the ranks, whatever the bucket, so the result of an element does not depend on how a model is cut into buckets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from meshwright.gradsync.peers import Peers, chunks_of


def all_reduce(peers: Peers, flat: torch.Tensor, combine: Any) -> None:
    """Every rank's `flat` becomes the sum."""
    chunks = chunks_of(flat, peers.size)
    reduce_scatter(peers, chunks, combine)
    all_gather(peers, chunks)


def reduce_scatter(peers: Peers, chunks: Sequence[torch.Tensor], combine: Any) -> None:
    """Chunk `rank` of `chunks` becomes the sum, added in the order of the ranks."""
    mine = chunks[peers.rank]
    others = [r for r in _rotated(peers)]
    parts = {r: torch.empty_like(mine) for r in others}
    leaving, arriving = peers.post([(chunks[r], r) for r in others], [(parts[r], r) for r in others])
    for pending in arriving:
        pending.wait()
    if mine.numel():
        in_order = [parts.get(r, mine) for r in range(peers.size)]
        total = in_order[0].clone() if in_order[0] is mine else in_order[0]
        for part in in_order[1:]:
            combine(total, part)
        mine.copy_(total)
    for pending in leaving:
        pending.wait()


def all_gather(peers: Peers, chunks: Sequence[torch.Tensor]) -> None:
    """Every chunk becomes what its owner holds: chunk r is rank r's."""
    others = _rotated(peers)
    peers.exchange([(chunks[peers.rank], r) for r in others], [(chunks[r], r) for r in others])


def _rotated(peers: Peers) -> list[int]:
    """The others, each rank starting with its right neighbour, so that not all call on rank 0 first."""
    return [(peers.rank + step) % peers.size for step in range(1, peers.size)]
