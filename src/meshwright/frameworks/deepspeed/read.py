"""A DeepSpeed JSON file (with the Trainer's arguments, where there are any) as job and strategy."""

from __future__ import annotations

from typing import Any

from meshwright.files import decode
from meshwright.frameworks.account import Ledger, account
from meshwright.frameworks.deepspeed import trainer
from meshwright.frameworks.deepspeed.fields import ALSO_OPTIMIZERS, FORMAT, SHARDING, TABLE, VERSION, ZERO
from meshwright.frameworks.lines import json_lines
from meshwright.frameworks.records import Imported, Surroundings
from meshwright.frameworks.text import read_json
from meshwright.messages import N_, Text
from meshwright.rules import any_configuration, deepspeed_configuration
from meshwright.rules.configuration import hit
from meshwright.spec.configuration import Configuration

_OFFLOADING = ("cpu", "nvme")


def read(content: str | bytes, around: Surroundings, *, where: str = "") -> Imported:
    """The configuration in `content`, every setting accounted for."""
    data, twice = read_json(content, where=where)
    version = around.version or VERSION
    if isinstance(data.get("bfloat16"), dict) and "bf16" not in data:
        data["bf16"] = data.pop("bfloat16")
    ledger = account(data, TABLE, version, lines=json_lines(decode(content, where=where), data), auto=True)
    for key in twice:
        text = Text(N_("'{name}' stands twice in the file"), name=key[:80])
        ledger.findings.append(hit(any_configuration.TWICE, key[:80], text))
    return _understood(ledger, around, version)


def _understood(ledger: Ledger, around: Surroundings, version: str) -> Imported:
    values = ledger.values
    _old_offload(values)
    degrees = _degrees(values, around)
    devices = around.devices or _whole(around.beside.get("world_size"))
    ranks = degrees["tensor"] * degrees["pipeline"] * degrees["context"]
    data = devices // ranks if devices and devices % ranks == 0 else None
    trainer.fill(ledger, around, data)
    assumed: list[Text] = []
    job, strategy = _job_and_strategy(values, around, degrees, data, assumed)
    _idle(ledger, _stage(values))
    configuration = Configuration(format=FORMAT, version=version, values=dict(values), lines=ledger.lines,
                                  devices=devices, data=data, environment=dict(around.environment),
                                  beside=dict(around.beside))  # fmt: skip
    return Imported(
        format=FORMAT, version=version, configuration=configuration, entries=tuple(ledger.entries.values()),
        findings=tuple(ledger.findings), sections={"job": job, "strategy": strategy}, devices=devices,
        assumptions=tuple(assumed),
    )  # fmt: skip


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _stage(values: dict[str, Any]) -> int:
    """The ZeRO stage; 0 where it is none of the four."""
    stage = values.get(f"{ZERO}.stage")
    return stage if stage in SHARDING else 0


def _old_offload(values: dict[str, Any]) -> None:
    """Settings of old files that say the same as newer ones."""
    for old, new in (("cpu_offload", "offload_optimizer"), ("cpu_offload_param", "offload_param")):
        if values.get(f"{ZERO}.{old}") is True:
            values.setdefault(f"{ZERO}.{new}.device", "cpu")


def _degrees(values: dict[str, Any], around: Surroundings) -> dict[str, int]:
    """Degrees of the mesh: as stated around the file, else as the file says."""
    file = {
        "tensor": values.get("tensor_parallel.autotp_size"),
        "pipeline": values.get("pipeline.stages"),
        "context": values.get("sequence_parallel_size"),
    }
    return {name: getattr(around, name) or _whole(value) or 1 for name, value in file.items()}


def _job_and_strategy(
    values: dict[str, Any], around: Surroundings, degrees: dict[str, int], data: int | None, assumed: list[Text]
) -> tuple[dict[str, Any], dict[str, Any]]:
    args = trainer.arguments(around.beside) if around.beside else {}
    stage = _stage(values)
    micro, batch = _batch(values, data)
    precision = _precision(values)
    job: dict[str, Any] = {"precision": precision, "optimizer": _optimizer(values, args, assumed)}
    strategy: dict[str, Any] = {
        "framework": FORMAT,
        "sharding": SHARDING[stage],
        **{name: degree for name, degree in degrees.items() if degree > 1},
        "offload": _offload(values, stage, assumed),
        "precision": precision,
        "overlap_grad_reduce": _overlaps(values, stage),
    }
    if micro is not None:
        strategy["micro_batch"] = micro
    if batch is not None:
        job["global_batch"] = batch
    if shard := _shard(values, stage, assumed):
        strategy["shard"] = shard
    if args.get("gradient_checkpointing") is True:
        strategy["recompute"] = "full"
    if values.get("expert_parallel.enabled") is True:
        strategy["expert"] = values.get("expert_parallel.autoep_size") or 1
        strategy["expert_tensor"] = values.get("expert_parallel.expert_tensor_parallel_size") or 1
    if values.get("tensor_parallel.tp_overlap_comm") is True:
        strategy["overlap_tensor"] = True
    return job, strategy


def _overlaps(values: dict[str, Any], stage: int) -> bool:
    """DeepSpeed overlaps gradient reduction by default with stage 3 only; without ZeRO there is nothing to switch."""
    said = values.get(f"{ZERO}.overlap_comm")
    return stage == 3 if said is None and stage else said is not False


def _batch(values: dict[str, Any], data: int | None) -> tuple[int | None, int | None]:
    """Micro-batch and global batch, each from the two others as DeepSpeed derives them."""
    whole, micro, steps = (
        _whole(values.get(name))
        for name in ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    )
    if micro is None and whole is not None and data:
        micro = whole // data // (steps or 1) or None
    if whole is None and micro is not None and data:
        whole = micro * (steps or 1) * data
    return micro, whole


def _precision(values: dict[str, Any]) -> str:
    if values.get("bf16.enabled") is True:
        return "bf16"
    return "fp16" if values.get("fp16.enabled") is True else "fp32"


def _optimizer(values: dict[str, Any], args: dict[str, Any], assumed: list[Text]) -> str:
    name = values.get("optimizer.type")
    if isinstance(name, str):
        known = ALSO_OPTIMIZERS.get(name.lower())
        if known is None or name.lower() in ("adagrad", "lamb"):
            known = known or "adamw"
            assumed.append(Text(N_("optimizer {name} counted with the states of {known}"), name=name[:40], known=known))
    else:
        chosen = trainer.optimizer(args)
        known = chosen or "adamw"
        if chosen is None:
            assumed.append(Text(N_("{name} {value}, because none was given"), name="optimizer", value=known))
    if known == "adamw" and values.get("bf16.bf16_master_weights_and_grads") is True:
        if values.get("bf16.bf16_optimizer_states") is not True:
            assumed.append(Text(N_("master weights in bf16 counted with optimizer states in bf16")))
        return "adamw-bf16"
    return known


def _offload(values: dict[str, Any], stage: int, assumed: list[Text]) -> str:
    """What is offloaded in effect: parameters with stage 3 only, the optimizer with any ZeRO stage."""
    devices = {part: values.get(f"{ZERO}.offload_{part}.device") for part in ("optimizer", "param")}
    moved = {part for part, device in devices.items() if device in _OFFLOADING}
    if stage != 3:
        moved.discard("param")
    if not stage:
        moved.clear()
    if any(devices[part] == "nvme" for part in moved):
        assumed.append(Text(N_("what is offloaded to NVMe is counted as host memory")))
    if moved == {"param"}:
        assumed.append(Text(N_("parameters are offloaded and optimizer states are not; the estimate moves both")))
    if moved:
        return "parameters" if "param" in moved else "optimizer"
    return "activations" if values.get("activation_checkpointing.cpu_checkpointing") is True else "none"


def _shard(values: dict[str, Any], stage: int, assumed: list[Text]) -> int:
    """Ranks that share a sharded copy; 0 for all."""
    if stage != 3:
        return 0
    whole = _whole(values.get(f"{ZERO}.mics_shard_size"))
    part = _whole(values.get(f"{ZERO}.zero_hpz_partition_size"))
    if whole:
        return whole
    if part and part > 1:
        assumed.append(
            Text(N_("zero_hpz_partition_size shards a second copy of the parameters; the estimate shards all "
                    "states over"
                    " {shard} ranks, which takes more memory"), shard=part)
        )  # fmt: skip
        return part
    return 0


def _idle(ledger: Ledger, stage: int) -> None:
    """Settings that need a stage the file does not have."""
    for name in list(ledger.entries):
        known = TABLE.by_name.get(name)
        if known is None or not known.needs or name.endswith("offload_param.device"):  # which has a rule of its own
            continue
        value = ledger.values.get(name)
        if (stage == 3 if known.needs == "stage3" else stage > 0) or value in (None, known.default, False):
            continue
        text = Text(N_("{name} has no effect with stage {stage}"), name=name, stage=stage)
        ledger.findings.append(hit(deepspeed_configuration.IDLE, name, text, stage=stage))
