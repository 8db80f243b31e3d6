"""What the Hugging Face Trainer fills into a DeepSpeed file that says "auto", and what must agree where it does not.

After transformers 5.24 `integrations/deepspeed.py` (HfTrainerDeepSpeedConfig), which the judges run beside this.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from meshwright.frameworks.account import AUTO, Ledger
from meshwright.frameworks.deepspeed.fields import TABLE, ZERO
from meshwright.frameworks.records import Surroundings
from meshwright.messages import N_, Text
from meshwright.rules import deepspeed_configuration as rule
from meshwright.rules.configuration import hit

# Defaults of TrainingArguments that reach a DeepSpeed file.
DEFAULTS: Mapping[str, Any] = {
    "per_device_train_batch_size": 8, "gradient_accumulation_steps": 1, "learning_rate": 5e-5, "weight_decay": 0.0,
    "adam_beta1": 0.9, "adam_beta2": 0.999, "adam_epsilon": 1e-8, "max_grad_norm": 1.0, "warmup_steps": 0,
    "bf16": False, "fp16": False, "gradient_checkpointing": False,
}  # fmt: skip
NUMBERS = ("per_device_train_batch_size", "gradient_accumulation_steps", "learning_rate", "weight_decay", "adam_beta1",
           "adam_beta2", "adam_epsilon", "max_grad_norm", "warmup_steps")  # fmt: skip
# Names of `optim` that are another optimizer of ours than AdamW.
OPTIMS = {
    "adamw_torch": "adamw", "adamw_torch_fused": "adamw", "adamw_hf": "adamw", "adamw_apex_fused": "adamw",
    "adafactor": "adafactor", "adamw_bnb_8bit": "adamw-8bit", "adamw_8bit": "adamw-8bit",
    "paged_adamw_8bit": "adamw-8bit", "sgd": "sgd", "lion_32bit": "lion",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Pair:
    """A setting of the file and what the Trainer has for it; `says` is the argument's name and value."""

    name: str
    value: Any
    says: str
    must_match: bool = True


def arguments(beside: Mapping[str, Any]) -> dict[str, Any]:
    """The Trainer's arguments, with its defaults, numbers as numbers."""
    given = {**DEFAULTS, **{k: v for k, v in beside.items() if v is not None}}
    return {k: _number(v) if k in NUMBERS else v for k, v in given.items()}


def _number(value: Any) -> Any:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return value
    return int(number) if math.isfinite(number) and number == int(number) and not isinstance(value, float) else number


def pairs(args: Mapping[str, Any], world: int | None, hidden: int | None) -> list[Pair]:
    """Everything the Trainer compares or fills, in its order."""
    micro, steps = args["per_device_train_batch_size"], args["gradient_accumulation_steps"]
    out = [
        Pair("train_micro_batch_size_per_gpu", micro, f"per_device_train_batch_size={micro}"),
        Pair("gradient_accumulation_steps", steps, f"gradient_accumulation_steps={steps}"),
    ]
    if world is not None and isinstance(micro, int) and isinstance(steps, int):
        whole = world * micro * steps
        out.append(Pair("train_batch_size", whole, f"{micro} × {steps} × {world} = {whole}"))
    rate, warmup = args["learning_rate"], args["warmup_steps"]
    betas = [args["adam_beta1"], args["adam_beta2"]]
    out += [
        Pair("gradient_clipping", args["max_grad_norm"], f"max_grad_norm={args['max_grad_norm']}"),
        Pair("optimizer.params.lr", rate, f"learning_rate={rate}"),
        Pair("optimizer.params.betas", betas, f"adam_beta1, adam_beta2 = {betas}"),
        Pair("optimizer.params.eps", args["adam_epsilon"], f"adam_epsilon={args['adam_epsilon']}"),
        Pair("optimizer.params.weight_decay", args["weight_decay"], f"weight_decay={args['weight_decay']}"),
        Pair("scheduler.params.warmup_min_lr", 0, "0", False),
        Pair("scheduler.params.warmup_max_lr", rate, f"learning_rate={rate}"),
        Pair("scheduler.params.warmup_num_steps", max(1, warmup) if isinstance(warmup, int) else warmup,
             f"warmup_steps={warmup}"),
        Pair("fp16.enabled", bool(args["fp16"]), f"fp16={args['fp16']}"),
        Pair("bf16.enabled", bool(args["bf16"]), f"bf16={args['bf16']}"),
    ]  # fmt: skip
    if hidden is not None:
        out += [
            Pair(f"{ZERO}.reduce_bucket_size", hidden * hidden, "hidden²", False),
            Pair(f"{ZERO}.stage3_prefetch_bucket_size", int(0.9 * hidden * hidden), "0.9·hidden²", False),
            Pair(f"{ZERO}.stage3_param_persistence_threshold", 10 * hidden, "10·hidden", False),
        ]
    return out


def fill(ledger: Ledger, around: Surroundings, world: int | None) -> None:
    """Fill what says "auto", report what disagrees, and what nobody fills."""
    if around.beside:
        for pair in pairs(arguments(around.beside), world, around.hidden):
            _meet(ledger, pair)
    for name, value in list(ledger.values.items()):
        if value == AUTO:
            _unfilled(ledger, name, trainer=bool(around.beside))


def _meet(ledger: Ledger, pair: Pair) -> None:
    if pair.name not in ledger.values:
        return
    value = ledger.values[pair.name]
    if value == AUTO:
        ledger.values[pair.name] = pair.value
    elif pair.must_match and value is not None and value != pair.value:
        ledger.status(pair.name, "conflict")
        text = Text(
            N_("the file has {name} = {value}, the Trainer {says}"), name=pair.name, value=value, says=pair.says
        )
        ledger.findings.append(hit(rule.MISMATCH, pair.name, text, None, file=value, trainer=pair.value))


def _unfilled(ledger: Ledger, name: str, *, trainer: bool) -> None:
    """An "auto" that stays: somebody could fill it, or nobody does."""
    known = TABLE.by_name[name]
    if known.beside:
        if not trainer:
            text = Text(N_("{name} is left to the Trainer ({beside})"), name=name, beside=known.beside)
            ledger.findings.append(hit(rule.AUTO_OPEN, name, text))
        return
    text = Text(N_('nothing fills "auto" in {name}'), name=name)
    ledger.findings.append(hit(rule.AUTO_NOBODY, name, text))


def optimizer(args: Mapping[str, Any]) -> str | None:
    """What the Trainer's `optim` is among ours, or None where it says nothing or is another one."""
    return OPTIMS.get(str(args.get("optim", "")).lower())
