"""An FSDP strategy as an Accelerate YAML file (FSDP 2) and the Trainer's arguments that go with it."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from meshwright.frameworks.accelerate.fields import DP, FORMAT, FSDP, MESH, VERSION
from meshwright.frameworks.deepspeed.write import ARGUMENTS, training_arguments
from meshwright.frameworks.records import Exported, File, Missing
from meshwright.frameworks.text import json_text, nested
from meshwright.messages import N_, Text
from meshwright.rules.accelerate_configuration import LAYER_CLASSES
from meshwright.spec.plan import Problem
from meshwright.spec.strategy import Strategy

CONFIG = "accelerate.yaml"


def write(problem: Problem, strategy: Strategy, version: str = "") -> Exported:
    """The files, and what they cannot say.

    A pipeline has no counterpart: its ranks join data parallelism, so that the degrees still multiply to the devices.
    """
    flat_mesh = replace(strategy, data=strategy.data * strategy.pipeline, pipeline=1, virtual=1)
    flat = dict(settings(problem, flat_mesh))
    arguments = {k: v for k, v in training_arguments(problem, flat_mesh).items() if k != "deepspeed"}
    arguments["gradient_checkpointing"] = False  # FSDP's own checkpointing does it
    files = (File(name=CONFIG, text=_yaml(problem, flat_mesh, flat)), File(name=ARGUMENTS, text=json_text(arguments)))
    return Exported(format=FORMAT, version=version or VERSION, files=files, settings=tuple(flat.items()),
                    missing=tuple(missing(problem, strategy)))  # fmt: skip


def settings(problem: Problem, strategy: Strategy) -> Iterator[tuple[str, Any]]:
    """Dotted names and values."""
    s, cluster = strategy, problem.cluster
    yield "compute_environment", "LOCAL_MACHINE"
    yield "distributed_type", "FSDP" if s.sharding != "none" else "MULTI_GPU"
    yield "num_processes", cluster.devices
    yield "num_machines", cluster.nodes
    yield "mixed_precision", "no" if s.precision in ("fp32", "tf32") else s.precision
    if s.sharding == "none":
        return
    yield f"{FSDP}.fsdp_version", 2
    yield f"{FSDP}.fsdp_reshard_after_forward", s.sharding == "zero3"
    yield f"{FSDP}.fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP"
    if classes := LAYER_CLASSES.get(problem.model.family):
        yield f"{FSDP}.fsdp_transformer_layer_cls_to_wrap", classes[0]
    yield f"{FSDP}.fsdp_offload_params", s.offload == "parameters"
    yield f"{FSDP}.fsdp_activation_checkpointing", s.recompute == "full"
    if s.offload == "activations":
        yield f"{FSDP}.fsdp_activation_checkpointing_offload", True
    yield f"{FSDP}.fsdp_cpu_ram_efficient_loading", True
    yield f"{FSDP}.fsdp_state_dict_type", "SHARDED_STATE_DICT"
    yield from _mesh(s)


def _mesh(s: Strategy) -> Iterator[tuple[str, Any]]:
    group = s.shard or s.data * s.context
    copies = s.data * s.context // group
    if s.tensor == 1 and s.context == 1 and copies == 1:
        return
    yield f"{DP}_replicate_size", copies
    yield f"{DP}_shard_size", s.data // copies
    yield f"{MESH}.parallelism_config_tp_size", s.tensor
    yield f"{MESH}.parallelism_config_cp_size", s.context


def missing(problem: Problem, strategy: Strategy) -> Iterator[Missing]:
    """What is lost, never silently."""
    s, lost = strategy, Text(N_("Accelerate has no counterpart"))
    table = (
        ("strategy.pipeline", s.pipeline, s.pipeline > 1, lost),
        ("strategy.expert", s.expert, s.expert > 1, lost),
        ("strategy.recompute", s.recompute, s.recompute == "selective", lost),
        ("strategy.offload", s.offload, s.offload == "activations" and s.recompute != "full",
         Text(N_("works with activation checkpointing only"))),
        ("strategy.precision", s.precision, s.precision in ("mxfp8", "nvfp4"), lost),
        ("strategy.loss", s.loss, s.loss != "auto", Text(N_("set in the code that builds the model, not in a file"))),
        ("job.seq_len", problem.job.seq_len, True, Text(N_("the data loader decides it"))),
        ("fsdp_transformer_layer_cls_to_wrap", problem.model.family, problem.model.family not in LAYER_CLASSES,
         Text(N_("name the class of a transformer layer of this model"))),
    )  # fmt: skip
    for name, value, is_lost, reason in table:
        if is_lost:
            yield Missing(name=name, value=value, reason=reason)


def _yaml(problem: Problem, strategy: Strategy, flat: dict[str, Any]) -> str:
    from ruamel.yaml import YAML

    out = io.StringIO()
    out.write(f"# {problem.model.name} on {problem.cluster.devices} x {problem.cluster.accelerator.name}: ")
    out.write(f"{strategy.short}\n# accelerate launch --config_file {CONFIG} train.py\n")
    writer = YAML()
    writer.dump(nested(flat), out)
    return out.getvalue()
