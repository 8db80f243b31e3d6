"""Binary tree, pipelined in segments: reduce to the root, broadcast back. Few steps, but leaves idle half the time."""

from __future__ import annotations

from typing import Any

import torch

from meshwright.gradsync.allreduce.tree import heap_place, passes
from meshwright.gradsync.peers import SEGMENT, Peers


def all_reduce(peers: Peers, flat: torch.Tensor, combine: Any, *, segment: int = SEGMENT // 8) -> None:
    """Every rank's `flat` becomes the sum."""
    for _ in passes(peers, heap_place(peers.rank, peers.size), flat, combine, segment):
        pass
