"""What must hold for any input: numbers are finite, results repeat and come back from JSON, errors name their fix."""

from __future__ import annotations

import ast
import json
import math
import random
from pathlib import Path

import pytest

import meshwright
from meshwright import api, serialize
from meshwright.catalog import load
from meshwright.catalog.models import model_ids
from meshwright.engine.flops import model_flops_per_token
from meshwright.errors import MeshwrightError
from meshwright.spec.estimate import Estimate, Refusal

SOURCE = Path(meshwright.__file__).parent


def _errors_without_fix() -> list[str]:
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            if node.func.id in ("InputError", "UsageError") and not any(k.arg == "fix" for k in node.keywords):
                found.append(f"{path.relative_to(SOURCE)}:{node.lineno}")
    return found


def test_every_error_about_input_says_what_to_do() -> None:
    assert _errors_without_fix() == []


def _random_strategy(rnd: random.Random, devices: int, moe: bool) -> dict[str, object]:
    framework = rnd.choice(["megatron", "fsdp", "deepspeed", "jax"])
    left, given = devices, {"framework": framework, "micro_batch": rnd.choice([1, 2, 3])}
    degrees = ("tensor", "pipeline", "context") if framework != "deepspeed" else ()
    for name in (*degrees, *(("expert",) if moe else ())):
        degree = rnd.choice([d for d in (1, 1, 2, 3, 4, 7, 8) if left % d == 0])
        given[name], left = degree, left // degree
    given["sharding"] = {"megatron": "zero1", "jax": "zero3"}.get(framework) or rnd.choice(["zero2", "zero3"])
    given["recompute"] = rnd.choice(["none", "selective", "full"])
    if framework == "deepspeed":
        given["offload"] = rnd.choice(["none", "optimizer", "parameters", "activations"])
    return given


def _check_numbers(e: Estimate) -> None:
    for tree in (e.memory, e.time, *(t for s in e.stages for t in (s.device, s.host))):
        for path, term in tree.walk():
            assert math.isfinite(term.value) and term.value >= 0, path
    for name in ("step_seconds", "peak_bytes", "tokens_per_second", "model_flops", "mfu"):
        value = getattr(e, name)
        assert math.isfinite(value) and value > 0, name
    assert e.mfu <= 1 and e.mfu <= e.hfu * (1 + 1e-9)
    assert e.step_interval[0] < e.step_interval[1]
    over = e.peak_bytes > e.capacity_bytes or (e.host_bytes > (e.host_capacity_bytes or math.inf))
    assert over or e.verdict != "OVER"
    assert e.verdict == "OVER" or e.peak_bytes <= e.capacity_bytes


def test_estimates_of_anything_anywhere_are_sane_or_refused_with_reasons() -> None:
    rnd = random.Random(20)
    models, devices = model_ids(), (*load.ids("accelerators"), *load.ids("nodes"))
    estimated = 0
    for _ in range(1200):
        count = rnd.choice([1, 2, 7, 8, 13, 16, 64, 72, 100, 256, 1000, 24576, 1048576])
        job = {
            "seq_len": rnd.choice([1, 7, 512, 4096, 32768, 1000001]),
            "precision": rnd.choice(["bf16", "fp16", "fp8", "fp32"]),
            "global_batch": rnd.choice([1, 8, 100]) * count,
            "optimizer": rnd.choice(["adamw", "adamw-8bit", "adafactor", "sgd", "muon"]),
        }  # fmt: skip
        try:
            problem = api.problem(model=rnd.choice(models), cluster=f"{rnd.choice(devices)}:{count}", **job)
            strategy, _ = api.strategy(problem, **_random_strategy(rnd, count, problem.model.is_moe))
        except MeshwrightError as error:
            assert error.exit_code == 2 and error.fix is not None, str(error)
            continue
        answer = api.estimate(problem, strategy)
        if isinstance(answer, Refusal):
            assert any(f.severity == "error" and f.fix for f in answer.findings)
        else:
            estimated += 1
            _check_numbers(answer)
    assert estimated > 250


@pytest.mark.parametrize("id", load.ids("accelerators"))
def test_utilisation_is_a_share_on_every_accelerator_in_every_precision(id: str) -> None:
    """Gaudi 3 multiplies fp16 at a quarter of its bf16 rate: attention too, or MFU is 282 %."""
    for precision in ("bf16", "fp16", "fp32", "tf32", "fp8"):
        problem = api.problem(model="qwen3-0.6b", cluster=f"{id}:1", seq_len=2**20, global_batch=8, precision=precision)
        for framework in ("megatron", "fsdp", "jax"):
            strategy, _ = api.strategy(problem, framework=framework)
            answer = api.estimate(problem, strategy)
            if isinstance(answer, Refusal):
                continue
            # MFU counts attention in full, kernels skip the masked half: at a million tokens that is a factor of 1.9.
            asked = model_flops_per_token(problem.model, 2**20).training
            done = model_flops_per_token(problem.model, 2**20, masking="causal").training
            assert 0 < answer.mfu * done / asked <= 1


CASES = [
    ("gpt2", "h100-sxm:8", {}), ("vit-huge", "a100-sxm-80gb:8", {}),
    ("mixtral-8x7b", "h100-sxm:64", {"goal": "memory"}),
    ("mamba2-2.7b", "tpu-v5e:16", {}), ("gpt-3-175b", "workstation-4090-x2:2", {}), ("llama-3.1-8b", "mi300x:13", {}),
]  # fmt: skip


@pytest.mark.parametrize(("model", "cluster", "options"), CASES)
def test_a_plan_repeats_comes_back_from_json_and_holds_under_estimate(model, cluster, options) -> None:
    problem = api.problem(model=model, cluster=cluster)
    plan, again = api.plan(problem, **options), api.plan(problem, **options)
    document = serialize.document("plan", plan)
    read = serialize.document("plan", serialize.read_result(json.loads(serialize.dumps(document))).record)
    assert read == document
    assert {**serialize.document("plan", again), "seconds": 0} == {**document, "seconds": 0}
    single = api.plan(problem, top=1, **options)
    assert [r.strategy for r in single.ranked] == [r.strategy for r in plan.ranked[:1]]
    for ranked in plan.ranked[:3]:
        estimate = api.estimate(problem, ranked.strategy)
        assert isinstance(estimate, Estimate)
        assert estimate.step_seconds == pytest.approx(ranked.estimate.step_seconds, rel=1e-9)
        assert estimate.peak_bytes == pytest.approx(ranked.estimate.peak_bytes, rel=1e-9)
        assert estimate.verdict == ranked.estimate.verdict
    assert plan.best or plan.next_steps
