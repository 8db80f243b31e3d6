"""The small terms that decide a fit: buckets, gathered units, boundary buffers, temporaries, context."""

from __future__ import annotations

from meshwright.formulas.numeric import Bytes, Count, Fraction, maximum, minimum
from meshwright.formulas.registry import formula


@formula(
    "memory.buffers.ddp",
    source="PyTorch DDP reducer: bucket_cap_mb = 25, gradient_as_bucket_view = False; pull 41954",
    equation="P G",
)
def ddp_buckets(params: Count, gradient: Bytes = 4, view: bool = False) -> Bytes:
    """Reduction buckets of PyTorch DDP: a second copy of all gradients unless gradients are views of the buckets.

    Parameters
    ----------
    params : parameters of the rank
    gradient : bytes per gradient
    view : `gradient_as_bucket_view=True`

    Examples
    --------
    >>> ddp_buckets(266e6) / 1e6, ddp_buckets(266e6, view=True)
    (1064.0, 0.0)
    """
    return params * gradient * (0.0 if view else 1.0)


@formula(
    "memory.buffers.zero_reduce",
    source="DeepSpeed zero_optimization.reduce_bucket_size = 5e8, overlap_comm",
    equation="min(B, P) G k",
)
def zero_reduce_buckets(params: Count, bucket: Count = 5e8, gradient: Bytes = 2, copies: Count = 2) -> Bytes:
    """Gradient reduction buckets of DeepSpeed ZeRO-1/2.

    Parameters
    ----------
    params : parameters of the rank
    bucket : bucket size in elements
    gradient : bytes per element
    copies : 2 with `overlap_comm` (double buffering), else 1

    Examples
    --------
    >>> round(zero_reduce_buckets(7e9, copies=1) / 2**30, 2)
    0.93
    """
    return minimum(bucket, params) * gradient * copies


@formula(
    "memory.buffers.zero3_gather",
    source="DeepSpeed stage3_max_live_parameters = 1e9, stage3_prefetch_bucket_size = 5e7",
    equation="min(live, P, unit + prefetch) W",
)
def zero3_gather(params: Count, unit: Count, prefetch: Count = 5e7, live: Count = 1e9, weight: Bytes = 2) -> Bytes:
    """Gathered weights of DeepSpeed ZeRO-3: the unit in use and the prefetch bucket, within the live limit.

    Parameters
    ----------
    params : parameters of the rank before sharding
    unit : parameters of the largest module gathered at once
    prefetch, live : DeepSpeed's limits, in elements
    weight : bytes per weight

    Examples
    --------
    >>> zero3_gather(8e9, 218e6) / 1e6
    536.0
    """
    return minimum(maximum(minimum(live, unit + prefetch), unit), params) * weight


@formula(
    "memory.buffers.fsdp_forward",
    source="PyTorch FSDP2 _fsdp_collectives.py: current and prefetched unit, all-gather output",
    equation="(u1 + u2 + max) W",
)
def fsdp_gathered(largest: Count, next_largest: Count, weight: Bytes = 2, staged: Fraction = 1.0) -> Bytes:
    """Unsharded weights of FSDP: the unit in use, the prefetched one, and the flat all-gather output it is copied from.

    Parameters
    ----------
    largest, next_largest : parameters of the unit in use and of the prefetched unit, over tensor parallelism
    weight : bytes per gathered weight
    staged : share of a unit that lies in the all-gather output while the copy runs (0 for FSDP1)

    Examples
    --------
    >>> fsdp_gathered(218e6, 218e6) / 1e6
    1308.0
    """
    return (largest + next_largest + staged * largest) * weight


@formula(
    "memory.buffers.fsdp_backward",
    source="PyTorch FSDP2 foreach_reduce: unsharded gradients, reduce-scatter input and output",
    equation="u (G + R)",
)
def fsdp_gradients(unit: Count, gradient: Bytes = 2, reduce: Bytes = 4) -> Bytes:
    """Unsharded gradients of one FSDP unit and the reduce-scatter input they are copied into.

    Parameters
    ----------
    unit : parameters of the unit, over tensor parallelism
    gradient : bytes per computed gradient
    reduce : bytes per value that is reduced

    Examples
    --------
    >>> fsdp_gradients(218e6) / 1e6
    1308.0
    """
    return unit * (gradient + reduce)


@formula(
    "memory.buffers.no_sync",
    source="PyTorch FSDP2 unsharded_accumulated_grad; torch.distributed.pipelining stage",
    equation="P G (1 - 1/N)",
)
def unsynchronised_gradients(params: Count, ranks: Count, gradient: Bytes = 4) -> Bytes:
    """Extra gradients when accumulation runs without synchronisation: whole on every rank instead of sharded.

    Parameters
    ----------
    params : parameters of the rank before sharding
    ranks : ranks they would be divided over
    gradient : bytes per accumulated gradient

    Examples
    --------
    >>> unsynchronised_gradients(1e9, 8) / 1e9
    3.5
    """
    return params * gradient * (1 - 1 / ranks)


@formula(
    "memory.buffers.sequence_gather",
    source="Korthikanti et al. 2022, arXiv 2205.05198, section 4.2.2; Megatron GlobalMemoryBuffer",
    equation="2 sbh",
)
def sequence_gather(tokens: Count, hidden: Count, element: Bytes = 2) -> Bytes:
    """The gathered input of a layer under sequence parallelism (one buffer, reused by all layers).

    Parameters
    ----------
    tokens : tokens of the micro-batch before division over tensor ranks
    hidden : hidden size
    element : bytes per value

    Examples
    --------
    >>> sequence_gather(4096, 8192) / 2**20
    64.0
    """
    return tokens * hidden * element


@formula("memory.buffers.pipeline", source="Megatron-LM p2p_communication.py", equation="2 k sbh/t")
def pipeline_buffers(tokens: Count, hidden: Count, shards: Count = 1, buffers: Count = 2, element: Bytes = 2) -> Bytes:
    """Receive and send buffers between stages: an activation coming in and a gradient coming back.

    Parameters
    ----------
    tokens : tokens of the micro-batch
    hidden : hidden size
    shards : ranks a boundary activation is divided over (t with sequence parallelism)
    buffers : tensors alive at once (4 when sends overlap in an interleaved schedule)
    element : bytes per value

    Examples
    --------
    >>> pipeline_buffers(4096, 8192, 8) / 2**20
    16.0
    """
    return tokens * hidden * element * buffers / shards


@formula(
    "memory.temporaries.foreach", source="torch.optim.AdamW(foreach=True): list of square roots, fp32", equation="4 P/N"
)
def foreach_temporaries(params: Count, ranks: Count = 1, element: Bytes = 4) -> Bytes:
    """Temporaries of an unfused optimizer step: one fp32 copy of everything this rank updates.

    Parameters
    ----------
    params : parameters of the rank before sharding
    ranks : ranks they are divided over
    element : bytes per temporary value (0 for a fused optimizer)

    Examples
    --------
    >>> foreach_temporaries(8e9, 8) / 1e9
    4.0
    """
    return params / ranks * element


@formula(
    "memory.context", source="nvidia-smi of idle processes; NCCL buffers, 4 MiB a channel and peer", equation="C + k n"
)
def context(base: Bytes, per_communicator: Bytes, communicators: Count) -> Bytes:
    """Memory outside the framework's allocator: driver context, kernels, and the buffers of each communicator.

    Parameters
    ----------
    base : context, loaded kernels and library workspaces
    per_communicator : buffers of one NCCL (or RCCL) communicator
    communicators : process groups with more than one rank

    Examples
    --------
    >>> context(5e8, 2e8, 3)
    1100000000.0
    """
    return base + per_communicator * communicators


@formula(
    "memory.reserve",
    source="allocated against reserved in SimuMax v1.2 B200 runs and torchtune issue 1185",
    equation="f A",
)
def allocator_reserve(allocated: Bytes, fraction: Fraction) -> Bytes:
    """What the caching allocator holds beyond what is allocated: rounding and fragments.

    Parameters
    ----------
    allocated : bytes allocated at the peak
    fraction : share lost

    Notes
    -----
    Fragmentation depends on the order of allocations; `expandable_segments:True` brings it near zero.

    Examples
    --------
    >>> allocator_reserve(50e9, 0.04)
    2000000000.0
    """
    return allocated * fraction
