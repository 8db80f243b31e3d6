"""Training to the end: what compression costs in loss, and that the wrong ways of doing it do not pass."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

pytestmark = pytest.mark.gradsync
torch = pytest.importorskip("torch", reason="torch is not installed (extra `torch`)")
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from meshwright import gradsync  # noqa: E402
from meshwright.gradsync.hooks import HOOKS  # noqa: E402

STEPS = 300
TOKENS = 32  # of the language: a Markov chain with four likely successors of each token
LEARNING_RATE = 0.3  # plain SGD: with heavy momentum a value that waited a hundred steps is pushed on ten times


def text(generator: Any, count: int) -> tuple[Any, Any]:
    """Tokens and their successors."""
    chain = torch.full((TOKENS, TOKENS), 0.05 / TOKENS)
    for token in range(TOKENS):
        chain[token, torch.randperm(TOKENS, generator=torch.Generator().manual_seed(token))[:4]] += 0.2375
    tokens = torch.randint(0, TOKENS, (count,), generator=generator)
    return tokens, torch.multinomial(chain[tokens], 1, generator=generator).squeeze(1)


def trained(name: str, options: dict[str, Any]) -> float:
    """Held-out cross entropy of a two-layer language model after 300 steps."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(TOKENS, 64), nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, TOKENS))
    ddp = DistributedDataParallel(model)
    hook, state_type = HOOKS[name]
    gradsync.register_comm_hook(ddp, state_type(**options), hook)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=LEARNING_RATE)
    data = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(STEPS):
        tokens, successors = text(data, 64)
        optimizer.zero_grad()
        nn.functional.cross_entropy(ddp(tokens), successors).backward()
        optimizer.step()
    with torch.no_grad():
        tokens, successors = text(torch.Generator().manual_seed(99), 8192)
        return float(nn.functional.cross_entropy(model(tokens), successors))


@pytest.fixture(scope="module")
def loss(ranks: Any) -> Any:
    @cache
    def of(name: str, **options: Any) -> float:
        found = ranks(2).run(trained, name, options)
        assert found[0] == found[1]
        return found[0]

    return of


def test_bf16_int8_and_powersgd_are_within_two_percent_of_dense(loss: Any) -> None:
    dense = loss("allreduce")
    assert loss("bf16") == pytest.approx(dense, rel=0.02)
    assert loss("fp16") == pytest.approx(dense, rel=0.02)
    assert loss("int8") == pytest.approx(dense, rel=0.02)
    assert loss("powersgd", rank=4, start_iter=10) == pytest.approx(dense, rel=0.02)


def test_signs_with_feedback_too(loss: Any) -> None:
    assert loss("onebit", start_iter=15) == pytest.approx(loss("allreduce"), rel=0.02)


def test_top_one_percent_with_feedback_is_within_five_percent_and_without_it_is_clearly_worse(loss: Any) -> None:
    dense = loss("allreduce")
    assert loss("topk", ratio=0.01) <= 1.05 * dense
    assert loss("topk", ratio=0.01, error_feedback=False) > 1.15 * dense


def test_random_values_with_feedback_are_within_five_percent_and_without_it_are_clearly_worse(loss: Any) -> None:
    dense = loss("allreduce")
    assert loss("randomk", ratio=0.05) <= 1.05 * dense
    assert loss("randomk", ratio=0.05, error_feedback=False) > 1.15 * dense
