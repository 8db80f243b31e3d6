"""A rank that dies, or falls silent, in the middle of a collective: the others raise in time and keep their errors."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

pytestmark = pytest.mark.gradsync
torch = pytest.importorskip("torch", reason="torch is not installed (extra `torch`)")
import torch.distributed as dist  # noqa: E402
from ranks import Ranks  # noqa: E402

TIMEOUT = 4.0
SIZE = 3


class Doomed(Ranks):
    """A group of which one rank will not answer."""

    def survivors(self, function: Any, *arguments: Any, victim: int = 1) -> list[Any]:
        for pipe in self._pipes:
            pipe.send(((function.__code__.co_filename, function.__name__), arguments))
        found = []
        for rank, pipe in enumerate(self._pipes):
            if rank != victim:
                assert pipe.poll(60), f"rank {rank} hangs"
                kind, value = pipe.recv()
                assert kind == "done", value
                found.append(value)
        return found


@pytest.fixture
def doomed() -> Iterator[Doomed]:
    group = Doomed(SIZE)
    yield group
    group.close()


@pytest.mark.parametrize("algorithm", ["ring", "direct", "double_tree", "torus_2d"])
def test_a_killed_rank_raises_on_the_others_within_the_timeout(doomed: Doomed, algorithm: str) -> None:
    for kind, seconds, where in doomed.survivors(fault, "killed", algorithm):
        assert kind == "PeerError" and seconds < TIMEOUT + 2
        assert where in ("rank 0", "rank 1", "rank 2")


def test_a_silent_rank_too(doomed: Doomed) -> None:
    for kind, seconds, _ in doomed.survivors(fault, "stopped", "ring"):
        assert kind == "PeerError" and seconds < TIMEOUT + 2


@pytest.mark.parametrize("hook", ["topk", "int8", "powersgd"])
def test_an_aborted_step_leaves_the_error_feedback_as_it_was(doomed: Doomed, hook: str) -> None:
    assert doomed.survivors(fault_in_hook, hook) == ["raised, errors unchanged"] * (SIZE - 1)


# --- the side of the processes ---------------------------------------------------------------------------------


def endless(reduce: Any, end: Any) -> None:
    """Reduce over and over; rank 1 ends itself, by `end`, in the middle of a collective."""
    for _ in range(3):
        reduce()
    if dist.get_rank() == 1:
        threading.Timer(0.3, end).start()
    while True:
        reduce()


def fault(how: str, algorithm: str) -> tuple[str, float, str]:
    from meshwright import gradsync

    tensor = torch.zeros(2_000_000)
    signals = {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP}
    began = 0.0

    def reduce() -> None:
        nonlocal began
        began = time.monotonic()
        gradsync.all_reduce(tensor, algorithm=algorithm, timeout=TIMEOUT)

    try:
        endless(reduce, lambda: os.kill(os.getpid(), signals[how]))
    except gradsync.PeerError as error:
        return type(error).__name__, time.monotonic() - began, error.where
    return "nothing", 0.0, ""


def fault_in_hook(name: str) -> str:
    from meshwright.gradsync.hooks import HOOKS
    from meshwright.gradsync.registration import PlainBucket

    hook, state_type = HOOKS[name]
    w = torch.nn.Parameter(torch.zeros(1000, 1500))
    state = state_type(parameters=[("w", w)], start_iter=0, timeout=TIMEOUT)
    before: Any = None

    def reduce() -> None:
        nonlocal before
        before = state.errors.state_dict().get("w")
        hook(state, PlainBucket(torch.randn(1_500_000), [w], True)).wait()

    try:
        endless(reduce, lambda: os.kill(os.getpid(), signal.SIGKILL))
    except RuntimeError:
        same = torch.equal(before, state.errors.state_dict()["w"])
        return f"raised, errors {'unchanged' if same else 'changed'}"
    return "nothing"
