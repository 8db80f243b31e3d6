"""Megatron's arguments as model, job and strategy."""

from __future__ import annotations

from typing import Any

from meshwright.engine.stages import chunk_sizes
from meshwright.frameworks.account import account
from meshwright.frameworks.megatron import layout
from meshwright.frameworks.megatron.arguments import find
from meshwright.frameworks.megatron.fields import FORMAT, TABLE, VERSION
from meshwright.frameworks.megatron.model import model_of
from meshwright.frameworks.records import Imported, Surroundings
from meshwright.messages import N_, Text
from meshwright.rules import any_configuration
from meshwright.rules.configuration import hit
from meshwright.spec.configuration import Configuration

SHARDED = {"no_shard": "none", "optim": "zero1", "optim_grads": "zero2", "optim_grads_params": "zero3"}
OPTIMIZERS = {"adam": "adamw", "sgd": "sgd-momentum", "lion": "lion", "muon": "muon", "dist_muon": "muon",
              "adaptive_muon": "muon"}  # fmt: skip
ZERO = {0: "none", 1: "zero1", 2: "zero2", 3: "zero3"}


def read(content: str | bytes, around: Surroundings, *, where: str = "") -> Imported:
    """The configuration in `content`, every argument accounted for."""
    version = around.version or VERSION
    found = find(content, around.environment, where=where)
    ledger = account(found.data, TABLE, version, lines=found.lines)
    for name in found.twice:
        text = Text(N_("'{name}' stands twice in the file"), name=name[:80])
        ledger.findings.append(hit(any_configuration.TWICE, name[:80], text, severity="warning"))
    values, assumed = ledger.values, []  # type: dict[str, Any], list[Text]
    model = model_of(values, assumed)
    devices = around.devices or found.devices
    degrees = _degrees(values, around)
    ranks = degrees["tensor"] * degrees["pipeline"] * degrees["context"]
    data = devices // ranks if devices and devices % ranks == 0 else None
    job = _job(values, data, assumed)
    strategy = {**_strategy(values, degrees, data, assumed), "precision": job["precision"]}
    configuration = Configuration(
        format=FORMAT, version=version, values=dict(values), lines=found.lines,
        environment={**found.environment, **around.environment}, launch=found.launch, devices=devices, data=data,
    )  # fmt: skip
    return Imported(
        format=FORMAT, version=version, configuration=configuration, entries=tuple(ledger.entries.values()),
        findings=tuple(ledger.findings), sections={"job": job, "strategy": strategy}, model=model, devices=devices,
        assumptions=tuple(assumed),
    )  # fmt: skip


def _degrees(values: dict[str, Any], around: Surroundings) -> dict[str, int]:
    file = {
        "tensor": values.get("--tensor-model-parallel-size"),
        "pipeline": values.get("--pipeline-model-parallel-size"),
        "context": values.get("--context-parallel-size") or values.get("--ds-sequence-parallel-size"),
    }
    return {name: getattr(around, name) or value or 1 for name, value in file.items()}


# ---------------------------------------------------------------------------------------------- job


def _job(values: dict[str, Any], data: int | None, assumed: list[Text]) -> dict[str, Any]:
    job: dict[str, Any] = {"precision": _precision(values), "optimizer": _optimizer(values, assumed)}
    seq, batch, micro = (values.get(n) for n in ("--seq-length", "--global-batch-size", "--micro-batch-size"))
    if seq:
        job["seq_len"] = seq
    if batch is None and micro and data:  # Megatron's default: one micro-batch of each rank
        batch = micro * data
        assumed.append(Text(N_("{name} {value}, because none was given"), name="global_batch", value=batch))
    if batch:
        job["global_batch"] = batch
    samples = values.get("--train-samples") or (values.get("--train-iters") or 0) * (batch or 0)
    if samples and seq:
        job["tokens"] = float(samples * seq)
    dropout = [values.get(f"--{part}-dropout") for part in ("hidden", "attention")]
    if values.get("--num-layers") or any(rate is not None for rate in dropout):  # 0.1 unless it is switched off
        job["dropout"] = any(rate is None or rate > 0 for rate in dropout)
    return job


def _precision(values: dict[str, Any]) -> str:
    if values.get("--fp4-format"):
        return "nvfp4"
    if values.get("--fp8-format"):
        return "mxfp8" if values.get("--fp8-recipe") == "mxfp8" else "fp8"
    return "bf16" if values.get("--bf16") else "fp16" if values.get("--fp16") else "fp32"


def _optimizer(values: dict[str, Any], assumed: list[Text]) -> str:
    name = str(values.get("--optimizer") or "adam")
    known = OPTIMIZERS.get(name)
    if known is None:
        known = "adamw"
        assumed.append(Text(N_("optimizer {name} counted with the states of {known}"), name=name[:40], known=known))
    if values.get("--use-precision-aware-optimizer") and known == "adamw":
        types = {values.get(f"--{part}-dtype") or "fp32" for part in ("exp-avg", "exp-avg-sq")}
        if types != {"fp32"}:
            assumed.append(Text(N_("moments in {types} are counted as fp32"), types=", ".join(sorted(types))))
    return known


# ---------------------------------------------------------------------------------------------- strategy


def _strategy(values: dict[str, Any], degrees: dict[str, int], data: int | None, assumed: list[Text]) -> dict[str, Any]:
    framework, sharding = _sharding(values, assumed)
    virtual, split = _chunks(values, degrees["pipeline"])
    strategy: dict[str, Any] = {
        "framework": framework,
        **degrees,
        "virtual": virtual,
        "schedule": "interleaved" if virtual > 1 else "1f1b",
        "expert": values.get("--expert-model-parallel-size") or 1,
        "expert_tensor": values.get("--expert-tensor-parallel-size") or degrees["tensor"],
        "sharding": sharding,
        "sequence_parallel": bool(values.get("--sequence-parallel")),
        "overlap_grad_reduce": bool(values.get("--overlap-grad-reduce")),
        "overlap_param_gather": bool(values.get("--overlap-param-gather")),
        "overlap_tensor": bool(values.get("--tp-comm-overlap")),
        "overlap_expert": bool(values.get("--overlap-moe-expert-parallel-comm")),
        "offload": _offload(values),
        **_recompute(values, assumed),
    }
    if values.get("--micro-batch-size"):
        strategy["micro_batch"] = values["--micro-batch-size"]
    if split:
        strategy["layers_per_stage"] = split
    copies = values.get("--num-distributed-optimizer-instances") or 1
    group = (data or 0) * degrees["context"]
    if copies > 1 and group % copies == 0 and group:
        strategy["shard"] = group // copies
    return strategy


def _sharding(values: dict[str, Any], assumed: list[Text]) -> tuple[str, str]:
    """Whose strategy it is, and what is sharded."""
    if values.get("--deepspeed"):
        return "deepspeed", ZERO[values.get("--zero-stage") or 0]
    if values.get("--use-torch-fsdp2"):
        return "fsdp", "zero3"
    if values.get("--use-megatron-fsdp"):
        sharding = SHARDED[values.get("--data-parallel-sharding-strategy") or "optim_grads_params"]
        if sharding in ("zero2", "zero3"):
            assumed.append(Text(N_("Megatron's FSDP is counted like PyTorch's")))
            return "fsdp", sharding
        return "megatron", sharding
    return "megatron", "zero1" if values.get("--use-distributed-optimizer") else "none"


def _chunks(values: dict[str, Any], pipeline: int) -> tuple[int, tuple[int, ...]]:
    """Model chunks of a rank, and the layers of each chunk or stage where they are not the usual ones."""
    said = values.get("--pipeline-model-parallel-layout")
    sizes = layout.parse(said) if isinstance(said, str) else None
    layers = values.get("--num-layers")
    if sizes and layers and len(sizes) % pipeline == 0:
        virtual = len(sizes) // pipeline
        return virtual, () if sizes == chunk_sizes(layers, pipeline, virtual) else sizes
    return _virtual(values, pipeline), layers_per_stage(values, pipeline)


def _virtual(values: dict[str, Any], pipeline: int) -> int:
    """Model chunks of a rank, as Megatron derives them."""
    chunks = values.get("--num-virtual-stages-per-pipeline-rank")
    layers, each = values.get("--num-layers"), values.get("--num-layers-per-virtual-pipeline-stage")
    if chunks:
        return int(chunks)
    return max(layers // pipeline // each, 1) if layers and each else 1


def layers_per_stage(values: dict[str, Any], pipeline: int) -> tuple[int, ...]:
    """An uneven split that the arguments state, else nothing."""
    layers = values.get("--num-layers")
    first, last = (values.get(f"--decoder-{end}-pipeline-num-layers") for end in ("first", "last"))
    embedding, loss = (bool(values.get(f"--account-for-{end}-in-pipeline-split")) for end in ("embedding", "loss"))
    if not layers or pipeline < 2:
        return ()
    if first is not None or last is not None:
        ends = (first is not None) + (last is not None)
        rest, inner = layers - (first or 0) - (last or 0), pipeline - ends
        if inner < 1 or rest < 0 or rest % inner:
            return ()
        each = rest // inner
        return (each if first is None else first, *(each,) * (pipeline - 2), each if last is None else last)
    if embedding or loss:
        total = layers + embedding + loss
        if total % pipeline:
            return ()
        each = total // pipeline
        return (each - embedding, *(each,) * (pipeline - 2), each - loss)
    return ()


def _recompute(values: dict[str, Any], assumed: list[Text]) -> dict[str, Any]:
    mode = values.get("--recompute-granularity")
    if values.get("--recompute-activations"):
        mode = mode or "selective"
    if values.get("--checkpoint-activations") or values.get("--deepspeed-activation-checkpointing"):
        mode = mode or "full"
    if mode == "selective":
        return {"recompute": mode, "recompute_ops": tuple(values.get("--recompute-modules") or ("core_attn",))}
    if mode == "full":
        method, count = values.get("--recompute-method"), values.get("--recompute-num-layers")
        if count and (method == "block" or count > 1):
            text = N_("{method} recomputation of {count} layers is counted as of every layer")
            assumed.append(Text(text, method=method, count=count))
        return {"recompute": mode}
    return {"recompute": "none"}


def _offload(values: dict[str, Any]) -> str:
    if values.get("--optimizer-cpu-offload"):
        return "optimizer"
    return "activations" if values.get("--cpu-offloading-num-layers") else "none"
