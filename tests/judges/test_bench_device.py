"""`bench device` on real torch, on the CPU: what it measures is what it says it measures.

Timings of a shared machine say little, so the oracles are torch's own counters (FLOPs, parameters, shapes), a call
of known length, and the files; small budgets, seconds in all.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from meshwright import api
from meshwright.bench import attention, gemm, memory_bound, step, sweep
from meshwright.bench.machine import Machine, choose, describe, host_free_bytes
from meshwright.bench.records import Skipped, load
from meshwright.errors import InputError, UsageError
from meshwright.serialize import dumps

pytestmark = pytest.mark.judge_torch
torch = pytest.importorskip("torch", reason="torch is not installed (extra `torch`)")
flop_counter = pytest.importorskip("torch.utils.flop_counter")


@pytest.fixture(scope="module")
def machine() -> Machine:
    return choose(torch, "cpu")


def counted(call: Callable[[], object]) -> int:
    with flop_counter.FlopCounterMode(display=False) as counter:
        call()
    return int(counter.get_total_flops())


def small(cases: list[sweep.Case], most: float = 3e10) -> list[sweep.Case]:
    return [case for case in cases if case.work <= most and case.size < 2e9]


# ---------------------------------------------------------------------------------------------- what is measured


def test_products_do_the_work_they_are_said_to_do(machine: Machine) -> None:
    chosen = small(gemm.products(machine), 2e10)
    assert {case.phase for case in chosen} == set(gemm.PHASES)
    for case in chosen:
        assert counted(case.make()) == case.work, case.shape


def test_gradients_are_those_of_a_linear_layer(machine: Machine) -> None:
    """Shapes and layouts of the products that torch runs for y = x Wᵀ: ours have the same m, n, k."""
    tokens, n, k = 96, 40, 24
    x, weight = torch.randn(tokens, k, requires_grad=True), torch.randn(n, k, requires_grad=True)
    seen = []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.ops.aten.mm.default:
                left, right = args
                seen.append((left.shape[0], right.shape[1], left.shape[1]))
            return func(*args, **(kwargs or {}))

    with Watch():
        torch.nn.functional.linear(x, weight).sum().backward()
    assert sorted(seen) == sorted(gemm.gradient_shape(phase, tokens, n, k) for phase in gemm.PHASES)


@pytest.mark.parametrize("phase", gemm.PHASES)
def test_grouped_products_equal_one_product_per_group(machine: Machine, phase: str) -> None:
    groups, m, n, k = 4, *gemm.gradient_shape(phase, 32, 48, 64)
    left, right = gemm._operands(machine, phase, groups, m, n, k)
    torch.manual_seed(0)
    together = gemm._in_one_call(machine, phase, groups, m, n, k)()
    torch.manual_seed(0)
    apart = gemm._group_by_group(machine, phase, groups, m, n, k)()
    expected = torch.stack(apart) if phase == "weight_gradient" else torch.cat(apart)
    assert left.ndim == 2 and right.ndim in (2, 3)
    torch.testing.assert_close(together, expected, rtol=2e-2, atol=2e-1)


@pytest.mark.parametrize("shape", attention.SHAPES[:2])
def test_attention_counts_half_the_square(machine: Machine, shape: tuple[int, ...]) -> None:
    """torch counts the whole square; ours is (s + 1) / 2 keys a query, and 5 products backward to its 2 forward."""
    batch, seq, heads, _, qk, v = shape
    whole = 2 * batch * heads * seq * seq * (qk + v)
    cases = {case.phase: case for case in attention.cases(machine) if tuple(case.shape.values()) == shape}
    assert cases["forward"].work == pytest.approx(whole * (seq + 1) / (2 * seq))
    assert cases["backward"].work == pytest.approx(2.5 * cases["forward"].work)
    assert cases["forward"].make()().shape == (batch, heads, seq, v)
    assert [g.shape[1] for g in cases["backward"].make()()] == [heads, shape[3], shape[3]]


def test_memory_bound_kernels_move_what_they_are_said_to_move(machine: Machine) -> None:
    """Bytes of distinct inputs and outputs of the call, by hand for each kind."""
    per_element = {"silu": 2 + 2, "add": 2 + 2 + 2, "cast": 4 + 2, "adamw": 2 * (4 + 4 + 4) + 4}
    for case in memory_bound.cases(machine):
        if case.kind in per_element:
            assert case.work == per_element[case.kind] * case.shape["elements"]
        elif case.kind == "copy":
            assert case.work == 2 * case.shape["bytes"]
        else:
            passes = 3 if case.phase == "backward" else 2
            assert case.work == passes * 2 * case.shape["rows"] * case.shape["width"]
    for case in small(memory_bound.cases(machine), 1e7):
        case.make()()


def test_values_are_random_and_normal(machine: Machine) -> None:
    values = gemm.matrix(machine, "fp32", 1500, 2000)
    assert abs(float(values.mean())) < 0.01 and abs(float(values.std()) - 1) < 0.01


# ---------------------------------------------------------------------------------------------- how it is timed


def test_a_call_of_known_length_is_timed_right(machine: Machine) -> None:
    calls = [lambda: time.sleep(0.01), lambda: time.sleep(0.03)]
    found = machine.elapsed(calls, 2, 4)
    assert len(found) == 4
    assert 0.02 <= min(found) < 0.03, "a repeat is the mean over its calls, which take turns over the buffers"


def test_buffers_take_turns_across_repeats(machine: Machine) -> None:
    seen: list[int] = []
    calls = [lambda i=i: seen.append(i) for i in range(3)]
    machine.elapsed(calls, 2, 3)
    assert seen == [0, 1, 2, 0, 1, 2]


def test_the_sample_holds_median_and_least(machine: Machine) -> None:
    case = sweep.Case(kind="sleep", phase="", kernel="sleep", shape={"ms": 5}, dtype="", work=1.0, unit="B", size=1.0,
                      make=lambda: lambda: time.sleep(0.005))  # fmt: skip
    [found] = sweep.run([case], machine, sweep.Budget(1.0), 0.3, sweep.Pace())
    assert not isinstance(found, Skipped)
    assert 0.005 <= found.seconds_min <= found.seconds < 0.05
    assert found.n >= 3 and found.rate == pytest.approx(1 / found.seconds)


def test_a_budget_is_kept_by_leaving_out_what_takes_longest(machine: Machine) -> None:
    budget = sweep.Budget(2.0)
    found = list(sweep.run(gemm.products(machine), machine, budget, 2.0, sweep.Pace()))
    assert budget.spent < 20.0
    done, left = ([x for x in found if isinstance(x, Skipped) is skipped] for skipped in (False, True))
    assert done and left
    assert all("time" in str(x.reason) or "memory" in str(x.reason) for x in left)


# ---------------------------------------------------------------------------------------------- memory


class Crowded(Machine):
    """The CPU with next to nothing free."""

    __slots__ = ()

    def free_bytes(self) -> float:
        return 1e6


def test_nothing_is_tried_that_does_not_fit() -> None:
    crowded = Crowded(torch, torch.device("cpu"), "cpu", 2.0**20)
    cases = [*gemm.products(crowded), *attention.cases(crowded), *memory_bound.cases(crowded)]
    found = list(sweep.run(cases, crowded, sweep.Budget(5.0), 5.0, sweep.Pace()))
    for case, one in zip(cases, found, strict=True):
        assert isinstance(one, Skipped) or case.size <= 0.4e6
    left_out = list(step.run(crowded, sweep.Budget(5.0), 5.0, sweep.Pace()))
    assert left_out and all(isinstance(one, Skipped) and "memory" in str(one.reason) for one in left_out)


def test_a_case_that_runs_out_of_memory_is_left_out_and_the_next_is_run(machine: Machine) -> None:
    def too_much() -> sweep.Call:
        torch.empty(2**60, dtype=torch.uint8)
        raise AssertionError

    def case(make: Callable[[], sweep.Call]) -> sweep.Case:
        return sweep.Case(
            kind="x", phase="", kernel="", shape={"n": 1}, dtype="", work=1.0, unit="B", size=1.0, make=make
        )

    first, second = sweep.run(
        [case(too_much), case(lambda: lambda: None)], machine, sweep.Budget(2.0), 1.0, sweep.Pace()
    )
    assert isinstance(first, Skipped) and "alloc" in str(first.reason)
    assert not isinstance(second, Skipped)


def test_free_memory_is_what_the_system_calls_available() -> None:
    import re

    told = float(re.findall(r"MemAvailable:\s+(\d+)", Path("/proc/meminfo").read_text("utf-8"))[0]) * 1024
    assert host_free_bytes() <= told * 1.05


# ---------------------------------------------------------------------------------------------- the training step

SHAPE = dict(zip(step.KEYS, step.SHAPES[-1], strict=True))


def test_the_decoder_is_the_model_it_is_predicted_as() -> None:
    """Parameters by torch; forward FLOPs by torch's counter, which sees the whole square of attention."""
    from meshwright.bench.predict import model_of
    from meshwright.engine.flops import model_flops_per_token
    from meshwright.engine.params import model_params

    model = step.decoder(torch, SHAPE)
    assert sum(p.numel() for p in model.parameters()) == model_params(model_of(SHAPE)).total
    tokens = torch.randint(0, SHAPE["vocab"], (1, SHAPE["seq"]))
    turn = step._turn(choose(torch, "cpu"), SHAPE["seq"], SHAPE["head_dim"])
    whole = model_flops_per_token(model_of(SHAPE), SHAPE["seq"]).forward * SHAPE["seq"]
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        assert counted(lambda: model(tokens, turn)) == whole


def test_the_decoder_attends_to_the_past_only() -> None:
    model = step.decoder(torch, SHAPE).eval()
    turn = step._turn(choose(torch, "cpu"), 16, SHAPE["head_dim"])
    states: list[Any] = []
    model.norm.register_forward_hook(lambda _, __, out: states.append(out.detach()))
    tokens = torch.randint(0, SHAPE["vocab"], (1, 16))
    other = tokens.clone()
    other[0, 10:] = (other[0, 10:] + 1) % SHAPE["vocab"]
    model(tokens, turn), model(other, turn)
    torch.testing.assert_close(states[0][:, :10], states[1][:, :10])
    assert not torch.allclose(states[0][:, 10:], states[1][:, 10:])


def test_the_step_trains_and_is_told_in_parts(machine: Machine) -> None:
    pace = sweep.Pace()
    pace.rates[("FLOP", "bf16")] = pace.largest[("FLOP", "bf16")] = 1e9
    found = list(step.run(machine, sweep.Budget(3.0), 3.0, pace))
    assert all(isinstance(one, Skipped) for one in found[:-1])
    done: Any = found[-1]
    assert tuple(done.shape.values()) == step.SHAPES[-1]
    assert done.seconds_min <= done.seconds and done.n >= 3
    assert all(seconds > 0 for seconds in (done.forward_seconds, done.backward_seconds, done.optimizer_seconds))
    assert 12 * done.parameters <= done.state_bytes < 12.01 * done.parameters  # fp32 parameter and two moments
    assert done.peak_basis in ("resident", "")
    if done.peak_bytes is not None:  # states, gradients and the bf16 copy at least; not much beyond the guess
        assert 0.8 * (done.state_bytes + 6 * done.parameters) < done.peak_bytes < 2 * step.needed_bytes(SHAPE)
    assert step.needed_bytes(SHAPE) > done.state_bytes + done.saved_bytes


def test_saved_bytes_are_those_of_autograd() -> None:
    """x·w keeps x and w; w is a parameter. Then exp keeps its result."""

    class Tiny(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = torch.nn.Parameter(torch.ones(1000))

        def forward(self, x: Any) -> Any:
            return (x * self.w).exp().sum()

    model, x = Tiny(), torch.randn(1000)
    assert step.saved_bytes(torch, model, lambda: model(x)) == 2 * 4000


# ---------------------------------------------------------------------------------------------- as a whole


def test_the_whole_bench_on_this_cpu(tmp_path: Path) -> None:
    """Every kind has a sample, the file is read back, a catalogue entry gives predictions."""
    told: list[float] = []
    found: Any = api.bench_device(
        seconds=5, device="cpu", accelerator="h100-sxm", processes=2, progress=lambda share, _: told.append(share)
    )
    measured = found.measured
    kinds = {sample.kind for sample in measured.samples}
    assert {"gemm", "gemm_sustained", "grouped_gemm", "attention", "silu"} <= kinds, measured.skipped
    assert kinds & {"all_reduce", "all_gather", "reduce_scatter", "p2p"}, measured.skipped
    assert len(measured.steps) == 1
    assert measured.software["torch"] == torch.__version__
    assert all(0 <= share <= 1 for share in told) and told == sorted(told)
    assert len(found.predicted) == len(measured.samples) + 1
    assert all(p.predicted_seconds for s, p in zip(measured.samples, found.predicted, strict=False) if s.kind == "gemm")
    path = tmp_path / "measured.json"
    path.write_text(dumps(found.document), "utf-8")
    assert load(path) == measured


def test_the_command_in_spanish_with_one_part(tmp_path: Path) -> None:
    saved = tmp_path / "measured.json"
    done = command("--seconds", "2", "--only", "memory", "--device", "cpu", "--save", str(saved), "--lang", "es")
    assert done.returncode == 0, done.stderr
    assert "copia en el dispositivo" in done.stdout or "suma" in done.stdout
    assert done.stderr.strip() == f"escrito en {saved}", "no warning of torch's beside it"
    assert {sample.kind for sample in load(saved).samples} <= {
        "silu", "add", "cast", "rms_norm", "layer_norm", "copy", "adamw"
    }  # fmt: skip


def command(*arguments: str, launcher: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *launcher, "-m", "meshwright", "bench", "device", *arguments],
        capture_output=True, text=True, timeout=300, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False,
    )  # fmt: skip


def test_under_torchrun_one_rank_tells_what_both_measured() -> None:
    launcher = ("-m", "torch.distributed.run", "--nproc-per-node", "2")
    done = command("--seconds", "4", "--only", "collectives", "--json", launcher=launcher)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)  # one document: the other rank is silent
    assert document["samples"]
    assert all(sample["shape"]["ranks"] == 2 for sample in document["samples"])


def test_bus_bandwidth_counts_bytes_on_the_wire() -> None:
    """Two ranks: an all-reduce puts the whole payload on the wire, a gather half of it (nccl-tests)."""
    found: Any = api.bench_device(seconds=3, device="cpu", processes=2, parts=("collectives",))
    factors = {"all_reduce": 1.0, "all_gather": 0.5, "reduce_scatter": 0.5, "p2p": 1.0}
    assert found.measured.samples, found.measured.skipped
    for sample in found.measured.samples:
        assert sample.work == factors[sample.kind] * sample.shape["payload"]


def test_the_device_is_described(machine: Machine) -> None:
    device = describe(machine)
    assert device.backend == "cpu" and device.compute_units == torch.get_num_threads()
    assert 0 < device.free_bytes <= device.memory_bytes


def test_a_device_that_is_not_here_is_refused_with_those_that_are() -> None:
    with pytest.raises(InputError, match="no device 'cuda:7'") as caught:
        choose(torch, "cuda:7")
    assert "cpu" in str(caught.value.fix)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_more_processes_than_devices_are_refused() -> None:
    with pytest.raises(UsageError):
        api.bench_device(seconds=5, processes=1024, parts=("collectives",))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_events_agree_with_the_clock_of_the_host() -> None:
    """On a GPU: a product of milliseconds takes as long by events as by waiting for it."""
    gpu = choose(torch, None)
    case = next(case for case in gemm.products(gpu) if case.shape["m"] == 8192)
    call = case.make()
    by_events = min(gpu.elapsed([call], 4, 5))
    start = time.perf_counter()
    for _ in range(20):
        call()
    gpu.synchronize()
    assert by_events == pytest.approx((time.perf_counter() - start) / 20, rel=0.2)
