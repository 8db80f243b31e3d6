"""Recursive halving (a reduce-scatter), then doubling (an all-gather): ring bytes in 2 log2(p) steps (Rabenseifner)."""

from __future__ import annotations

from typing import Any

import torch

from meshwright.gradsync.allreduce.folding import folded
from meshwright.gradsync.peers import Peers


def all_reduce(peers: Peers, flat: torch.Tensor, combine: Any) -> None:
    """Every rank's `flat` becomes the sum."""
    folded(peers, flat, combine, lambda active: _halve_and_double(active, flat, combine))


def _halve_and_double(peers: Peers, flat: torch.Tensor, combine: Any) -> None:
    low, high = 0, flat.numel()
    kept: list[tuple[int, int, int]] = []  # the interval before each halving, and the partner of it
    distance = peers.size // 2
    while distance:
        partner = peers.rank ^ distance
        kept.append((low, high, partner))
        middle = (low + high) // 2
        (low, high), (other_low, other_high) = _halves(low, middle, high, upper=bool(peers.rank & distance))
        peers.exchange_combine((flat[other_low:other_high], partner), (flat[low:high], partner), combine)
        distance //= 2
    for whole_low, whole_high, partner in reversed(kept):
        other = flat[whole_low:low] if whole_low < low else flat[high:whole_high]
        peers.exchange([(flat[low:high], partner)], [(other, partner)])
        low, high = whole_low, whole_high


def _halves(low: int, middle: int, high: int, *, upper: bool) -> tuple[tuple[int, int], tuple[int, int]]:
    """The half to keep, and the half to give away."""
    lower_half, upper_half = (low, middle), (middle, high)
    return (upper_half, lower_half) if upper else (lower_half, upper_half)
