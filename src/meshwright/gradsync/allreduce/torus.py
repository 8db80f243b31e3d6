"""Two-dimensional torus: rings along x, then along y on the share, then along x again. Fewer steps than one ring."""

from __future__ import annotations

from typing import Any

import torch

from meshwright.formulas.collectives import near_square_columns
from meshwright.gradsync.allreduce import ring, two_level
from meshwright.gradsync.peers import Peers


def all_reduce(peers: Peers, flat: torch.Tensor, combine: Any, *, columns: int | None = None) -> None:
    """Every rank's `flat` becomes the sum; a prime number of ranks is one ring."""
    columns = columns or near_square_columns(peers.size)
    two_level.all_reduce(peers, flat, combine, columns, inner=ring, outer=ring)
