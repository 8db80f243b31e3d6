"""Data order as a pure function of seed and position: any rank can name any sample of any step without a state.

Position p of the run is sample `shuffle(p mod n)` of epoch p div n. The shuffle of an epoch is a keyed bijection on
0 … n − 1 (a Feistel network with cycle walking), so nothing is stored and nothing depends on a library's generator.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

ROUNDS = 8
Words = npt.NDArray[np.uint64]


def samples_at(positions: npt.ArrayLike, size: int, seed: int) -> npt.NDArray[np.int64]:
    """The sample of each position in an endless run through shuffled epochs of `size` samples.

    >>> sorted(samples_at(range(5), 5, seed=1).tolist())
    [0, 1, 2, 3, 4]
    """
    where = np.asarray(positions, dtype=np.int64)
    epochs, offsets = np.divmod(where, size)
    out = np.empty(where.shape, dtype=np.int64)
    for epoch in np.unique(epochs):
        chosen = epochs == epoch
        out[chosen] = _shuffled(offsets[chosen].astype(np.uint64), size, _key(seed, int(epoch)))
    return out


def _shuffled(offsets: Words, size: int, key: Words) -> npt.NDArray[np.int64]:
    """Walk each offset along its cycle until it falls inside 0 … size − 1 again: a bijection there too."""
    half = np.uint64(max((size - 1).bit_length() + 1, 2) // 2)
    out = _feistel(offsets, half, key)
    while (outside := out >= np.uint64(size)).any():
        out[outside] = _feistel(out[outside], half, key)
    return out.astype(np.int64)


def _feistel(words: Words, half: np.uint64, key: Words) -> Words:
    mask = (np.uint64(1) << half) - np.uint64(1)
    left, right = words >> half, words & mask
    for round_key in key:
        left, right = right, left ^ (mixed(right + round_key) & mask)
    return (left << half) | right


def _key(seed: int, epoch: int) -> Words:
    rounds = np.arange(ROUNDS, dtype=np.uint64)
    return mixed(mixed(mixed(_word(seed)) + _word(epoch)) + rounds)


def _word(value: int) -> Words:
    return np.array([value % 2**64], dtype=np.uint64)


def mixed(words: Words) -> Words:
    """The finaliser of splitmix64 (Steele, Lea, Flood 2014): each bit of the result depends on each bit given."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def derived_seed(*parts: int) -> int:
    """One seed of 63 bits from several numbers.

    >>> derived_seed(1, 2) != derived_seed(2, 1)
    True
    """
    word = _word(0)
    for part in parts:
        word = mixed(word + _word(part))
    return int(word[0] >> np.uint64(1))
