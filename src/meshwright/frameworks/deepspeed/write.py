"""A strategy as a DeepSpeed JSON file and the arguments of the Hugging Face Trainer that go with it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from meshwright.frameworks.account import AUTO
from meshwright.frameworks.deepspeed.fields import FORMAT, OPTIMIZERS, TABLE, VERSION, ZERO
from meshwright.frameworks.records import Exported, File, Missing
from meshwright.frameworks.text import json_text, nested
from meshwright.messages import N_, Text
from meshwright.spec.plan import Problem
from meshwright.spec.strategy import Strategy

CONFIG, ARGUMENTS = "ds_config.json", "training_args.json"
HELD_BY_ALL = ("none", "zero1", "zero2", "zero3")


def write(problem: Problem, strategy: Strategy, version: str = "") -> Exported:
    """The files, and what they cannot say."""
    flat = dict(settings(problem, strategy))
    files = (File(name=CONFIG, text=json_text(nested(flat))),
             File(name=ARGUMENTS, text=json_text(training_arguments(problem, strategy))))  # fmt: skip
    return Exported(
        format=FORMAT, version=version or VERSION, files=files, settings=tuple(flat.items()),
        missing=tuple(missing(problem, strategy)),
        notes=(Text(N_("learning rate, betas and weight decay are \"auto\": the Trainer fills them; without it, "
                       "write numbers")),),
    )  # fmt: skip


def accumulation(problem: Problem, strategy: Strategy) -> int:
    """Forward passes of a data-parallel rank in one step."""
    return int(problem.job.global_batch // (strategy.micro_batch * strategy.data))


def settings(problem: Problem, strategy: Strategy) -> Iterator[tuple[str, Any]]:
    """Dotted names and values, in the order in which people write them."""
    yield "train_batch_size", problem.job.global_batch
    yield "train_micro_batch_size_per_gpu", strategy.micro_batch
    yield "gradient_accumulation_steps", accumulation(problem, strategy)
    for name in ("bf16", "fp16"):
        if strategy.precision in (name, "fp8") and name != ("fp16" if strategy.precision == "fp8" else ""):
            yield f"{name}.enabled", True
    if problem.job.optimizer == "adamw-bf16" and _holds_bf16_states(strategy):
        yield "bf16.bf16_master_weights_and_grads", True
        yield "bf16.bf16_optimizer_states", True
    yield from _zero(strategy)
    yield from _optimizer(problem.job.optimizer, strategy)
    yield from _mesh(strategy)
    if strategy.offload == "activations":
        yield "activation_checkpointing.cpu_checkpointing", True
    yield "gradient_clipping", AUTO


def _holds_bf16_states(strategy: Strategy) -> bool:
    """Whether DeepSpeed can keep master weights and optimizer states in bf16: only where ZeRO shards them."""
    return strategy.sharding != "none" and strategy.precision in ("bf16", "fp8")


def _zero(strategy: Strategy) -> Iterator[tuple[str, Any]]:
    stage = TABLE.by_name[f"{ZERO}.stage"].theirs(strategy.sharding)
    yield f"{ZERO}.stage", stage
    if not stage:
        return
    yield f"{ZERO}.overlap_comm", bool(strategy.overlap_grad_reduce)
    yield f"{ZERO}.contiguous_gradients", True
    if strategy.offload in ("optimizer", "parameters"):
        yield f"{ZERO}.offload_optimizer.device", "cpu"
        yield f"{ZERO}.offload_optimizer.pin_memory", True
    if strategy.offload == "parameters" and stage == 3:
        yield f"{ZERO}.offload_param.device", "cpu"
        yield f"{ZERO}.offload_param.pin_memory", True
    if stage == 3:
        if strategy.shard and strategy.shard != strategy.data * strategy.context:
            yield f"{ZERO}.zero_hpz_partition_size", strategy.shard
        yield f"{ZERO}.stage3_gather_16bit_weights_on_model_save", True


def _optimizer(name: str, strategy: Strategy) -> Iterator[tuple[str, Any]]:
    ours = {known: theirs for theirs, known in OPTIMIZERS.items()}
    theirs = ours.get("adamw" if name == "adamw-bf16" else "sgd" if name == "sgd-momentum" else name)
    if theirs is None:  # one that the program makes, e.g. 8-bit AdamW
        yield "zero_allow_untested_optimizer", True
        return
    yield "optimizer.type", theirs
    yield "optimizer.params.lr", AUTO
    if name == "sgd-momentum":
        yield "optimizer.params.momentum", 0.9
    if theirs in ("AdamW", "Lion"):
        yield "optimizer.params.betas", AUTO
        yield "optimizer.params.weight_decay", AUTO
    if theirs == "SGD" and strategy.sharding != "none":
        yield "zero_allow_untested_optimizer", True


def _mesh(strategy: Strategy) -> Iterator[tuple[str, Any]]:
    if strategy.tensor > 1:
        yield "tensor_parallel.autotp_size", strategy.tensor
        if strategy.overlap_tensor:
            yield "tensor_parallel.tp_overlap_comm", True
    if strategy.context > 1:
        yield "sequence_parallel_size", strategy.context
    if strategy.pipeline > 1:
        yield "pipeline.stages", strategy.pipeline
    if strategy.expert > 1:
        yield "expert_parallel.enabled", True
        yield "expert_parallel.autoep_size", strategy.expert
        if strategy.expert_tensor > 1:
            yield "expert_parallel.expert_tensor_parallel_size", strategy.expert_tensor


def training_arguments(problem: Problem, strategy: Strategy) -> dict[str, Any]:
    """What the Trainer must be told so that it agrees with the file."""
    args: dict[str, Any] = {
        "deepspeed": CONFIG,
        "per_device_train_batch_size": strategy.micro_batch,
        "gradient_accumulation_steps": accumulation(problem, strategy),
        "bf16": strategy.precision in ("bf16", "fp8"),
        "fp16": strategy.precision == "fp16",
        "gradient_checkpointing": strategy.recompute == "full",
    }
    if problem.job.optimizer in ("adamw-8bit", "adafactor"):
        args["optim"] = {"adamw-8bit": "adamw_bnb_8bit", "adafactor": "adafactor"}[problem.job.optimizer]
    return args


# What a JSON file cannot say: our field, when it is lost, and what to do instead.
_CODE = N_("set in the code that builds the model, not in a file")
_LOST = N_("DeepSpeed has no counterpart")


def missing(problem: Problem, strategy: Strategy) -> Iterator[Missing]:
    """What is lost, never silently."""
    s = strategy
    table = (
        ("strategy.pipeline", s.pipeline, s.pipeline > 1, N_("PipelineModule(num_stages=…) sets it; "
                                                             "pipeline.stages only says it")),
        ("strategy.context", s.context, s.context > 1, N_("the model's attention must be wrapped for Ulysses")),
        ("strategy.recompute", s.recompute, s.recompute == "selective", _LOST),
        ("strategy.offload", s.offload, s.offload == "activations", N_("works where the model calls "
                                                                       "deepspeed.checkpointing")),
        ("strategy.shard", s.shard, bool(s.shard) and s.shard != s.data * s.context,
         N_("zero_hpz_partition_size shards a second copy of the parameters; optimizer states stay sharded over "
            "all ranks")),
        ("strategy.sequence_parallel", s.sequence_parallel, s.tensor > 1 and bool(s.sequence_parallel), _LOST),
        ("strategy.virtual", s.virtual, s.virtual > 1, _LOST),
        ("strategy.layers_per_stage", s.layers_per_stage, bool(s.layers_per_stage), _CODE),
        ("strategy.loss", s.loss, s.loss != "auto", _CODE),
        ("strategy.precision", s.precision, s.precision not in ("bf16", "fp16", "fp32"), _CODE),
        ("job.optimizer", problem.job.optimizer, problem.job.optimizer in ("adamw-8bit", "adafactor"),
         N_("made by the program (the Trainer's optim), not by DeepSpeed")),
        ("job.optimizer", problem.job.optimizer,
         problem.job.optimizer == "adamw-bf16" and not _holds_bf16_states(s),
         N_("master weights and moments in bf16 need bf16 and ZeRO 1 to 3")),
        ("job.seq_len", problem.job.seq_len, True, N_("the data loader decides it")),
    )  # fmt: skip
    for name, value, lost, reason in table:
        if lost:
            yield Missing(name=name, value=value, reason=Text(reason))
