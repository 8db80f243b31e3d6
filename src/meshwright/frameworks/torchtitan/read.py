"""A torchtitan TOML file as model, job and strategy."""

from __future__ import annotations

from typing import Any

from meshwright.frameworks.account import account
from meshwright.frameworks.records import Imported, Surroundings
from meshwright.frameworks.text import read_toml
from meshwright.frameworks.torchtitan.fields import EARLY, FORMAT, MODELS, SCHEDULES, TABLE, VERSION, P, T
from meshwright.messages import N_, Text
from meshwright.spec.configuration import Configuration

Values = dict[str, Any]
_EARLY_NAMES = ("training.batch_size", "training.tensor_parallel_degree", "training.data_parallel_shard_degree")
FLOAT8, MX = ("quantize.linear.float8", "float8"), ("quantize.linear.mx", "mx")


def read(content: str | bytes, around: Surroundings, *, where: str = "") -> Imported:
    """The configuration in `content`, every setting accounted for; its version by its names, where none is given."""
    data, lines = read_toml(content, where=where)
    ledger = account(data, TABLE, around.version or version_of(data), lines=lines)
    values = ledger.values
    assumed: list[Text] = []
    mesh = _mesh(values, around)
    ranks = mesh["tensor"] * mesh["pipeline"] * mesh["context"]
    devices = around.devices
    data_ranks = _data(values, devices, ranks)
    strategy = {"framework": "fsdp", **mesh, **_strategy(values, mesh, data_ranks, assumed)}
    job = {**_job(values, data_ranks), "precision": strategy["precision"]}
    sections: dict[str, Any] = {"job": job, "strategy": strategy}
    if name := MODELS.get((values.get("model.name") or "", values.get("model.flavor") or "")):
        sections["model"] = {"name": name}
    configuration = Configuration(format=FORMAT, version=ledger.version, values={**values, "mesh": _sizes(values)},
                                  lines=lines, environment=dict(around.environment), devices=devices,
                                  data=data_ranks)  # fmt: skip
    return Imported(
        format=FORMAT, version=ledger.version, configuration=configuration, entries=tuple(ledger.entries.values()),
        findings=tuple(ledger.findings), sections=sections, devices=devices, assumptions=tuple(assumed),
    )  # fmt: skip


def version_of(data: dict[str, Any]) -> str:
    """The names of 2024, or those of 0.2."""
    inside = {f"{section}.{key}" for section, keys in data.items() if isinstance(keys, dict) for key in keys}
    return EARLY if "parallelism" not in data and inside & set(_EARLY_NAMES) else VERSION


def _get(values: Values, name: str, default: Any = None) -> Any:
    """A setting under its present or its early section."""
    for section in (P, T, "experimental"):
        if values.get(f"{section}.{name}") is not None:
            return values[f"{section}.{name}"]
    return default


def _mesh(values: Values, around: Surroundings) -> dict[str, int]:
    names = ("tensor", "pipeline", "context")
    return {name: getattr(around, name) or _get(values, f"{name}_parallel_degree", 1) for name in names}


def _sizes(values: Values) -> dict[str, int]:
    """The axes of the mesh as the file has them; -1 is what is left."""
    names = {"dp_replicate": "data_parallel_replicate", "dp_shard": "data_parallel_shard", "cp": "context_parallel",
             "tp": "tensor_parallel", "pp": "pipeline_parallel"}  # fmt: skip
    return {short: _get(values, f"{name}_degree", -1 if short == "dp_shard" else 1) for short, name in names.items()}


def _data(values: Values, devices: int | None, ranks: int) -> int | None:
    """Data-parallel ranks: as the degrees say, or what is left of the devices."""
    sizes = _sizes(values)
    if sizes["dp_shard"] > 0:
        return sizes["dp_replicate"] * sizes["dp_shard"]
    return devices // ranks if devices and devices % ranks == 0 else None


def _job(values: Values, data: int | None) -> dict[str, Any]:
    job: dict[str, Any] = {"seq_len": values.get(f"{T}.seq_len") or 2048, "optimizer": "adamw"}
    local = values.get(f"{T}.local_batch_size") or values.get(f"{T}.batch_size") or 8
    batch = values.get(f"{T}.global_batch_size") or -1
    if batch < 1 and data:
        batch = local * data
    if batch > 0:
        job["global_batch"] = batch
        if steps := values.get(f"{T}.steps"):
            job["tokens"] = float(steps * batch * job["seq_len"])
    return job


def _strategy(values: Values, mesh: dict[str, int], data: int | None, assumed: list[Text]) -> dict[str, Any]:
    sizes, pipeline = _sizes(values), mesh["pipeline"]
    local = values.get(f"{T}.local_batch_size") or values.get(f"{T}.batch_size") or 8
    strategy: dict[str, Any] = {
        "precision": _precision(values),
        "sharding": _sharding(values, sizes, data, pipeline),
        "micro_batch": _get(values, "pipeline_parallel_microbatch_size", 1) if pipeline > 1 else local,
        "sequence_parallel": mesh["tensor"] > 1,
        "overlap_tensor": bool(_get(values, "enable_async_tensor_parallel")),
        "recompute": _recompute(values, assumed),
        "offload": "parameters" if values.get(f"{T}.enable_cpu_offload") else "none",
        "schedule": SCHEDULES[_get(values, "pipeline_parallel_schedule", "1F1B")] if pipeline > 1 else "1f1b",
        "expert": _get(values, "expert_parallel_degree", 1),
        "expert_tensor": _get(values, "expert_tensor_parallel_degree", 1),
    }
    strategy["virtual"] = _virtual(values, strategy["schedule"], pipeline, assumed)
    if sizes["dp_shard"] > 0 or data:
        strategy["data"] = data
    if sizes["dp_replicate"] > 1 and data and strategy["sharding"] != "none":
        strategy["shard"] = data // sizes["dp_replicate"] * mesh["context"]
    return strategy


def _precision(values: Values) -> str:
    converters = values.get("model.converters") or []
    if values.get("float8.enable_float8_linear") is True or any(name in FLOAT8 for name in converters):
        return "fp8"
    if any(name in MX for name in converters):
        return "mxfp8"
    return "fp32" if values.get(f"{T}.mixed_precision_param") == "float32" else "bf16"


def _sharding(values: Values, sizes: dict[str, int], data: int | None, pipeline: int) -> str:
    """FSDP shards parameters; with a pipeline it keeps them gathered unless told otherwise; one shard is DDP."""
    if sizes["dp_shard"] == 1 and sizes["cp"] == 1:
        return "none"
    said = _get(values, "fsdp_reshard_after_forward", "default")
    keeps = said == "never" or (said == "default" and pipeline > 1)
    return "zero2" if keeps else "zero3"


def _recompute(values: Values, assumed: list[Text]) -> str:
    mode = values.get("activation_checkpoint.mode") or "selective"
    if mode == "memory_budget":
        assumed.append(Text(N_("recomputation by memory budget is counted as selective")))
        return "selective"
    return str(mode)


def _virtual(values: Values, schedule: str, pipeline: int, assumed: list[Text]) -> int:
    """Model chunks of a rank: two for schedules that have several, unless the layers of a stage say otherwise."""
    if pipeline == 1 or schedule not in ("interleaved", "zb-h1"):
        return 1
    if _get(values, "pipeline_parallel_layers_per_stage"):
        assumed.append(
            Text(N_("pipeline_parallel_layers_per_stage is not taken up: two model chunks a rank are counted"))
        )
    return 2
