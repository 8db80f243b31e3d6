"""What the model says of each thing that was measured: the same shape, through the functions that plan uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from meshwright.bench.records import Measurements, Sample, TrainingStep
from meshwright.catalog.clusters import cluster
from meshwright.engine.communication import collective_time, network
from meshwright.engine.evaluate import evaluate
from meshwright.engine.kernels import dense_peak, linear_times, operator_time, rates
from meshwright.engine.operators import Operator, keys_per_query
from meshwright.engine.placement import place
from meshwright.spec.cluster import Accelerator
from meshwright.spec.estimate import Refusal
from meshwright.spec.job import Job
from meshwright.spec.model import Attention, Block, Mlp, ModelSpec
from meshwright.spec.plan import Problem
from meshwright.spec.strategy import Strategy

SOFTWARE = "fsdp-eager"  # the profile of what `step` runs: PyTorch without a compiler
PHASES = ("forward", "data_gradient", "weight_gradient")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What the model says of one sample or step, as far as the catalogue knows the device."""

    peak: float | None = None  # of the data sheet: FLOP/s or B/s
    predicted_seconds: float | None = None
    predicted_peak_bytes: float | None = None  # of a step, counted as it was measured


def predictions(found: Measurements) -> tuple[Prediction, ...]:
    """One for each sample, then one for each step."""
    name = found.device.accelerator
    if name is None:
        return (Prediction(),) * (len(found.samples) + len(found.steps))
    accelerator = cluster(f"{name}:1").accelerator
    samples = (
        Prediction(peak=_peak(s, accelerator), predicted_seconds=_seconds(s, accelerator)) for s in found.samples
    )
    return (*samples, *(_step(step, accelerator) for step in found.steps))


# ---------------------------------------------------------------------------------------------- peaks

OVER_THE_WIRE = ("all_reduce", "all_gather", "reduce_scatter", "p2p")
OVER_THE_BUS = ("host_to_device", "device_to_host")


def _peak(sample: Sample, accelerator: Accelerator) -> float | None:
    if sample.unit == "FLOP":
        return dense_peak(accelerator, sample.dtype)
    if sample.kind in OVER_THE_BUS:
        return accelerator.host_bandwidth
    if sample.kind in OVER_THE_WIRE:
        return accelerator.link_bandwidth if sample.shape["ranks"] == sample.shape["local"] else None
    return accelerator.memory_bandwidth


# ---------------------------------------------------------------------------------------------- seconds


def _seconds(sample: Sample, accelerator: Accelerator) -> float | None:
    predict = _KINDS.get(sample.kind, _memory_bound)
    seconds = predict(sample, accelerator)
    return None if seconds is None else float(seconds)


def _product(sample: Sample, accelerator: Accelerator) -> Any:
    """The measured m, n, k are those of the product; the operator wants those of the layer it is a gradient of."""
    m, n, k = (sample.shape[side] for side in "mnk")
    layer = {"forward": (m, n, k), "data_gradient": (m, k, n), "weight_gradient": (k, m, n)}[sample.phase]
    kind = "grouped_matmul" if sample.kind == "grouped_gemm" else "matmul"
    r = rates(accelerator, sample.dtype)
    op = Operator("", "", kind, *layer, batch=sample.shape.get("groups", 1), low_precision=sample.dtype == "fp8")
    return linear_times(op, r)[PHASES.index(sample.phase)] + r.launch


def _attention(sample: Sample, accelerator: Accelerator) -> Any:
    s = sample.shape
    tokens, width, keys = s["batch"] * s["seq"], s["qk_dim"] + s["v_dim"], keys_per_query(s["seq"], None, True)
    op = Operator(
        "", "attention", "attention", m=tokens, n=width, k=keys, batch=s["heads"],
        flops=2 * tokens * keys * s["heads"] * width, traffic=2 * tokens * (s["heads"] + s["kv_heads"]) * width,
        backward_ratio=2.5,
    )  # fmt: skip
    return operator_time(op, rates(accelerator, "bf16"))[sample.phase == "backward"]


def _memory_bound(sample: Sample, accelerator: Accelerator) -> Any:
    return operator_time(Operator("", "", "memory", traffic=sample.work), rates(accelerator, "bf16"))[0]


def _host_copy(sample: Sample, accelerator: Accelerator) -> Any:
    return sample.work / accelerator.host_bandwidth


def _collective(sample: Sample, accelerator: Accelerator) -> Any:
    """On the usual host of the accelerator, where its nodes hold as many of the ranks as those that were measured."""
    ranks = sample.shape["ranks"]
    if sample.kernel != "nccl":
        return None
    here = cluster(f"{accelerator.id}:{ranks}")
    pair = sample.kind == "p2p"
    strategy = Strategy(pipeline=ranks) if pair else Strategy(data=ranks)
    group = place(here, strategy)["pipeline" if pair else "data"]
    if group.local != sample.shape["local"]:
        return None
    return collective_time(network(here), group, sample.kind, sample.shape["payload"])


_KINDS: Mapping[str, Callable[[Sample, Accelerator], Any]] = {
    "gemm": _product, "gemm_sustained": _product, "grouped_gemm": _product, "attention": _attention,
    **dict.fromkeys(OVER_THE_BUS, _host_copy), **dict.fromkeys(OVER_THE_WIRE, _collective),
}  # fmt: skip


# ---------------------------------------------------------------------------------------------- a training step


def model_of(shape: Mapping[str, int]) -> ModelSpec:
    """The decoder that `step` builds, as planning sees it."""
    mixer = Attention(heads=shape["heads"], kv_heads=shape["kv_heads"], head_dim=shape["head_dim"])
    block = Block(mixer=mixer, mlp=Mlp(width=shape["ffn"]))
    return ModelSpec(
        name="bench-decoder", family="llama", hidden=shape["hidden"], vocab=shape["vocab"], blocks=(block,),
        pattern=(0,) * shape["layers"],
    )  # fmt: skip


def _step(step: TrainingStep, accelerator: Accelerator) -> Prediction:
    peak = dense_peak(accelerator, "bf16")
    batch = step.shape["micro_batch"]
    job = Job(seq_len=step.shape["seq"], global_batch=batch, software=SOFTWARE)
    problem = Problem(model=model_of(step.shape), cluster=cluster(f"{accelerator.id}:1"), job=job)
    found = evaluate(problem, Strategy(framework="fsdp", sharding="zero3", micro_batch=batch))
    if isinstance(found, Refusal):
        return Prediction(peak=peak)
    beside = {term.name: float(term.value) for term in found.memory.children}
    tensors = found.peak_bytes - beside.get("reserve", 0.0) - beside.get("context", 0.0)
    copy = 2.0 * step.parameters - beside.get("buffers", 0.0)  # FSDP keeps the bf16 copy of two units, `step` all of it
    return Prediction(
        peak=peak, predicted_seconds=float(found.step_seconds), predicted_peak_bytes=float(tensors + max(copy, 0.0))
    )
