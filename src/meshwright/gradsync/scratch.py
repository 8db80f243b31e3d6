"""Scratch tensors that are used again: fresh memory costs a page fault per 4 KiB, as much as sending it."""

from __future__ import annotations

import threading
from collections import defaultdict

import torch

LARGEST = 8 << 20  # bytes of one buffer worth keeping
KEPT = 4  # buffers kept per size and device

_free: dict[tuple[torch.device, int], list[torch.Tensor]] = defaultdict(list)
_lock = threading.Lock()


class Scratch:
    """A piece of memory for `numel` elements like `like`; `free()` gives it back once no message can touch it."""

    __slots__ = ("_key", "_whole", "tensor")

    def __init__(self, numel: int, like: torch.Tensor) -> None:
        size = numel * like.element_size()
        room = 1 << max(size - 1, 4095).bit_length()
        self._key = (like.device, room)
        if room > LARGEST or like.device.type != "cpu":  # elsewhere the allocator of the device does the same
            self._whole = None
            self.tensor = torch.empty(numel, dtype=like.dtype, device=like.device)
            return
        with _lock:
            kept = _free[self._key]
            whole = kept.pop() if kept else None
        self._whole = torch.empty(room, dtype=torch.uint8) if whole is None else whole
        self.tensor = self._whole[:size].view(like.dtype)

    def free(self) -> None:
        """Give the memory back. After an error do not: a late message may still arrive in it."""
        if self._whole is None:
            return
        with _lock:
            if len(_free[self._key]) < KEPT:
                _free[self._key].append(self._whole)
        self._whole = None
