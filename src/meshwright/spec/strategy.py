"""How the work is partitioned. Fields hold ints, or numpy columns of equal length for many strategies at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Framework = Literal["megatron", "fsdp", "deepspeed", "jax"]
Sharding = Literal["none", "zero1", "zero2", "zero3"]
Schedule = Literal["1f1b", "interleaved", "gpipe", "zb-h1", "zbv", "dualpipe"]
RecomputeMode = Literal["none", "selective", "full"]
Offload = Literal["none", "optimizer", "parameters", "activations"]
Dispatcher = Literal["auto", "alltoall", "deepep", "hybridep"]
Graphs = Literal["none", "partial", "full"]

FRAMEWORKS: tuple[str, ...] = ("megatron", "fsdp", "deepspeed", "jax")
SHARDINGS: tuple[str, ...] = ("none", "zero1", "zero2", "zero3")
SCHEDULES: tuple[str, ...] = ("1f1b", "interleaved", "gpipe", "zb-h1", "zbv", "dualpipe")
RECOMPUTES: tuple[str, ...] = ("none", "selective", "full")
LOSSES: tuple[str, ...] = ("auto", "plain", "compiled", "fused", "chunked")
OFFLOADS: tuple[str, ...] = ("none", "optimizer", "parameters", "activations")
DISPATCHERS: tuple[str, ...] = ("auto", "alltoall", "deepep", "hybridep")
GRAPHS: tuple[str, ...] = ("none", "partial", "full")


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """One way to partition a job.

    `data` is the whole data-parallel degree, sharding included: devices = data·tensor·pipeline·context.
    `expert` divides data·context (Megatron's EP); inside expert layers tensor parallelism is `expert_tensor`.
    `shard` is the size of the group that shards states (FSDP/ZeRO); `shard < data·context` is HSDP. 0: all of it.
    """

    framework: Any = "megatron"
    data: Any = 1
    tensor: Any = 1
    pipeline: Any = 1
    virtual: Any = 1  # model chunks per pipeline rank
    context: Any = 1
    expert: Any = 1
    expert_tensor: Any = 1
    sharding: Any = "zero1"
    shard: Any = 0
    sequence_parallel: Any = True  # only meaningful with tensor > 1
    micro_batch: Any = 1
    schedule: Any = "1f1b"
    recompute: Any = "none"
    recompute_ops: tuple[str, ...] = ("core_attention",)  # what selective recomputes
    offload: Any = "none"
    precision: Any = "bf16"
    overlap_grad_reduce: Any = True
    overlap_param_gather: Any = True
    overlap_tensor: Any = False
    overlap_expert: Any = False
    layers_per_stage: tuple[int, ...] = ()  # uneven split; empty: even
    loss: Any = "auto"  # how logits and cross entropy are computed; auto: as the software does
    dispatcher: Any = "auto"  # what carries tokens to experts; auto: as the software does
    graphs: Any = "none"  # CUDA graphs: none, partial (all but the experts), full (the whole iteration)

    @property
    def devices(self) -> Any:
        """Devices the strategy occupies."""
        return self.data * self.tensor * self.pipeline * self.context

    @property
    def shard_group(self) -> Any:
        """Ranks over which sharded states are divided."""
        return self.shard or self.data * self.context

    @property
    def short(self) -> str:
        """Compact name, e.g. `tp8 pp4 dp16 vp2 mbs1 zero1 selective`."""
        parts = [f"tp{self.tensor}", f"pp{self.pipeline}"]
        if self.context != 1:
            parts.append(f"cp{self.context}")
        if self.expert != 1:
            parts.append(f"ep{self.expert}")
        if self.expert_tensor != self.tensor and self.expert != 1:
            parts.append(f"etp{self.expert_tensor}")
        parts.append(f"dp{self.data}")
        if self.virtual != 1:
            parts.append(f"vp{self.virtual}")
        parts.append(f"mbs{self.micro_batch}")
        return " ".join(parts)
