"""Strategies to be written for each framework: a grid over what it can express, legal by our rules."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from meshwright.catalog.clusters import cluster
from meshwright.catalog.models import model
from meshwright.rules import RuleContext, check
from meshwright.spec import Job, Strategy
from meshwright.spec.plan import Problem


def problem(name: str, on: str, **job: Any) -> Problem:
    """A problem of the catalogue."""
    fields = {"seq_len": 4096, "global_batch": 512, **job}
    return Problem(model=model(name), cluster=cluster(on), job=Job(**fields))


def legal(cases: Iterator[tuple[Problem, Strategy]]) -> list[tuple[Problem, Strategy]]:
    """Those that no error rule refuses."""
    return [
        (p, s)
        for p, s in cases
        if not any(f.severity == "error" for f in check(RuleContext(p.model, p.cluster, p.job, s)))
    ]


def deepspeed() -> list[tuple[Problem, Strategy]]:
    """ZeRO stages, offload, partial groups, precisions, optimizers, degrees."""

    def cases() -> Iterator[tuple[Problem, Strategy]]:
        grid = itertools.product(
            ("none", "zero1", "zero2", "zero3"),
            ("none", "optimizer", "parameters", "activations"),
            (0, 8),
            ("bf16", "fp16", "fp32"),
            ("adamw", "adamw-bf16", "lion", "sgd", "adamw-8bit", "muon"),
            (1, 8),
            (1, 4),
        )
        for sharding, offload, shard, precision, optimizer, tensor, micro in grid:
            p = problem("llama-3.1-8b", "h100-sxm:64", precision=precision, optimizer=optimizer)
            yield (
                p,
                Strategy(
                    framework="deepspeed",
                    data=64 // tensor,
                    tensor=tensor,
                    sharding=sharding,
                    offload=offload,
                    shard=shard,
                    precision=precision,
                    micro_batch=micro,
                    sequence_parallel=tensor > 1,
                    recompute="full" if micro > 1 else "none",
                ),
            )

    return legal(cases())


def megatron() -> list[tuple[Problem, Strategy]]:
    """Dense and sparse models over all degrees, splits, recomputation, precision, offload."""

    def dense() -> Iterator[tuple[Problem, Strategy]]:
        grid = itertools.product(
            ("llama-3.1-8b", "gpt-3-6.7b", "qwen2.5-7b", "llama-3.1-70b"),
            ((1, 1, 1), (2, 1, 1), (4, 2, 1), (8, 4, 1), (4, 4, 2), (2, 8, 2), (2, 4, 5)),
            (1, 2),
            ("none", "zero1"),
            ("none", "selective", "full"),
            (1, 2),
            ("bf16", "fp16", "fp8"),
            ("none", "optimizer", "activations"),
        )
        for n, (
            name,
            (tensor, pipeline, virtual),
            context,
            sharding,
            recompute,
            micro,
            precision,
            offload,
        ) in enumerate(grid):
            data = 64 // (tensor * pipeline * context)
            if n % 5 or not data:
                continue
            p = problem(name, "h100-sxm:64", precision=precision, optimizer=("adamw", "sgd", "lion")[n % 3])
            yield (
                p,
                Strategy(
                    framework="megatron",
                    data=data,
                    tensor=tensor,
                    pipeline=pipeline,
                    virtual=virtual,
                    context=context,
                    schedule="interleaved" if virtual > 1 else "1f1b",
                    sharding=sharding,
                    recompute=recompute,
                    recompute_ops=(("core_attn",), ("core_attn", "mlp"), ("layernorm",))[n % 3],
                    micro_batch=micro,
                    precision=precision,
                    offload=offload,
                    sequence_parallel=tensor > 1,
                    overlap_param_gather=sharding == "zero1",
                ),
            )

    def sparse() -> Iterator[tuple[Problem, Strategy]]:
        grid = itertools.product(
            ("mixtral-8x7b", "deepseek-v2-lite", "qwen3-30b-a3b"),
            ((1, 1), (2, 1), (4, 2), (1, 4), (2, 4)),
            (1, 2, 4, 8),
            (1, 0),
            ("none", "selective"),
            (True, False),
        )
        for name, (tensor, pipeline), expert, whole, recompute, overlap in grid:
            p = problem(name, "h100-sxm:64", precision="bf16")
            yield (
                p,
                Strategy(
                    framework="megatron",
                    data=64 // (tensor * pipeline),
                    tensor=tensor,
                    pipeline=pipeline,
                    expert=expert,
                    expert_tensor=1 if whole else tensor,
                    sharding="zero1",
                    recompute=recompute,
                    recompute_ops=("moe_act", "core_attn"),
                    overlap_expert=expert > 1,
                    sequence_parallel=tensor > 1,
                    overlap_grad_reduce=overlap,
                    overlap_param_gather=overlap,
                ),
            )

    return legal(itertools.chain(dense(), sparse()))


def fsdp(*, pipeline: bool) -> list[tuple[Problem, Strategy]]:
    """FSDP, HSDP and DDP with tensor and context parallelism, recomputation, offload, precision; pipelines if "
    "wanted."""

    def cases() -> Iterator[tuple[Problem, Strategy]]:
        grid = itertools.product(
            ("none", "zero2", "zero3"),
            (1, 2, 8),
            (1, 2),
            (1, 4) if pipeline else (1,),
            (0, 8),
            ("none", "full") if not pipeline else ("none", "selective", "full"),
            ("none", "parameters"),
            ("bf16", "fp32"),
            (1, 2),
        )
        for sharding, tensor, context, stages, shard, recompute, offload, precision, micro in grid:
            data = 64 // (tensor * context * stages)
            if sharding == "none" and (tensor > 1 or context > 1 or shard or stages > 1):
                continue
            if shard and (shard >= data * context or shard % context):
                continue
            yield (
                problem("llama-3.1-8b", "h100-sxm:64", precision=precision),
                Strategy(
                    framework="fsdp",
                    data=data,
                    tensor=tensor,
                    context=context,
                    pipeline=stages,
                    sharding=sharding,
                    shard=shard,
                    recompute=recompute,
                    offload=offload,
                    precision=precision,
                    micro_batch=micro,
                    sequence_parallel=tensor > 1,
                ),
            )

    return legal(cases())
