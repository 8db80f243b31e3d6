"""Bytes of model states (weights, gradients, master weights, moments) and how each framework divides them."""

from __future__ import annotations

from typing import Any

from meshwright.formulas.numeric import Bytes, Count, Fraction, maximum
from meshwright.formulas.registry import formula

ZERO = "Rajbhandari et al. 2020, ZeRO, arXiv 1910.02054, section 3 and figure 1"
MEGATRON = "Megatron-LM issue 654 (maintainer) and megatron/training/theoretical_memory_usage.py"
DEEPSPEED = "DeepSpeed, docs 'Memory Requirements' and deepspeed/runtime/zero estimators"


@formula("memory.states.unsharded", source=ZERO, equation="P (W + G + M + K)")
def unsharded_states(
    params: Count, weight: Bytes = 2, gradient: Bytes = 2, master: Bytes = 4, moments: Bytes = 8
) -> Bytes:
    """Model states that every rank keeps whole (plain data parallelism).

    Parameters
    ----------
    params : parameters of the rank, after tensor, pipeline and expert division
    weight, gradient, master, moments : bytes per parameter of each state

    Notes
    -----
    ZeRO section 3.1: mixed-precision Adam keeps 2 + 2 + 12 = 16 bytes per parameter.
    Assumes Adam with fp32 moments and an fp32 copy of the weights. Ignores buffers and fragmentation.

    Examples
    --------
    >>> unsharded_states(7.5e9) / 1e9
    120.0
    """
    return params * (weight + gradient + master + moments)


@formula("memory.states.zero1", source=ZERO, equation="P (W + G + (M + K)/N)")
def zero1_states(
    params: Count, ranks: Count, weight: Bytes = 2, gradient: Bytes = 2, master: Bytes = 4, moments: Bytes = 8
) -> Bytes:
    """Model states with the optimizer divided over `ranks` (ZeRO stage 1, P_os).

    Parameters
    ----------
    params : parameters of the rank, after tensor, pipeline and expert division
    ranks : ranks the optimizer states are divided over
    weight, gradient, master, moments : bytes per parameter of each state

    Notes
    -----
    4Ψ + KΨ/N with K = 12 (ZeRO figure 1). Ignores padding of the flat buffers.

    Examples
    --------
    >>> round(zero1_states(7.5e9, 64) / 1e9, 1)
    31.4
    """
    return params * (weight + gradient + (master + moments) / ranks)


@formula("memory.states.zero2", source=ZERO, equation="P (W + (G + M + K)/N)")
def zero2_states(
    params: Count, ranks: Count, weight: Bytes = 2, gradient: Bytes = 2, master: Bytes = 4, moments: Bytes = 8
) -> Bytes:
    """Model states with optimizer and gradients divided over `ranks` (ZeRO stage 2, P_os+g).

    Parameters
    ----------
    params : parameters of the rank, after tensor, pipeline and expert division
    ranks : ranks the states are divided over
    weight, gradient, master, moments : bytes per parameter of each state

    Notes
    -----
    2Ψ + 14Ψ/N (ZeRO figure 1). Ignores the reduce buckets that hold gradients in flight.

    Examples
    --------
    >>> round(zero2_states(7.5e9, 64) / 1e9, 1)
    16.6
    """
    return params * (weight + (gradient + master + moments) / ranks)


@formula("memory.states.zero3", source=ZERO, equation="P (W + G + M + K)/N")
def zero3_states(
    params: Count, ranks: Count, weight: Bytes = 2, gradient: Bytes = 2, master: Bytes = 4, moments: Bytes = 8
) -> Bytes:
    """Model states all divided over `ranks` (ZeRO stage 3, FSDP full shard).

    Parameters
    ----------
    params : parameters of the rank, after tensor, pipeline and expert division
    ranks : ranks the states are divided over
    weight, gradient, master, moments : bytes per parameter; FSDP2 with mixed precision keeps 0, 4, 4 and 8

    Notes
    -----
    16Ψ/N (ZeRO figure 1); FSDP2's fp32 weights, gradients and Adam moments give the same 16 bytes.
    Ignores the gathered units, see `memory.buffers.fsdp`.

    Examples
    --------
    >>> round(zero3_states(7.5e9, 64) / 1e9, 1)
    1.9
    """
    return params * (weight + gradient + master + moments) / ranks


@formula("memory.states.one", source=ZERO, equation="P B/N")
def one_state(params: Count, ranks: Count, per_parameter: Bytes) -> Bytes:
    """One kind of model state, whole on every rank (`ranks` = 1) or divided over the ranks that share it.

    Parameters
    ----------
    params : parameters of the rank, after tensor, pipeline and expert division
    ranks : ranks this state is divided over under the ZeRO stage
    per_parameter : bytes per parameter of this state

    Examples
    --------
    >>> one_state(8e9, 1, 4) / 1e9, one_state(8e9, 64, 8) / 1e9  # gradients and moments under ZeRO-1
    (32.0, 1.0)
    """
    return params * per_parameter / ranks


@formula("memory.states.megatron", source=MEGATRON, equation="P (6 + 12/N)")
def megatron_states(params: Count, distributed: Count = 1, byte: Bytes = 1) -> Bytes:
    """Megatron's weights and optimizer: 18 bytes a parameter, or 6 + 12/DP with the distributed optimizer.

    Parameters
    ----------
    params : parameters of the most loaded shard
    distributed : ranks that share the optimizer (1 without `--use-distributed-optimizer`)
    byte : one byte, carries the unit

    Notes
    -----
    bf16 weight 2, fp32 main gradient 4, fp32 main weight 4, Adam 8. Assumes bf16 training with fp32 gradient
    accumulation. Ignores embeddings kept twice when tied across pipeline stages.

    Examples
    --------
    >>> megatron_states(1e9), megatron_states(1e9, 2)
    (18000000000.0, 12000000000.0)
    """
    return params * (6 + 12 / distributed) * byte


@formula(
    "memory.states.expert_shards",
    source="Megatron-LM parallel_state, expert data parallel group",
    equation="D C T/(E X)",
)
def expert_data_parallel(shard: Count, tensor: Count, expert: Count, expert_tensor: Count) -> Count:
    """Ranks that hold the same experts: what is left of the data, context and tensor ranks after expert division.

    Parameters
    ----------
    shard : ranks of the dense sharding group (data times context, or one HSDP shard group)
    tensor, expert, expert_tensor : degrees of tensor, expert and expert-tensor parallelism

    Notes
    -----
    Assumes groups that nest (Megatron's order). Never below one rank.

    Examples
    --------
    >>> expert_data_parallel(64, 1, 8, 1)
    8.0
    """
    return maximum(shard * tensor / (expert * expert_tensor), 1.0)


@formula(
    "memory.states.adafactor",
    source="Shazeer and Stern 2018, Adafactor, arXiv 1804.04235, algorithm 4",
    equation="4 P (1/rows + 1/columns)",
)
def adafactor_moments(params: Count, rows: Count, columns: Count, element: Bytes = 4) -> Bytes:
    """Factored second moment of Adafactor: one row and one column vector per matrix.

    Parameters
    ----------
    params : parameters in matrices
    rows, columns : typical shape of a matrix
    element : bytes per value

    Notes
    -----
    Assumes no first moment (beta1 = 0, the default). Ignores vectors, which are not factored.

    Examples
    --------
    >>> adafactor_moments(1e6, 1000, 1000)
    8000.0
    """
    return element * params * (1 / rows + 1 / columns)


@formula(
    "memory.states.adam8bit",
    source="Dettmers et al. 2022, 8-bit Optimizers, arXiv 2110.02861; bitsandbytes block size 256",
    equation="2 P (1 + 4/block)",
)
def adam_8bit_moments(params: Count, block: Count = 256, byte: Bytes = 1) -> Bytes:
    """Two Adam moments in 8 bits with one fp32 scale per block each.

    Parameters
    ----------
    params : parameters of the rank
    block : values that share a scale
    byte : one byte, carries the unit

    Notes
    -----
    Ignores small tensors (under 4,096 values) that stay in 32 bits.

    Examples
    --------
    >>> adam_8bit_moments(256)
    520.0
    """
    return 2 * params * (1 + 4 / block) * byte


@formula("memory.deepspeed.zero2.device", source=DEEPSPEED, equation="4P + 16P/N; offload 2P")
def deepspeed_zero2_device(params: Count, devices: Count, offload: bool = False, byte: Bytes = 1) -> Bytes:
    """Device bytes that DeepSpeed's ZeRO-2 estimator prints.

    Parameters
    ----------
    params : parameters of the model
    devices : all devices
    offload : optimizer states and gradients on the host
    byte : one byte, carries the unit

    Notes
    -----
    Model states only: no activations, buckets, context. The printed "GB" are GiB.

    Examples
    --------
    >>> round(deepspeed_zero2_device(6650.8e6, 2) / 2**30, 2)
    74.33
    """
    return 2 * params * byte if offload else (4 * params + 16 * params / devices) * byte


@formula("memory.deepspeed.zero2.host", source=DEEPSPEED, equation="f P max(4n, 16); no offload f 4 P n")
def deepspeed_zero2_host(
    params: Count,
    devices: Count,
    devices_per_node: Count,
    offload: bool = False,
    factor: Fraction = 1.5,
    byte: Bytes = 1,
) -> Bytes:
    """Host bytes of one node that DeepSpeed's ZeRO-2 estimator prints.

    Parameters
    ----------
    params : parameters of the model
    devices, devices_per_node : all devices, and those of one node
    offload : optimizer states and gradients on the host
    factor : buffer factor of the estimator
    byte : one byte, carries the unit

    Notes
    -----
    With offload the larger of the fp32 copies at initialisation (4 bytes a parameter and device) and the states.

    Examples
    --------
    >>> round(deepspeed_zero2_host(6650.8e6, 2, 2, offload=True) / 2**30, 2)
    148.66
    """
    per_parameter = maximum(4 * devices, 16) if offload else 4 * devices_per_node
    return params * per_parameter * factor * byte


@formula(
    "memory.deepspeed.zero3.device", source=DEEPSPEED, equation="4 P_largest (+ 18P/N, or 2P/N with optimizer offload)"
)
def deepspeed_zero3_device(
    params: Count,
    largest_layer: Count,
    devices: Count,
    offload_optimizer: bool = False,
    offload_params: bool = False,
    byte: Bytes = 1,
) -> Bytes:
    """Device bytes that DeepSpeed's ZeRO-3 estimator prints.

    Parameters
    ----------
    params, largest_layer : parameters of the model and of its largest layer
    devices : all devices
    offload_optimizer, offload_params : what lives on the host
    byte : one byte, carries the unit

    Notes
    -----
    The largest layer is counted at 4 bytes: gathered weights and their gradients in 16 bits.

    Examples
    --------
    >>> round(deepspeed_zero3_device(2851e6, 32e6, 8) / 2**30, 2)
    6.09
    """
    resident = 4 * largest_layer * byte
    if offload_optimizer:
        return resident if offload_params else resident + 2 * params / devices * byte
    return resident + 18 * params / devices * byte


@formula("memory.deepspeed.zero3.host", source=DEEPSPEED, equation="f P 18/nodes with offload and zero.Init")
def deepspeed_zero3_host(
    params: Count,
    largest_layer: Count,
    devices_per_node: Count,
    nodes: Count,
    offload_optimizer: bool = False,
    offload_params: bool = False,
    zero_init: bool = True,
    factor: Fraction = 1.5,
    byte: Bytes = 1,
) -> Bytes:
    """Host bytes of one node that DeepSpeed's ZeRO-3 estimator prints.

    Parameters
    ----------
    params, largest_layer : parameters of the model and of its largest layer
    devices_per_node, nodes : shape of the cluster
    offload_optimizer, offload_params : what lives on the host
    zero_init : the model is built under `zero.Init`, never whole on one rank
    factor : buffer factor of the estimator
    byte : one byte, carries the unit

    Notes
    -----
    Without `zero.Init` each rank first builds the whole model in fp32: 4 bytes a parameter and device of the node.

    Examples
    --------
    >>> round(deepspeed_zero3_host(2851e6, 32e6, 8, 1, True, True) / 2**30, 1)
    71.7
    """
    build = 4 * devices_per_node
    if not offload_optimizer:
        return (largest_layer if zero_init else params) * build * factor * byte
    states = (18 if offload_params else 16) / nodes
    return params * (states if zero_init else maximum(build, states)) * factor * byte


@formula("memory.host.offload", source="DeepSpeed issue 912: 100B on 64 V100, 225 GB a node", equation="P/N n (K + W)")
def host_offload(params: Count, ranks: Count, devices_per_node: Count, states: Bytes = 16, weights: Bytes = 2) -> Bytes:
    """Host bytes of one node that hold offloaded optimizer states (and weights) in steady state.

    Parameters
    ----------
    params : parameters of the model
    ranks : ranks the states are divided over, model parallelism included
    devices_per_node : ranks on one node
    states : bytes per parameter of gradients, master weights and moments on the host
    weights : bytes per parameter of offloaded weights (0 when they stay on the device)

    Notes
    -----
    Ignores pinned staging buffers and the process itself.

    Examples
    --------
    >>> host_offload(100e9, 64, 8) / 1e9
    225.0
    """
    return params / ranks * devices_per_node * (states + weights)


@formula("memory.host.initialise", source="DeepSpeed issue 912, setting 1", equation="n P_rank 4 + states")
def host_initialise(rank_params: Count, devices_per_node: Count, steady: Bytes = 0, element: Bytes = 4) -> Bytes:
    """Host peak while every rank builds its own model shard on the host before states are partitioned.

    Parameters
    ----------
    rank_params : parameters one rank builds (the model over tensor and pipeline parallelism)
    devices_per_node : ranks on one node
    steady : bytes of offloaded states already there
    element : bytes per value while building (fp32)

    Notes
    -----
    Avoided by `zero.Init`, by the meta device, or by loading one rank at a time.

    Examples
    --------
    >>> host_initialise(6.25e9, 8, 200e9) / 1e9
    400.0
    """
    return rank_params * devices_per_node * element + steady


@formula("memory.host.checkpoint", source="PyTorch issues 118520 and 116553", equation="n P K; sharded n P K/N")
def host_checkpoint(params: Count, devices_per_node: Count, ranks: Count, whole: bool, states: Bytes = 8) -> Bytes:
    """Host bytes of one node while optimizer states are staged for a checkpoint.

    Parameters
    ----------
    params : parameters whose states are saved
    devices_per_node : ranks on one node
    ranks : ranks the states are divided over
    whole : each rank keeps the full tensor alive (torch < 2.3 with `cpu_offload=True, full_state_dict=False`)
    states : bytes per parameter staged

    Notes
    -----
    The whole-tensor case: slices of a gathered tensor keep its storage, so the host holds a copy per rank.

    Examples
    --------
    >>> host_checkpoint(7e9, 8, 64, True) / 1e9, host_checkpoint(7e9, 8, 64, False) / 1e9
    (448.0, 7.0)
    """
    return params * states * devices_per_node * (1 if whole else 1 / ranks)


def bytes_per_value(precision: str) -> Any:
    """Bytes of one value in `precision`'s storage type (8- and 4-bit recipes keep 16-bit weights)."""
    return 4 if precision in ("fp32", "tf32") else 2
