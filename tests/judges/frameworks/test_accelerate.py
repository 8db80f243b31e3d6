"""Accelerate's own YAML reader, FSDP plugin and mesh as judges; transformers for the classes of layers."""

from __future__ import annotations

import importlib
import os
import re
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

pytestmark = pytest.mark.judge_frameworks
pytest.importorskip("accelerate")
pytest.importorskip("torch")

from ruamel.yaml import YAML  # noqa: E402

import meshwright.rules  # noqa: E402, F401  (registers the rules)
from meshwright.frameworks.accelerate.fields import TABLE, VERSION  # noqa: E402
from meshwright.frameworks.accelerate.read import read  # noqa: E402
from meshwright.frameworks.accelerate.write import CONFIG, write  # noqa: E402
from meshwright.frameworks.records import Surroundings  # noqa: E402
from meshwright.rules.accelerate_configuration import LAYER_CLASSES  # noqa: E402
from meshwright.rules.configuration import check_configuration  # noqa: E402

from .strategies import fsdp as strategies  # noqa: E402

GRID = strategies(pipeline=False)


def parsed(text: str, folder: Path) -> Any:
    """The file as `accelerate launch` reads it."""
    from accelerate.commands.config.config_args import load_config_from_file

    path = folder / "config.yaml"
    path.write_text(text)
    return load_config_from_file(str(path))


def plugin(config: Any) -> Any:
    """The FSDP plugin of a file, from the environment that the launcher sets."""
    from accelerate import FullyShardedDataParallelPlugin

    names = {"transformer_layer_cls_to_wrap": "TRANSFORMER_CLS_TO_WRAP"}
    environment = {}
    for key, value in config.fsdp_config.items():
        name = key.removeprefix("fsdp_")
        text = str(value).lower() if isinstance(value, bool) else str(value)
        environment[f"FSDP_{names.get(name, name.upper())}"] = text
    with mock.patch.dict(os.environ, environment):
        return FullyShardedDataParallelPlugin()


def test_the_version_is_the_pinned_one() -> None:
    import accelerate

    assert accelerate.__version__ == VERSION


def test_every_emitted_file_is_accepted(tmp_path: Path) -> None:
    from accelerate import ParallelismConfig

    assert len(GRID) >= 75
    for problem, strategy in GRID:
        files = {f.name: f.text for f in write(problem, strategy).files}
        config = parsed(files[CONFIG], tmp_path)
        assert config.num_processes == 64
        if strategy.sharding == "none":
            assert config.distributed_type.value == "MULTI_GPU"
            continue
        made = plugin(config)
        assert made.fsdp_version == 2 and made.reshard_after_forward == (strategy.sharding == "zero3")
        assert made.activation_checkpointing == (strategy.recompute == "full")
        assert made.transformer_cls_names_to_wrap == ["LlamaDecoderLayer"]
        sizes = {k.removeprefix("parallelism_config_"): v for k, v in config.parallelism_config.items()}
        if sizes:
            assert ParallelismConfig(**sizes).total_size == 64


BASE = {"distributed_type": "FSDP", "num_processes": 8, "num_machines": 1, "mixed_precision": "bf16",
        "fsdp_config": {"fsdp_version": 2, "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
                        "fsdp_transformer_layer_cls_to_wrap": "LlamaDecoderLayer"}}  # fmt: skip
CHANGES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    ({"nonsense": 1}, {}),
    ({}, {"fsdp_reshard_after_forward": "FULL_SHARD"}),
    ({}, {"fsdp_version": 1, "fsdp_reshard_after_forward": False}),
    ({}, {"fsdp_version": 1, "fsdp_sharding_strategy": "SHARD_GRAD_OP"}),
    ({}, {"fsdp_forward_prefetch": True}),
    ({}, {"fsdp_activation_checkpointing_offload": True}),
    ({}, {"fsdp_activation_checkpointing_offload": True, "fsdp_activation_checkpointing": True}),
    ({"distributed_type": "FSPD"}, {}),
    ({"mixed_precision": "bf16"}, {"fsdp_offload_params": True}),
    ({}, {"fsdp_auto_wrap_policy": "ALL"}),
]


@pytest.mark.parametrize(("top", "inside"), CHANGES)
def test_we_refuse_what_accelerate_refuses(top: dict[str, Any], inside: dict[str, Any], tmp_path: Path) -> None:
    import io

    data = {**BASE, **top, "fsdp_config": {**BASE["fsdp_config"], **inside}}  # type: ignore[dict-item]
    out = io.StringIO()
    YAML().dump(data, out)
    try:
        plugin(parsed(out.getvalue(), tmp_path))
        raised = ""
    except Exception as error:
        raised = str(error)[:100]
    back = read(out.getvalue(), Surroundings(devices=8))
    codes = [f.code for f in (*back.findings, *check_configuration(back.configuration)) if f.severity == "error"]
    assert bool(codes) == bool(raised), (codes, raised)


def test_the_table_has_every_setting_of_the_class() -> None:
    from accelerate.commands.config.config_args import ClusterConfig

    theirs = set(ClusterConfig.__dataclass_fields__) | {"fp16", "dynamo_backend"}
    assert {f.name for f in TABLE.fields if "." not in f.name} == theirs


@pytest.mark.parametrize(("part", "prefix"), [("fsdp_config", "fsdp_"), ("parallelism_config", "parallelism_config_"),
                                              ("megatron_lm_config", "megatron_lm_")])  # fmt: skip
def test_the_table_has_every_option_of_the_launcher(part: str, prefix: str) -> None:
    import accelerate.commands.launch as launch

    options = set(re.findall(rf'"--({prefix}[a-z_0-9]+)"', Path(launch.__file__).read_text()))
    known = {name.rpartition(".")[2] for name in TABLE.siblings(f"{part}.x")}
    assert options - known == set()


@pytest.mark.parametrize("family", sorted(LAYER_CLASSES))
def test_layer_classes_are_those_of_transformers(family: str) -> None:
    names = {"gemma3_text": "gemma3"}
    module = importlib.import_module(f"transformers.models.{names.get(family, family)}")
    source = Path(module.__file__).parent / f"modeling_{names.get(family, family)}.py"
    listed = set(
        re.findall(r'"(\w+)"', " ".join(re.findall(r"_no_split_modules[^=]*=\s*\[([^\]]*)\]", source.read_text())))
    )
    assert set(LAYER_CLASSES[family][:1]) <= listed, listed
