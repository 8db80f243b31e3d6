"""An FSDP strategy as a torchtitan TOML file, with comments."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from meshwright.frameworks.records import Exported, File, Missing
from meshwright.frameworks.torchtitan.fields import FORMAT, MODELS, TABLE, VERSION, P, T
from meshwright.messages import N_, Text
from meshwright.spec.plan import Problem
from meshwright.spec.strategy import Strategy

CONFIG = "train_config.toml"
NAMES = {ours: theirs for theirs, ours in MODELS.items()}


def write(problem: Problem, strategy: Strategy, version: str = "") -> Exported:
    """The file, and what it cannot say."""
    flat = dict(settings(problem, strategy))
    return Exported(
        format=FORMAT, version=version or VERSION, files=(File(name=CONFIG, text=_toml(problem, strategy, flat)),),
        settings=tuple(flat.items()), missing=tuple(missing(problem, strategy)),
        notes=(Text(N_("dataset and tokenizer are those of the machine: set training.dataset and "
                       "model.hf_assets_path")),),
    )  # fmt: skip


def settings(problem: Problem, strategy: Strategy) -> Iterator[tuple[str, Any]]:
    """Dotted names and values, section by section."""
    s, job = strategy, problem.job
    name, flavor = NAMES.get(problem.model.name, ("llama3", problem.model.name))
    yield "model.name", name
    yield "model.flavor", flavor
    if s.precision in ("fp8", "mxfp8"):
        yield "model.converters", ["quantize.linear.float8" if s.precision == "fp8" else "quantize.linear.mx"]
    yield "optimizer.name", "AdamW"
    yield f"{T}.local_batch_size", s.micro_batch if s.pipeline == 1 else job.global_batch // s.data
    yield f"{T}.global_batch_size", job.global_batch
    yield f"{T}.seq_len", job.seq_len
    if job.tokens:
        yield f"{T}.steps", max(math.ceil(job.tokens / job.tokens_per_step), 1)
    yield f"{T}.mixed_precision_param", "float32" if s.precision in ("fp32", "tf32") else "bfloat16"
    if s.offload == "parameters":
        yield f"{T}.enable_cpu_offload", True
    yield from _parallelism(s)
    yield "activation_checkpoint.mode", s.recompute
    if s.recompute == "selective":
        yield "activation_checkpoint.selective_ac_option", "op"


def _parallelism(s: Strategy) -> Iterator[tuple[str, Any]]:
    group = (s.shard or s.data * s.context) // s.context  # of data-parallel ranks that share one copy
    copies = s.data // group if s.sharding != "none" else s.data
    yield f"{P}.data_parallel_replicate_degree", copies
    yield f"{P}.data_parallel_shard_degree", group if s.sharding != "none" else 1
    yield f"{P}.fsdp_reshard_after_forward", "always" if s.sharding == "zero3" else "never"
    yield f"{P}.tensor_parallel_degree", s.tensor
    if s.overlap_tensor and s.tensor > 1:
        yield f"{P}.enable_async_tensor_parallel", True
    yield f"{P}.pipeline_parallel_degree", s.pipeline
    if s.pipeline > 1:
        yield f"{P}.pipeline_parallel_schedule", TABLE.by_name[f"{P}.pipeline_parallel_schedule"].theirs(s.schedule)
        yield f"{P}.pipeline_parallel_microbatch_size", s.micro_batch
    yield f"{P}.context_parallel_degree", s.context
    if s.expert > 1:
        yield f"{P}.expert_parallel_degree", s.expert
        yield f"{P}.expert_tensor_parallel_degree", s.expert_tensor


def missing(problem: Problem, strategy: Strategy) -> Iterator[Missing]:
    """What is lost, never silently."""
    s, job, lost = strategy, problem.job, Text(N_("torchtitan has no counterpart"))
    several = s.pipeline > 1 and s.schedule in ("interleaved", "zb-h1")
    table = (
        ("model", problem.model.name, problem.model.name not in NAMES, Text(N_("no model of torchtitan is this one"))),
        ("job.optimizer", job.optimizer, job.optimizer != "adamw", lost),
        ("job.tokens", job.tokens, not job.tokens, Text(N_("not given: training.steps keeps its default"))),
        ("strategy.precision", s.precision, s.precision in ("fp16", "nvfp4"), lost),
        ("strategy.offload", s.offload, s.offload == "activations", lost),
        ("strategy.virtual", s.virtual, several and s.virtual != 2, Text(N_("two model chunks a rank"))),
        ("strategy.layers_per_stage", s.layers_per_stage, bool(s.layers_per_stage), lost),
        ("strategy.recompute_ops", s.recompute_ops, s.recompute == "selective",
         Text(N_("torchtitan chooses the operators itself"))),
        ("strategy.loss", s.loss, s.loss != "auto", Text(N_("set in the code that builds the model, not in a file"))),
    )  # fmt: skip
    for name, value, is_lost, reason in table:
        if is_lost:
            yield Missing(name=name, value=value, reason=reason)


def _toml(problem: Problem, strategy: Strategy, flat: dict[str, Any]) -> str:
    import tomlkit

    document = tomlkit.document()
    on = problem.cluster
    document.add(tomlkit.comment(f"{problem.model.name} on {on.devices} x {on.accelerator.name}: {strategy.short}"))
    document.add(tomlkit.comment(f"torchrun --nproc_per_node {min(on.node_size, on.devices)} --nnodes {on.nodes} -m "
                                 f"torchtitan.train --job.config_file {CONFIG}"))  # fmt: skip
    for name, value in flat.items():
        section, _, key = name.partition(".")
        if section not in document:
            document.add(tomlkit.nl())
            document.add(section, tomlkit.table())
        document[section].add(key, value)
    return tomlkit.dumps(document)
