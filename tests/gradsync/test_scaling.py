"""Loss scales: the worked example, uneven masks against one process, the wrong ways that must stay wrong."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.gradsync
torch = pytest.importorskip("torch", reason="torch is not installed (extra `torch`)")
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from meshwright import gradsync  # noqa: E402

# The reference's worked example: valid tokens and gradient per token of each rank's micro-batches.
TOKENS = [[3, 1], [2, 10]]
GRADIENTS = [[1.0, 2.0], [3.0, 4.0]]


class Scalar(nn.Module):
    """One weight; a token's loss is weight times what the data say its gradient is."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros((), dtype=torch.float64))

    def forward(self, per_token: Any) -> Any:
        return self.weight * per_token


def worked_example(normalizer: str) -> float:
    rank = dist.get_rank()
    ddp = DistributedDataParallel(Scalar())
    window = list(zip(TOKENS[rank], GRADIENTS[rank], strict=True))
    for micro in gradsync.accumulate(ddp, window, TOKENS[rank], normalizer=normalizer):  # type: ignore[arg-type]
        tokens, gradient = micro.data
        micro.scaled(ddp(gradient) * tokens).backward()
    return float(ddp.module.weight.grad)


@pytest.mark.parametrize(
    ("normalizer", "expected"), [("global", 3.1875), ("micro_batch", 2.5), ("rank", (5 / 4 + 46 / 12) / 2)]
)
def test_the_worked_example_is_exact_and_the_wrong_ways_are_wrong(ranks: Any, normalizer: str, expected: float) -> None:
    found = ranks(2).run(worked_example, normalizer)
    assert found == pytest.approx([expected] * 2, rel=0 if normalizer == "global" else 1e-12, abs=0)
    assert normalizer != "rank" or round(found[0], 4) == 2.5417


def model(seed: int = 0, dtype: Any = None) -> Any:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Embedding(11, 8), nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 11)).to(dtype or torch.float32)


def masked_data(seed: int, ranks: int, micro_batches: int, masked_rank: int) -> list[list[tuple[Any, Any]]]:
    """Tokens and labels by rank and micro-batch; lengths and masks at random, one rank wholly masked."""
    generator = torch.Generator().manual_seed(seed)
    out = []
    for rank in range(ranks):
        row = []
        for _ in range(micro_batches):
            shape = (2, int(torch.randint(3, 9, (1,), generator=generator)))
            tokens, labels = (torch.randint(0, 11, shape, generator=generator) for _ in range(2))
            labels[torch.rand(shape, generator=generator) < 0.6] = -100
            row.append((tokens, labels if rank != masked_rank else torch.full(shape, -100)))
        out.append(row)
    return out


def loss_sum(module: Any, tokens: Any, labels: Any) -> Any:
    return nn.functional.cross_entropy(module(tokens).flatten(0, 1), labels.flatten(), reduction="sum")


def single_process(data: list[list[tuple[Any, Any]]], dtype: Any = None) -> list[Any]:
    """Gradient of the mean over all tokens, the definition."""
    net = model(dtype=dtype)
    total = sum(loss_sum(net, *micro) for row in data for micro in row)
    (total / gradsync.token_count([labels for row in data for _, labels in row])).backward()
    return [p.grad for p in net.parameters()]


def distributed(seed: int, masked_rank: int, by_hand: bool) -> float:
    """Largest relative distance to the single process."""
    rank, size = dist.get_rank(), dist.get_world_size()
    data = masked_data(seed, size, 3, masked_rank)
    net = model()
    counts = [gradsync.token_count(labels) for _, labels in data[rank]]
    if by_hand:
        sum(loss_sum(net, *micro) for micro in data[rank]).div(sum(counts)).backward()  # NaN on the masked rank
        gradsync.average_gradients(net, weight=sum(counts))
    else:
        ddp = DistributedDataParallel(net)
        for micro in gradsync.accumulate(ddp, data[rank], counts):
            micro.scaled(loss_sum(ddp, *micro.data)).backward()
    expected = single_process(data)
    return max(float((p.grad - e).norm() / e.norm()) for p, e in zip(net.parameters(), expected, strict=True))


@pytest.mark.parametrize("by_hand", [False, True])
@pytest.mark.parametrize("size", [2, 3, 4])
def test_uneven_masks_with_an_all_masked_rank_equal_one_process(ranks: Any, size: int, by_hand: bool) -> None:
    for seed in range(3):
        assert max(ranks(size).run(distributed, seed, seed % size, by_hand)) < 1e-6


def big_batch(dtype: str) -> tuple[float, bool]:
    """One step on W ranks against the whole batch in one process: relative distance, and whether bits agree.

    The single process adds the gradients of the ranks' parts in rank order, as `ordered` does.
    """
    kind = getattr(torch, dtype)
    rank, size = dist.get_rank(), dist.get_world_size()
    data = masked_data(5, size, 1, masked_rank=-1)
    n = gradsync.token_count([labels for row in data for _, labels in row])
    net = model(dtype=kind)
    gradsync.scale_loss(loss_sum(net, *data[rank][0]), n, size).backward()
    gradsync.average_gradients(net, ordered=True)
    same_order = [torch.zeros_like(p) for p in net.parameters()]
    for (micro,) in data:
        part = model(dtype=kind)
        gradsync.scale_loss(loss_sum(part, *micro), n, size).backward()
        for total, p in zip(same_order, part.parameters(), strict=True):
            total += p.grad / size
    expected = single_process(data, kind)
    grads = [p.grad for p in net.parameters()]
    far = max(float((g - e).norm() / e.norm()) for g, e in zip(grads, expected, strict=True))
    return far, all(torch.equal(g, e) for g, e in zip(grads, same_order, strict=True))


@pytest.mark.parametrize("size", [2, 3, 4])
def test_a_step_on_many_ranks_is_the_step_on_the_big_batch(ranks: Any, size: int) -> None:
    for dtype, limit in (("float64", 1e-12), ("float32", 1e-6)):
        for far, bits in ranks(size).run(big_batch, dtype):
            assert far < limit
            assert bits or size == 3  # dividing by three and by a power of two round differently


def test_no_tokens_at_all_is_a_loss_of_zero() -> None:
    assert gradsync.scale_loss(torch.tensor(0.0), n_global=0, world=4) == 0.0
