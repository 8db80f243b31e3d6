"""Ring: a reduce-scatter round the ring, then an all-gather. The fewest bytes, 2(p-1) steps."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import torch

from meshwright.gradsync.peers import SEGMENT, Peers, Pending, chunks_of
from meshwright.gradsync.scratch import Scratch

AHEAD = 3  # receives posted before their turn: the next message need not wait for a handshake


def all_reduce(peers: Peers, flat: torch.Tensor, combine: Any, *, segment: int = SEGMENT) -> None:
    """Every rank's `flat` becomes the sum."""
    chunks = chunks_of(flat, peers.size)
    if peers.size == 1:
        return
    if peers.in_rounds(flat.device):
        reduce_scatter(peers, chunks, combine)
        all_gather(peers, chunks)
    else:
        _pipelined(peers, chunks, combine, segment)


def _pipelined(peers: Peers, chunks: Sequence[torch.Tensor], combine: Any, segment: int) -> None:
    """Both halves as one stream of segments: each goes on to the right as soon as it is complete here.

    A receive into a chunk may be posted before the chunk has left: what will arrive there contains our own share.
    """
    rank, size = peers.rank, peers.size
    right, left = (rank + 1) % size, (rank - 1) % size
    largest = -(-sum(c.numel() for c in chunks) // size)
    width = max(1, min(segment // chunks[0].element_size(), largest))
    cut = [c.split(width) if c.numel() else () for c in chunks]
    stream = [(step, piece) for step in range(2 * size - 2) for piece in cut[(rank - step - 1) % size]]
    slots = [Scratch(width, chunks[0]) for _ in range(AHEAD)]
    arriving: deque[tuple[torch.Tensor, Pending]] = deque()

    def post(number: int) -> None:
        step, piece = stream[number]
        into = slots[number % AHEAD].tensor[: piece.numel()] if step < size - 1 else piece
        arriving.append((into, peers.post((), [(into, left)])[1][0]))

    for number in range(min(AHEAD, len(stream))):
        post(number)
    leaving = peers.post([(piece, right) for piece in cut[rank]], ())[0]
    for number, (step, piece) in enumerate(stream):
        arrived, pending = arriving.popleft()
        pending.wait()
        if step < size - 1:
            combine(piece, arrived)
        if step < 2 * size - 3:
            leaving += peers.post([(piece, right)], ())[0]
        if number + AHEAD < len(stream):
            post(number + AHEAD)
    for pending in leaving:
        pending.wait()
    for slot in slots:
        slot.free()


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
