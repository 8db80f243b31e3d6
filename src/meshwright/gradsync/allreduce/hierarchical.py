"""Hierarchical: reduce-scatter in the node, all-reduce across nodes per rail, all-gather in the node.

Each network card carries only its rank's share, 1/local of the payload.
"""

from __future__ import annotations

from typing import Any

import torch

from meshwright.errors import InputError
from meshwright.gradsync.allreduce import ring, two_level
from meshwright.gradsync.peers import Peers
from meshwright.messages import N_, Text


def all_reduce(peers: Peers, flat: torch.Tensor, combine: Any, *, inner: Any = ring, outer: Any = ring) -> None:
    """Every rank's `flat` becomes the sum; `peers.local` neighbouring ranks share a node."""
    if peers.local < 1 or peers.size % peers.local:
        raise InputError(
            Text(N_("{ranks} ranks do not divide into nodes of {local}"), ranks=peers.size, local=peers.local),
            where="local",
            fix=Text(N_("the same number of ranks on every node, or another algorithm")),
        )
    two_level.all_reduce(peers, flat, combine, peers.local, inner=inner, outer=outer)
