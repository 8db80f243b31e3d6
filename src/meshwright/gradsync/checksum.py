"""A checksum of a tensor's raw bytes, computed where the tensor lies."""

from __future__ import annotations

import torch

WORD = 8
AT_ONCE = 2**20  # words weighed at a time: bounds the memory of the weights
ODD = -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed word: the golden ratio, the usual multiplier for hashing


def checksum(tensor: torch.Tensor) -> int:
    """64 bits that depend on every bit and on its place.

    Words of eight bytes, each times an odd weight of its own, added modulo 2**64. An odd weight is invertible modulo
    2**64, so a change confined to one word always shows; several changed words hide one another once in 2**64.

    >>> a = torch.zeros(1000)
    >>> b = a.clone()
    >>> b[17] = -0.0
    >>> checksum(a) == checksum(b)
    False
    """
    raw = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    whole = raw.numel() // WORD * WORD
    tail = raw.new_zeros(WORD)
    tail[: raw.numel() - whole] = raw[whole:]
    head = raw[:whole]
    if head.data_ptr() % WORD:  # a view into the middle of a storage need not be aligned to a word
        head = head.clone()
    total = _weighed(tail.view(torch.int64), 0) + raw.numel()
    for begin in range(0, whole // WORD, AT_ONCE):
        total = total + _weighed(head[begin * WORD : (begin + AT_ONCE) * WORD].view(torch.int64), begin + 1)
    return int(total)


def _weighed(words: torch.Tensor, first: int) -> torch.Tensor:
    """Sum of words times odd weights; int64 arithmetic wraps modulo 2**64."""
    places = torch.arange(first, first + words.numel(), dtype=torch.int64, device=words.device)
    weights = (places + 1) * ODD
    weights = (weights ^ (weights >> 29)) * ODD
    return (words * (weights | 1)).sum()
