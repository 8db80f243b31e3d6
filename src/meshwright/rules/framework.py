"""MW-C3xx: what the chosen framework refuses, ignores or has not been tried with."""

from __future__ import annotations

import math

from meshwright.messages import N_, Text
from meshwright.rules.base import Mask, RuleContext, Said, rule
from meshwright.rules.nearest import indivisible, listed, nearest_divisors, negate
from meshwright.units import show

# Which values of a categorical field each framework runs. What is missing here is refused.
SHARDINGS_OF = {
    "megatron": ("none", "zero1"),
    "fsdp": ("none", "zero2", "zero3"),
    "deepspeed": ("none", "zero1", "zero2", "zero3"),
    "jax": ("none", "zero1", "zero3"),
}
SCHEDULES_OF = {
    "megatron": ("1f1b", "interleaved"),
    "fsdp": ("1f1b", "interleaved", "gpipe", "zb-h1", "zbv", "dualpipe"),
    "deepspeed": ("1f1b",),
    "jax": ("1f1b",),
}
FORKED_SCHEDULES = {"megatron": ("gpipe", "zb-h1", "zbv", "dualpipe")}  # exist outside the main line
OFFLOADS_OF = {
    "megatron": ("none", "optimizer", "activations"),
    "fsdp": ("none", "parameters", "activations"),
    "deepspeed": ("none", "optimizer", "parameters", "activations"),
    "jax": ("none", "optimizer", "parameters", "activations"),
}
OPTIMIZERS_OF = {
    "megatron": ("adamw", "adamw-bf16", "sgd", "sgd-momentum", "lion", "muon"),
    "fsdp": ("adamw", "adamw-bf16", "adamw-8bit", "adafactor", "sgd", "sgd-momentum", "lion", "muon"),
    "deepspeed": ("adamw", "adamw-bf16", "adamw-8bit", "sgd", "sgd-momentum", "lion", "muon"),
    "jax": ("adamw", "adamw-bf16", "adafactor", "sgd", "sgd-momentum", "lion", "muon"),
}
MEGATRON_ARGS = "Megatron-LM arguments.py validate_args"


def recomputed(c: RuleContext) -> tuple[str, ...]:
    """Operator groups of the strategy under Megatron's names, which an older one for the attention core joins."""
    return tuple("core_attn" if op == "core_attention" else op for op in c.strategy.recompute_ops)


def refused(table: dict[str, tuple[str, ...]], framework: str, value: str) -> bool:
    """Whether `framework` has no such value; unknown frameworks refuse nothing here."""
    return framework in table and value not in table[framework]


@rule(
    "MW-C301",
    title=N_("The framework has the pipeline schedule"),
    reason=N_("DeepSpeed's pipeline engine runs 1F1B only; schedules need support in the runtime."),
    fix=N_("Use a schedule that the framework runs."),
    condition="schedule in the schedules of the framework",
    source="DeepSpeed runtime/pipe/schedule.py TrainSchedule",
    where="schedule",
    violated=lambda c: (
        refused(SCHEDULES_OF, c.strategy.framework, c.strategy.schedule)
        and c.strategy.schedule not in FORKED_SCHEDULES.get(c.strategy.framework, ())
    ),
)
def schedule_known(c: RuleContext) -> Said:
    legal = SCHEDULES_OF[c.strategy.framework]
    message = Text(
        N_("{framework} has no schedule `{schedule}`"), framework=c.strategy.framework, schedule=c.strategy.schedule
    )
    return message, Text(N_("schedule = {legal}"), legal=", ".join(legal)), {"legal": list(legal)}


@rule(
    "MW-C302",
    severity="warning",
    title=N_("The schedule is not in the framework's main line"),
    reason=N_(
        "Zero-bubble schedules, DualPipe and GPipe are not part of Megatron-Core; they exist as separate projects."
    ),
    fix=N_("Use 1F1B or interleaving, or take the schedule from its project."),
    condition="schedule in the main line of the framework",
    source="sail-sg/zero-bubble-pipeline-parallelism; deepseek-ai/DualPipe; megatron-core schedules.py",
    where="schedule",
    frameworks=("megatron",),
    violated=lambda c: c.strategy.schedule in FORKED_SCHEDULES["megatron"],
)
def schedule_forked(c: RuleContext) -> Said:
    message = Text(N_("`{schedule}` is not part of Megatron-Core"), schedule=c.strategy.schedule)
    return message, None, {"legal": list(SCHEDULES_OF["megatron"])}


@rule(
    "MW-C303",
    title=N_("DeepSpeed refuses ZeRO-2 and ZeRO-3 with pipeline parallelism"),
    reason=N_("ZeRO-2 partitions gradients after each backward pass, which conflicts with accumulating them over the "
              "micro-batches of a pipeline."),
    fix=N_("Use ZeRO-1 with the pipeline, or pipeline = 1 (with --no-pipeline-parallel in Megatron-DeepSpeed, which "
           "builds the pipeline engine even for one stage)."),
    condition="pipeline == 1 or sharding in (none, zero1)",
    source="DeepSpeed runtime/pipe/engine.py PipelineEngine; deepspeedai/DeepSpeed#1629; Megatron-DeepSpeed#474",
    where="sharding",
    frameworks=("deepspeed",),
    applies=lambda c: c.strategy.sharding in ("zero2", "zero3"),
    violated=lambda c: c.strategy.pipeline > 1,
)  # fmt: skip
def zero_with_pipeline(c: RuleContext) -> Said:
    message = Text(
        N_("{sharding} with pipeline = {pipeline}"), sharding=c.strategy.sharding, pipeline=c.strategy.pipeline
    )
    return message, None, {"legal": ["none", "zero1"]}


@rule(
    "MW-C304",
    title=N_("The framework has the sharding stage"),
    reason=N_("Megatron's distributed optimizer is ZeRO-1 (its FSDP is not modelled here); FSDP shards gradients and "
              "optimizer states (ZeRO-2) or parameters too (ZeRO-3); JAX shards parameters or optimizer states."),
    fix=N_("Use a sharding stage that the framework has."),
    condition="sharding in the stages of the framework",
    source="Megatron-LM --use-distributed-optimizer; torch.distributed.fsdp ShardingStrategy and fully_shard; MaxText",
    where="sharding",
    violated=lambda c: refused(SHARDINGS_OF, c.strategy.framework, c.strategy.sharding),
)  # fmt: skip
def sharding_known(c: RuleContext) -> Said:
    legal = SHARDINGS_OF[c.strategy.framework]
    message = Text(
        N_("{framework} has no sharding `{sharding}`"), framework=c.strategy.framework, sharding=c.strategy.sharding
    )
    return message, Text(N_("sharding = {legal}"), legal=", ".join(legal)), {"legal": list(legal)}


def partial_shard(c: RuleContext) -> Mask:
    """Whether states are divided over a part of the data-parallel ranks only."""
    s = c.strategy
    return (s.shard != 0) & (s.shard != s.data * s.context)


PARTIAL_SHARD_OK = {"megatron": ("zero1",), "fsdp": ("zero2", "zero3"), "deepspeed": ("zero3",), "jax": ("zero3",)}


@rule(
    "MW-C305",
    title=N_("Shard groups smaller than data parallelism need a stage that has them"),
    reason=N_("Hybrid sharding exists in FSDP (HSDP), in DeepSpeed for ZeRO-3 only (MiCS, hpZ), in Megatron as several "
              "distributed-optimizer instances, in JAX as an FSDP axis beside a data axis."),
    fix=N_("Use shard = 0, or a sharding stage with hybrid groups."),
    condition="shard in (0, data * context) unless the sharding stage has hybrid groups",
    source="DeepSpeed zero_hpz_partition_size and mics_shard_size; Megatron-LM --num-distributed-optimizer-instances",
    where="shard",
    applies=lambda c: c.strategy.sharding not in PARTIAL_SHARD_OK.get(c.strategy.framework, (c.strategy.sharding,)),
    violated=partial_shard,
)  # fmt: skip
def shard_supported(c: RuleContext) -> Said:
    s = c.strategy
    message = Text(
        N_("{framework} cannot shard `{sharding}` states over groups of {shard} of {ranks} ranks"),
        framework=s.framework, sharding=s.sharding, shard=s.shard, ranks=s.data * s.context,
    )  # fmt: skip
    return message, None, {"legal": [0]}


@rule(
    "MW-C306",
    severity="warning",
    title=N_("Hybrid sharding with CPU offload is unproven in DeepSpeed"),
    reason=N_("A user of hpZ with offload saw the loss stuck and the gradient norm at zero; a maintainer calls the "
              "combination untested."),
    fix=N_("Drop either the offload or the partial shard group, or verify the loss against a plain ZeRO-3 run."),
    condition="offload == none with partial shard groups",
    source="deepspeedai/DeepSpeed#7019; hiyouga/LlamaFactory#6372",
    where="offload",
    frameworks=("deepspeed",),
    applies=lambda c: c.strategy.offload in ("optimizer", "parameters"),
    violated=partial_shard,
)  # fmt: skip
def hybrid_offload(c: RuleContext) -> Said:
    message = Text(
        N_("shard groups of {shard} with {offload} offload"), shard=c.strategy.shard, offload=c.strategy.offload
    )
    return message, None, {}


@rule(
    "MW-C307",
    severity="warning",
    title=N_("Tensor parallelism with ZeRO-3 is recent in DeepSpeed"),
    reason=N_("DeepSpeed AutoTP trains with ZeRO-3 only in recent versions, and Megatron-DeepSpeed needs "
              "--no-pipeline-parallel for it."),
    fix=N_("Use ZeRO-1 or ZeRO-2 with tensor parallelism, or check the version."),
    condition="tensor == 1 with zero3",
    source="DeepSpeed docs config-json (tensor_parallel); deepspeedai/Megatron-DeepSpeed#474",
    where="tensor",
    frameworks=("deepspeed",),
    applies=lambda c: c.strategy.sharding == "zero3",
    violated=lambda c: c.strategy.tensor > 1,
)  # fmt: skip
def tensor_zero3(c: RuleContext) -> Said:
    return Text(N_("tensor = {tensor} with ZeRO-3"), tensor=c.strategy.tensor), None, {}


@rule(
    "MW-C308",
    severity="warning",
    title=N_("ZeRO-3 must treat a mixture-of-experts block as one leaf"),
    reason=N_(
        "Ranks route tokens to different experts and would gather different parameters: out of memory, or a hang."
    ),
    fix=N_("Call deepspeed.utils.set_z3_leaf_modules with the class of the MoE block."),
    condition="dense model, or expert > 1, or set_z3_leaf_modules called",
    source="huggingface/trl#1268; deepspeedai/DeepSpeed#4966",
    where="sharding",
    frameworks=("deepspeed",),
    applies=lambda c: bool(c.facts.experts) and c.strategy.sharding == "zero3",
    violated=lambda c: c.strategy.expert == 1,
)
def leaf_modules(c: RuleContext) -> Said:
    message = Text(N_("ZeRO-3 with {experts} experts and no expert parallelism"), experts=listed(c.facts.experts))
    return message, None, {"requires": "set_z3_leaf_modules"}


@rule(
    "MW-C309",
    title=N_("DeepSpeed's expert parallelism does not combine with ZeRO-3 and tensor parallelism, or with a pipeline"),
    reason=N_("DeepSpeed-MoE refuses stage 3; its AutoEP allows it, but not together with tensor or sequence "
              "parallelism "
              "or partial shard groups. The pipeline engine knows no experts."),
    fix=N_("Use ZeRO-1 or ZeRO-2 and pipeline = 1 with expert parallelism."),
    condition="expert == 1, or pipeline == 1 and not (zero3 and (tensor > 1 or context > 1 or partial shard))",
    source="DeepSpeed runtime/engine.py (MoE with Stage 3); docs/_pages/config-json.md (AutoEP)",
    where="expert",
    frameworks=("deepspeed",),
    applies=lambda c: bool(c.facts.experts),
    violated=lambda c: (c.strategy.expert > 1)
    & (
        (c.strategy.pipeline > 1)
        | (c.strategy.sharding == "zero3") & ((c.strategy.tensor > 1) | (c.strategy.context > 1) | partial_shard(c))
    ),
)  # fmt: skip
def deepspeed_experts(c: RuleContext) -> Said:
    s = c.strategy
    message = Text(
        N_("expert = {expert} with {sharding}, tensor {tensor}, context {context}, pipeline {pipeline}"),
        expert=s.expert, sharding=s.sharding, tensor=s.tensor, context=s.context, pipeline=s.pipeline,
    )  # fmt: skip
    return message, None, {}


@rule(
    "MW-C310",
    title=N_("The framework can offload this"),
    reason=N_("Megatron offloads the optimizer or activations; FSDP's CPU offload moves parameters, gradients and "
              "optimizer together; DeepSpeed and JAX offload each kind."),
    fix=N_("Use an offload that the framework has."),
    condition="offload in the offloads of the framework",
    source="Megatron-LM --optimizer-cpu-offload and --cpu-offloading-num-layers; torch FSDP2 CPUOffloadPolicy; "
           "DeepSpeed offload_optimizer and offload_param; MaxText remat_policy and *_memory_host_offload",
    where="offload",
    violated=lambda c: refused(OFFLOADS_OF, c.strategy.framework, c.strategy.offload),
)  # fmt: skip
def offload_known(c: RuleContext) -> Said:
    legal = OFFLOADS_OF[c.strategy.framework]
    message = Text(
        N_("{framework} has no offload of `{offload}`"), framework=c.strategy.framework, offload=c.strategy.offload
    )
    return message, Text(N_("offload = {legal}"), legal=", ".join(legal)), {"legal": list(legal)}


@rule(
    "MW-C311",
    title=N_("Parameters can be offloaded only where they are sharded"),
    reason=N_("Parameter offload fetches each layer as it is needed, which only ZeRO-3 (FSDP) does; DeepSpeed ignores "
              "offload_param at stage 2 and the whole model stays on the device."),
    fix=N_("Use zero3 with parameter offload, or offload the optimizer only."),
    condition="offload != parameters or sharding == zero3",
    source="DeepSpeed runtime/zero/offload_config.py (valid only with stage 3); huggingface/trl#1268",
    where="offload",
    frameworks=("deepspeed", "fsdp", "jax"),
    violated=lambda c: c.strategy.offload == "parameters" and c.strategy.sharding != "zero3",
)  # fmt: skip
def offload_parameters(c: RuleContext) -> Said:
    weights = 2 * c.facts.weights / (c.strategy.tensor * c.strategy.pipeline)
    message = Text(
        N_("parameter offload with `{sharding}` has no effect: {weights} of weights stay on each device"),
        sharding=c.strategy.sharding, weights=show(weights, "B"),
    )  # fmt: skip
    return message, None, {"legal": ["zero3"]}


@rule(
    "MW-C312",
    title=N_("Optimizer offload needs a sharded optimizer in DeepSpeed"),
    reason=N_("offload_optimizer belongs to ZeRO: it is valid with stages 1, 2 and 3."),
    fix=N_("Use zero1, zero2 or zero3 with optimizer offload."),
    condition="offload != optimizer or sharding != none",
    source="DeepSpeed runtime/zero/offload_config.py (valid with stage 1, 2, and 3)",
    where="offload",
    frameworks=("deepspeed",),
    violated=lambda c: c.strategy.offload == "optimizer" and c.strategy.sharding == "none",
)
def offload_optimizer(c: RuleContext) -> Said:
    return Text(N_("optimizer offload without ZeRO")), None, {"legal": ["zero1", "zero2", "zero3"]}


@rule(
    "MW-C313",
    title=N_("Megatron's activation offload excludes pipelines and recomputation"),
    reason=N_("CPU offloading of layers is not supported with pipeline parallelism, nor together with activation "
              "recomputation."),
    fix=N_("Use pipeline = 1 and recompute = none with activation offload, or recompute instead of offloading."),
    condition="offload != activations or (pipeline == 1 and recompute == none)",
    source="megatron-core transformer_config.py (cpu_offloading)",
    where="offload",
    frameworks=("megatron",),
    applies=lambda c: c.strategy.offload == "activations",
    violated=lambda c: (c.strategy.pipeline > 1) | (c.strategy.recompute != "none"),
)  # fmt: skip
def offload_activations(c: RuleContext) -> Said:
    message = Text(
        N_("activation offload with pipeline = {pipeline} and recompute `{recompute}`"),
        pipeline=c.strategy.pipeline, recompute=c.strategy.recompute,
    )  # fmt: skip
    return message, None, {}


@rule(
    "MW-C314",
    title=N_("Pipelines in JAX are not offered here"),
    reason=N_("TPU slices and JAX meshes are planned as FSDP × tensor × context × expert; a pipeline is not modelled."),
    fix=N_("Use pipeline = 1 with JAX."),
    condition="pipeline == 1",
    source="limit of this model",
    where="pipeline",
    frameworks=("jax",),
    violated=lambda c: c.strategy.pipeline > 1,
)
def jax_pipeline(c: RuleContext) -> Said:
    message = Text(N_("pipeline = {pipeline} with JAX"), pipeline=c.strategy.pipeline)
    return message, None, {"legal": [1]}


@rule(
    "MW-C315",
    title=N_("TPUs are driven by JAX"),
    reason=N_("Megatron, FSDP and DeepSpeed are written for GPUs; on TPU slices only JAX is modelled."),
    fix=N_("Use framework = jax on TPUs."),
    condition="framework == jax on TPUs",
    source="Megatron-LM, torch FSDP2 and DeepSpeed need CUDA, ROCm or a vendor port",
    where="framework",
    frameworks=("megatron", "fsdp", "deepspeed"),
    violated=lambda c: c.cluster.accelerator.kind == "tpu",
)
def tpu_framework(c: RuleContext) -> Said:
    message = Text(
        N_("{framework} does not run on {device}"),
        framework=c.strategy.framework, device=c.cluster.accelerator.name,
    )  # fmt: skip
    return message, None, {"legal": ["jax"]}


@rule(
    "MW-C316",
    severity="warning",
    title=N_("The device needs the vendor's port of the framework"),
    reason=N_("Gaudi and Trainium run these frameworks through ports that lag behind and lack features."),
    fix=N_("Check that the vendor's port has every feature this strategy uses."),
    condition="accelerator kind is gpu or tpu",
    source="Intel Gaudi and AWS Neuron documentation",
    where="framework",
    violated=lambda c: c.cluster.accelerator.kind == "other",
)
def vendor_port(c: RuleContext) -> Said:
    message = Text(
        N_("{framework} on {device} depends on a port by {vendor}"),
        framework=c.strategy.framework, device=c.cluster.accelerator.name, vendor=c.cluster.accelerator.vendor,
    )  # fmt: skip
    return message, None, {}


@rule(
    "MW-C317",
    title=N_("Expert tensor parallelism in FSDP is 1 or the tensor degree"),
    reason=N_("torchtitan either keeps experts whole or cuts them over the whole tensor-parallel group."),
    fix=N_("Use expert_tensor = 1 or expert_tensor = tensor."),
    condition="expert_tensor in (1, tensor)",
    source="torchtitan config expert_tensor_parallel_degree",
    where="expert_tensor",
    frameworks=("fsdp",),
    applies=lambda c: bool(c.facts.experts),
    violated=lambda c: (c.strategy.expert_tensor != 1) & (c.strategy.expert_tensor != c.strategy.tensor),
)
def torchtitan_expert_tensor(c: RuleContext) -> Said:
    s = c.strategy
    message = Text(N_("expert_tensor = {etp} with tensor = {tensor}"), etp=s.expert_tensor, tensor=s.tensor)
    return message, None, {"legal": [1, s.tensor]}


def recurrent(c: RuleContext) -> bool:
    """Whether some layer carries a state along the sequence."""
    return bool(c.facts.mamba2 or c.facts.mamba1_widths or c.facts.linear_heads)


def recurrent_context(c: RuleContext) -> Mask:
    """Recurrent layers under context parallelism: only Megatron, which exchanges sequence for heads."""
    over = c.strategy.context > 1
    if c.strategy.framework != "megatron" or c.facts.mamba1_widths:
        return over
    numbers = [h for h, _ in c.facts.mamba2] + list(c.facts.linear_heads)
    return over & indivisible(math.gcd(*numbers), c.strategy.tensor * c.strategy.context)


@rule(
    "MW-C318",
    title=N_("Context parallelism over Mamba and linear-attention layers is limited"),
    reason=N_("A recurrent layer needs the state from the left. Megatron exchanges sequence for heads around it, which "
              "needs heads divisible by tensor × context; elsewhere it is not supported."),
    fix=N_("Use context = 1, or a context degree that divides the state-space heads left by tensor parallelism."),
    condition="context == 1, or megatron and mamba or linear heads % (tensor * context) == 0",
    source="megatron-core ssm/mamba_context_parallel.py and ssm/gated_delta_net",
    where="context",
    applies=recurrent,
    violated=recurrent_context,
)  # fmt: skip
def context_recurrent(c: RuleContext) -> Said:
    s = c.strategy
    heads = math.gcd(*[h for h, _ in c.facts.mamba2], *c.facts.linear_heads)
    exchange = s.framework == "megatron" and not c.facts.mamba1_widths and heads % s.tensor == 0
    legal = nearest_divisors(heads // s.tensor, s.context) if exchange else [1]
    message = Text(
        N_("context = {context} with recurrent layers of {model} in {framework}"),
        context=s.context, model=c.model.name, framework=s.framework,
    )  # fmt: skip
    return message, Text(N_("context = {legal}"), legal=listed(legal)), {"legal": legal}


@rule(
    "MW-C319",
    severity="warning",
    title=N_("DeepSpeed's own checkpointing recomputes whole layers"),
    reason=N_("Selective recomputation is a feature of the model code (Megatron-DeepSpeed, Transformer Engine), not of "
              "DeepSpeed's activation checkpointing."),
    fix=N_("Use recompute = none or full, or model code with selective recomputation."),
    condition="recompute != selective",
    source="DeepSpeed runtime/activation_checkpointing/checkpointing.py",
    where="recompute",
    frameworks=("deepspeed",),
    violated=lambda c: c.strategy.recompute == "selective",
)  # fmt: skip
def selective_deepspeed(c: RuleContext) -> Said:
    return Text(N_("selective recomputation with DeepSpeed")), None, {"legal": ["none", "full"]}


@rule(
    "MW-C320",
    title=N_("The framework has the optimizer"),
    reason=N_("Megatron offers Adam, SGD, Lion and Muon; DeepSpeed's flat ZeRO partitions break optimizers that "
              "need whole "
              "matrices with factored states (Adafactor); 8-bit Adam is a PyTorch library."),
    fix=N_("Use an optimizer that the framework has."),
    condition="optimizer in the optimizers of the framework",
    source="Megatron-LM --optimizer; DeepSpeed config.py DEEPSPEED_OPTIMIZERS; optax; torch.optim; bitsandbytes",
    where="optimizer",
    violated=lambda c: refused(OPTIMIZERS_OF, c.strategy.framework, c.job.optimizer),
)  # fmt: skip
def optimizer_known(c: RuleContext) -> Said:
    legal = OPTIMIZERS_OF[c.strategy.framework]
    message = Text(
        N_("{framework} has no optimizer `{optimizer}`"), framework=c.strategy.framework, optimizer=c.job.optimizer
    )
    return message, Text(N_("optimizer = {legal}"), legal=", ".join(legal)), {"legal": list(legal)}


@rule(
    "MW-C321",
    title=N_("Tensor parallelism in Megatron's MoE layers needs sequence parallelism"),
    reason=N_("The MoE layer routes each token once; without sequence parallelism every tensor-parallel rank "
              "would route "
              "the same tokens. Megatron refuses to train so."),
    fix=N_("Turn sequence parallelism on."),
    condition="tensor == 1 or sequence_parallel",
    source="megatron-core transformer/moe/moe_layer.py forward; model_parallel_config.py",
    where="sequence_parallel",
    frameworks=("megatron",),
    applies=lambda c: bool(c.facts.experts),
    violated=lambda c: (c.strategy.tensor > 1) & negate(c.strategy.sequence_parallel),
)  # fmt: skip
def moe_sequence_parallel(c: RuleContext) -> Said:
    message = Text(N_("tensor = {tensor} without sequence parallelism in a MoE model"), tensor=c.strategy.tensor)
    return message, None, {"legal": [True]}


@rule(
    "MW-C322",
    title=N_("Overlap of tensor-parallel communication needs sequence parallelism"),
    reason=N_("Only all-gather and reduce-scatter can be overlapped with matrix multiplications; without sequence "
              "parallelism there are all-reduces instead."),
    fix=N_("Turn sequence parallelism on, or overlap_tensor off."),
    condition="not overlap_tensor or sequence_parallel",
    source=f"NVIDIA/TransformerEngine#746; {MEGATRON_ARGS} (--tp-comm-overlap)",
    where="overlap_tensor",
    frameworks=("megatron",),
    violated=lambda c: (c.strategy.overlap_tensor == 1)
    & (c.strategy.tensor > 1)
    & negate(c.strategy.sequence_parallel),
)  # fmt: skip
def overlap_tensor(c: RuleContext) -> Said:
    return Text(N_("overlap_tensor without sequence parallelism")), None, {"legal": {"sequence_parallel": True}}


@rule(
    "MW-C323",
    severity="info",
    title=N_("Sequence parallelism has no effect without tensor parallelism"),
    reason=N_("It splits activations over the tensor-parallel group; Megatron switches it off (older versions "
              "refuse) at "
              "tensor = 1."),
    fix=N_("Nothing to do: it counts as off, and --sequence-parallel is left out of the exported arguments."),
    condition="tensor > 1 or not sequence_parallel",
    source=f"verl-project/verl#1053; {MEGATRON_ARGS}",
    where="sequence_parallel",
    frameworks=("megatron",),
    violated=lambda c: (c.strategy.tensor == 1) & (c.strategy.sequence_parallel == 1),
)  # fmt: skip
def sequence_parallel_idle(c: RuleContext) -> Said:
    return Text(N_("sequence parallelism is on, but tensor = 1")), None, {"effective": False}


@rule(
    "MW-C324",
    title=N_("Overlapping the parameter gather needs overlapped gradient reduction"),
    reason=N_("Both are driven by the same bucket order of the distributed optimizer."),
    fix=N_("Turn overlap_grad_reduce on, or overlap_param_gather off."),
    condition="not overlap_param_gather or overlap_grad_reduce",
    source=f"{MEGATRON_ARGS} (--overlap-param-gather)",
    where="overlap_param_gather",
    frameworks=("megatron",),
    applies=lambda c: c.strategy.sharding == "zero1",
    violated=lambda c: (c.strategy.overlap_param_gather == 1) & negate(c.strategy.overlap_grad_reduce),
)
def overlap_gather(c: RuleContext) -> Said:
    return Text(N_("overlap_param_gather without overlap_grad_reduce")), None, {}


# --recompute-modules of Megatron-LM; other groups of operators exist only where single tensors can be named.
MEGATRON_MODULES = ("core_attn", "layernorm", "mla_up_proj", "mlp", "moe", "moe_act", "shared_experts")


@rule(
    "MW-C325",
    title=N_("Megatron recomputes the modules it names"),
    reason=N_("Selective recomputation checkpoints whole modules; the activation function of a dense MLP is not one, "
              "that of experts is."),
    fix=N_("Name modules that Megatron has."),
    condition="recompute_ops in the recompute modules of Megatron with selective",
    source="megatron-core transformer/transformer_config.py, TransformerConfig.recompute_modules",
    where="recompute",
    frameworks=("megatron",),
    applies=lambda c: c.strategy.recompute == "selective",
    violated=lambda c: any(op not in MEGATRON_MODULES for op in recomputed(c)),
)  # fmt: skip
def recompute_modules(c: RuleContext) -> Said:
    unknown = next(op for op in recomputed(c) if op not in MEGATRON_MODULES)
    message = Text(N_("megatron has no recompute module `{name}`"), name=unknown)
    fix = Text(N_("recompute_ops = {names}"), names=", ".join(MEGATRON_MODULES))
    return message, fix, {"legal": list(MEGATRON_MODULES)}
