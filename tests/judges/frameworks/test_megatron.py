"""megatron-core's own configuration classes and process groups as judges of the arguments that we write.

The command line itself is judged where MEGATRON_LM names a checkout of Megatron-LM (it is no package).
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.judge_frameworks
torch = pytest.importorskip("torch")
pytest.importorskip("megatron.core")

import meshwright.rules  # noqa: E402, F401  (registers the rules)
from meshwright.frameworks.megatron.write import write  # noqa: E402
from meshwright.spec import Strategy  # noqa: E402
from meshwright.spec.plan import Problem  # noqa: E402

from .strategies import megatron as strategies  # noqa: E402

GRID = strategies()
RENAMED = {"num_experts": "num_moe_experts", "swiglu": "gated_linear_unit", "fp8_format": "fp8", "fp4_format": "fp4"}
MODELS = ("--position-embedding-type", "--max-position-embeddings", "--untie-embeddings-and-output-weights")


def configuration(settings: dict[str, Any], virtual: int) -> Any:
    """TransformerConfig (or that of latent attention) of written arguments, as Megatron-LM makes it."""
    from megatron.core.transformer.transformer_config import MLATransformerConfig, TransformerConfig

    cls = MLATransformerConfig if "--multi-latent-attention" in settings else TransformerConfig
    known = {f.name for f in dataclasses.fields(cls)}
    dtype = torch.float16 if "--fp16" in settings else torch.bfloat16
    # ProcessGroup-free defaults that Megatron-LM's command line has and the class has not.
    values: dict[str, Any] = {"pipeline_dtype": dtype, "add_bias_linear": "--disable-bias-linear" not in settings}
    if virtual > 1 and "--pipeline-model-parallel-layout" not in settings:
        values["virtual_pipeline_model_parallel_size"] = virtual
    if "--swiglu" in settings:
        values["activation_func"] = torch.nn.functional.silu
    values["cpu_offloading"] = "--cpu-offloading-num-layers" in settings
    for name, value in settings.items():
        field = name.removeprefix("--").replace("-", "_")
        field = RENAMED.get(field, field)
        if field in known:
            values[field] = (
                value if field != "moe_layer_freq" else eval(value)
            )  # as Megatron-LM does; ours, not a user's
    return cls(**values)


def test_the_grid_is_large_and_varied() -> None:
    assert len(GRID) >= 300
    for field in (
        "tensor",
        "pipeline",
        "virtual",
        "context",
        "expert",
        "recompute",
        "precision",
        "offload",
        "sharding",
    ):
        assert len({getattr(s, field) for _, s in GRID}) >= 2, field


def test_every_strategy_is_a_legal_transformer_config() -> None:
    for problem, strategy in GRID:
        settings = dict(write(problem, strategy).settings)
        config = configuration(settings, strategy.virtual)
        assert config.num_layers == problem.model.layers
        assert config.tensor_model_parallel_size == strategy.tensor
        assert config.sequence_parallel == (strategy.sequence_parallel and strategy.tensor > 1)
        layout = config.pipeline_model_parallel_layout
        if layout is not None:
            layout.validate_layer_layout(problem.model.layers, problem.model.mtp_layers or None)
            assert layout.virtual_pipeline_model_parallel_size == strategy.virtual


@pytest.mark.parametrize("number", range(0, 300, 25))
def test_the_groups_are_those_of_the_strategy(number: int) -> None:
    from megatron.core.parallel_state import RankGenerator

    _, s = GRID[number]
    groups = RankGenerator(tp=s.tensor, ep=1, dp=s.data, pp=s.pipeline, cp=s.context, order="tp-cp-ep-dp-pp")
    sizes = {"tp": s.tensor, "dp": s.data, "pp": s.pipeline, "cp": s.context}
    for axis, size in sizes.items():
        ranks = groups.get_ranks(axis)
        assert {len(group) for group in ranks} == {size}
        assert sorted(rank for group in ranks for rank in group) == list(range(s.devices))


COMMAND_LINE = """
import json, os, sys, typing, typing_extensions, torch
if not hasattr(typing, "override"): typing.override = typing_extensions.override
torch.cuda.get_device_capability = lambda *a, **k: (9, 0)
torch.cuda.get_device_properties = lambda *a, **k: type("P", (), dict(
    major=9, minor=0, name="H100", total_memory=80 * 2**30, multi_processor_count=132))
from megatron.training.arguments import parse_args, validate_args
# What needs kernels that are not on a CPU.
OFF = ["--transformer-impl", "local", "--no-persist-layer-norm", "--no-gradient-accumulation-fusion",
       "--attention-backend", "unfused"]
out = []
for argv, environment in json.load(sys.stdin):
    os.environ.pop("CUDA_DEVICE_MAX_CONNECTIONS", None)
    os.environ.update(environment, RANK="0")
    sys.argv = ["x", *argv, *OFF]
    try:
        a = parse_args()
        a = validate_args(a, {}) or a
        out.append(["", a.data_parallel_size, a.virtual_pipeline_model_parallel_size or 1])
    except BaseException as error:
        out.append([f"{type(error).__name__}: {error}"[:300], 0, 0])
print("RESULT" + json.dumps(out))
"""


def words(problem: Problem, strategy: Strategy) -> list[str]:
    """The arguments as a shell passes them."""
    out: list[str] = []
    for name, value in write(problem, strategy).settings:
        out += [name] if value is True else [name, *map(str, value if isinstance(value, list) else [value])]
    return out


@pytest.mark.skipif("MEGATRON_LM" not in os.environ, reason="MEGATRON_LM names no checkout of Megatron-LM")
def test_the_command_line_is_accepted_by_megatron_lm() -> None:
    import json

    from meshwright.frameworks.megatron.write import environment

    chosen = GRID[:: max(len(GRID) // int(os.environ.get("MEGATRON_LM_CASES", "60")), 1)]
    cases = [(words(p, s), {**environment(p, s), "WORLD_SIZE": str(p.cluster.devices)}) for p, s in chosen]
    done = subprocess.run(
        [sys.executable, "-c", COMMAND_LINE], input=json.dumps(cases), capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": os.environ["MEGATRON_LM"]},
    )  # fmt: skip
    results = json.loads(done.stdout.rpartition("RESULT")[2])
    refused = [(said, s.short) for (said, _, _), (_, s) in zip(results, chosen, strict=True) if said]
    assert refused == []
    assert [r[1:] for r in results] == [[s.data, s.virtual] for _, s in chosen]
