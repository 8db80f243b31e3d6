"""Process groups for the tests of gradsync, one per world size and session."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path[:0] = [
    str(Path(__file__).parent),
    str(Path(__file__).parent / "elastic"),
]  # spawned processes import `ranks` by this name
from ranks import Ranks  # noqa: E402


@pytest.fixture(scope="session")
def ranks() -> Iterator[Callable[[int], Ranks]]:
    """`ranks(3)`: three gloo processes, started on first use."""
    pools: dict[int, Ranks] = {}

    def of(size: int) -> Ranks:
        if size not in pools:
            pools[size] = Ranks(size)
        return pools[size]

    yield of
    for pool in pools.values():
        pool.close()
