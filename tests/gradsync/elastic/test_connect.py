"""Generations of workers over one store: the living find each other whatever the dead left behind."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest

pytestmark = pytest.mark.gradsync
torch = pytest.importorskip("torch", reason="torch is not installed (extra `torch`)")
import torch.distributed as dist  # noqa: E402

from meshwright.gradsync import elastic  # noqa: E402
from meshwright.gradsync.elastic.connect import generation  # noqa: E402


@pytest.fixture
def store() -> Any:
    return dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=20))


def meet(store: Any, ranks: list[int], world: int, patience: float = 20.0) -> dict[int, Any]:
    """`generation` on some of the ranks at once; the name, or the error."""
    found: dict[int, Any] = {}

    def one(rank: int) -> None:
        client = dist.TCPStore("127.0.0.1", store.port, is_master=False, timeout=timedelta(seconds=20))
        try:
            found[rank] = generation(client, rank, world, patience)
        except elastic.NoPeersError as error:
            found[rank] = str(error)

    threads = [threading.Thread(target=one, args=(rank,)) for rank in ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_each_generation_has_a_name_of_its_own_and_all_its_ranks_know_it(store: Any) -> None:
    names = [meet(store, list(range(world)), world) for world in (4, 4, 3, 1, 4)]
    assert all(len(set(found.values())) == 1 for found in names)
    assert len({found[0] for found in names}) == 5


def test_a_generation_that_died_half_way_does_not_mislead_the_next(store: Any) -> None:
    assert meet(store, [0, 2], 3, patience=1.0)[0] == "rank 1 did not come to meet the others"
    assert meet(store, [1], 3, patience=0.5)[1] == "rank 0 did not come to meet the others"
    found = meet(store, [0, 1, 2], 3)
    assert len(set(found.values())) == 1
    assert " " not in found[0]
