"""Point-to-point messages between the members of a group: all that the algorithms stand on.

`Peers` numbers some ranks of a process group 0…size-1 and moves tensors between them. On gloo a message is the
backend's own send and receive; on NCCL every round is one `batch_isend_irecv`, because lone sends can deadlock there.
Messages carry a tag of their own, so they never meet the collectives of the same group.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from meshwright.errors import MeshwrightError
from meshwright.gradsync.scratch import Scratch
from meshwright.messages import N_, Text

TAG = 0x4D57  # apart from the tag 0 that isend and irecv use unless told otherwise
SEGMENT = 8 << 20  # bytes of a piece that is combined while the next one arrives; a message costs as much as 200 KB

Message = tuple[torch.Tensor, int]  # what, and to (or from) whom


class PeerError(MeshwrightError, RuntimeError):
    """A member of the group failed or did not answer in time; the group cannot be used any more."""

    code = "peer"

    def __init__(self, rank: int, peer: int, why: str) -> None:
        text = Text(N_("rank {rank}: no answer from rank {peer}: {why}"), rank=rank, peer=peer, why=why)
        fix = Text(N_("destroy the process group, start the failed rank again and resume from a checkpoint"))
        super().__init__(text, where=f"rank {peer}", fix=fix)
        self.rank = rank
        self.peer = peer


class Pending:
    """A message under way: holds its tensor until the message is through."""

    __slots__ = ("_peer", "_peers", "_tensor", "_work")

    def __init__(self, peers: Peers, work: Any, tensor: torch.Tensor, peer: int) -> None:
        self._peers, self._work, self._tensor, self._peer = peers, work, tensor, peer

    def wait(self) -> None:
        """Block until the message is through; on NCCL only the stream waits."""
        try:
            remaining = self._peers.remaining()
            self._work.wait() if remaining is None else self._work.wait(remaining)
        except RuntimeError as error:
            why = str(error).strip().splitlines()[-1][:200]
            raise PeerError(self._peers.global_rank, self._peers.ranks[self._peer], why) from error


class Peers:
    """The members of a group as an algorithm sees them: `rank` of `size`, and messages between them."""

    def __init__(
        self, group: dist.ProcessGroup | None = None, *, timeout: float | None = None, local: int | None = None
    ) -> None:
        self.group = group if group is not None else dist.group.WORLD
        self.ranks: Sequence[int] = range(self.group.size())  # ranks in the group, in this numbering
        self.rank = self.group.rank()
        self.size = self.group.size()
        self.local = local if local is not None else ranks_per_node(self.size)  # neighbours that share a node
        self.bytes_sent = 0
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._parent: Peers | None = None
        self._tag = TAG
        self._batched: bool | None = None

    @property
    def global_rank(self) -> int:
        """This rank's number in the group."""
        return self.ranks[self.rank]

    def sub(self, members: Sequence[int]) -> Peers:
        """Some of these peers, renumbered in the order given; this rank is one of them."""
        inner = object.__new__(Peers)
        inner.__dict__.update(self.__dict__)
        inner.ranks = [self.ranks[m] for m in members]
        inner.rank = members.index(self.rank)
        inner.size = len(members)
        inner.bytes_sent = 0
        inner._parent = self
        return inner

    def apart(self, number: int) -> Peers:
        """The same peers with messages that never meet those of another `number`."""
        inner = self.sub(range(self.size))
        inner._tag = self._tag + number
        return inner

    def remaining(self) -> timedelta | None:
        """Time left until the deadline of this collective; None leaves it to the group's own timeout."""
        if self._deadline is None:
            return None
        return timedelta(seconds=max(self._deadline - time.monotonic(), 0.001))

    def in_rounds(self, device: torch.device) -> bool:
        """Whether messages go in whole rounds that block the stream in order, so that none may be posted ahead."""
        if self._batched is None:
            self._batched = backend_name(self.group, device) != "gloo"
        return self._batched

    def post(self, sends: Iterable[Message], receives: Iterable[Message]) -> tuple[list[Pending], list[Pending]]:
        """Start messages; empty ones are left out on both sides alike. Returns the pending sends and receives."""
        out = [m for m in sends if m[0].numel()]
        into = [m for m in receives if m[0].numel()]
        self._count(sum(t.numel() * t.element_size() for t, _ in out))
        if (out or into) and self.in_rounds((out or into)[0][0].device):
            return self._post_batch(out, into)
        group, ranks = self.group, self.ranks
        arriving = [Pending(self, group.recv([_bytes(t)], ranks[peer], self._tag), t, peer) for t, peer in into]
        leaving = [Pending(self, group.send([_bytes(t)], ranks[peer], self._tag), t, peer) for t, peer in out]
        return leaving, arriving

    def exchange(self, sends: Iterable[Message], receives: Iterable[Message]) -> None:
        """Send and receive at once, and wait for all of it."""
        leaving, arriving = self.post(sends, receives)
        for pending in (*arriving, *leaving):
            pending.wait()

    def exchange_combine(
        self, send: Message | None, receive: Message | None, combine: Any, *, segment: int = SEGMENT
    ) -> None:
        """Send one tensor while another arrives, and combine what arrives into the tensor named in `receive`.

        The tensors travel in segments, so that combining one overlaps with the arrival of the next and the scratch
        space stays small enough for the cache. Both sides cut alike because they know the same sizes.
        """
        if self.in_rounds((send or receive)[0].device):  # type: ignore[index]
            self._round_combine(send, receive, combine)
            return
        leaving: list[Pending] = []
        if send is not None:
            leaving, _ = self.post([(piece, send[1]) for piece in segments_of(send[0], segment)], ())
        if receive is not None:
            self._receive_combine(receive, combine, segment)
        for pending in leaving:
            pending.wait()

    def _receive_combine(self, receive: Message, combine: Any, segment: int) -> None:
        target, peer = receive
        pieces = segments_of(target, segment)
        if not pieces:
            return
        width = pieces[0].numel()
        scratch = Scratch(min(len(pieces), 2) * width, target)
        halves = scratch.tensor.split(width)
        arriving: list[Pending] = []
        for number, piece in enumerate(pieces[:2]):
            arriving += self.post((), [(halves[number][: piece.numel()], peer)])[1]
        for number, piece in enumerate(pieces):
            buffer = halves[number % 2]
            arriving[number].wait()
            combine(piece, buffer[: piece.numel()])
            if number + 2 < len(pieces):
                arriving += self.post((), [(buffer[: pieces[number + 2].numel()], peer)])[1]
        scratch.free()

    def _round_combine(self, send: Message | None, receive: Message | None, combine: Any) -> None:
        if receive is None:
            self.exchange([send] if send else (), ())
            return
        arrived = torch.empty_like(receive[0])
        self.exchange([send] if send else (), [(arrived, receive[1])])
        combine(receive[0], arrived)

    def _post_batch(self, out: Sequence[Message], into: Sequence[Message]) -> tuple[list[Pending], list[Pending]]:
        if not out and not into:
            return [], []
        messages = [(dist.irecv, *m) for m in into] + [(dist.isend, *m) for m in out]
        operations = [
            dist.P2POp(kind, _bytes(tensor), group=self.group, group_peer=self.ranks[peer])
            for kind, tensor, peer in messages
        ]
        works = dist.batch_isend_irecv(operations)
        if len(works) == 1:  # a coalescing backend gives one handle for the whole round
            works = works * len(messages)
        pending = [Pending(self, work, tensor, peer) for work, (_, tensor, peer) in zip(works, messages, strict=True)]
        return pending[len(into) :], pending[: len(into)]

    def _count(self, sent: int) -> None:
        peers: Peers | None = self
        while peers is not None:
            peers.bytes_sent += sent
            peers = peers._parent


def backend_name(group: dist.ProcessGroup, device: torch.device) -> str:
    """Name of the backend that serves `device` in this group: gloo, nccl, …"""
    try:
        return str(group._get_backend(device).name()).lower()
    except RuntimeError:
        return str(dist.get_backend(group)).lower()


def ranks_per_node(world: int) -> int:
    """What torchrun says (LOCAL_WORLD_SIZE) where it divides the group; else the group counts as one node."""
    said = os.environ.get("LOCAL_WORLD_SIZE", "")
    local = int(said) if said.isdigit() else world
    return local if 0 < local <= world and world % local == 0 else world


def chunk_bounds(length: int, parts: int) -> list[tuple[int, int]]:
    """Cut `length` elements into `parts` pieces whose sizes differ by at most one."""
    return [(i * length // parts, (i + 1) * length // parts) for i in range(parts)]


def chunks_of(flat: torch.Tensor, parts: int) -> list[torch.Tensor]:
    """Views of `flat` cut by `chunk_bounds`."""
    return [flat[a:b] for a, b in chunk_bounds(flat.numel(), parts)]


def segments_of(tensor: torch.Tensor, segment: int) -> list[torch.Tensor]:
    """Views of a flat tensor, each of `segment` bytes but the last; none of an empty one."""
    if not tensor.numel():
        return []
    return list(tensor.split(max(segment // tensor.element_size(), 1)))


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory as bytes: a message has no arithmetic, so every dtype travels, also those a backend lacks."""
    return tensor.view(torch.uint8)
