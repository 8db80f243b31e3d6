"""MW-F1xx: faults of a DeepSpeed file, with or without the Hugging Face Trainer around it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from meshwright.messages import N_, Text
from meshwright.rules.any_configuration import by_readers
from meshwright.rules.base import RuleContext
from meshwright.rules.configuration import Hit, configuration_rule
from meshwright.rules.nearest import nearest_multiples
from meshwright.spec.configuration import Configuration
from meshwright.units import show

DEEPSPEED = ("deepspeed",)
ZERO = "zero_optimization"
MISMATCH, AUTO_OPEN, AUTO_NOBODY, IDLE = "MW-F103", "MW-F104", "MW-F105", "MW-F107"
BATCH = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")


def stage_of(c: Configuration) -> int:
    """The ZeRO stage of a file."""
    stage = c.values.get(f"{ZERO}.stage")
    return stage if isinstance(stage, int) else 0


def batch_of(c: Configuration) -> list[int | None]:
    """Global batch, micro-batch and accumulation steps, as far as they are positive numbers."""
    values = (c.values.get(name) for name in BATCH)
    return [v if isinstance(v, int) and v > 0 else None for v in values]


@configuration_rule(
    "MW-F101",
    title=N_("The batch of a step is micro-batch × accumulation × data-parallel ranks"),
    reason=N_("DeepSpeed derives what is missing of the three and asserts the product. The third factor it "
              "prints is the "
              "number of ranks it sees: 1 before the process group is initialised, or where one process was started."),
    fix=N_("Leave train_batch_size out (or \"auto\"), so that it follows from the ranks."),
    condition="train_batch_size == train_micro_batch_size_per_gpu * gradient_accumulation_steps * ranks",
    source="deepspeed/runtime/config.py _batch_assertion; deepspeedai/DeepSpeed#6914; Roblox/FAI-RL#72",
    where="train_batch_size",
    formats=DEEPSPEED,
)  # fmt: skip
def batch_product(c: Configuration, _: RuleContext | None) -> Iterator[Hit]:
    """The three numbers against the ranks, where these are known."""
    whole, micro, steps = batch_of(c)
    if whole is None or c.data is None:
        return
    if micro is None:
        micro = whole // c.data // (steps or 1)
    if steps is None:
        steps = whole // max(micro, 1) // c.data
    product = micro * steps * c.data
    if product == whole and product:
        return
    message = Text(
        N_("train_batch_size {whole} != {micro} * {steps} * {ranks} (micro-batch, accumulation, data-parallel ranks)"),
        whole=whole, micro=micro, steps=steps, ranks=c.data,
    )  # fmt: skip
    legal = nearest_multiples(max(micro, 1) * c.data, whole)
    per_rank = max(micro * steps, 1)
    fits = whole // per_rank if whole % per_rank == 0 else None
    if fits:
        text = N_("train_batch_size = {legal}; the file is right for {fits} data-parallel ranks: if you started "
                  "so many, "
                  "DeepSpeed does not see them")  # fmt: skip
        fix = Text(text, legal=", ".join(map(str, legal)), fits=fits)
    else:
        fix = Text(N_("train_batch_size = {legal}"), legal=", ".join(map(str, legal)))
    yield Hit("train_batch_size", message, fix, {"legal": legal, "ranks": c.data, "right_for_ranks": fits})


@configuration_rule(
    "MW-F102",
    title=N_("The batch is given"),
    reason=N_("DeepSpeed refuses a file with neither the batch of a step nor the micro-batch."),
    fix=N_("Set train_micro_batch_size_per_gpu (and gradient_accumulation_steps)."),
    condition="train_batch_size or train_micro_batch_size_per_gpu",
    source="deepspeed/runtime/config.py _set_batch_related_parameters",
    where="train_micro_batch_size_per_gpu",
    formats=DEEPSPEED,
)
def batch_given(c: Configuration, _: RuleContext | None) -> Iterator[Hit]:
    """Neither number, and no Trainer to fill them."""
    if not any(name in c.values for name in BATCH[:2]):
        yield Hit("train_micro_batch_size_per_gpu", Text(N_("neither train_batch_size nor the micro-batch is given")))


configuration_rule(
    MISMATCH,
    title=N_("The file and the Trainer agree"),
    reason=N_(
        "The Hugging Face Trainer compares these values with its own arguments and refuses to start when they differ."
    ),
    fix=N_('Write "auto" in the file, and the Trainer fills in its value.'),
    condition="value of the file == value of the TrainingArguments",
    source="transformers integrations/deepspeed.py trainer_config_process; hendrycks/apps#9; "
    "huggingface/transformers#12021",
    formats=DEEPSPEED,
)(by_readers)

configuration_rule(
    AUTO_OPEN,
    severity="info",
    title=N_("A value is left to the Trainer"),
    reason=N_('"auto" is filled in by the Hugging Face Trainer or Accelerate; DeepSpeed alone cannot.'),
    fix=N_("Give the Trainer's arguments with --trainer-args, and this check sees the value."),
    condition="value != auto, or the Trainer's arguments are known",
    source="transformers integrations/deepspeed.py fill_match",
    formats=DEEPSPEED,
)(by_readers)

configuration_rule(
    AUTO_NOBODY,
    title=N_("Somebody fills in \"auto\""),
    reason=N_("The Hugging Face Trainer fills in a fixed list of settings; elsewhere the word reaches "
              "DeepSpeed, which takes "
              "its default or fails."),
    fix=N_("Write a value, or leave the setting out."),
    condition="value != auto outside the settings that the Trainer fills",
    source="transformers integrations/deepspeed.py; deepspeed/runtime/config_utils.py DeepSpeedConfigModel",
    severity="warning",
    formats=DEEPSPEED,
)(by_readers)  # fmt: skip


@configuration_rule(
    "MW-F106",
    title=N_("One precision"),
    reason=N_("DeepSpeed refuses bf16 and fp16 together."),
    fix=N_("Turn one of them off; bf16 needs no loss scaling where the device has it."),
    condition="not (bf16.enabled and fp16.enabled)",
    source="deepspeed/runtime/config.py _initialize_params",
    where="bf16.enabled",
    formats=DEEPSPEED,
)
def one_precision(c: Configuration, _: RuleContext | None) -> Iterator[Hit]:
    """Both switched on."""
    if c.on("bf16.enabled") and c.on("fp16.enabled"):
        yield Hit("bf16.enabled", Text(N_("bf16 and fp16 are both on")))


configuration_rule(
    IDLE,
    severity="info",
    title=N_("A setting has an effect"),
    reason=N_("Settings of ZeRO-3 do nothing with lower stages, and those of ZeRO nothing without it; DeepSpeed "
              "says so "
              "nowhere."),
    fix=N_("Remove it, or use the stage it belongs to."),
    condition="stage >= the stage the setting belongs to",
    source="deepspeed/runtime/zero/config.py (docstrings of the fields)",
    formats=DEEPSPEED,
)(by_readers)  # fmt: skip


@configuration_rule(
    "MW-F108",
    severity="warning",
    title=N_("Parameters are offloaded with stage 3 only"),
    reason=N_("Stages 1 and 2 keep the whole model on every device and ignore offload_param without a word."),
    fix=N_("Use stage 3 with offload_param, or offload_optimizer with stage 2."),
    condition="stage == 3 with offload_param.device != none",
    source="deepspeed/runtime/zero/offload_config.py (valid only with stage 3); huggingface/trl#1268",
    where=f"{ZERO}.offload_param",
    formats=(*DEEPSPEED, "accelerate"),  # whose reader says it in DeepSpeed's names too
)
def offload_param(c: Configuration, context: RuleContext | None) -> Iterator[Hit]:
    """`offload_param` below stage 3, with the weights that stay on each device."""
    stage, name = stage_of(c), f"{ZERO}.offload_param.device"
    if stage == 3 or c.values.get(name) not in ("cpu", "nvme"):
        return
    if context is None:
        yield Hit(name, Text(N_("{name} has no effect with stage {stage}"), name=name, stage=stage))
        return
    weights = 2 * context.facts.weights / (context.strategy.tensor * context.strategy.pipeline)
    text = N_("{name} has no effect with stage {stage}: {weights} of 16-bit weights stay on each device")
    yield Hit(name, Text(text, name=name, stage=stage, weights=show(weights, "B")), None, {"bytes": weights})


def _over(values: Any, name: str, low: float) -> bool:
    value = values.get(name)
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value < low


@configuration_rule(
    "MW-F109",
    title=N_("A setting has what it needs"),
    reason=N_("DeepSpeed asserts these combinations at start."),
    fix=N_("Use the stage or the setting that it needs."),
    condition="ratio < 1: stage 3; compute_grad_norm off: stage 1 or 2; 16-bit master weights: stage 1 to 3; "
              "bf16 states: "
              "bf16 master weights; gradient sum: not stage 3",
    source="deepspeed/runtime/zero/config.py validators; deepspeed/runtime/config.py _do_error_check",
    formats=DEEPSPEED,
)  # fmt: skip
def requirements(c: Configuration, _: RuleContext | None) -> Iterator[Hit]:
    """Combinations that DeepSpeed asserts."""
    v, stage = c.values, stage_of(c)
    bf16, fp16 = "bf16.bf16_master_weights_and_grads", "fp16.fp16_master_weights_and_grads"
    table = (
        (f"{ZERO}.offload_optimizer.ratio", _over(v, f"{ZERO}.offload_optimizer.ratio", 1), (3,), "stage 3"),
        (f"{ZERO}.compute_grad_norm", v.get(f"{ZERO}.compute_grad_norm") is False, (1, 2), "stage 1, 2"),
        (bf16, c.on(bf16), (1, 2, 3), "stage 1, 2, 3"),
        (fp16, c.on(fp16), (1, 2, 3), "stage 1, 2, 3"),
        ("gradient_allreduce_op", v.get("gradient_allreduce_op") == "sum", (0, 1, 2), "stage 0, 1, 2"),
    )
    for name, used, stages, needed in table:
        if used and stage not in stages:
            yield Hit(name, Text(N_("{name} needs {needed}"), name=name, needed=needed), None, {"legal": list(stages)})
    if c.on("bf16.bf16_optimizer_states") and not c.on(bf16):
        yield Hit("bf16.bf16_optimizer_states", Text(N_("{name} needs {needed}"), name="bf16.bf16_optimizer_states",
                                                     needed=bf16))  # fmt: skip


# deepspeed/runtime/config.py DEEPSPEED_OPTIMIZERS; other names are looked up in torch.optim.
OWN_OPTIMIZERS = ("adagrad", "adam", "adamw", "lamb", "muadam", "muadamw", "musgd", "lion", "muon")


@configuration_rule(
    "MW-F110",
    title=N_("ZeRO is told to accept an optimizer it was not tried with"),
    reason=N_("With ZeRO, DeepSpeed refuses optimizers that are not on its list until it is told to go on."),
    fix=N_("Set zero_allow_untested_optimizer to true, or use one of DeepSpeed's own."),
    condition="stage == 0, or optimizer in DeepSpeed's list, or zero_allow_untested_optimizer",
    source="deepspeed/runtime/engine.py _configure_optimizer; deepspeed/runtime/zero/utils.py "
    "ZERO_SUPPORTED_OPTIMIZERS",
    where="optimizer.type",
    formats=DEEPSPEED,
)
def untested_optimizer(c: Configuration, _: RuleContext | None) -> Iterator[Hit]:
    """An optimizer of torch under ZeRO."""
    name = c.values.get("optimizer.type")
    if not isinstance(name, str) or name.lower() in OWN_OPTIMIZERS or not stage_of(c):
        return
    if not c.on("zero_allow_untested_optimizer"):
        text = Text(N_("optimizer {name} with ZeRO needs zero_allow_untested_optimizer"), name=name[:40])
        yield Hit("optimizer.type", text, None, {"own": list(OWN_OPTIMIZERS)})


@configuration_rule(
    "MW-F111",
    title=N_("A warm-up has at least one step"),
    reason=N_("From 0.19.6 DeepSpeed refuses a warm-up of no steps; before, it counted as 2."),
    fix=N_("Write 1 or more, or use no warm-up schedule."),
    condition="warmup_num_steps >= 1",
    source="transformers integrations/deepspeed.py trainer_config_finalize (comment on 0.19.6)",
    where="scheduler.params.warmup_num_steps",
    formats=DEEPSPEED,
    versions=">=0.19.6",
)
def warmup(c: Configuration, _: RuleContext | None) -> Iterator[Hit]:
    """A warm-up that is none."""
    name = "scheduler.params.warmup_num_steps"
    if _over(c.values, name, 1):
        yield Hit(
            name, Text(N_("{name} = {value} is not possible"), name=name, value=c.values[name]), None, {"legal": 1}
        )
