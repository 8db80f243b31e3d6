"""The algorithms against sums made in one process: every dtype, size, world, the same bits everywhere, async, trees."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.gradsync
torch = pytest.importorskip("torch", reason="torch is not installed (extra `torch`)")
import torch.distributed as dist  # noqa: E402

from meshwright import gradsync  # noqa: E402
from meshwright.errors import InputError, UnknownNameError  # noqa: E402
from meshwright.gradsync.allreduce import ALGORITHMS, CHOICES, SCATTERING, auto  # noqa: E402
from meshwright.gradsync.allreduce.double_binary_tree import places  # noqa: E402
from meshwright.gradsync.allreduce.tree import heap_place  # noqa: E402
from meshwright.gradsync.peers import Peers  # noqa: E402

WORLDS = (1, 2, 3, 4, 8)
SIZES = (0, 1, 2, 3, 7, 16, 1001)
DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "uint16", "bool",
          "complex64", "float8_e4m3fn")  # fmt: skip


def local_of(ranks: int) -> int:
    return 2 if ranks % 2 == 0 else 1


def values(rank: int, size: int, dtype: str) -> Any:
    generator = torch.Generator().manual_seed(1000 * size + rank)
    return torch.randint(0, 3, (size,), generator=generator).to(getattr(torch, dtype))


def sums_are_exact(dtype: str) -> list[str]:
    """Small whole numbers: the sum is exact in every dtype and order. Names of what was wrong."""
    ranks, wrong = dist.get_world_size(), []
    for size in SIZES:
        mine = [values(r, size, dtype) for r in range(ranks)]
        if dtype == "bool":
            want = torch.stack(mine).any(0)
        elif dtype == "complex64":
            want = torch.stack(mine).sum(0)
        else:
            want = torch.stack([m.double() for m in mine]).sum(0).to(mine[0].dtype)
        for name in CHOICES:
            if name == "backend":
                continue
            got = mine[dist.get_rank()].clone()
            gradsync.all_reduce(got, algorithm=name, local=local_of(ranks), timeout=60)
            if not torch.equal(got.view(torch.uint8), want.view(torch.uint8)):
                wrong.append(f"{name} of {size} {dtype}")
    return wrong


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", WORLDS)
def test_every_algorithm_sums_every_dtype_at_odd_and_empty_sizes(ranks: Any, size: int, dtype: str) -> None:
    for wrong in ranks(size).run(sums_are_exact, dtype):
        assert wrong == []


def bits_of_noise(numel: int) -> dict[str, bytes]:
    generator = torch.Generator().manual_seed(dist.get_rank())
    noise = torch.randn(numel, generator=generator) * 10.0 ** torch.randint(-6, 6, (numel,), generator=generator)
    found = {}
    for name in ALGORITHMS:
        tensor = noise.clone()
        gradsync.all_reduce(tensor, algorithm=name, local=local_of(dist.get_world_size()))
        found[name] = tensor.numpy().tobytes()
    exact = noise.double()
    dist.all_reduce(exact)
    for name, bits in found.items():
        off = torch.frombuffer(bytearray(bits), dtype=torch.float32) - exact
        assert off.abs().max() / exact.abs().max() < 1e-6, name
    return found


@pytest.mark.parametrize("size", [2, 3, 4, 8])
def test_all_ranks_end_with_the_same_bits_also_in_many_segments(ranks: Any, size: int) -> None:
    for numel in (1001, 2_000_003):  # the second is several segments of every algorithm
        found = ranks(size).run(bits_of_noise, numel)
        for name in ALGORITHMS:
            assert len({f[name] for f in found}) == 1, name


def other_reductions() -> None:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    base = torch.arange(1.0, 8.0)
    mine = base * (rank + 1)
    stack = torch.stack([base * (r + 1) for r in range(ranks)])
    for name in CHOICES:
        for op, want in (
            ("sum", stack.sum(0)), ("avg", stack.mean(0)), ("product", stack.prod(0)), ("min", stack.amin(0)),
            ("max", stack.amax(0)), (dist.ReduceOp.SUM, stack.sum(0)), (dist.ReduceOp.MAX, stack.amax(0)),
        ):  # fmt: skip
            got = mine.clone()
            gradsync.all_reduce(got, op, algorithm=name, local=local_of(ranks))
            torch.testing.assert_close(got, want)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_mean_product_least_and_largest(ranks: Any, size: int) -> None:
    ranks(size).run(other_reductions)


def strided_and_shaped() -> None:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    whole = torch.full((6, 5), float(rank + 1))
    column = whole[:, 1]
    gradsync.all_reduce(column, algorithm="ring")
    assert torch.equal(whole[:, 1], torch.full((6,), ranks * (ranks + 1) / 2))
    assert torch.equal(whole[:, 0], torch.full((6,), float(rank + 1))), "a neighbour of the view was written"
    scalar = torch.tensor(float(rank))
    gradsync.all_reduce(scalar)
    assert scalar.item() == ranks * (ranks - 1) / 2


def test_a_view_with_strides_is_reduced_in_place(ranks: Any) -> None:
    ranks(3).run(strided_and_shaped)


def parts_meet(algorithm: str) -> None:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    whole = torch.arange(4.0 * ranks) + 100 * rank
    part = torch.empty(4)
    gradsync.reduce_scatter(part, whole, algorithm=algorithm)
    want = torch.stack([torch.arange(4.0 * ranks) + 100 * r for r in range(ranks)]).sum(0)
    assert torch.equal(part, want[4 * rank : 4 * rank + 4])
    assert torch.equal(whole, torch.arange(4.0 * ranks) + 100 * rank), "the input was changed"
    gathered = torch.empty(2 * ranks)
    gradsync.all_gather(gathered, torch.tensor([rank, -rank], dtype=torch.float32), algorithm=algorithm)
    assert gathered.tolist() == [float(x) for r in range(ranks) for x in (r, -r)]


@pytest.mark.parametrize("algorithm", list(SCATTERING))
@pytest.mark.parametrize("size", [2, 3, 4, 8])
def test_reduce_scatter_and_all_gather(ranks: Any, size: int, algorithm: str) -> None:
    ranks(size).run(parts_meet, algorithm)


def many_at_once() -> None:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    tensors = [torch.full((1000 + i,), float(rank + i)) for i in range(20)]
    names = list(ALGORITHMS)
    works = [
        gradsync.all_reduce(t, algorithm=names[i % len(names)], async_op=True, local=local_of(ranks))
        for i, t in enumerate(tensors)
    ]
    in_between = torch.ones(3)
    gradsync.all_reduce(in_between)  # waits its turn behind those under way
    assert in_between.tolist() == [float(ranks)] * 3
    chained = works[-1].get_future().then(lambda future: future.value().sum().item())
    for i, (work, tensor) in enumerate(zip(works, tensors, strict=True)):
        work.wait()
        assert work.is_completed()
        assert torch.equal(tensor, torch.full_like(tensor, ranks * (ranks - 1) / 2 + ranks * i))
    assert chained.wait() == tensors[-1].sum().item()


@pytest.mark.parametrize("size", [2, 3, 4])
def test_collectives_under_way_run_in_the_order_of_the_calls(ranks: Any, size: int) -> None:
    ranks(size).run(many_at_once)


def messages_in_rounds() -> None:
    """The path for NCCL, whole rounds of batch_isend_irecv with nothing posted ahead, here over gloo."""
    plain = Peers.in_rounds
    try:
        Peers.in_rounds = lambda self, device: True  # type: ignore[method-assign]
        wrong = sums_are_exact("float32")
    finally:
        Peers.in_rounds = plain  # type: ignore[method-assign]
    assert wrong == []


@pytest.mark.parametrize("size", [2, 3, 4, 8])
def test_messages_in_whole_rounds(ranks: Any, size: int) -> None:
    ranks(size).run(messages_in_rounds)


def chosen() -> tuple[list[str], dict[str, float]]:
    torch.manual_seed(dist.get_rank())
    peers, cpu = Peers(), torch.device("cpu")
    return [auto.choose(peers, payload, cpu) for payload in (64, 2**16, 2**28)], auto.predicted(
        auto.LinkCost(1e-5, 1e9, 1e-6), 2.0**28, dist.get_world_size(), 1
    )


def test_auto_chooses_alike_on_all_ranks_and_by_the_formula_of_the_planner(ranks: Any) -> None:
    from meshwright.formulas.collectives import all_reduce_costs

    found = ranks(4).run(chosen)
    assert all(f == found[0] for f in found)
    assert found[0][1] == all_reduce_costs(2.0**28, 4, 1e-5, 1e9, gap=1e-6)
    assert set(found[0][0]) <= set(ALGORITHMS)


def refused() -> None:
    with pytest.raises(UnknownNameError, match="rign"):
        gradsync.all_reduce(torch.ones(1), algorithm="rign")
    with pytest.raises(InputError, match="not a reduction"):
        gradsync.all_reduce(torch.ones(1), "median")
    with pytest.raises(InputError, match="mean of"):
        gradsync.all_reduce(torch.ones(1, dtype=torch.int64), "avg")
    with pytest.raises(InputError, match="do not divide"):
        gradsync.all_reduce(torch.ones(9), algorithm="hierarchical", local=2)
    with pytest.raises(InputError, match="3 parts of 2 elements"):
        gradsync.reduce_scatter(torch.ones(2), torch.ones(7))


def test_wrong_arguments_say_what_and_why(ranks: Any) -> None:
    ranks(3).run(refused)


@pytest.mark.parametrize("size", [*range(1, 20), 31, 32, 33, 64, 100])
def test_a_rank_is_an_inner_node_in_at_most_one_of_the_two_trees(size: int) -> None:
    inner = [[r for r in range(size) if places(r, size)[tree].children] for tree in (0, 1)]
    assert not set(inner[0]) & set(inner[1])
    for tree in (0, 1):
        assert_is_tree([places(r, size)[tree] for r in range(size)], depth=size.bit_length())
    assert_is_tree([heap_place(r, size) for r in range(size)], depth=size.bit_length() - 1)


def assert_is_tree(found: list[Any], depth: int) -> None:
    roots = [r for r, place in enumerate(found) if place.parent is None]
    assert len(roots) == 1
    for rank, place in enumerate(found):
        assert all(found[child].parent == rank for child in place.children)
        steps, at = 0, rank
        while found[at].parent is not None:
            at, steps = found[at].parent, steps + 1
            assert steps <= depth
        assert at == roots[0]
