"""What a software stack does on its own: which kernels are fused, what it overlaps, in which precision it reduces."""

from __future__ import annotations

from dataclasses import dataclass, fields

from meshwright.catalog.constants import constants, names, remembers_constants
from meshwright.errors import UnknownNameError

CURRENT = {"megatron": "megatron-core", "fsdp": "fsdp2", "deepspeed": "deepspeed", "jax": "maxtext"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Software:
    """Constants of one software profile; see data/software for the source of each."""

    id: str
    framework: str
    fused_attention: bool
    attention_kernel: str  # best, flash2, flash1: which of an architecture's kernels it calls
    fused_elementwise: bool
    fused_loss: bool
    gradient_bytes: float
    reduce_bytes: float
    overlap_grad_reduce: bool
    overlap_param_gather: bool
    overlap_p2p: bool
    bucket_elements: float
    host_kernels: float
    moe_kernels: float
    step_overhead: float
    dispatcher: str  # what carries tokens to experts: alltoall, deepep, hybridep
    dispatch_bytes: float  # of one element on its way to an expert
    bucket_per_rank: float  # a bucket holds at least this many elements per data rank
    grouped_launches: float  # kernels per local expert and grouped product: 0 where one kernel takes all experts
    low_launches: float  # that many times as many under an fp8 or fp4 recipe: quantise both ways, lay out the scales
    cast_bytes: float  # moved to quantise one element row- and column-wise
    gather_by_broadcast: bool = False  # each owner of a shard sends it to all others in turn
    dropout: bool = False
    transformer_engine: bool = True  # Megatron's layers come from Transformer Engine, not from torch
    accumulation_fusion: bool = True  # Megatron's weight gradients are added into the buffer by the product itself
    deferred_logits: float = 0.0  # micro-batches whose gradient of the logits waits for the head's weight gradient
    deterministic: bool = False  # cuBLAS is given the workspaces that torch asks for in deterministic mode


@remembers_constants(maxsize=32)
def software(name: str, framework: str = "megatron") -> Software:
    """The profile `name`, or the current one of `framework` when `name` is empty.

    Raises `UnknownNameError` with the known profiles.
    """
    chosen = name or CURRENT[framework]
    if chosen not in names("software"):
        raise UnknownNameError("software", chosen, names("software"))
    values = constants("software", chosen)
    known = {f.name for f in fields(Software)}
    return Software(id=chosen, **{k: v for k, v in values.items() if k in known})
