"""Ring: a reduce-scatter round the ring, then an all-gather. The fewest bytes, 2(p-1) steps."""

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
    """Chunk `rank` of `chunks` becomes the sum; the others hold partial sums afterwards."""
    rank, size = peers.rank, peers.size
    right, left = (rank + 1) % size, (rank - 1) % size
    for step in range(1, size):
        leaving, arriving = chunks[(rank - step) % size], chunks[(rank - step - 1) % size]
        peers.exchange_combine((leaving, right), (arriving, left), combine)


def all_gather(peers: Peers, chunks: Sequence[torch.Tensor]) -> None:
    """Every chunk becomes what its owner holds: chunk r is rank r's."""
    rank, size = peers.rank, peers.size
    right, left = (rank + 1) % size, (rank - 1) % size
    for step in range(size - 1):
        leaving, arriving = chunks[(rank - step) % size], chunks[(rank - step - 1) % size]
        peers.exchange([(leaving, right)], [(arriving, left)])
