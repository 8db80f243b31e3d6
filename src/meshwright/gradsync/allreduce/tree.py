"""What a tree all-reduce does on one rank: segments go up to the root, the sums come down, both at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch

from meshwright.gradsync.peers import Peers, Pending
from meshwright.gradsync.scratch import Scratch


class Place(NamedTuple):
    """Where a rank stands in a tree: its parent (None at the root), its children, and the depth of the whole tree."""

    parent: int | None
    children: tuple[int, ...]
    depth: int


def heap_place(rank: int, size: int) -> Place:
    """Place in the tree of a heap: children 2i+1 and 2i+2."""
    children = tuple(c for c in (2 * rank + 1, 2 * rank + 2) if c < size)
    return Place((rank - 1) // 2 if rank else None, children, size.bit_length() - 1)


def inorder_place(position: int, size: int) -> Place:
    """Place in the in-order tree on positions 1…size: the root is the largest power of two, odd positions are leaves.

    Sanders, Speck and Träff 2009: because only even positions are inner, a second tree with the numbers mirrored or
    shifted has its inner nodes where the first has leaves.
    """
    low, high, parent = 1, size, None
    while True:
        root = low - 1 + (1 << ((high - low + 1).bit_length() - 1))
        if position == root:
            break
        parent = root
        low, high = (low, root - 1) if position < root else (root + 1, high)
    left = (low + root - 1) // 2 if low < root else None
    right = root + (1 << ((high - root).bit_length() - 1)) if root < high else None
    return Place(parent, tuple(c for c in (left, right) if c is not None), size.bit_length())


def passes(peers: Peers, place: Place, flat: torch.Tensor, combine: Any, segment: int) -> Iterator[None]:
    """All-reduce `flat` along the tree, one segment upward (and an earlier one downward) per step of the iterator.

    The sum of a segment needs about twice the depth in steps until it is back, so what comes down in a step is the
    segment of `2 depth` steps ago: nobody waits for a message that has not had the time to arrive.
    """
    if not flat.numel():
        return
    pieces = flat.split(max(segment // flat.element_size(), 1))
    lag = 2 * place.depth
    upward = _Upward(peers, place.children, pieces)
    leaving: list[Pending] = []
    for step in range(len(pieces) + lag):
        if step < len(pieces):
            upward.collect(step, combine)
            if place.parent is not None:
                leaving += peers.post([(pieces[step], place.parent)], ())[0]
        if step >= lag:
            piece = pieces[step - lag]
            if place.parent is not None:
                peers.exchange((), [(piece, place.parent)])
            leaving += peers.post([(piece, child) for child in place.children], ())[0]
        yield
    for pending in leaving:
        pending.wait()
    upward.free()


class _Upward:
    """Receives the segments of the children, the next one posted before the current one is awaited."""

    def __init__(self, peers: Peers, children: Sequence[int], pieces: Sequence[torch.Tensor]) -> None:
        self.peers, self.children, self.pieces = peers, children, pieces
        self.scratch = [[Scratch(pieces[0].numel(), pieces[0]) for _ in range(2)] for _ in children]
        self.buffers = [[half.tensor for half in halves] for halves in self.scratch]
        self.posted: list[list[Pending]] = []
        self.ahead = 0 if peers.in_rounds(pieces[0].device) else 2
        for step in range(min(self.ahead, len(pieces))):
            self._post(step)

    def collect(self, step: int, combine: Any) -> None:
        """Wait for the children's segment `step`, combine it, and post the one after the next."""
        piece = self.pieces[step]
        if not self.ahead:
            self._post(step)
        for child, pending in enumerate(self.posted[step]):
            pending.wait()
            combine(piece, self.buffers[child][step % 2][: piece.numel()])
        if self.ahead and step + self.ahead < len(self.pieces):
            self._post(step + self.ahead)

    def free(self) -> None:
        """Give the buffers back."""
        for half in (half for halves in self.scratch for half in halves):
            half.free()

    def _post(self, step: int) -> None:
        length = self.pieces[step].numel()
        receives = [(self.buffers[i][step % 2][:length], child) for i, child in enumerate(self.children)]
        self.posted.append(self.peers.post((), receives)[1])
