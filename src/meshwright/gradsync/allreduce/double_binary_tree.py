"""Double binary tree: two trees carry half the tensor each, and every rank is an inner node in at most one of them.

Sanders, Speck and Träff 2009: full bandwidth with logarithmic latency.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

import torch

from meshwright.gradsync.allreduce.tree import Place, inorder_place, passes
from meshwright.gradsync.peers import SEGMENT, Peers


def all_reduce(peers: Peers, flat: torch.Tensor, combine: Any, *, segment: int = SEGMENT // 8) -> None:
    """Every rank's `flat` becomes the sum."""
    half = flat.numel() // 2
    first, second = places(peers.rank, peers.size)
    steps = (
        passes(peers.apart(1), first, flat[:half], combine, segment),
        passes(peers.apart(2), second, flat[half:], combine, segment),
    )
    for _ in zip_longest(*steps):
        pass


def places(rank: int, size: int) -> tuple[Place, Place]:
    """Where a rank stands in each tree; the second has the positions mirrored (even size) or shifted by one (odd)."""
    first = _as_ranks(inorder_place(rank + 1, size), lambda position: position - 1)
    if size % 2 == 0:
        second = _as_ranks(inorder_place(size - rank, size), lambda position: size - position)
    else:
        second = _as_ranks(inorder_place((rank - 1) % size + 1, size), lambda position: position % size)
    return first, second


def _as_ranks(place: Place, rank_of: Any) -> Place:
    parent = None if place.parent is None else rank_of(place.parent)
    return Place(parent, tuple(rank_of(child) for child in place.children), place.depth)
