"""Recursive doubling: log2(p) exchanges of the whole tensor. The fewest steps: best for small messages."""

from __future__ import annotations

from typing import Any

import torch

from meshwright.gradsync.allreduce.folding import folded
from meshwright.gradsync.peers import Peers
from meshwright.gradsync.scratch import Scratch


def all_reduce(peers: Peers, flat: torch.Tensor, combine: Any) -> None:
    """Every rank's `flat` becomes the sum; partners add the same two values, so all end with the same bits."""
    folded(peers, flat, combine, lambda active: _double(active, flat, combine))


def _double(peers: Peers, flat: torch.Tensor, combine: Any) -> None:
    theirs = Scratch(flat.numel(), flat)
    distance = 1
    while distance < peers.size:
        partner = peers.rank ^ distance
        peers.exchange([(flat, partner)], [(theirs.tensor, partner)])
        combine(flat, theirs.tensor)
        distance *= 2
    theirs.free()
