"""MW-C4xx: number formats the device or the framework does not have, and shapes they cannot multiply."""

from __future__ import annotations

import math

from meshwright.messages import N_, Text
from meshwright.rules.base import Mask, RuleContext, Said, rule
from meshwright.rules.nearest import by_value, closest, divisors, listed

PEAK_OF = {"fp32": "fp32", "tf32": "tf32", "bf16": "bf16", "fp16": "fp16", "fp8": "fp8", "mxfp8": "fp8", "nvfp4": "fp4"}
MICROSCALING = frozenset({"blackwell", "cdna4"})  # architectures with block scales in the matrix units
FP4_NV = frozenset({"blackwell"})
PRECISIONS_OF = {
    "megatron": ("fp32", "tf32", "bf16", "fp16", "fp8", "mxfp8", "nvfp4"),
    "fsdp": ("fp32", "tf32", "bf16", "fp16", "fp8", "mxfp8"),
    "deepspeed": ("fp32", "tf32", "bf16", "fp16", "fp8"),
    "jax": ("fp32", "tf32", "bf16", "fp16", "fp8", "mxfp8"),
}
ALIGNMENT = {"fp8": 16, "mxfp8": 32, "nvfp4": 32}


def device_has(c: RuleContext, precision: str) -> bool:
    """Whether the device multiplies matrices in `precision`."""
    device = c.cluster.accelerator
    if not device.peak_flops.get(PEAK_OF.get(precision, precision)):
        return False
    if precision == "mxfp8":
        return device.architecture in MICROSCALING
    return precision != "nvfp4" or device.architecture in FP4_NV


@rule(
    "MW-C401",
    title=N_("The device has the number format"),
    reason=N_("Matrix units have fixed formats: bf16 needs Ampere or later (V100 has none), fp8 Ada, Hopper, "
              "MI300, Gaudi 2 "
              "or later, MXFP8 Blackwell or MI350, NVFP4 Blackwell."),
    fix=N_("Use a format of this device."),
    condition="precision in the formats of the device",
    source="device datasheets (catalogue, peak_flops); NVIDIA Transformer Engine documentation for MXFP8 and NVFP4",
    where="precision",
    violated=lambda c: not device_has(c, c.strategy.precision),
)  # fmt: skip
def device_precision(c: RuleContext) -> Said:
    legal = [p for p in PEAK_OF if device_has(c, p)]
    message = Text(N_("{device} has no {precision}"), device=c.cluster.accelerator.name, precision=c.strategy.precision)
    return message, Text(N_("precision = {legal}"), legal=", ".join(legal)), {"legal": legal}


@rule(
    "MW-C402",
    title=N_("The framework trains in the number format"),
    reason=N_(
        "NVFP4 training exists in Transformer Engine (Megatron); MXFP8 also in torchao and JAX, not in DeepSpeed."
    ),
    fix=N_("Use a format the framework trains in."),
    condition="precision in the formats of the framework",
    source="NVIDIA Transformer Engine; pytorch/ao float8 and mx_formats; DeepSpeed config-json (fp8 through TE)",
    where="precision",
    violated=lambda c: c.strategy.precision not in PRECISIONS_OF.get(c.strategy.framework, (c.strategy.precision,)),
)
def framework_precision(c: RuleContext) -> Said:
    legal = [p for p in PRECISIONS_OF[c.strategy.framework] if device_has(c, p)]
    message = Text(
        N_("{framework} does not train in {precision}"),
        framework=c.strategy.framework, precision=c.strategy.precision,
    )  # fmt: skip
    return message, Text(N_("precision = {legal}"), legal=", ".join(legal)), {"legal": legal}


def aligned_sizes(c: RuleContext) -> tuple[list[int], list[int]]:
    """Sizes that tensor parallelism divides, and expert widths."""
    return [c.facts.hidden, *c.facts.dense_widths], list(c.facts.expert_widths)


def misaligned(c: RuleContext) -> Mask:
    """Some matrix of a rank has a side that is not a multiple of the block of the format."""
    block = ALIGNMENT[c.strategy.precision]
    dense, experts = math.gcd(*c.facts.dense_widths), math.gcd(*c.facts.expert_widths)
    bad: Mask = c.facts.hidden % block != 0
    if dense:
        bad = bad | by_value(c.strategy.tensor, lambda t: (dense % t == 0) & (dense // (t + (t == 0)) % block != 0))
    if experts:
        etp = c.strategy.expert_tensor
        bad = bad | by_value(etp, lambda t: (experts % t == 0) & (experts // (t + (t == 0)) % block != 0))
    return bad


@rule(
    "MW-C403",
    title=N_("8-bit and 4-bit matrices need aligned sides"),
    reason=N_(
        "FP8 multiplications need sides in multiples of 16, MXFP8 and NVFP4 blocks in multiples of 32, on every rank."
    ),
    fix=N_("Lower tensor parallelism, or use bf16."),
    condition="hidden, mlp_width / tensor and expert_width / expert_tensor % 16 == 0 (mxfp8, nvfp4: 32)",
    source="NVIDIA Transformer Engine (FP8 GEMM dimension checks); OCP Microscaling Formats v1.0 (blocks of 32)",
    where="precision",
    applies=lambda c: c.strategy.precision in ALIGNMENT,
    violated=misaligned,
)
def alignment(c: RuleContext) -> Said:
    block = ALIGNMENT[c.strategy.precision]
    widths = math.gcd(*c.facts.dense_widths, *c.facts.expert_widths)
    legal = list(divisors(widths // block)) if widths % block == 0 and c.facts.hidden % block == 0 else []
    message = Text(
        N_("{precision} needs sides in multiples of {block}: hidden {hidden}, widths {widths} over tensor {tensor} "
           "and expert_tensor {etp}"),
        precision=c.strategy.precision, block=block, hidden=c.facts.hidden,
        widths=listed((*c.facts.dense_widths, *c.facts.expert_widths)),
        tensor=c.strategy.tensor, etp=c.strategy.expert_tensor,
    )  # fmt: skip
    near = closest(legal, c.strategy.tensor) if legal else []
    fix = Text(N_("tensor = {legal}, or bf16"), legal=listed(near)) if near else None
    return message, fix, {"legal": near, "block": block}


@rule(
    "MW-C404",
    severity="warning",
    title=N_("The strategy keeps the precision the job asks for"),
    reason=N_("The number format changes the training itself, so it is chosen with the job, not with the partition."),
    fix=N_("Give job and strategy the same precision."),
    condition="strategy.precision == job.precision",
    source="Micikevicius et al. 2018, arXiv:1710.03740",
    where="precision",
    violated=lambda c: c.strategy.precision != c.job.precision,
)
def precision_differs(c: RuleContext) -> Said:
    message = Text(
        N_("the job asks for {wanted}, the strategy uses {used}"), wanted=c.job.precision, used=c.strategy.precision
    )
    return message, None, {"legal": [c.job.precision]}


@rule(
    "MW-C405",
    severity="advice",
    title=N_("bf16 is the safer and faster choice on this device"),
    reason=N_(
        "fp16 needs loss scaling and overflows above 65504; fp32 and tf32 multiply at a fraction of the bf16 rate."
    ),
    fix=N_("Use precision = bf16."),
    condition="precision is bf16 or narrower where the device has bf16",
    source="Kalamkar et al. 2019, arXiv:1905.12322; Micikevicius et al. 2018, arXiv:1710.03740",
    where="precision",
    violated=lambda c: c.strategy.precision in ("fp16", "fp32", "tf32") and device_has(c, "bf16"),
)
def prefer_bf16(c: RuleContext) -> Said:
    device, used = c.cluster.accelerator, c.strategy.precision
    peak = device.peak_flops.get(PEAK_OF[used])
    ratio = device.peak_flops["bf16"] / peak if peak else 0.0
    message = Text(
        N_("{precision} on {device}, whose bf16 rate is {ratio:.1f} times as high"),
        precision=used, device=device.name, ratio=ratio,
    )  # fmt: skip
    return message, None, {"legal": ["bf16"], "ratio": ratio}
