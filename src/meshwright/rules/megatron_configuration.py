"""MW-F2xx: faults of Megatron-LM's (and Megatron-DeepSpeed's) arguments and environment."""

from __future__ import annotations

from collections.abc import Iterator

from meshwright.messages import N_, Text
from meshwright.rules.advice import connections
from meshwright.rules.base import RuleContext
from meshwright.rules.configuration import Hit, configuration_rule
from meshwright.spec.configuration import Configuration

MEGATRON = ("megatron",)
ARGUMENTS = "Megatron-LM arguments.py validate_args"
CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"
FSDP = ("--use-megatron-fsdp", "--use-torch-fsdp2")


def degree(c: Configuration, name: str) -> int:
    """A parallel degree of the arguments; 1 where it is not given."""
    value = c.values.get(name)
    return value if isinstance(value, int) and value > 0 else 1


@configuration_rule(
    "MW-F201",
    title=N_("CUDA_DEVICE_MAX_CONNECTIONS is what this parallelism needs"),
    reason=N_("Up to Hopper, Megatron asserts 1 with tensor or context parallelism, so that kernels start in "
              "issue order, "
              "and anything but 1 with FSDP; with data parallelism only, 1 keeps gradient communication from "
              "overlapping; "
              "PyTorch's FSDP with tensor parallelism wants many. Blackwell does not care."),
    fix=N_("Set the variable as stated in the launch script."),
    condition="megatron: 1 if tensor or context > 1; fsdp: not 1; blackwell: any",
    source=f"{ARGUMENTS}; NVIDIA/Megatron-LM#533, #1468, #5105; pytorch/torchtitan#1147; ROCm/Megatron-LM#91",
    where="environment",
)  # fmt: skip
def max_connections(c: Configuration, context: RuleContext | None) -> Iterator[Hit]:
    """The variable of the file (unset counts only where the file starts the run) against what the strategy needs."""
    given = c.environment.get(CONNECTIONS)
    if any(c.on(flag) for flag in FSDP):
        if given == "1":
            text = Text(N_("{name} = 1 with FSDP: gathers wait for computation"), name=CONNECTIONS)
            yield Hit(
                "environment",
                text,
                Text(N_("leave {name} unset, or use 8 or more"), name=CONNECTIONS),
                {"legal": "not 1"},
            )
        return
    if context is None:
        return
    wanted = connections(context)
    if wanted == "1" and given != "1" and (c.launch or given is not None):
        text = Text(N_("{name} is {value} and must be 1 with tensor {tensor} and context {context}"), name=CONNECTIONS,
                    value=given or "unset", tensor=context.strategy.tensor,
                    context=context.strategy.context)  # fmt: skip
        yield Hit("environment", text, Text(N_("export {name}=1"), name=CONNECTIONS), {"legal": "1", "given": given})
    elif wanted == "unset" and given == "1":
        text = Text(
            N_("{name} = 1 without tensor and context parallelism: overlapping has no effect"), name=CONNECTIONS
        )
        yield Hit("environment", text, Text(N_("leave {name} unset, or use 8 or more"), name=CONNECTIONS),
                  {"legal": "unset"}, "warning")  # fmt: skip
    elif wanted == "32" and given == "1":
        text = Text(N_("{name} = 1 with FSDP: gathers wait for computation"), name=CONNECTIONS)
        yield Hit("environment", text, Text(N_("export {name}=32 (or 16)"), name=CONNECTIONS), {"legal": ["16", "32"]},
                  "warning")  # fmt: skip


@configuration_rule(
    "MW-F202",
    title=N_("Interleaving over two ranks needs overlapped pipeline communication"),
    reason=N_(
        "With two ranks the previous and the next rank are the same one, and blocking sends of both directions cross."
    ),
    fix=N_("Leave --no-overlap-p2p-communication out, or use more than two pipeline ranks."),
    condition="pipeline > 2 with virtual > 1 and no overlap of pipeline communication",
    source=f"NVIDIA/Megatron-LM#750; {ARGUMENTS}",
    where="--no-overlap-p2p-communication",
    formats=MEGATRON,
)
def interleaved_pair(c: Configuration, _: RuleContext | None) -> Iterator[Hit]:
    """Two ranks, several chunks, blocking communication."""
    chunks = any(
        c.values.get(n) for n in ("--num-layers-per-virtual-pipeline-stage", "--num-virtual-stages-per-pipeline-rank")
    )
    ranks = degree(c, "--pipeline-model-parallel-size")
    if chunks and ranks == 2 and c.on("--no-overlap-p2p-communication"):
        text = Text(
            N_("interleaved schedule over {ranks} pipeline ranks without overlapped communication"), ranks=ranks
        )
        yield Hit("--no-overlap-p2p-communication", text, None, {"pipeline": ranks})


@configuration_rule(
    "MW-F203",
    title=N_("Megatron-DeepSpeed's pipeline engine takes ZeRO-0 and ZeRO-1 only"),
    reason=N_("ZeRO-2 partitions gradients after each backward pass, which conflicts with accumulating them over "
              "micro-batches; the pipeline engine is used even for one stage, unless it is switched off."),
    fix=N_("Use --zero-stage 1, or one pipeline stage together with --no-pipeline-parallel."),
    condition="zero_stage <= 1, or pipeline == 1 and --no-pipeline-parallel",
    source="deepspeed/runtime/pipe/engine.py; deepspeedai/DeepSpeed#1629, #3589, #4164; "
           "deepspeedai/Megatron-DeepSpeed#474",
    where="--zero-stage",
    formats=MEGATRON,
)  # fmt: skip
def zero_pipeline(c: Configuration, context: RuleContext | None) -> Iterator[Hit]:
    """Stage 2 or 3 that meets the pipeline engine."""
    stage, ranks = c.values.get("--zero-stage") or 0, degree(c, "--pipeline-model-parallel-size")
    if not c.on("--deepspeed") or stage < 2:
        return
    if ranks > 1 and context is None:  # MW-C303 says it where the strategy is known
        yield Hit(
            "--zero-stage", Text(N_("{sharding} with pipeline = {pipeline}"), sharding=f"ZeRO-{stage}", pipeline=ranks)
        )
    elif ranks == 1 and not c.on("--no-pipeline-parallel"):
        text = Text(N_("ZeRO-{stage} with one pipeline stage and without --no-pipeline-parallel"), stage=stage)
        yield Hit("--zero-stage", text, Text(N_("add {name}"), name="--no-pipeline-parallel"))


@configuration_rule(
    "MW-F204",
    title=N_("An argument has what it needs"),
    reason=N_("Megatron asserts these combinations at start."),
    fix=N_("Add what it needs, or leave it out."),
    condition="as validate_args and TransformerConfig state",
    source=f"{ARGUMENTS}; megatron-core transformer_config.py; NVIDIA/TransformerEngine#746",
    formats=MEGATRON,
)
def requirements(c: Configuration, context: RuleContext | None) -> Iterator[Hit]:
    """Combinations that Megatron asserts; those that rules about strategies know are left to them where they apply."""
    v, on = c.values, c.on
    sharded = on("--use-distributed-optimizer") or any(on(flag) for flag in FSDP)
    chunks = v.get("--num-layers-per-virtual-pipeline-stage"), v.get("--num-virtual-stages-per-pipeline-rank")
    full, selective = (v.get("--recompute-granularity") == mode for mode in ("full", "selective"))
    table = (
        ("--overlap-param-gather", on("--overlap-param-gather") and not sharded, "--use-distributed-optimizer"),
        ("--num-virtual-stages-per-pipeline-rank", all(chunks), N_("no --num-layers-per-virtual-pipeline-stage")),
        ("--recompute-granularity", full and not v.get("--recompute-method"), "--recompute-method"),
        ("--recompute-granularity", full and not v.get("--recompute-num-layers"), "--recompute-num-layers"),
        ("--recompute-num-layers", selective and bool(v.get("--recompute-num-layers")),
         "--recompute-granularity full"),
        ("--bf16", on("--bf16") and on("--fp16"), N_("no --fp16")),
        ("--fp8-format", bool(v.get("--fp8-format")) and bool(v.get("--fp4-format")), N_("no --fp4-format")),
        ("--use-torch-fsdp2", on("--use-torch-fsdp2") and degree(c, "--pipeline-model-parallel-size") > 1,
         "--pipeline-model-parallel-size 1"),
        ("--use-torch-fsdp2", on("--use-torch-fsdp2") and degree(c, "--expert-model-parallel-size") > 1,
         "--expert-model-parallel-size 1"),
        ("--use-torch-fsdp2", on("--use-torch-fsdp2") and on("--use-distributed-optimizer"),
         N_("no --use-distributed-optimizer")),
        ("--train-iters", bool(v.get("--train-iters")) and bool(v.get("--train-samples")), N_("no --train-samples")),
        ("--expert-model-parallel-size", degree(c, "--expert-model-parallel-size") > 1 and not v.get("--num-experts"),
         "--num-experts"),
        ("--overlap-moe-expert-parallel-comm",
         on("--overlap-moe-expert-parallel-comm") and degree(c, "--pipeline-model-parallel-size") > 1
         and not any(chunks) and not v.get("--pipeline-model-parallel-layout"),
         "--num-virtual-stages-per-pipeline-rank"),
        ("--overlap-moe-expert-parallel-comm", on("--overlap-moe-expert-parallel-comm") and full,
         N_("no full recomputation")),
        ("--overlap-moe-expert-parallel-comm", on("--overlap-moe-expert-parallel-comm")
         and degree(c, "--expert-model-parallel-size") == 1, "--expert-model-parallel-size"),
        ("--mla-down-proj-fusion", on("--mla-down-proj-fusion") and not on("--multi-latent-attention"),
         "--multi-latent-attention"),
        ("--multi-latent-attention", on("--multi-latent-attention") and on("--group-query-attention"),
         N_("no --group-query-attention")),
    )  # fmt: skip
    alone = (
        ("--tp-comm-overlap", on("--tp-comm-overlap") and not on("--sequence-parallel"), "--sequence-parallel"),
        (
            "--overlap-param-gather",
            on("--overlap-param-gather") and not on("--overlap-grad-reduce"),
            "--overlap-grad-reduce",
        ),
    )
    for name, broken, needed in (*table, *(alone if context is None else ())):
        if broken:
            yield Hit(name, Text(N_("{name} needs {needed}"), name=name, needed=Text(needed)), None, {"needs": needed})
    yield from _lengths(c)


def _lengths(c: Configuration) -> Iterator[Hit]:
    """Positions for the whole sequence."""
    positions, length = c.values.get("--max-position-embeddings"), c.values.get("--seq-length")
    if isinstance(positions, int) and isinstance(length, int) and positions < length:
        text = Text(N_("{name} needs {needed}"), name="--seq-length", needed=f"--max-position-embeddings {length}")
        yield Hit("--seq-length", text, None, {"legal": positions})


@configuration_rule(
    "MW-F205",
    severity="info",
    title=N_("Sequence parallelism needs a tensor-parallel group"),
    reason=N_("It splits activations over the tensor-parallel ranks; with one rank Megatron switches it off "
              "(older versions "
              "and wrappers refuse)."),
    fix=N_("Leave --sequence-parallel out with tensor = 1."),
    condition="tensor > 1 or not sequence_parallel",
    source=f"verl-project/verl#1053; {ARGUMENTS}",
    where="--sequence-parallel",
    formats=MEGATRON,
)  # fmt: skip
def sequence_parallel_alone(c: Configuration, context: RuleContext | None) -> Iterator[Hit]:
    """Said here only where no strategy is known (MW-C323 otherwise)."""
    if context is None and c.on("--sequence-parallel") and degree(c, "--tensor-model-parallel-size") == 1:
        yield Hit("--sequence-parallel", Text(N_("sequence parallelism is on, but tensor = 1")))
