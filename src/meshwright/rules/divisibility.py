"""MW-C1xx: what must divide what, for the mesh to exist and every rank to hold whole pieces of the model."""

from __future__ import annotations

import math

from meshwright.messages import N_, Text
from meshwright.rules.base import Mask, RuleContext, Said, rule
from meshwright.rules.nearest import (
    any_indivisible,
    by_value,
    closest,
    divisors,
    indivisible,
    listed,
    nearest_divisors,
    nearest_multiples,
)

MEGATRON = "megatron"
DEGREES = ("data", "tensor", "pipeline", "context", "expert", "expert_tensor", "virtual", "micro_batch")
MEGATRON_ARGS = "Megatron-LM megatron/training/arguments.py, validate_args"
MEGATRON_CONFIG = "megatron-core transformer/transformer_config.py, TransformerConfig.__post_init__"

ENDS = 2  # the embedding and the head may be stages without layers


def has_experts(c: RuleContext) -> bool:
    """Whether the model routes tokens to experts."""
    return bool(c.facts.experts)


def degree_below_one(c: RuleContext) -> Mask:
    """Some degree is below one."""
    s = c.strategy
    bad: Mask = s.shard < 0
    for name in DEGREES:
        bad = bad | (getattr(s, name) < 1)
    return bad


@rule(
    "MW-C100",
    title=N_("Every degree is at least 1"),
    reason=N_("A parallel degree counts the ranks of a group, and a group has at least one rank."),
    fix=N_("Use 1 for a kind of parallelism that is not wanted."),
    condition="data, tensor, pipeline, context, expert, expert_tensor, virtual, micro_batch >= 1; shard >= 0",
    source="definition",
    where="strategy",
    violated=degree_below_one,
)
def degrees_positive(c: RuleContext) -> Said:
    bad = [n for n in DEGREES if getattr(c.strategy, n) < 1] + ["shard"] * (c.strategy.shard < 0)
    return Text(N_("these degrees are below 1: {names}"), names=", ".join(bad)), None, {"fields": bad}


@rule(
    "MW-C101",
    title=N_("The mesh uses every device exactly once"),
    reason=N_("Each device has one coordinate on every axis of the mesh, so the degrees multiply to the device count. "
              "Context parallelism is an axis of its own: it is not taken out of data parallelism."),
    fix=N_("Change one degree so that the product equals the number of devices."),
    condition="data * tensor * pipeline * context == devices",
    source="Megatron-LM parallel_state.py initialize_model_parallel; pytorch/torchtitan#1184; "
           "AI-Hypercomputer/maxtext#43",
    where="data",
    violated=lambda c: c.model_ranks * c.strategy.data != c.cluster.devices,
)  # fmt: skip
def world(c: RuleContext) -> Said:
    s, devices = c.strategy, c.cluster.devices
    product = s.devices
    legal = {}
    for name in ("data", "context", "pipeline", "tensor"):
        others = product // getattr(s, name)
        if devices % others == 0:
            legal[name] = devices // others
    message = Text(
        N_("data {data} × tensor {tensor} × pipeline {pipeline} × context {context} = {product}, "
           "but the cluster has {devices} devices: {product} != {devices}"),
        data=s.data, tensor=s.tensor, pipeline=s.pipeline, context=s.context, product=product, devices=devices,
    )  # fmt: skip
    if legal:
        options = ", ".join(f"{name}={value}" for name, value in legal.items())
        fix = Text(N_("use one of: {options}"), options=options)
    else:
        step = s.tensor * s.pipeline * s.context
        counts = nearest_multiples(step, devices)
        fix = Text(
            N_("{step} devices make one replica (tensor × pipeline × context): use {counts} devices, or a divisor "
               "of {devices} for that product"),
            step=step, counts=listed(counts), devices=devices,
        )  # fmt: skip
    return message, fix, {"product": product, "devices": devices, "legal": legal}


@rule(
    "MW-C102",
    title=N_("Attention heads split evenly over tensor parallelism"),
    reason=N_("Tensor parallelism gives each rank whole attention heads."),
    fix=N_("Use a tensor-parallel degree that divides the number of heads."),
    condition="heads % tensor == 0",
    source=f"{MEGATRON_CONFIG}; deepspeedai/DeepSpeed#3634; hpcaitech/ColossalAI#3043",
    where="tensor",
    applies=lambda c: bool(c.facts.heads),
    violated=lambda c: indivisible(c.facts.head_gcd, c.strategy.tensor),
)
def heads(c: RuleContext) -> Said:
    tensor, domain, node = c.strategy.tensor, c.cluster.domain_size, c.cluster.node_size
    legal = nearest_divisors(c.facts.head_gcd, tensor, 8)
    # Groups that tile nodes: 6 of 8 devices would leave two over, or straddle nodes.
    tiling = (d for d in divisors(c.facts.head_gcd) if node % d == 0 or d % node == 0)
    inside = max(d for d in tiling if d <= max(domain, 1))
    message = Text(
        N_("{heads} attention heads cannot be split over tensor parallelism {tensor}"),
        heads=listed(c.facts.heads), tensor=tensor,
    )  # fmt: skip
    fix = Text(
        N_("tensor = {legal}; within a scale-up domain of {domain} devices at most {inside}"),
        legal=listed(legal), domain=domain, inside=inside,
    )  # fmt: skip
    return message, fix, {"heads": list(c.facts.heads), "legal": legal, "inside_domain": inside}


KV_REPLICATING = frozenset({"megatron", "deepspeed"})


def kv_illegal(c: RuleContext) -> Mask:
    """Key/value heads neither split over tensor parallelism nor, where the framework can, replicate evenly."""
    bad: Mask = False
    for kv in c.facts.kv_heads:
        uneven = indivisible(kv, c.strategy.tensor)
        if c.strategy.framework in KV_REPLICATING:
            uneven = uneven & (c.strategy.tensor % kv != 0)
        bad = bad | uneven
    return bad


def kv_replicated(c: RuleContext) -> Mask:
    """Fewer key/value heads than tensor-parallel ranks, evenly."""
    bad: Mask = False
    for kv in c.facts.kv_heads:
        bad = bad | (c.strategy.tensor > kv) & (c.strategy.tensor % kv == 0)
    return bad


@rule(
    "MW-C103",
    title=N_("Key/value heads split evenly over tensor parallelism"),
    reason=N_("Grouped-query attention has few key/value heads; a rank holds whole ones. Megatron and DeepSpeed can "
              "copy a head on several ranks, DTensor and JAX shardings cannot."),
    fix=N_("Use a tensor-parallel degree that divides the number of key/value heads."),
    condition="kv_heads % tensor == 0 (megatron, deepspeed: or tensor % kv_heads == 0)",
    source=f"{MEGATRON_CONFIG}; DeepSpeed tutorial autotp-training; torchtitan ColwiseParallel on wk and wv",
    where="tensor",
    applies=lambda c: bool(c.facts.kv_heads),
    violated=kv_illegal,
)  # fmt: skip
def kv_heads(c: RuleContext) -> Said:
    kv, tensor = math.gcd(*c.facts.kv_heads), c.strategy.tensor
    legal = nearest_divisors(math.gcd(kv, c.facts.head_gcd), tensor)
    message = Text(
        N_("{kv} key/value heads cannot be split over tensor parallelism {tensor}"),
        kv=listed(c.facts.kv_heads), tensor=tensor,
    )  # fmt: skip
    return message, Text(N_("tensor = {legal}"), legal=listed(legal)), {"legal": legal}


@rule(
    "MW-C104",
    severity="warning",
    title=N_("Key/value heads are copied when tensor parallelism exceeds them"),
    reason=N_("With more tensor-parallel ranks than key/value heads each head is held and computed by several ranks; "
              "older megatron-core (before num_query_groups could be smaller than the degree) refuses it, and "
              "DeepSpeed "
              "AutoTP leaves the surplus ranks without attention work."),
    fix=N_("Keep the tensor-parallel degree at or below the number of key/value heads."),
    condition="tensor <= kv_heads",
    source=f"{MEGATRON_CONFIG}; DeepSpeed tutorial autotp-training",
    where="tensor",
    frameworks=KV_REPLICATING,
    applies=lambda c: bool(c.facts.kv_heads),
    violated=kv_replicated,
)  # fmt: skip
def kv_heads_replicated(c: RuleContext) -> Said:
    kv, tensor = min(c.facts.kv_heads), c.strategy.tensor
    message = Text(
        N_("tensor parallelism {tensor} exceeds {kv} key/value heads: each is copied on {copies} ranks"),
        tensor=tensor, kv=kv, copies=tensor // kv,
    )  # fmt: skip
    legal = closest(divisors(kv), tensor)
    return message, Text(N_("tensor = {legal}"), legal=listed(legal)), {"copies": tensor // kv, "legal": legal}


@rule(
    "MW-C105",
    title=N_("MLP width splits evenly over tensor parallelism"),
    reason=N_("The first MLP matrix is split by columns and the second by rows; both cuts must fall between columns."),
    fix=N_("Use a tensor-parallel degree that divides the width of the MLP."),
    condition="mlp_width % tensor == 0",
    source="Shoeybi et al. 2019, arXiv:1909.08053, section 3; megatron-core tensor_parallel/utils.py divide",
    where="tensor",
    applies=lambda c: bool(c.facts.dense_widths),
    violated=lambda c: indivisible(c.facts.dense_gcd, c.strategy.tensor),
)
def mlp_width(c: RuleContext) -> Said:
    tensor = c.strategy.tensor
    legal = nearest_divisors(math.gcd(c.facts.dense_gcd, c.facts.head_gcd), tensor)
    message = Text(
        N_("MLP width {widths} cannot be split over tensor parallelism {tensor}"),
        widths=listed(c.facts.dense_widths), tensor=tensor,
    )  # fmt: skip
    return message, Text(N_("tensor = {legal}"), legal=listed(legal)), {"legal": legal}


def layers_uneven(c: RuleContext) -> Mask:
    """Layers do not divide over virtual stages (and no explicit split was given)."""
    if c.strategy.layers_per_stage:
        return False
    return by_value(c.strategy.pipeline * c.chunks, lambda stages: c.facts.layers % stages != 0)


def even_split(layers: int, stages: int) -> list[int]:
    """Layers per stage as even as can be; the last and the first, which hold head and embedding, lightened first."""
    rest = layers % stages
    split = [layers // stages + (rest > 0)] * stages
    order = [stages - 1, *range(stages - 1)][:2] + list(range(stages - 2, 0, -1))
    for stage in order[: stages - rest] if rest else ():
        split[stage] -= 1
    return split


@rule(
    "MW-C106",
    title=N_("Layers divide over the virtual pipeline stages"),
    reason=N_("Megatron gives every virtual stage the same number of layers unless a layout says otherwise."),
    fix=N_("Use a pipeline degree (times chunks) that divides the layers, or give the layers of each stage."),
    condition="layers % (pipeline * virtual) == 0, or layers_per_stage given",
    source=f"{MEGATRON_CONFIG}; {MEGATRON_ARGS} (--pipeline-model-parallel-layout for uneven splits)",
    where="pipeline",
    frameworks=(MEGATRON,),
    applies=lambda c: not c.uneven_stages,
    violated=layers_uneven,
)
def layers_divide(c: RuleContext) -> Said:
    s, layers = c.strategy, c.facts.layers
    stages = s.pipeline * c.chunks
    legal = [p for p in divisors(layers) if p <= layers // c.chunks and layers % (p * c.chunks) == 0]
    message = Text(
        N_("{layers} layers do not divide over {pipeline} pipeline ranks × {chunks} chunks = {stages} virtual stages"),
        layers=layers, pipeline=s.pipeline, chunks=c.chunks, stages=stages,
    )  # fmt: skip
    split = even_split(layers, stages) if stages <= layers else []
    if split and legal:
        fix = Text(
            N_("pipeline = {legal}, or layers_per_stage = {split}"),
            legal=listed(closest(legal, s.pipeline)), split=listed(split),
        )  # fmt: skip
    elif split:
        fix = Text(N_("layers_per_stage = {split}"), split=listed(split))
    else:
        fix = Text(N_("pipeline × chunks at most {layers}"), layers=layers)
    return message, fix, {"legal": closest(legal, s.pipeline) if legal else [], "layers_per_stage": split}


@rule(
    "MW-C107",
    severity="warning",
    title=N_("Pipeline stages with unequal numbers of layers"),
    reason=N_("Torch pipelining and DeepSpeed split unevenly by themselves, Megatron with a layout; the step "
              "runs at the "
              "pace of the fullest stage. One layer fewer beside the embedding and the head balances them."),
    fix=N_("Prefer a pipeline degree (times chunks) that divides the layers, or give layers_per_stage."),
    condition="layers % (pipeline * virtual) == 0",
    source="Llama Team 2024, arXiv:2407.21783, section 3.3.2 (one layer fewer on the first and last stage)",
    where="pipeline",
    applies=lambda c: c.uneven_stages or c.strategy.framework in ("fsdp", "deepspeed"),
    violated=layers_uneven,
)  # fmt: skip
def layers_unequal(c: RuleContext) -> Said:
    layers, stages = c.facts.layers, c.strategy.pipeline * c.chunks
    most = -(-layers // stages)
    message = Text(
        N_("{layers} layers over {stages} virtual stages: the fullest holds {most}, {loss:.0%} above the mean"),
        layers=layers, stages=stages, most=most, loss=most * stages / layers - 1,
    )  # fmt: skip
    if stages > layers:
        return message, None, {"most": most, "stages": stages}
    split = even_split(layers, stages)
    fix = Text(
        N_("layers_per_stage = {split}, or a pipeline that divides {layers}"), split=listed(split), layers=layers
    )
    return message, fix, {"most": most, "stages": stages, "layers_per_stage": split}


@rule(
    "MW-C108",
    title=N_("Every virtual stage between the first and the last holds at least one layer"),
    reason=N_("A stage without layers has nothing to compute; only the embedding and the head can stand alone."),
    fix=N_("Lower the pipeline degree or the number of chunks."),
    condition="pipeline * virtual <= layers + 2",
    source="megatron-core --pipeline-model-parallel-layout (embedding and loss may be stages of their own)",
    where="pipeline",
    violated=lambda c: c.strategy.pipeline * c.chunks > c.facts.layers + ENDS,
)
def layers_enough(c: RuleContext) -> Said:
    s, layers = c.strategy, c.facts.layers
    message = Text(
        N_("{stages} virtual stages (pipeline {pipeline} × chunks {chunks}) for {layers} layers"),
        stages=s.pipeline * c.chunks, pipeline=s.pipeline, chunks=c.chunks, layers=layers,
    )  # fmt: skip
    most = (layers + ENDS) // c.chunks
    if most < 1:
        return message, Text(N_("pipeline × chunks at most {layers}"), layers=layers + ENDS), {"legal": []}
    return message, Text(N_("pipeline at most {most}"), most=most), {"legal": [most]}


def split_inconsistent(c: RuleContext) -> Mask:
    """`layers_per_stage` does not describe this model on this many stages."""
    split, s = c.strategy.layers_per_stage, c.strategy
    if sum(split) != c.facts.layers or min(split) < 0 or min(split[1:-1], default=1) < 1:
        return True
    return (len(split) != s.pipeline) & (len(split) != s.pipeline * c.chunks)


@rule(
    "MW-C109",
    title=N_("An explicit layer split matches the model and the pipeline"),
    reason=N_(
        "A split lists the layers of every stage: as many entries as stages, none empty between the first and the last,"
        " together the whole model."
    ),
    fix=N_("List one number of layers per stage, summing to the layers of the model."),
    condition="len(layers_per_stage) in {pipeline, pipeline * virtual}; sum == layers; inner ones >= 1",
    source=f"{MEGATRON_ARGS} (--pipeline-model-parallel-layout)",
    where="layers_per_stage",
    applies=lambda c: bool(c.strategy.layers_per_stage),
    violated=split_inconsistent,
)
def layer_split(c: RuleContext) -> Said:
    s, split = c.strategy, c.strategy.layers_per_stage
    message = Text(
        N_("layers_per_stage has {entries} entries summing to {total}; the model has {layers} layers and the pipeline "
           "{stages} virtual stages"),
        entries=len(split), total=sum(split), layers=c.facts.layers, stages=s.pipeline * c.chunks,
    )  # fmt: skip
    stages = s.pipeline * c.chunks
    if stages > c.facts.layers:
        return message, None, {}
    legal = even_split(c.facts.layers, stages)
    return message, Text(N_("layers_per_stage = {split}"), split=listed(legal)), {"layers_per_stage": legal}


@rule(
    "MW-C110",
    title=N_("Experts split evenly over expert parallelism"),
    reason=N_("Expert parallelism gives each rank whole experts, and each rank the same number."),
    fix=N_("Use an expert-parallel degree that divides the number of experts."),
    condition="experts % expert == 0",
    source="megatron-core transformer/moe/moe_layer.py (num_moe_experts % ep_size == 0)",
    where="expert",
    applies=has_experts,
    violated=lambda c: indivisible(c.facts.expert_gcd, c.strategy.expert),
)
def experts(c: RuleContext) -> Said:
    legal = nearest_divisors(c.facts.expert_gcd, c.strategy.expert)
    message = Text(
        N_("{experts} experts cannot be split over expert parallelism {expert}"),
        experts=listed(c.facts.experts), expert=c.strategy.expert,
    )  # fmt: skip
    return message, Text(N_("expert = {legal}"), legal=listed(legal)), {"legal": legal}


@rule(
    "MW-C111",
    title=N_("Expert parallelism needs experts"),
    reason=N_("A dense model has no experts to distribute."),
    fix=N_("Use expert = 1 for a dense model."),
    condition="expert == 1 for dense models",
    source=f"{MEGATRON_CONFIG}",
    where="expert",
    applies=lambda c: not c.facts.experts,
    violated=lambda c: c.strategy.expert > 1,
)
def experts_absent(c: RuleContext) -> Said:
    message = Text(
        N_("expert parallelism {expert}, but {model} has no experts"), expert=c.strategy.expert, model=c.model.name
    )
    return message, None, {"legal": [1]}


def expert_mesh_broken(c: RuleContext) -> Mask:
    """Expert groups do not tile the ranks of a pipeline stage."""
    s = c.strategy
    return (s.data * s.context * s.tensor) % (s.expert * s.expert_tensor) != 0


@rule(
    "MW-C112",
    title=N_("Expert groups tile the ranks of a pipeline stage"),
    reason=N_("Expert layers use the same ranks as attention, regrouped: expert × expert-tensor × expert-data "
              "ranks make "
              "up data × context × tensor."),
    fix=N_("Use an expert-parallel degree that divides data × context × tensor / expert_tensor."),
    condition="(data * context * tensor) % (expert * expert_tensor) == 0",
    source="megatron-core parallel_state.py initialize_model_parallel; Liu et al. 2025, arXiv:2504.14960",
    where="expert",
    applies=has_experts,
    violated=expert_mesh_broken,
)  # fmt: skip
def expert_mesh(c: RuleContext) -> Said:
    s = c.strategy
    ranks = s.data * s.context * s.tensor
    per = ranks // s.expert_tensor if ranks % s.expert_tensor == 0 else 0
    legal = closest(divisors(math.gcd(per, c.facts.expert_gcd)), s.expert) if per else []
    message = Text(
        N_("expert {expert} × expert_tensor {etp} does not divide the {ranks} ranks of a stage (data × context × "
           "tensor)"),
        expert=s.expert, etp=s.expert_tensor, ranks=ranks,
    )  # fmt: skip
    fix = Text(N_("expert = {legal}"), legal=listed(legal)) if legal else None
    return message, fix, {"legal": legal, "ranks": ranks}


@rule(
    "MW-C113",
    title=N_("Expert tensor parallelism divides tensor parallelism"),
    reason=N_("The ranks that share one expert are a part of a tensor-parallel group. Megatron also allows other "
              "foldings; they are not modelled here."),
    fix=N_("Use expert_tensor = 1, or a divisor of the tensor-parallel degree."),
    condition="tensor % expert_tensor == 0",
    source="limit of this model; torchtitan allows 1 or the tensor-parallel degree",
    where="expert_tensor",
    applies=has_experts,
    violated=lambda c: c.strategy.tensor % c.strategy.expert_tensor != 0,
)  # fmt: skip
def expert_tensor(c: RuleContext) -> Said:
    s = c.strategy
    legal = list(divisors(s.tensor))
    message = Text(N_("expert_tensor {etp} does not divide tensor {tensor}"), etp=s.expert_tensor, tensor=s.tensor)
    return message, Text(N_("expert_tensor = {legal}"), legal=listed(legal)), {"legal": legal}


@rule(
    "MW-C114",
    title=N_("Expert width splits evenly over expert tensor parallelism"),
    reason=N_("Each rank of an expert-tensor group holds whole columns of the expert's matrices."),
    fix=N_("Use an expert-tensor degree that divides the width of an expert."),
    condition="expert_width % expert_tensor == 0",
    source="megatron-core transformer/moe/experts.py; tensor_parallel/utils.py divide",
    where="expert_tensor",
    applies=has_experts,
    violated=lambda c: any_indivisible(c.facts.expert_widths, c.strategy.expert_tensor),
)
def expert_width(c: RuleContext) -> Said:
    s = c.strategy
    legal = closest(divisors(math.gcd(s.tensor, *c.facts.expert_widths)), s.expert_tensor)
    message = Text(
        N_("expert width {widths} cannot be split over expert_tensor {etp}"),
        widths=listed(c.facts.expert_widths), etp=s.expert_tensor,
    )  # fmt: skip
    return message, Text(N_("expert_tensor = {legal}"), legal=listed(legal)), {"legal": legal}


def sequence_factor(framework: str, tensor: int, context: int, sequence_parallel: bool) -> int:
    """What the sequence length must be a multiple of."""
    halves = 1 if context == 1 or framework == "deepspeed" else 2
    return context * math.lcm(halves, tensor if sequence_parallel else 1)


def sequence_uneven(c: RuleContext) -> Mask:
    """The sequence cannot be cut into equal pieces. Tested per degree: a least common multiple of columns is slow."""
    s, length = c.strategy, c.job.seq_len
    if s.framework == "deepspeed":
        over_context = indivisible(length, s.context)
    else:
        over_context = by_value(s.context, lambda cp: (cp > 1) & (length % (2 * cp) != 0))
    return over_context | ((s.sequence_parallel == 1) & indivisible(length, s.context * s.tensor))


@rule(
    "MW-C115",
    title=N_("The sequence splits evenly over context and sequence parallelism"),
    reason=N_("Causal context parallelism cuts the sequence in 2·context pieces, so that each rank gets an early and a "
              "late one; sequence parallelism cuts each rank's part once more over tensor parallelism. Together: a "
              "multiple of context · lcm(2, tensor). DeepSpeed Ulysses needs a multiple of context only."),
    fix=N_("Pad the sequence to the next multiple."),
    condition="seq_len % (2 * context) == 0 if context > 1; (seq_len / context) % tensor == 0 with sequence_parallel",
    source="NVIDIA-NeMo/RL#3563; NVIDIA-NeMo/Megatron-Bridge#1867; DeepSpeed runtime/sequence_parallel/ulysses_sp.py",
    where="seq_len",
    violated=sequence_uneven,
)  # fmt: skip
def sequence(c: RuleContext) -> Said:
    s, length = c.strategy, c.job.seq_len
    factor = sequence_factor(s.framework, s.tensor, s.context, bool(s.sequence_parallel))
    legal = nearest_multiples(factor, length)
    message = Text(
        N_("sequence length {length} is not a multiple of {factor} (context {context}, tensor {tensor}, "
           "sequence parallelism {on})"),
        length=length, factor=factor, context=s.context, tensor=s.tensor,
        on=Text(N_("on")) if s.sequence_parallel else Text(N_("off")),
    )  # fmt: skip
    fix = Text(N_("the nearest sequence lengths are {legal}"), legal=listed(legal))
    return message, fix, {"factor": factor, "legal": legal}


@rule(
    "MW-C116",
    title=N_("Ulysses sequence parallelism splits attention heads"),
    reason=N_("DeepSpeed's context parallelism (Ulysses) exchanges a part of the sequence for a part of the heads, so "
              "that heads are divided by tensor × context."),
    fix=N_("Use a context degree that divides the heads left by tensor parallelism."),
    condition="heads % (tensor * context) == 0",
    source="Jacobs et al. 2023, arXiv:2309.14509; DeepSpeed runtime/sequence_parallel/ulysses_sp.py",
    where="context",
    frameworks=("deepspeed",),
    applies=lambda c: bool(c.facts.heads),
    violated=lambda c: (c.strategy.context > 1) & indivisible(c.facts.head_gcd, c.strategy.tensor * c.strategy.context),
)  # fmt: skip
def ulysses_heads(c: RuleContext) -> Said:
    s, total = c.strategy, c.facts.head_gcd
    legal = nearest_divisors(total // s.tensor, s.context) if total % s.tensor == 0 else [1]
    message = Text(
        N_("{heads} heads cannot be split over tensor {tensor} × context {context}"),
        heads=listed(c.facts.heads), tensor=s.tensor, context=s.context,
    )  # fmt: skip
    return message, Text(N_("context = {legal}"), legal=listed(legal)), {"legal": legal}


@rule(
    "MW-C117",
    title=N_("The vocabulary splits evenly over tensor parallelism"),
    reason=N_("A sharding of JAX needs equal pieces of every sharded axis; nothing pads the vocabulary by itself."),
    fix=N_("Pad the vocabulary to a multiple of the tensor-parallel degree."),
    condition="vocab % tensor == 0",
    source="jax.sharding.NamedSharding (explicit input shardings must divide the axis)",
    where="vocab",
    frameworks=("jax",),
    violated=lambda c: indivisible(c.facts.vocab, c.strategy.tensor),
)
def vocabulary(c: RuleContext) -> Said:
    vocab, tensor = c.facts.vocab, c.strategy.tensor
    padded = -(-vocab // tensor) * tensor
    message = Text(N_("vocabulary {vocab} cannot be split over tensor {tensor}"), vocab=vocab, tensor=tensor)
    return message, Text(N_("pad the vocabulary to {padded}"), padded=padded), {"padded": padded}


@rule(
    "MW-C118",
    severity="info",
    title=N_("The vocabulary is split in unequal pieces"),
    reason=N_("DTensor and DeepSpeed shard a vocabulary that does not divide in unequal pieces: correct, but odd "
              "matrix "
              "shapes and an imbalance on the last rank."),
    fix=N_("Pad the vocabulary to a multiple of 128 × tensor."),
    condition="vocab % tensor == 0",
    source="torch.distributed.tensor (uneven sharding); DeepSpeed tutorial autotp-training",
    where="vocab",
    frameworks=("fsdp", "deepspeed"),
    violated=lambda c: indivisible(c.facts.vocab, c.strategy.tensor),
)  # fmt: skip
def vocabulary_uneven(c: RuleContext) -> Said:
    vocab, tensor = c.facts.vocab, c.strategy.tensor
    padded = -(-vocab // (128 * tensor)) * 128 * tensor
    message = Text(N_("vocabulary {vocab} is split unequally over tensor {tensor}"), vocab=vocab, tensor=tensor)
    return message, Text(N_("pad the vocabulary to {padded}"), padded=padded), {"padded": padded}


@rule(
    "MW-C119",
    severity="info",
    title=N_("Megatron pads the vocabulary"),
    reason=N_("Megatron pads the vocabulary to a multiple of 128 × tensor, so that each rank holds a round number of "
              "rows; the padding costs embedding and head parameters."),
    fix=N_("Nothing to do; count the padded rows when comparing checkpoints."),
    condition="vocab % (128 * tensor) == 0",
    source="Megatron-LM --make-vocab-size-divisible-by (default 128)",
    where="vocab",
    frameworks=(MEGATRON,),
    violated=lambda c: (c.facts.vocab > 0) & by_value(c.strategy.tensor, lambda t: c.facts.vocab % (128 * t) != 0),
)  # fmt: skip
def vocabulary_padded(c: RuleContext) -> Said:
    vocab, step = c.facts.vocab, 128 * c.strategy.tensor
    padded = -(-vocab // step) * step
    message = Text(
        N_("vocabulary {vocab} becomes {padded} (multiple of 128 × tensor {tensor}): {extra} rows more"),
        vocab=vocab, padded=padded, tensor=c.strategy.tensor, extra=padded - vocab,
    )  # fmt: skip
    return message, None, {"padded": padded}


def state_space_uneven(c: RuleContext) -> Mask:
    """Mamba channels or linear-attention heads do not split over tensor parallelism."""
    numbers = [n for pair in c.facts.mamba2 for n in pair] + [*c.facts.mamba1_widths, *c.facts.linear_heads]
    return any_indivisible(numbers, c.strategy.tensor)


@rule(
    "MW-C120",
    title=N_("Mamba and linear-attention heads split evenly over tensor parallelism"),
    reason=N_("A rank holds whole state-space heads and whole B/C groups, whole channels (Mamba-1), or whole key and "
              "value heads (linear attention)."),
    fix=N_("Use a tensor-parallel degree that divides heads and groups."),
    condition="mamba_heads % tensor == 0; mamba_groups % tensor == 0; linear key and value heads % tensor == 0",
    source="megatron-core ssm/mamba_mixer.py and ssm/gated_delta_net",
    where="tensor",
    applies=lambda c: bool(c.facts.mamba2 or c.facts.mamba1_widths or c.facts.linear_heads),
    violated=state_space_uneven,
)  # fmt: skip
def state_space(c: RuleContext) -> Said:
    f, tensor = c.facts, c.strategy.tensor
    numbers = sorted({n for pair in f.mamba2 for n in pair} | {*f.mamba1_widths, *f.linear_heads})
    legal = nearest_divisors(math.gcd(*numbers, f.head_gcd), tensor)
    message = Text(
        N_("state-space heads, groups or channels ({numbers}) cannot all be split over tensor {tensor}"),
        numbers=listed(numbers), tensor=tensor,
    )  # fmt: skip
    return message, Text(N_("tensor = {legal}"), legal=listed(legal)), {"legal": legal}


def shard_broken(c: RuleContext) -> Mask:
    """Shard groups do not tile the data-parallel ranks."""
    ranks = c.strategy.data * c.strategy.context
    shard = c.shard
    return (shard > ranks) | (ranks % (shard + (shard == 0)) != 0)


@rule(
    "MW-C121",
    title=N_("Shard groups tile the data-parallel ranks"),
    reason=N_("Hybrid sharding keeps one full copy per shard group, so the groups must tile data × context."),
    fix=N_("Use a shard size that divides data × context, or 0 for all of it."),
    condition="(data * context) % shard == 0",
    source="torchtitan dp_replicate × dp_shard × cp; Megatron-LM --num-distributed-optimizer-instances; MiCS",
    where="shard",
    violated=shard_broken,
)
def shard_groups(c: RuleContext) -> Said:
    ranks = c.strategy.data * c.strategy.context
    legal = nearest_divisors(ranks, c.shard)
    message = Text(
        N_("shard groups of {shard} do not tile the {ranks} data-parallel ranks (data × context)"),
        shard=c.shard, ranks=ranks,
    )  # fmt: skip
    return message, Text(N_("shard = {legal}"), legal=listed(legal)), {"legal": legal}


@rule(
    "MW-C122",
    title=N_("Each TPU slice holds whole data-parallel replicas"),
    reason=N_("Inside a slice the axes multiply to the devices of a slice (ICI), between slices to the number of "
              "slices "
              "(DCN): only data parallelism may cross from one slice to another."),
    fix=N_("Use a data degree that is a multiple of the number of slices."),
    condition="data % slices == 0",
    source="AI-Hypercomputer/maxtext#43 (ICI axes multiply to devices per slice, DCN axes to slices)",
    where="data",
    frameworks=("jax",),
    applies=lambda c: c.cluster.slices > 1,
    violated=lambda c: by_value(c.strategy.data, lambda d: d % c.cluster.slices != 0),
)  # fmt: skip
def slices(c: RuleContext) -> Said:
    count, per_slice = c.cluster.slices, c.cluster.devices // c.cluster.slices
    message = Text(
        N_("tensor {tensor} × context {context} does not divide the {per_slice} devices of a slice: data {data} over "
           "{slices} slices"),
        tensor=c.strategy.tensor, context=c.strategy.context, per_slice=per_slice, data=c.strategy.data, slices=count,
    )  # fmt: skip
    legal = nearest_multiples(count, c.strategy.data)
    return message, Text(N_("data = {legal}"), legal=listed(legal)), {"legal": legal}
