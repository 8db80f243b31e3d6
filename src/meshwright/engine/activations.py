"""What one block keeps for the backward pass, and what is alive for a moment while it runs backward."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from meshwright.catalog.constants import constants
from meshwright.engine.operators import Shape, Walk, block_input_bytes, block_walk, saved_bytes
from meshwright.engine.software import Software
from meshwright.formulas.numeric import minimum, two_largest, where
from meshwright.spec.cluster import Accelerator
from meshwright.spec.model import ModelSpec
from meshwright.spec.strategy import Strategy

# Names people write for Megatron's recompute modules.
_ALIASES = {"core_attention": "core_attn", "attention": "core_attn", "norm": "layernorm", "activation": "mlp_act"}


class BlockActivations(NamedTuple):
    """Per block kind: bytes stored per layer and micro-batch, and extra bytes while one layer runs backward."""

    stored: tuple[Any, ...]
    transient: tuple[Any, ...]


def copied_output(device: Accelerator, stack: Software) -> bool:
    """Whether Transformer Engine keeps the attention output twice: FlashAttention's lies batch first and is copied.

    FlashAttention runs on Ampere, and on Blackwell where cuDNN's kernel is not deterministic; that takes any layout.
    """
    flash = device.architecture == "ampere" or (device.architecture == "blackwell" and stack.deterministic)
    return flash and stack.framework == "megatron" and stack.transformer_engine and stack.fused_attention


def recompute_groups(strategy: Strategy) -> tuple[str, ...]:
    """The operator groups that selective recompute runs again."""
    return tuple(_ALIASES.get(op, op) for op in strategy.recompute_ops)


@functools.cache
def groups_of_model(model: ModelSpec) -> frozenset[str]:
    """The operator groups that some block of `model` has."""
    walks = [block_walk(model, block, Shape(micro_batch=1, seq_len=2)) for block in model.blocks]
    named = {op.group for walk in walks for op in walk.operators}
    freed = {group for walk in walks for saved in walk.saved for group in saved.freed_by}
    return frozenset((named | freed) - {""})


def every_other_matmul(strategy: Strategy) -> bool:
    """Whether `selective` means PyTorch's checkpointing by operator: every second matrix product is stored."""
    return strategy.framework == "fsdp" and recompute_groups(strategy) == ("core_attn",)


def _every_other_matmul(walk: Walk, shape: Shape, block_input: Any) -> Any:
    """torchtitan's selective checkpointing by operator: every second matrix product and attention output is stored."""
    kept = ("attention.out.input", "mixer.out.input", "attention.logsumexp")
    attention = sum(s.bytes for s in walk.saved if s.name in kept)
    return block_input + _stored_products(walk, shape) + attention


def _stored_products(walk: Walk, shape: Shape) -> Any:
    """Outputs of every second product of a block.

    Eager PyTorch counts from the first: it stores query, value, gate and down projection, and runs key, the attention's
    output and the up projection again. A compiled graph has them in an order of its own: half, on average.
    """
    products = {op.name: op for op in walk.operators if "matmul" in op.kind}
    outputs = {name: op.m * op.n * op.batch * shape.element for name, op in products.items()}
    if shape.fused_elementwise or not {"attention.qkv", "mlp.in", "mlp.out"} <= outputs.keys():
        return sum(outputs.values()) / 2
    keys = sum(s.bytes for s in walk.saved if s.name == "attention.kv") / 2
    fan = products["mlp.in"].n / products["mlp.out"].k  # 2 with a gate, when the down projection is the seventh
    return outputs["attention.qkv"] - keys + outputs["mlp.in"] / fan + outputs["mlp.out"] * (fan - 1)


# Tensors whose rows are the tokens an expert rank receives.
_RECEIVED = ("moe.in.input", "moe.activation.input", "moe.out.input")


def _at_heaviest(walk: Walk, shape: Shape) -> Walk:
    """The walk with what experts receive in the heaviest micro-batch of a run; time asks for the mean."""
    if isinstance(shape.expert_imbalance, float | int) and shape.expert_imbalance == 1:
        return walk
    if not any(saved.name in _RECEIVED for saved in walk.saved):
        return walk
    peak = where(shape.expert_imbalance > 1, constants("memory", "frameworks")["routing_peak"], 1.0)
    saved = tuple(s._replace(bytes=s.bytes * peak) if s.name in _RECEIVED else s for s in walk.saved)
    return walk._replace(saved=saved)


# Inputs of matrix products, which Transformer Engine keeps as it multiplies them: bytes over those of 16-bit values.
_QUANTISED = {"fp8": 1 / 2, "mxfp8": 33 / 64, "nvfp4": 9 / 32}
_INPUTS = ("attention.qkv.input", "attention.down.input", "mlp.in.input", "mlp.out.input", "shared.in.input",
           "shared.out.input", "moe.in.input", "moe.out.input")  # fmt: skip


def _quantised(walk: Walk, strategy: Strategy) -> Walk:
    """The walk with inputs of products in the recipe's own format; the attention's output is needed as it is, too."""
    share = _QUANTISED.get(strategy.precision, 1.0)
    if share == 1.0 or strategy.framework != "megatron":
        return walk
    saved = []
    for s in walk.saved:
        both = 1 + share if s.name == "attention.out.input" else 1.0
        saved.append(s._replace(bytes=s.bytes * (share if s.name in _INPUTS else both)))
    return walk._replace(saved=tuple(saved))


def stored_and_transient(walk: Walk, shape: Shape, block_input: Any, strategy: Strategy) -> tuple[Any, Any]:
    """Stored and transient bytes of one block under the strategy's recompute mode.

    Backward holds the gradient of an operator's output and of its input at once: as much as the two largest saved
    tensors, which lie on both sides of the activation function or of the softmax. Recomputed tensors come on top of
    what is stored.
    """
    walk = _quantised(_at_heaviest(walk, shape), strategy)
    everything = saved_bytes(walk, ())
    working = two_largest(tensor.bytes for tensor in walk.saved)
    if strategy.recompute == "none":
        return everything, working
    if strategy.recompute == "full":
        return block_input, everything - block_input + working
    if every_other_matmul(strategy):
        stored = minimum(_every_other_matmul(walk, shape, block_input), everything)
    else:
        stored = saved_bytes(walk, recompute_groups(strategy))
    return stored, everything - stored + working


def block_activations(model: ModelSpec, strategy: Strategy, shape: Shape) -> BlockActivations:
    """Activations of every block kind of `model` for one shape."""
    block_input = block_input_bytes(model, shape)
    pairs = [stored_and_transient(block_walk(model, b, shape), shape, block_input, strategy) for b in model.blocks]
    return BlockActivations(tuple(p[0] for p in pairs), tuple(p[1] for p in pairs))
