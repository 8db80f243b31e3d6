"""Bytes on the wire, counted by the kernel on this process's own TCP connections: equal to the formulas and to
`wire_stats()`."""

from __future__ import annotations

import os
import socket
import struct
import time
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.gradsync
torch = pytest.importorskip("torch", reason="torch is not installed (extra `torch`)")
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

from meshwright import gradsync  # noqa: E402
from meshwright.formulas import collectives as formulas  # noqa: E402
from meshwright.formulas import compression  # noqa: E402
from meshwright.gradsync.hooks import HOOKS  # noqa: E402
from meshwright.gradsync.registration import PlainBucket  # noqa: E402

BYTES_ACKED = 120  # offset of tcpi_bytes_acked in struct tcp_info (linux/tcp.h)
ROWS, COLUMNS = 1024, 512
N = ROWS * COLUMNS


def acknowledged() -> int:
    """Bytes that peers have acknowledged on every TCP connection of this process."""
    total = 0
    for entry in Path("/proc/self/fd").iterdir():
        try:
            if not entry.is_socket():
                continue
            with socket.socket(fileno=os.dup(int(entry.name))) as connection:
                if connection.family in (socket.AF_INET, socket.AF_INET6):
                    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 232)
                    total += struct.unpack_from("Q", info, BYTES_ACKED)[0]
        except OSError:  # closed meanwhile
            continue
    return total


def measured(action: Any) -> int:
    """Bytes sent by `action`, without what a barrier sends."""
    dist.barrier()
    time.sleep(0.05)
    before = acknowledged()
    action()
    time.sleep(0.05)  # the last acknowledgements
    return acknowledged() - before


def on_the_wire(name: str, options: dict[str, Any]) -> tuple[int, float, float]:
    """Kernel's count of the second step, that of the state, and the dense rival."""
    hook, state_type = HOOKS[name]
    w = nn.Parameter(torch.zeros(ROWS, COLUMNS))
    state = state_type(parameters=[("w", w)], **options)
    flat = torch.randn(N, generator=torch.Generator().manual_seed(dist.get_rank()))

    def step() -> None:
        hook(state, PlainBucket(flat.clone(), [w], True)).wait()

    step()
    before = state.wire_stats()
    seen = measured(step)
    after = state.wire_stats()
    assert after["calls"] == 2
    return seen, after["bytes_sent"] - before["bytes_sent"], after["bytes_dense"] - before["bytes_dense"]


DENSE = 4.0 * N


def expected(name: str, ranks: int) -> float:
    dense = formulas.all_reduce_wire_bytes(DENSE, ranks)
    return {
        "allreduce": dense,
        "fp16": dense / 2,
        "bf16": dense / 2,
        "topk": compression.gathered_pairs_wire_bytes(round(0.01 * N), ranks),
        "int8": (ranks - 1) * (N + 4 * N / 256),
        "int8 two-shot": 2 * (ranks - 1) / ranks * (N + 4 * N / 256),
        "onebit": (ranks - 1) * (N / 8 + 4 * N / 2048),
        "powersgd": compression.low_rank_wire_bytes(ROWS, COLUMNS, 4, ranks),
        "noop": 0.0,
    }[name]


OPTIONS: dict[str, dict[str, Any]] = {
    "topk": {"ratio": 0.01}, "int8": {"exchange": "all_gather"}, "int8 two-shot": {"exchange": "two_shot"},
    "onebit": {"start_iter": 0}, "powersgd": {"rank": 4, "start_iter": 0},
}  # fmt: skip


@pytest.mark.parametrize("name", ["allreduce", "fp16", "bf16", "topk", "int8", "int8 two-shot", "onebit", "noop"])
@pytest.mark.parametrize("size", [2, 4])
def test_the_kernel_the_state_and_the_formula_agree(ranks: Any, size: int, name: str) -> None:
    want = expected(name, size)
    for seen, counted, dense in ranks(size).run(on_the_wire, name.split()[0], OPTIONS.get(name, {})):
        assert dense == formulas.all_reduce_wire_bytes(DENSE, size)
        assert counted == pytest.approx(want, rel=1e-3, abs=1), "the state counts something else than the formula"
        assert seen == pytest.approx(want, rel=0.01, abs=4000), "the kernel saw something else"  # frames of gloo


def test_powersgd_sends_its_two_factors(ranks: Any) -> None:
    for seen, counted, _ in ranks(2).run(on_the_wire, "powersgd", OPTIONS["powersgd"]):
        assert expected("powersgd", 2) <= counted <= 2 * expected("powersgd", 2)  # small: whole tensors are exchanged
        assert seen == pytest.approx(counted, rel=0.01, abs=4000)


def ours_on_the_wire(algorithm: str) -> int:
    tensor = torch.ones(N)
    gradsync.all_reduce(tensor, algorithm=algorithm, local=2)
    return measured(lambda: gradsync.all_reduce(tensor, algorithm=algorithm, local=2))


@pytest.mark.parametrize("algorithm", ["ring", "halving_doubling", "direct", "torus_2d", "hierarchical"])
def test_bandwidth_optimal_algorithms_send_what_the_ring_formula_says(ranks: Any, algorithm: str) -> None:
    want = formulas.all_reduce_wire_bytes(DENSE, 4)
    for seen in ranks(4).run(ours_on_the_wire, algorithm):
        assert seen == pytest.approx(want, rel=0.01)


def test_the_others_send_what_their_formulas_say(ranks: Any) -> None:
    assert ranks(4).run(ours_on_the_wire, "recursive_doubling") == pytest.approx([2 * DENSE] * 4, rel=0.01)
    double = ranks(4).run(ours_on_the_wire, "double_tree")
    assert max(double) == pytest.approx(formulas.double_tree_wire_bytes(DENSE, 4), rel=0.01)
    assert max(ranks(2).run(ours_on_the_wire, "double_tree")) == pytest.approx(DENSE, rel=0.01)
