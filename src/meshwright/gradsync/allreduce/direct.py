"""Direct: each rank collects its share from all others at once, then sends the sum to all. Ring bytes, two rounds.

Needs a fabric in which every pair talks at full rate (a switch, or one machine). Shares are summed in the order of
the ranks, whatever the bucket, so the result of an element does not depend on how a model is cut into buckets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from meshwright.gradsync.peers import SEGMENT, Message, Peers, Pending, chunks_of
from meshwright.gradsync.scratch import Scratch


def all_reduce(peers: Peers, flat: torch.Tensor, combine: Any) -> None:
    """Every rank's `flat` becomes the sum."""
    chunks = chunks_of(flat, peers.size)
    reduce_scatter(peers, chunks, combine)
    all_gather(peers, chunks)


def reduce_scatter(peers: Peers, chunks: Sequence[torch.Tensor], combine: Any) -> None:
    """Chunk `rank` of `chunks` becomes the sum, added in the order of the ranks."""
    mine = chunks[peers.rank]
    others = _rotated(peers)
    if peers.in_rounds(mine.device):
        _in_one_round(peers, chunks, others, combine)
        return
    width = max(1, SEGMENT // 4 // mine.element_size())
    leaving, _ = peers.post([(piece, r) for pieces in _columns(chunks, others, width) for piece, r in pieces], ())
    buffers = [Buffer(peers, others, mine, width) for _ in range(2)]
    pieces = mine.split(width) if mine.numel() else ()
    for number, piece in enumerate(pieces[:2]):
        buffers[number].post(piece.numel())
    for number, piece in enumerate(pieces):
        buffers[number % 2].combine_into(piece, combine)
        if number + 2 < len(pieces):
            buffers[number % 2].post(pieces[number + 2].numel())
    for pending in leaving:
        pending.wait()
    for buffer in buffers:
        buffer.scratch.free()


class Buffer:
    """One segment of everybody's share, while it arrives."""

    def __init__(self, peers: Peers, others: Sequence[int], like: torch.Tensor, width: int) -> None:
        self.peers, self.others = peers, others
        self.scratch = Scratch(min(width, like.numel()) * len(others), like)
        self.parts: dict[int, torch.Tensor] = {}
        self.arriving: list[Pending] = []

    def post(self, length: int) -> None:
        """Start to receive `length` elements from each of the others."""
        self.parts = dict(zip(self.others, self.scratch.tensor.split(length), strict=False))
        self.arriving = self.peers.post((), [(part, r) for r, part in self.parts.items()])[1]

    def combine_into(self, piece: torch.Tensor, combine: Any) -> None:
        """Wait for the parts, and make `piece` their total in the order of the ranks."""
        for pending in self.arriving:
            pending.wait()
        _total(self.peers, piece, self.parts, combine)


def _in_one_round(peers: Peers, chunks: Sequence[torch.Tensor], others: Sequence[int], combine: Any) -> None:
    mine = chunks[peers.rank]
    parts = {r: torch.empty_like(mine) for r in others}
    peers.exchange([(chunks[r], r) for r in others], [(parts[r], r) for r in others])
    _total(peers, mine, parts, combine)


def _total(peers: Peers, mine: torch.Tensor, parts: dict[int, torch.Tensor], combine: Any) -> None:
    if peers.rank == 0 or peers.size == 2:  # two values: the order does not matter
        for rank in sorted(parts):
            combine(mine, parts[rank])
        return
    total = parts[0]
    for rank in range(1, peers.size):
        combine(total, mine if rank == peers.rank else parts[rank])
    mine.copy_(total)


def _columns(chunks: Sequence[torch.Tensor], others: Sequence[int], width: int) -> Iterator[list[Message]]:
    """Segments to send, the first of every receiver before the second of any."""
    cut = {r: chunks[r].split(width) if chunks[r].numel() else () for r in others}
    for number in range(max((len(pieces) for pieces in cut.values()), default=0)):
        yield [(pieces[number], r) for r, pieces in cut.items() if number < len(pieces)]


def all_gather(peers: Peers, chunks: Sequence[torch.Tensor]) -> None:
    """Every chunk becomes what its owner holds: chunk r is rank r's."""
    others = _rotated(peers)
    peers.exchange([(chunks[peers.rank], r) for r in others], [(chunks[r], r) for r in others])


def _rotated(peers: Peers) -> list[int]:
    """The others, each rank starting with its right neighbour, so that not all call on rank 0 first."""
    return [(peers.rank + step) % peers.size for step in range(1, peers.size)]
