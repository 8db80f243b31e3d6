"""Parameters one rank holds, the bytes of each of their states, and what divides them, per framework."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

from meshwright.engine.params import BlockParams, ModelParams, embedding_width, model_params, params_of_block
from meshwright.engine.stages import StageClass
from meshwright.formulas import memory as f
from meshwright.formulas.numeric import ceil, maximum, where
from meshwright.spec.model import ModelSpec
from meshwright.spec.strategy import Strategy

_MEGATRON_VOCAB_MULTIPLE = 128  # --make-vocab-size-divisible-by, times the tensor-parallel degree
_LOW_PRECISION_WEIGHT = {"fp8": 2.0, "mxfp8": 2.0625, "nvfp4": 1.125}  # row- and column-wise copies with their scales


class RankParams(NamedTuple):
    """Parameters of one rank before any division over data-parallel ranks."""

    dense: Any  # all but routed experts
    expert: Any
    tables: Any  # the part of `dense` in token table, positions and head
    matrices: Any  # the part of dense blocks that low-precision recipes keep copies of
    unit: Any  # the largest block: what sharded frameworks gather at once
    end_unit: Any  # the larger of token table and head
    head_unit: Any
    matrix: Any  # the largest weight matrix of a block
    shapes: Any  # one weight of every shape that the blocks have

    @property
    def total(self) -> Any:
        """Everything on the rank."""
        return self.dense + self.expert


class StateBytes(NamedTuple):
    """Bytes per parameter of each state; `table_moments` where embeddings use another optimizer (Muon)."""

    weight: float  # in the compute type, where it lives beside the master copy
    gradient: float
    master: float
    moments: float
    table_moments: float


class Shards(NamedTuple):
    """Ranks each state is divided over, for dense and for expert parameters."""

    weight: tuple[Any, Any]
    gradient: tuple[Any, Any]
    master: tuple[Any, Any]
    moments: tuple[Any, Any]


def padded_vocab(model: ModelSpec, strategy: Strategy) -> Any:
    """Vocabulary as the framework stores it: Megatron pads it to a multiple of 128·TP."""
    if strategy.framework != "megatron":
        return model.vocab
    multiple = _MEGATRON_VOCAB_MULTIPLE * strategy.tensor
    return ceil(model.vocab / multiple) * multiple


def block_on_rank(kind: BlockParams, strategy: Strategy) -> tuple[Any, Any]:
    """Dense and expert parameters that one rank holds of one block."""
    dense = kind.tensor_sharded / strategy.tensor + kind.replicated
    return dense, kind.expert / (strategy.expert * strategy.expert_tensor)


def largest_matrix(kind: BlockParams, strategy: Strategy) -> Any:
    """Parameters of the largest weight of a block on one rank: two thirds of a gated MLP or of the experts."""
    largest: Any = 0
    for part in kind.parts:
        size = part.params / (strategy.expert * strategy.expert_tensor if part.split == "expert" else strategy.tensor)
        if part.name in ("mlp.in_out", "moe.shared", "moe.experts"):
            size = size * 2 / 3
        largest = maximum(largest, size)
    return largest


_WEIGHTS = ("mixer", "cross", "mlp", "moe")  # groups of parts that are matrices, the router's aside


def weight_shapes(model: ModelSpec, kinds: Iterable[int], strategy: Strategy) -> Any:
    """Parameters on one rank of one weight of every shape: blocks alike share theirs, experts count once."""
    sizes: dict[tuple[str, int], Any] = {}
    for kind in kinds:
        block, experts = model.blocks[kind], getattr(model.blocks[kind].mlp, "experts", 1)
        for part in params_of_block(block, model.hidden).parts:
            if part.group not in _WEIGHTS or part.name == "moe.router":
                continue
            split = {"expert": experts * strategy.expert_tensor, "tensor": strategy.tensor, "replicated": 1}[part.split]
            sizes[part.name, part.params] = part.params / split
    return sum(sizes.values())


def rank_params(model: ModelSpec, strategy: Strategy, stage: StageClass) -> RankParams:
    """Parameters of a rank of `stage`, after tensor, pipeline and expert division; remembered for plain numbers."""
    if isinstance(strategy.tensor, int):
        return _rank_params_once(
            model, stage, strategy.framework, strategy.tensor, strategy.expert, strategy.expert_tensor
        )
    return _rank_params(model, strategy, stage)


@lru_cache(maxsize=4096)
def _rank_params_once(
    model: ModelSpec, stage: StageClass, framework: str, tensor: int, expert: int, expert_tensor: int
) -> RankParams:
    strategy = Strategy(framework=framework, tensor=tensor, expert=expert, expert_tensor=expert_tensor)
    return _rank_params(model, strategy, stage)


def _rank_params(model: ModelSpec, strategy: Strategy, stage: StageClass) -> RankParams:
    p = model_params(model)
    blocks = [block_on_rank(kind, strategy) for kind in p.blocks]
    counts = stage.counts
    dense = sum(n * d for n, (d, _) in zip(counts, blocks, strict=True))
    expert = sum(n * e for n, (_, e) in zip(counts, blocks, strict=True))
    matrices = sum(n * kind.tensor_sharded for n, kind in zip(counts, p.blocks, strict=True)) / strategy.tensor
    table = padded_vocab(model, strategy) * embedding_width(model) / strategy.tensor
    embedding = table if stage.embedding else 0
    head = _head_params(p, stage, table)
    ends = embedding + head
    if stage.embedding:
        ends = ends + p.positions
        dense = dense + p.embedding_norm + p.extra_first
    if stage.head:
        dense = dense + p.final_norm + p.extra_last + p.head_bias / strategy.tensor
    if stage.mtp:
        own = (p.mtp / model.mtp_layers - p.blocks[model.pattern[-1]].total) / strategy.tensor
        dense = dense + model.mtp_layers * (blocks[model.pattern[-1]][0] + own)
        expert = expert + model.mtp_layers * blocks[model.pattern[-1]][1]
        if not stage.embedding:
            ends = ends + table  # the modules look tokens up again
    unit: Any = 0
    matrix: Any = 0
    for n, (d, e), kind in zip(counts, blocks, p.blocks, strict=True):
        if n:
            unit = maximum(unit, d + e)
            matrix = maximum(matrix, largest_matrix(kind, strategy))
    shapes = weight_shapes(model, (i for i, n in enumerate(counts) if n), strategy)
    return RankParams(dense + ends, expert, ends, matrices, unit, maximum(embedding, head), head, matrix, shapes)


def _head_params(p: ModelParams, stage: StageClass, table: Any) -> Any:
    """The head's matrix on this rank: own, or a copy of a tied table that lives on another rank."""
    if not stage.head or not p.head_matrix:
        return 0
    return table if p.head or not stage.embedding else 0


@lru_cache(maxsize=512)
def state_bytes(framework: str, precision: str, optimizer: str, gradient: float, hidden: int) -> StateBytes:
    """Bytes per parameter of each state. `gradient` is what the software accumulates gradients in."""
    value = f.bytes_per_value(precision)
    moments = {
        "adamw": 8.0, "adamw-bf16": 4.0, "adamw-8bit": f.adam_8bit_moments(1.0), "sgd": 0.0, "sgd-momentum": 4.0,
        "lion": 4.0, "muon": 4.0, "adafactor": f.adafactor_moments(1.0, hidden, hidden),
    }[optimizer]  # fmt: skip
    table = 8.0 if optimizer == "muon" else moments
    if framework == "megatron" and precision == "fp16":
        gradient = value  # accumulation in fp32 comes with bf16 only: docs/source/api-guide/dist_optimizer.md
    pure = optimizer == "adamw-bf16" or (optimizer == "adamw-8bit" and framework in ("fsdp", "jax"))
    if pure or value == 4:  # weights are updated in place: no copy in another type
        stored = 2 if pure else 4
        kept = (0.0, stored) if framework in ("fsdp", "jax") else (stored, 0.0)
        return StateBytes(kept[0], stored if pure else 4.0, kept[1], moments, table)
    if framework in ("fsdp", "jax"):  # the sharded fp32 weights are the parameters; the 16-bit copy is gathered
        return StateBytes(2.0, gradient, 4.0, moments, table)
    return StateBytes(2.0, gradient, 4.0, moments, table)


_DIVIDED = {
    "none": (),
    "zero1": ("master", "moments"),
    "zero2": ("gradient", "master", "moments"),
    "zero3": ("weight", "gradient", "master", "moments"),
}
# PyTorch: ZeroRedundancyOptimizer leaves the fp32 parameters whole; FSDP always stores them sharded.
_DIVIDED_FSDP = {**_DIVIDED, "zero1": ("moments",)}


def shard_group(strategy: Strategy) -> Any:
    """Ranks over which dense states are divided; also for columns, where `Strategy.shard_group` cannot choose."""
    return where(strategy.shard > 0, strategy.shard, strategy.data * strategy.context)


def shards(strategy: Strategy) -> Shards:
    """Divisors of every state. Experts are divided over the ranks that hold the same experts."""
    dense = shard_group(strategy)
    expert = f.expert_data_parallel(dense, strategy.tensor, strategy.expert, strategy.expert_tensor)
    table = _DIVIDED_FSDP if strategy.framework in ("fsdp", "jax") else _DIVIDED
    divided = table[strategy.sharding]
    return Shards(**{name: (dense, expert) if name in divided else (1, 1) for name in Shards._fields})


def model_states(params: RankParams, states: StateBytes, by: Shards) -> dict[str, Any]:
    """Bytes of each state on one rank."""

    def size(per_parameter: float, ranks: tuple[Any, Any]) -> Any:
        dense = f.one_state(params.dense, ranks[0], per_parameter)
        return dense + f.one_state(params.expert, ranks[1], per_parameter)

    extra = (states.table_moments - states.moments) * params.tables / by.moments[0]
    return {
        "parameters": size(states.weight, by.weight),
        "gradients": size(states.gradient, by.gradient),
        "main_parameters": size(states.master, by.master),
        "optimizer": size(states.moments, by.moments) + extra,
    }


def low_precision_copies(params: RankParams, strategy: Strategy) -> Any:
    """Quantised weights that Transformer Engine keeps beside the 16-bit ones between micro-batches."""
    if strategy.framework != "megatron":
        return 0.0
    return _LOW_PRECISION_WEIGHT.get(strategy.precision, 0.0) * (params.matrices + params.expert)
