"""Bubbles: closed forms against event simulations of the schedules written here, published tables and measured ramps.

The simulations follow Megatron's orders: 1F1B and interleaved 1F1B with their warm-up counts (Narayanan et al. 2021,
arXiv 2104.04473, figures 3 and 4), and ZB-H1 as 1F1B whose weight gradients fill the gaps (arXiv 2401.10241).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.formulas.pipeline import (
    SCHEDULE_BUBBLE,
    bubble_1f1b,
    bubble_dualpipe,
    bubble_fraction,
    bubble_interleaved,
    bubble_zero_bubble_h1,
)

Op = tuple[str, int, int]  # F, B; model chunk in pipeline order; micro-batch


# ---------------------------------------------------------------------------------------------------- simulation


def needs(op: Op, last: int) -> list[Op]:
    """What must be done before `op`, on other stages or this one."""
    kind, chunk, i = op
    if kind == "F":
        return [("F", chunk - 1, i)] if chunk else []
    return [("F", chunk, i)] + ([("B", chunk + 1, i)] if chunk < last else [])


def simulate(orders: Sequence[Sequence[Op]], seconds: Callable[[Op], float], last: int) -> float:
    """End of the last op when every stage works through its order as soon as it may."""
    done: dict[Op, float] = {}
    clock, at = [0.0] * len(orders), [0] * len(orders)
    while any(at[s] < len(order) for s, order in enumerate(orders)):
        moved = False
        for s, order in enumerate(orders):
            while at[s] < len(order) and all(n in done for n in needs(order[at[s]], last)):
                op = order[at[s]]
                start = max([clock[s], *(done[n] for n in needs(op, last))])
                clock[s] = done[op] = start + seconds(op)
                at[s] += 1
                moved = True
        assert moved, "the order deadlocks"
    return max(clock)


def order_1f1b(p: int, s: int, m: int) -> list[Op]:
    warm = min(m, p - 1 - s)
    out: list[Op] = [("F", s, i) for i in range(warm)]
    for i in range(m - warm):
        out += [("F", s, i + warm), ("B", s, i)]
    return out + [("B", s, i) for i in range(m - warm, m)]


def order_interleaved(p: int, s: int, m: int, v: int) -> list[Op]:
    """Groups of p micro-batches (of all, where there are fewer) pass chunk after chunk; m is a multiple of a group.

    The orders of Megatron and of torch's ScheduleInterleaved1F1B, which also runs with m below p.
    """
    size = min(m, p)

    def forward(k: int) -> Op:
        group, rest = divmod(k, size * v)
        chunk, i = divmod(rest, size)
        return "F", chunk * p + s, group * size + i

    def backward(k: int) -> Op:
        _, chunk, i = forward(k)
        return "B", (v - 1 - chunk // p) * p + s, i

    total = m * v
    warm = min(total, (p - s - 1) * 2 + (v - 1) * size)
    out = [forward(k) for k in range(warm)]
    for k in range(total - warm):
        out += [forward(k + warm), backward(k)]
    return out + [backward(k) for k in range(total - warm, total)]


def simulate_pipeline(f: Sequence[float], b: Sequence[float], m: int, p: int, v: int = 1) -> float:
    """1F1B (v = 1) or interleaved 1F1B with the forward and backward times of every model chunk."""
    orders = [order_1f1b(p, s, m) if v == 1 else order_interleaved(p, s, m, v) for s in range(p)]
    return simulate(orders, lambda op: (f if op[0] == "F" else b)[op[1]], p * v - 1)


def simulate_zb_h1(p: int, m: int, f: float, b: float, w: float) -> float:
    """1F1B order of F and B; a weight gradient runs where the stage would wait, or where p activations are held."""
    orders = [order_1f1b(p, s, m) for s in range(p)]
    done: dict[Op, float] = {}
    clock, at, waiting, held = [0.0] * p, [0] * p, [0] * p, [0] * p
    while any(at[s] < len(orders[s]) or waiting[s] for s in range(p)):
        choices: list[tuple[float, int, int]] = []
        for s in range(p):
            start = None
            if at[s] < len(orders[s]):
                op = orders[s][at[s]]
                ready = all(n in done for n in needs(op, p - 1)) and not (op[0] == "F" and held[s] >= p)
                if ready:
                    start = max([clock[s], *(done[n] for n in needs(op, p - 1))])
            if waiting[s] and (start is None or start >= clock[s] + w - 1e-12):
                choices.append((clock[s], 1, s))
            elif start is not None:
                choices.append((start, 0, s))
        start, fill, s = min(choices)
        if fill:
            clock[s], waiting[s], held[s] = start + w, waiting[s] - 1, held[s] - 1
            continue
        op = orders[s][at[s]]
        clock[s] = done[op] = start + (f if op[0] == "F" else b)
        at[s] += 1
        if op[0] == "F":
            held[s] += 1
        else:
            waiting[s] += 1
    return max(clock)


# ------------------------------------------------------------------------------------------------- equal stages


@pytest.mark.parametrize("p", [1, 2, 4, 7])
@pytest.mark.parametrize("m", [1, 3, 8, 16])
@pytest.mark.parametrize(("f", "b"), [(1.0, 2.0), (1.0, 3.0), (0.7, 1.1)])
def test_1f1b_equals_the_simulation(p: int, m: int, f: float, b: float) -> None:
    bubble = bubble_1f1b(p * (f + b), f + b)
    assert m * (f + b) + bubble == pytest.approx(simulate_pipeline([f] * p, [b] * p, m, p), rel=1e-12)


@pytest.mark.parametrize("p", [2, 3, 4, 8])
@pytest.mark.parametrize("v", [1, 2, 3, 20])
@pytest.mark.parametrize("m", [1, 2, 3, 5])
def test_interleaved_with_fewer_micro_batches_than_stages_equals_the_simulation(p: int, v: int, m: int) -> None:
    f, b, m = 1.0, 2.0, min(m, p)
    bubble = bubble_interleaved(p * (f + b), f + b, v, absent=p - m)
    simulated = simulate_pipeline([f / v] * (p * v), [b / v] * (p * v), m, p, v)
    assert m * (f + b) + bubble == pytest.approx(simulated, rel=1e-12)


@pytest.mark.parametrize("p", [2, 3, 4, 8])
@pytest.mark.parametrize("v", [2, 3, 4])
@pytest.mark.parametrize("groups", [1, 2, 3])
def test_interleaved_equals_the_simulation(p: int, v: int, groups: int) -> None:
    f, b, m = 1.0, 2.0, groups * p
    bubble = bubble_interleaved(p * (f + b), f + b, v)
    simulated = simulate_pipeline([f / v] * (p * v), [b / v] * (p * v), m, p, v)
    assert m * (f + b) + bubble == pytest.approx(simulated, rel=1e-12)


@pytest.mark.parametrize("p", [2, 3, 4, 8])
@pytest.mark.parametrize("m", [8, 16])
def test_zb_h1_equals_the_simulation(p: int, m: int) -> None:
    bubble = bubble_zero_bubble_h1(p, 1.0, 1.0, 1.0)
    assert 3 * m + bubble == pytest.approx(simulate_zb_h1(p, m, 1.0, 1.0, 1.0), rel=1e-12)


# ------------------------------------------------------------------------------------------------ uneven stages

UNEVEN = st.floats(0.7, 1.3)


@given(f=st.lists(UNEVEN, min_size=2, max_size=8), m=st.integers(1, 40))
def test_uneven_1f1b_is_a_bound(f: list[float], m: int) -> None:
    """The closed form lets every stage delay the slowest one: never too short, at most a quarter too long."""
    b = [2 * x for x in f]
    stages = [x + y for x, y in zip(f, b, strict=True)]
    closed = m * max(stages) + bubble_1f1b(sum(stages), max(stages))
    simulated = simulate_pipeline(f, b, m, len(f))
    assert simulated <= closed * (1 + 1e-12)
    assert closed <= 1.25 * simulated


@given(
    p=st.integers(2, 6), v=st.integers(2, 4), groups=st.integers(1, 6), data=st.data(),
)  # fmt: skip
def test_uneven_interleaved_stays_close(p: int, v: int, groups: int, data: st.DataObject) -> None:
    """Chunks of 0.7 to 1.3: the closed form stays within a fifth of the simulation."""
    f = data.draw(st.lists(UNEVEN, min_size=p * v, max_size=p * v))
    b = [2 * x for x in f]
    stages = [sum(f[c * p + s] + b[c * p + s] for c in range(v)) for s in range(p)]
    closed = groups * p * max(stages) + bubble_interleaved(sum(stages), max(stages), v)
    assert closed == pytest.approx(simulate_pipeline(f, b, groups * p, p, v), rel=0.2)


@pytest.mark.parametrize("m", [16, 32])
def test_light_ends_of_llama_405b(m: int) -> None:
    """16 stages of 8 chunks, nearly empty first and last chunk (embedding, head): within two per cent."""
    p, v = 16, 8
    f = [0.1, *[1.0] * (p * v - 2), 0.4]
    b = [2 * x for x in f]
    stages = [sum(f[c * p + s] + b[c * p + s] for c in range(v)) for s in range(p)]
    closed = m * max(stages) + bubble_interleaved(sum(stages), max(stages), v)
    assert closed == pytest.approx(simulate_pipeline(f, b, m, p, v), rel=0.02)


# ---------------------------------------------------------------------------------------------- published tables


@pytest.mark.parametrize(("p", "m"), [(4, 8), (8, 64), (16, 16)])
def test_table_of_the_zero_bubble_repository(p: int, m: int) -> None:
    """Shares of a step with t_F = t_B = t_W: 1F1B (p-1)/(m+p-1) = B, ZB1P a third of its idle time, ZB-V none."""
    f, b = 1.0, 2.0
    total, slow = p * (f + b), f + b
    idle = {name: SCHEDULE_BUBBLE[name](p, m, total, slow, f, b, 1) for name in ("1f1b", "gpipe", "zb-h1", "zbv")}
    assert idle["1f1b"] / (m * slow + idle["1f1b"]) == pytest.approx((p - 1) / (m + p - 1))
    assert idle["gpipe"] == idle["1f1b"]
    assert idle["zb-h1"] == pytest.approx(idle["1f1b"] / 3)
    assert idle["zbv"] == 0


def test_table_of_the_deepseek_v3_report() -> None:
    """Table 2 (B a whole backward, W its weight part): 1F1B (p-1)(F+B), ZB1P (p-1)(F+B-2W), DualPipe as printed."""
    p, f, b, w = 16, 1.1, 2.3, 1.0
    assert bubble_1f1b(p * (f + b), f + b) == pytest.approx((p - 1) * (f + b))
    assert bubble_zero_bubble_h1(p, f, b - w, w) == pytest.approx((p - 1) * (f + b - 2 * w))
    together = f + b
    dual = bubble_dualpipe(p, together, b, w)
    assert dual == pytest.approx((p / 2 - 1) * (together + b - 3 * w))
    assert dual < bubble_zero_bubble_h1(p, f, b - w, w) < bubble_1f1b(p * (f + b), f + b)


@pytest.mark.parametrize(
    ("p", "m", "v", "share"),
    # Narayanan et al. 2021, section 2.2: (p-1)/m, over v when interleaved.
    [(8, 64, 1, 7 / 64), (8, 64, 3, 7 / 192), (64, 512, 1, 63 / 512), (1, 5, 1, 0.0)],
)
def test_fraction(p: int, m: int, v: int, share: float) -> None:
    assert bubble_fraction(p, m, v) == pytest.approx(share)
    slow = 3.0
    assert bubble_interleaved(p * slow, slow, v) / (m * slow) == pytest.approx(share)


def test_bloom_sweep_of_batch_sizes() -> None:
    """BigScience chronicle, 48 nodes, TP4 PP12 DP8 MBS2: seconds against batch are a line whose start is the bubble."""
    seconds = {512: 35.77, 1024: 59.65, 1536: 83.11, 2048: 107.12}
    per_sequence, start = np.polyfit(list(seconds), list(seconds.values()), 1)
    micro_batch = per_sequence * 8 * 2
    bubble = bubble_1f1b(12 * micro_batch, micro_batch)
    assert 0.5 * start < bubble < start  # the rest is optimizer and exposed communication
    m = {batch: batch / 16 for batch in seconds}
    ramp = (m[512] + 11) / (m[2048] + 11)
    assert seconds[512] / seconds[2048] == pytest.approx(ramp, rel=0.1)


def test_bloom_ramp_of_throughput() -> None:
    """BLOOM-176B, PP12 DP8: TFLOP/s rise with the batch, never faster than the bubble lets them."""
    points = [(192 / 8, 73), (512 / 16, 113), (2048 / 16, 150)]
    efficiency = [1 / (1 + bubble_fraction(12, m)) for m, _ in points]
    measured = [t / points[-1][1] for _, t in points]
    assert sorted(efficiency) == efficiency and sorted(measured) == measured
    for share, seen in zip(efficiency, measured, strict=True):
        assert seen <= share / efficiency[-1] + 1e-12


def test_mlperf_405b_strong_scaling() -> None:
    """TP8 PP8 CP2 VP8, micro-batches 288 to 24: the interleaved bubble bounds the loss from below and orders it."""
    points = [(288, 334.5), (72, 324.4), (64, 322.5), (56, 320.4), (24, 296.4)]
    efficiency = [1 / (1 + bubble_fraction(8, m, 8)) for m, _ in points]
    assert sorted(efficiency, reverse=True) == efficiency
    for (_, seen), share in zip(points, efficiency, strict=True):
        assert seen / points[0][1] <= share / efficiency[0] + 1e-12
    without_interleaving = 1 / (1 + bubble_fraction(8, 24))
    assert without_interleaving < points[-1][1] / points[0][1]  # 0.77 against 0.89 measured: chunks do help


# ---------------------------------------------------------------------------------------------------- properties


@given(p=st.sampled_from([2, 4, 8, 16]), f=st.floats(0.1, 10), ratio=st.floats(1.5, 3), v=st.integers(1, 8))
def test_order_of_the_schedules(p: int, f: float, ratio: float, v: int) -> None:
    b = ratio * f
    idle = {name: float(bubble(p, p, p * (f + b), f + b, f, b, v)) for name, bubble in SCHEDULE_BUBBLE.items()}
    assert all(t >= 0 for t in idle.values())
    assert idle["zbv"] <= idle["zb-h1"] <= idle["1f1b"]
    assert idle["interleaved"] == pytest.approx(idle["1f1b"] / v)
    chained = {name: bubble for name, bubble in SCHEDULE_BUBBLE.items() if name != "dualpipe"}
    one = {name: float(bubble(1, 1, f + b, f + b, f, b, 1)) for name, bubble in chained.items()}
    assert set(one.values()) == {0.0}  # no pipeline, no bubble


def test_columns_equal_numbers() -> None:
    p = np.array([2, 4, 8, 16])
    f, b = np.array([1.0, 0.5, 2.0, 1.0]), np.array([2.0, 1.5, 3.0, 2.5])
    v = np.array([1, 2, 3, 8])
    for bubble in SCHEDULE_BUBBLE.values():
        column = bubble(p, 4, p * (f + b), f + b, f, b, v)
        rows = zip(p, f, b, v, strict=True)
        single = [bubble(*map(float, (q, 4, q * (x + y), x + y, x, y, c))) for q, x, y, c in rows]
        assert column == pytest.approx(single)
