"""Two levels: reduce-scatter inside each row, all-reduce of the share across rows, all-gather inside the row."""

from __future__ import annotations

from typing import Any

import torch

from meshwright.gradsync.allreduce import ring
from meshwright.gradsync.peers import Peers, chunks_of


def all_reduce(
    peers: Peers, flat: torch.Tensor, combine: Any, columns: int, *, inner: Any = ring, outer: Any = ring
) -> None:
    """All-reduce over rows of `columns` neighbours each; `inner` and `outer` are modules of algorithms."""
    row_number, column = divmod(peers.rank, columns)
    row = peers.sub(range(row_number * columns, (row_number + 1) * columns))
    across = peers.sub(range(column, peers.size, columns))
    chunks = chunks_of(flat, columns)
    inner.reduce_scatter(row, chunks, combine)
    outer.all_reduce(across, chunks[column], combine)
    inner.all_gather(row, chunks)
