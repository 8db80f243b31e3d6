"""An Accelerate YAML file (with the Trainer's arguments, where there are any) as job and strategy."""

from __future__ import annotations

from typing import Any

from meshwright.files import decode
from meshwright.frameworks.accelerate.fields import DEEPSPEED, DP, FORMAT, FSDP, MEGATRON, MESH, TABLE, VERSION
from meshwright.frameworks.account import account
from meshwright.frameworks.deepspeed import trainer
from meshwright.frameworks.lines import yaml_lines
from meshwright.frameworks.records import Imported, Surroundings
from meshwright.frameworks.text import read_yaml
from meshwright.messages import N_, Text
from meshwright.rules import any_configuration
from meshwright.rules.configuration import hit
from meshwright.spec.configuration import Configuration

# What FSDP 1 shards; also by the number of its enumeration.
STRATEGIES = {"FULL_SHARD": ("zero3", False), "SHARD_GRAD_OP": ("zero2", False), "NO_SHARD": ("none", False),
              "HYBRID_SHARD": ("zero3", True), "HYBRID_SHARD_ZERO2": ("zero2", True)}  # fmt: skip
STAGES = ("none", "zero1", "zero2", "zero3")
PRECISIONS = {"no": "fp32", "bf16": "bf16", "fp16": "fp16", "fp8": "fp8"}
Values = dict[str, Any]


def read(content: str | bytes, around: Surroundings, *, where: str = "") -> Imported:
    """The configuration in `content`, every setting accounted for."""
    data, twice = read_yaml(content, where=where)
    version = around.version or VERSION
    lines = yaml_lines(decode(content, where=where), data)
    ledger = account(data, TABLE, version, lines=lines)
    for key in twice:
        text = Text(N_("'{name}' stands twice in the file"), name=key[:80])
        ledger.findings.append(hit(any_configuration.TWICE, key[:80], text, severity="warning"))
    values = ledger.values
    assumed: list[Text] = []
    devices = around.devices or _positive(values.get("num_processes"))
    nodes = _positive(values.get("num_machines")) or 1
    args = trainer.arguments(around.beside) if around.beside else {}
    framework, strategy = _strategy(values, devices, nodes)
    for name in ("tensor", "pipeline", "context"):
        if getattr(around, name):
            strategy[name] = getattr(around, name)
    ranks = strategy.get("tensor", 1) * strategy.get("pipeline", 1) * strategy.get("context", 1)
    ranks_of_data = devices // ranks if devices and devices % ranks == 0 else None
    precision = PRECISIONS[values.get("mixed_precision") or ("fp16" if values.get("fp16") else "no")]
    job = {"precision": precision, "optimizer": _optimizer(args, assumed)}
    if args:
        strategy["micro_batch"] = args["per_device_train_batch_size"]
        if ranks_of_data:
            job["global_batch"] = strategy["micro_batch"] * args["gradient_accumulation_steps"] * ranks_of_data
        if args.get("gradient_checkpointing") is True:
            strategy["recompute"] = "full"
    strategy = {"framework": framework, "precision": precision, **strategy}
    configuration = Configuration(format=FORMAT, version=version, values={**values, **_deepspeed(values)}, lines=lines,
                                  environment=dict(around.environment), devices=devices, data=ranks_of_data,
                                  beside=dict(around.beside))  # fmt: skip
    return Imported(
        format=FORMAT, version=version, configuration=configuration, entries=tuple(ledger.entries.values()),
        findings=tuple(ledger.findings), sections={"job": job, "strategy": strategy}, devices=devices,
        assumptions=tuple(assumed),
    )  # fmt: skip


def _positive(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _optimizer(args: Values, assumed: list[Text]) -> str:
    known = trainer.optimizer(args)
    if known is None:
        assumed.append(Text(N_("{name} {value}, because none was given"), name="optimizer", value="adamw"))
    return known or "adamw"


def _deepspeed(values: Values) -> Values:
    """The same in DeepSpeed's names, for its rules."""
    if values.get("distributed_type") != "DEEPSPEED":
        return {}
    zero = "zero_optimization"
    found = {f"{zero}.stage": _stage(values)}
    for part in ("optimizer", "param"):
        if device := values.get(f"{DEEPSPEED}.offload_{part}_device"):
            found[f"{zero}.offload_{part}.device"] = device
    if classes := values.get(f"{DEEPSPEED}.deepspeed_moe_layer_cls_names"):
        found[f"{zero}.leaf_module.classes"] = classes
    return found


def _stage(values: Values) -> int:
    stage = values.get(f"{DEEPSPEED}.zero_stage")
    return 2 if stage is None else int(stage)


def _strategy(values: Values, devices: int | None, nodes: int) -> tuple[str, Values]:
    """Whose strategy it is, and its fields."""
    match values.get("distributed_type"):
        case "DEEPSPEED":
            return "deepspeed", _with_mesh(values, _of_deepspeed(values))
        case "FSDP":
            return "fsdp", _with_mesh(values, _of_fsdp(values, devices, nodes))
        case "MEGATRON_LM":
            return "megatron", _of_megatron(values)
        case _:
            return "fsdp", {"sharding": "none"}


def _of_deepspeed(values: Values) -> Values:
    stage = _stage(values)
    moved = {part for part in ("optimizer", "param")
             if values.get(f"{DEEPSPEED}.offload_{part}_device") in ("cpu", "nvme")}  # fmt: skip
    if stage != 3:
        moved.discard("param")
    offload = "none" if not moved or not stage else "parameters" if "param" in moved else "optimizer"
    return {"sharding": STAGES[stage], "offload": offload, "overlap_grad_reduce": stage in (0, 3)}


def _of_fsdp(values: Values, devices: int | None, nodes: int) -> Values:
    def get(name: str) -> Any:
        return values.get(f"{FSDP}.fsdp_{name}")

    strategy: Values = {"offload": "none"}
    if get("version") == 2:
        strategy["sharding"] = "zero2" if get("reshard_after_forward") is False else "zero3"
    else:
        said = get("sharding_strategy") or get("reshard_after_forward") or "FULL_SHARD"
        names = list(STRATEGIES)
        number = int(said) if str(said).isdecimal() and len(str(said)) < 3 else 0
        name = names[number - 1] if 0 < number <= len(names) else str(said).upper()
        strategy["sharding"], hybrid = STRATEGIES.get(name, STRATEGIES["FULL_SHARD"])
        if hybrid and devices and nodes > 1 and devices % nodes == 0:
            strategy["shard"] = devices // nodes
    if get("offload_params") is True:
        strategy["offload"] = "parameters"
    if get("activation_checkpointing") is True:
        strategy["recompute"] = "full"
        if get("activation_checkpointing_offload") is True:
            strategy["offload"] = "activations"
    return strategy


def _with_mesh(values: Values, strategy: Values) -> Values:
    """Degrees of the mesh, where there is one."""
    if not any(name.startswith(f"{MESH}.") for name in values):
        return strategy

    def size(name: str) -> int:
        return values.get(f"{MESH}.parallelism_config_{name}_size") or 1

    copies, sharded = values.get(f"{DP}_replicate_size") or 1, values.get(f"{DP}_shard_size") or 1
    context = size("cp") * size("sp")
    mesh = {"tensor": size("tp"), "context": context, "data": copies * sharded}
    if copies > 1:
        mesh["shard"] = sharded * context
    return {**strategy, **mesh}


def _of_megatron(values: Values) -> Values:
    def get(name: str) -> Any:
        return values.get(f"{MEGATRON}.megatron_lm_{name}")

    tensor = get("tp_degree") or 1
    mode = get("recompute_granularity") or ("selective" if get("recompute_activations") else "none")
    return {
        "tensor": tensor, "pipeline": get("pp_degree") or 1, "context": get("context_parallel_size") or 1,
        "expert": get("expert_model_parallel_size") or 1, "expert_tensor": get("expert_tensor_parallel_size") or tensor,
        "sequence_parallel": bool(get("sequence_parallelism")),
        "sharding": "zero1" if get("use_distributed_optimizer") else "none",
        "recompute": mode if mode in ("none", "selective", "full") else "none",
        "offload": "optimizer" if get("optimizer_cpu_offload") else "none",
    }  # fmt: skip
