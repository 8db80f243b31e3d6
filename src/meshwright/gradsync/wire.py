"""What a hook's body sends: blocking collectives whose bytes are counted.

On gloo they are messages of ours, so that they cannot meet the collectives that the main thread starts meanwhile; on
a GPU they are the backend's own, in the order of the calls on the hook's stream.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

import torch
import torch.distributed as dist

from meshwright.formulas.collectives import all_gather_wire_bytes, all_reduce_wire_bytes
from meshwright.gradsync.allreduce import Flat, direct, reduce_flat
from meshwright.gradsync.peers import Peers, backend_name, chunks_of
from meshwright.gradsync.reduction import combine_for


@dataclass
class WireCount:
    """Bytes that this rank sent, and what a dense all-reduce (ring) of the same buckets would have sent."""

    bytes_sent: float = 0.0
    bytes_dense: float = 0.0
    calls: int = 0

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    def add(self, sent: float) -> None:
        """Count bytes sent."""
        with self._lock:
            self.bytes_sent += sent

    def bucket(self, elements: int, element_size: int, ranks: int) -> None:
        """Count one bucket and its dense rival."""
        with self._lock:
            self.bytes_dense += float(all_reduce_wire_bytes(float(elements * element_size), ranks))
            self.calls += 1

    def as_dict(self) -> dict[str, float]:
        """bytes_sent, bytes_dense, their ratio (dense over sent), calls."""
        ratio = self.bytes_dense / self.bytes_sent if self.bytes_sent else float("inf")
        return {"bytes_sent": self.bytes_sent, "bytes_dense": self.bytes_dense, "ratio": ratio, "calls": self.calls}


class Wire:
    """Collectives of a group for use inside a hook's body."""

    def __init__(
        self, group: dist.ProcessGroup, count: WireCount, algorithm: str = "auto", timeout: float | None = None
    ) -> None:
        self.group, self.count, self.algorithm = group, count, algorithm
        self.timeout = timeout
        self.ranks = group.size()
        self.rank = group.rank()

    def all_reduce(self, flat: torch.Tensor) -> None:
        """Sum a flat tensor in place."""
        if self._native(flat):
            dist.all_reduce(flat, group=self.group)
            self.count.add(float(all_reduce_wire_bytes(float(_size(flat)), self.ranks)))
            return
        with Flat(flat, self.group) as here:
            peers = Peers(self.group, timeout=self.timeout)
            reduce_flat(peers, here, combine_for("sum", here.dtype), self.algorithm)
        self.count.add(peers.bytes_sent)

    def all_gather(self, mine: torch.Tensor) -> torch.Tensor:
        """The flat tensors of all ranks, as rows."""
        rows = torch.empty((self.ranks, mine.numel()), dtype=mine.dtype, device=mine.device)
        if self._native(mine):
            dist.all_gather_into_tensor(rows, mine, group=self.group)
            self.count.add(float(all_gather_wire_bytes(float(_size(rows)), self.ranks)))
            return rows
        with Flat(rows, self.group) as here:
            peers = Peers(self.group, timeout=self.timeout)
            chunks = chunks_of(here, self.ranks)
            chunks[self.rank].copy_(mine)
            direct.all_gather(peers, chunks)
        self.count.add(peers.bytes_sent)
        return rows

    def all_to_all(self, rows: torch.Tensor) -> torch.Tensor:
        """Row r goes to rank r; row s of the result came from rank s."""
        arrived = torch.empty_like(rows)
        if self._native(rows):
            dist.all_to_all_single(arrived, rows, group=self.group)
            self.count.add(float(all_gather_wire_bytes(float(_size(rows)), self.ranks)))
            return arrived
        with Flat(rows, self.group) as leaving, Flat(arrived, self.group) as here:
            peers = Peers(self.group, timeout=self.timeout)
            out, into = chunks_of(leaving, self.ranks), chunks_of(here, self.ranks)
            into[self.rank].copy_(out[self.rank])
            others = [r for r in range(self.ranks) if r != self.rank]
            peers.exchange([(out[r], r) for r in others], [(into[r], r) for r in others])
        self.count.add(peers.bytes_sent)
        return arrived

    def _native(self, tensor: torch.Tensor) -> bool:
        return self.algorithm == "backend" or backend_name(self.group, tensor.device) != "gloo"


def _size(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()
