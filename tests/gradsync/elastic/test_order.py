"""Data order and dealing: pure functions, every sample once an epoch, every micro-batch once a step."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.gradsync
pytest.importorskip("torch", reason="torch is not installed (extra `torch`)")
from meshwright.errors import InputError  # noqa: E402
from meshwright.gradsync.elastic import Feed, deal, derived_seed, samples_at  # noqa: E402


@given(size=st.integers(1, 700), seed=st.integers(-(2**70), 2**70), epoch=st.integers(0, 2**40))
def test_an_epoch_holds_every_sample_once(size: int, seed: int, epoch: int) -> None:
    positions = np.arange(size) + epoch * size
    assert sorted(samples_at(positions, size, seed).tolist()) == list(range(size))


@given(size=st.integers(1, 10**12), positions=st.lists(st.integers(0, 10**15), min_size=1, max_size=30))
def test_a_position_means_the_same_whatever_is_asked_beside_it(size: int, positions: list[int]) -> None:
    together = samples_at(positions, size, seed=3).tolist()
    assert together == [int(samples_at([p], size, seed=3)[0]) for p in positions]
    assert all(0 <= sample < size for sample in together)


def test_order_looks_uniform_and_differs_between_epochs_and_seeds() -> None:
    """Counts of (place, sample) over many epochs against equal counts: chi squared within five sigma."""
    size, epochs = 12, 6000
    samples = samples_at(np.arange(size * epochs), size, seed=11).reshape(epochs, size)
    counts = np.zeros((size, size))
    np.add.at(counts, (np.arange(size)[None, :].repeat(epochs, 0), samples), 1)
    expected = epochs / size
    degrees = (size - 1) ** 2
    chi2 = ((counts - expected) ** 2 / expected).sum()
    assert abs(chi2 - degrees) < 5 * (2 * degrees) ** 0.5
    assert len({tuple(row) for row in samples[:200].tolist()}) == 200
    neighbours = np.mean(np.abs(np.diff(samples.astype(int), axis=1)) == 1)
    assert abs(neighbours - 2 / size) < 0.01, "neighbours must not stay neighbours"
    assert samples_at(range(size), size, seed=1).tolist() != samples_at(range(size), size, seed=2).tolist()


@given(micro_batches=st.integers(1, 64), world=st.integers(1, 80))
def test_every_micro_batch_counts_once_and_all_ranks_take_as_many_turns(micro_batches: int, world: int) -> None:
    turns = [deal(micro_batches, world, rank) for rank in range(world)]
    assert sorted(t.micro_batch for row in turns for t in row if t.counts) == list(range(micro_batches))
    assert len({len(row) for row in turns}) == 1
    assert len(turns[0]) == -(-micro_batches // world)


def feed(**changed: int) -> Feed[list[int]]:
    values = {"size": 1000, "global_batch": 24, "micro_batches": 12, "seed": 5, **changed}
    return Feed(**values, fetch=list, count=len)  # type: ignore[arg-type]


@given(step=st.integers(0, 10**6), world=st.integers(1, 15))
def test_the_global_batch_does_not_depend_on_the_world_size(step: int, world: int) -> None:
    seen = []
    for rank in range(world):
        data, counts = feed().window(step, rank, world)
        seen += [(number, tuple(d)) for (number, d), count in zip(data, counts, strict=True) if count]
    alone, _ = feed().window(step, 0, 1)
    assert sorted(seen) == [(number, tuple(d)) for number, d in alone]
    assert sum(len(d) for _, d in seen) == 24


def test_what_cannot_be_cut_evenly_is_refused_with_what_can() -> None:
    with pytest.raises(InputError, match="24 samples cannot be cut into 7") as caught:
        feed(micro_batches=7)
    assert "1, 2, 3, 4, 6, 8, 12, 24" in str(caught.value.fix)
    with pytest.raises(InputError, match="empty"):
        feed(size=0)


def test_derived_seeds_do_not_collide() -> None:
    assert len({derived_seed(a, b, c) for a in range(20) for b in range(20) for c in range(20)}) == 8000
