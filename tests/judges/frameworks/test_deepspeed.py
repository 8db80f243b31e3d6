"""DeepSpeed's own configuration classes, and the Hugging Face Trainer's check, as judges of what we write and say."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import random
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

pytestmark = pytest.mark.judge_frameworks
os.environ["DS_ACCELERATOR"] = "cpu"
os.environ["DS_BUILD_OPS"] = "0"
pytest.importorskip("deepspeed")

from meshwright.frameworks.deepspeed.fields import TABLE, VERSION  # noqa: E402
from meshwright.frameworks.deepspeed.read import read  # noqa: E402
from meshwright.frameworks.deepspeed.write import ARGUMENTS, CONFIG, write  # noqa: E402
from meshwright.frameworks.records import Surroundings  # noqa: E402
from meshwright.rules.configuration import check_configuration  # noqa: E402

from .strategies import deepspeed as strategies  # noqa: E402

GRID = strategies()


def parsed(data: dict[str, Any], ranks: int) -> Any:
    """DeepSpeedConfig of `data` for a number of data-parallel ranks; raises what DeepSpeed raises."""
    from deepspeed.runtime.config import DeepSpeedConfig

    with (
        mock.patch("deepspeed.comm.get_world_size", lambda *_, **__: ranks),
        mock.patch("deepspeed.comm.get_rank", lambda *_, **__: 0),
    ):
        return DeepSpeedConfig(copy.deepcopy(data))


def ours(data: dict[str, Any], ranks: int) -> list[str]:
    """Ids of the errors that we find."""
    found = read(json.dumps(data), Surroundings(devices=ranks))
    findings = (*found.findings, *check_configuration(found.configuration))
    return [f.code for f in findings if f.severity == "error"]


def test_the_version_is_the_pinned_one() -> None:
    import deepspeed

    assert deepspeed.__version__ == VERSION


def test_every_emitted_file_is_accepted() -> None:
    assert len(GRID) >= 300
    for problem, strategy in GRID:
        files = {f.name: json.loads(f.text) for f in write(problem, strategy).files}
        data, ranks = files[CONFIG], strategy.data
        context = data.get("sequence_parallel_size", 1)
        read_back = parsed({k: v for k, v in data.items() if v != "auto"}, ranks * context)
        assert read_back.train_batch_size == problem.job.global_batch
        assert read_back.train_micro_batch_size_per_gpu == strategy.micro_batch
        stage = 0 if strategy.sharding == "none" else int(strategy.sharding[-1])
        assert read_back.zero_optimization_stage == stage
        assert read_back.bfloat16_config.enabled == (strategy.precision == "bf16")
        assert read_back.float16_config.enabled == (strategy.precision == "fp16")
        if strategy.offload == "parameters":
            assert read_back.zero_config.offload_param.device == "cpu"
        if strategy.tensor > 1:
            assert read_back.tensor_parallel_config.autotp_size == strategy.tensor


def test_emitted_arguments_are_arguments_of_the_trainer() -> None:
    from transformers import TrainingArguments

    known = set(TrainingArguments.__dataclass_fields__)
    for problem, strategy in GRID[::10]:
        files = {f.name: json.loads(f.text) for f in write(problem, strategy).files}
        assert set(files[ARGUMENTS]) <= known


def trainer(values: dict[str, Any], world: int) -> Any:
    """The Trainer's arguments with its own defaults, without starting a process group."""
    import dataclasses

    from transformers import TrainingArguments

    defaults = {
        f.name: f.default if f.default is not dataclasses.MISSING else None
        for f in TrainingArguments.__dataclass_fields__.values()
    }
    args = SimpleNamespace(**{**defaults, **values, "world_size": world})
    args.get_warmup_steps = lambda total: args.warmup_steps
    return args


def mismatches(data: dict[str, Any], args: Any) -> set[str]:
    """Settings that the Trainer's own check names."""
    from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

    config = HfTrainerDeepSpeedConfig(copy.deepcopy(data))
    config.trainer_config_process(args)
    model = SimpleNamespace(config=SimpleNamespace(hidden_size=1024))
    with contextlib.suppress(ValueError):  # which names the same mismatches
        config.trainer_config_finalize(args, model, 1000)
    return {line.removeprefix("- ds ").partition("=")[0] for line in config.mismatches}


def test_emitted_files_agree_with_their_arguments() -> None:
    for problem, strategy in GRID[::3]:
        files = {f.name: json.loads(f.text) for f in write(problem, strategy).files}
        args = trainer({k: v for k, v in files[ARGUMENTS].items() if k != "deepspeed"}, strategy.data)
        assert mismatches(files[CONFIG], args) == set()


def test_we_find_the_mismatches_that_the_trainer_finds() -> None:
    rnd = random.Random(5)
    for _ in range(150):

        def pick(*values: Any) -> Any:
            return rnd.choice(("auto", *values))

        data = {
            "train_batch_size": pick(64, 128),
            "train_micro_batch_size_per_gpu": pick(2, 4),
            "gradient_accumulation_steps": pick(4, 8),
            "gradient_clipping": pick(1.0, 0.5),
            "fp16": {"enabled": pick(True, False)},
            "bf16": {"enabled": pick(True, False)},
            "optimizer": {
                "type": "AdamW",
                "params": {
                    "lr": pick(1e-4, 5e-5),
                    "eps": pick(1e-8),
                    "weight_decay": pick(0.1),
                    "betas": pick([0.9, 0.999], [0.9, 0.95]),
                },
            },
            "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": pick(1e-4), "warmup_num_steps": pick(100)}},
            "zero_optimization": {"stage": rnd.choice((0, 2, 3)), "reduce_bucket_size": pick(5e8)},
        }
        given = {
            "per_device_train_batch_size": rnd.choice((2, 4)),
            "gradient_accumulation_steps": rnd.choice((4, 8)),
            "learning_rate": rnd.choice((1e-4, 5e-5)),
            "warmup_steps": rnd.choice((0, 100)),
            "bf16": rnd.random() < 0.5,
            "weight_decay": rnd.choice((0.0, 0.1)),
        }
        given["fp16"] = not given["bf16"]
        found = read(json.dumps(data), Surroundings(devices=8, beside=given, hidden=1024))
        said = {f.where for f in found.findings if f.code == "MW-F103"}
        assert said == mismatches(data, trainer(given, 8)), (data, given)
        if "auto" in json.dumps(data):
            assert "auto" not in [v for v in found.configuration.values.values() if isinstance(v, str)]


def _models() -> dict[str, type]:
    from deepspeed.compile.config import CompileConfig
    from deepspeed.runtime.precision_config import DeepSpeedBF16Config, DeepSpeedFP16Config
    from deepspeed.runtime.tensor_parallel.config import TPTrainingConfig
    from deepspeed.runtime.zenflow.zenflow_config import ZenFlowConfig
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig
    from deepspeed.runtime.zero.leaf_module_config import DeepSpeedZeroLeafModuleConfig
    from deepspeed.runtime.zero.offload_config import (
        DeepSpeedZeroOffloadOptimizerConfig,
        DeepSpeedZeroOffloadParamConfig,
    )

    zero = "zero_optimization"
    return {
        "bf16": DeepSpeedBF16Config,
        "fp16": DeepSpeedFP16Config,
        zero: DeepSpeedZeroConfig,
        f"{zero}.offload_optimizer": DeepSpeedZeroOffloadOptimizerConfig,
        f"{zero}.offload_param": DeepSpeedZeroOffloadParamConfig,
        "tensor_parallel": TPTrainingConfig,
        f"{zero}.leaf_module": DeepSpeedZeroLeafModuleConfig,
        f"{zero}.zenflow": ZenFlowConfig,
        "compile": CompileConfig,
    }


@pytest.mark.parametrize("part", sorted(_models()))
def test_the_table_has_every_field_of_a_class_and_no_other(part: str) -> None:
    theirs = {name for f, field in _models()[part].model_fields.items() for name in (f, field.alias) if name}
    known = {name.rpartition(".")[2] for name in TABLE.siblings(f"{part}.x")}
    from meshwright.rules.versions import covers

    current = {n for n in known if covers(getattr(TABLE.find(f"{part}.{n}"), "versions", ""), VERSION)}
    assert theirs == current


def test_the_table_has_every_top_level_key_that_deepspeed_reads() -> None:
    """DeepSpeed lets unknown keys pass, so it is asked which keys it looks up."""
    seen: set[str] = set()

    class Watched(dict):
        def get(self, key: Any, default: Any = None) -> Any:
            seen.add(key)
            return super().get(key, default)

        def __contains__(self, key: Any) -> bool:
            seen.add(key)
            return super().__contains__(key)

        def keys(self) -> Any:
            outer = self

            class Keys:
                def __contains__(self, key: Any) -> bool:
                    seen.add(key)
                    return dict.__contains__(outer, key)

                def __iter__(self) -> Any:
                    return iter(dict.keys(outer))

            return Keys()

        def __copy__(self) -> Watched:
            return self

    from deepspeed.runtime.config import DeepSpeedConfig

    with (
        mock.patch("deepspeed.comm.get_world_size", lambda *_, **__: 8),
        mock.patch("deepspeed.comm.get_rank", lambda *_, **__: 0),
    ):
        DeepSpeedConfig(Watched(train_batch_size=8))
    assert len(seen) > 40
    assert sorted(key for key in seen if TABLE.find(key) is None) == []


BASE = {
    "train_batch_size": 64,
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 4,
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 2},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
}
MUTATIONS: dict[str, tuple[Any, ...]] = {
    "train_batch_size": (64, 60, 128, 0, -8, None),
    "train_micro_batch_size_per_gpu": (1, 2, 3, 8, None, 0),
    "gradient_accumulation_steps": (1, 4, 5, None),
    "bf16.enabled": (True, False),
    "fp16.enabled": (True, False),
    "zero_optimization.stage": (0, 1, 2, 3, 4, -1),
    "zero_optimization.nonsense": (1,),
    "nebula.enabled": (True,),
    "zero_optimization.mics_shard_size": (4,),
    "zero_optimization.reduce_bucket_size": (0, 5e8, -1),
    "zero_optimization.offload_optimizer.device": ("cpu", "nvme", "gpu", "none"),
    "zero_optimization.offload_optimizer.ratio": (0.5, 1.0, 1.5),
    "zero_optimization.zero_hpz_partition_size": (8, -1),
    "zero_optimization.offload_param.device": ("cpu", "disk"),
    "zero_optimization.compute_grad_norm": (True, False),
    "zero_optimization.offload_optimizer.nonsense": (1,),
    "gradient_allreduce_op": ("sum", "mean"),
    "bf16.bf16_master_weights_and_grads": (True,),
    "bf16.bf16_optimizer_states": (True,),
    "fp16.nonsense": (1,),
    "fp16.fp16_master_weights_and_grads": (True,),
    "tensor_parallel.autotp_size": (1,),
    "compile.nonsense": (1,),
    "elasticity.enabled": (False,),
    "zero_optimization.leaf_module.classes": (["Moe"],),
    "zero_optimization.leaf_module.nonsense": (1,),
    "wandb.nonsense": (1,),
    "tensorboard.enabled": (True,),
}


def test_we_refuse_what_deepspeed_refuses_and_nothing_else() -> None:
    """Random files around a right one: DeepSpeed raises exactly where we report an error."""
    rnd, refused, accepted = random.Random(11), 0, 0
    for _ in range(600):
        data: dict[str, Any] = copy.deepcopy(BASE)
        for name in rnd.sample(sorted(MUTATIONS), rnd.randint(1, 3)):
            *parents, key = name.split(".")
            here: dict[str, Any] = data
            for parent in parents:
                here = here.setdefault(parent, {})
            value = rnd.choice(MUTATIONS[name])
            if value is None:
                here.pop(key, None)
            else:
                here[key] = value
        try:
            parsed(data, 8)
            raised = ""
        except Exception as error:
            raised = f"{type(error).__name__}: {error}"[:200]
        codes = ours(data, 8)
        assert bool(codes) == bool(raised), (data, codes, raised)
        refused, accepted = refused + bool(raised), accepted + (not raised)
    assert refused > 100 and accepted > 100
