"""MW-C2xx: how the global batch becomes micro-batches, and which pipeline schedules can run them."""

from __future__ import annotations

from meshwright.messages import N_, Text
from meshwright.rules.base import Mask, RuleContext, Said, rule
from meshwright.rules.nearest import indivisible, listed, nearest_divisors, nearest_multiples

CHUNKED_SCHEDULES = ("interleaved",)
FREE_CHUNK_SCHEDULES = frozenset({"interleaved", "zbv", "zb-h1"})
TORCH_SCHEDULES = "torch.distributed.pipelining.schedules (2.13)"


def batch_legal(c: RuleContext) -> list[int]:
    """Nearest legal global batches."""
    return nearest_multiples(int(c.replicas_batch), c.job.global_batch)


@rule(
    "MW-C201",
    stage="batch",
    title=N_("The global batch is micro-batch × data × a whole number of micro-batches"),
    reason=N_("Every data-parallel rank runs the same whole number of micro-batches per step."),
    fix=N_("Change the global batch, the micro-batch or the data-parallel degree."),
    condition="global_batch % (micro_batch * data) == 0",
    source="DeepSpeed runtime/config.py _batch_assertion; Megatron-LM num_microbatches_calculator.py; B24 in MaxText",
    where="global_batch",
    violated=lambda c: indivisible(c.job.global_batch, c.replicas_batch),
)
def global_batch(c: RuleContext) -> Said:
    s, batch = c.strategy, c.job.global_batch
    legal = batch_legal(c)
    micro = nearest_divisors(batch // s.data, s.micro_batch) if batch % s.data == 0 else []
    message = Text(
        N_("global batch {batch} is not a multiple of micro-batch {micro} × data {data} = {step}: {batch} % "
           "{step} = {rest}"),
        batch=batch, micro=s.micro_batch, data=s.data, step=c.replicas_batch, rest=batch % c.replicas_batch,
    )  # fmt: skip
    if micro:
        fix = Text(N_("global batch {legal}, or micro_batch {micro}"), legal=listed(legal), micro=listed(micro))
    else:
        fix = Text(
            N_("global batch {legal}, or data {data}"),
            legal=listed(legal),
            data=listed(nearest_divisors(batch, s.data)),
        )
    return message, fix, {"legal": legal, "micro_batch": micro}


def interleaved_remainder(c: RuleContext) -> Mask:
    """Micro-batches are not a multiple of the pipeline degree."""
    return c.micro_batches % c.strategy.pipeline != 0


@rule(
    "MW-C202",
    stage="batch",
    title=N_("Interleaving needs micro-batches in multiples of the pipeline degree"),
    reason=N_("The interleaved schedule sends groups of as many micro-batches as there are pipeline ranks through each "
              "chunk; a smaller last group would stall."),
    fix=N_("Use a global batch that is a multiple of micro-batch × data × pipeline."),
    condition="micro_batches % pipeline == 0 with interleaving",
    source="NVIDIA/Megatron-LM#750; megatron-core pipeline_parallel/schedules.py (microbatch_group_size_per_vp_stage)",
    where="global_batch",
    frameworks=("megatron",),
    applies=lambda c: c.strategy.schedule in CHUNKED_SCHEDULES,
    violated=interleaved_remainder,
)  # fmt: skip
def interleaved_groups(c: RuleContext) -> Said:
    s = c.strategy
    legal = nearest_multiples(int(c.replicas_batch) * s.pipeline, c.job.global_batch)
    message = Text(
        N_("{count} micro-batches are not a multiple of pipeline {pipeline}"),
        count=c.micro_batches,
        pipeline=s.pipeline,
    )
    return message, Text(N_("global batch {legal}"), legal=listed(legal)), {"legal": legal}


def torch_rounds_uneven(c: RuleContext) -> Mask:
    """Micro-batches do not split into equal rounds."""
    rounds = c.micro_batches // c.strategy.pipeline
    return c.micro_batches % (rounds + (rounds == 0)) != 0


@rule(
    "MW-C203",
    stage="batch",
    title=N_("Torch's interleaved schedules need equal rounds of micro-batches"),
    reason=N_("The schedule runs micro_batches // pipeline rounds, which must be equally long."),
    fix=N_("Use a global batch that is a multiple of micro-batch × data × pipeline."),
    condition="micro_batches % max(1, micro_batches // pipeline) == 0",
    source=f"{TORCH_SCHEDULES}: ScheduleInterleaved1F1B and ScheduleInterleavedZeroBubble",
    where="global_batch",
    frameworks=("fsdp",),
    applies=lambda c: c.strategy.schedule in ("interleaved", "zb-h1"),
    violated=torch_rounds_uneven,
)
def torch_rounds(c: RuleContext) -> Said:
    legal = nearest_multiples(int(c.replicas_batch) * c.strategy.pipeline, c.job.global_batch)
    message = Text(
        N_("{count} micro-batches do not divide into {rounds} equal rounds"),
        count=c.micro_batches, rounds=c.micro_batches // c.strategy.pipeline,
    )  # fmt: skip
    return message, Text(N_("global batch {legal}"), legal=listed(legal)), {"legal": legal}


def chunks_misfit(c: RuleContext) -> Mask:
    """The schedule and the number of chunks contradict each other."""
    s = c.strategy
    if s.schedule in CHUNKED_SCHEDULES:
        return s.virtual < 2
    if s.schedule == "zbv":
        return s.virtual > 2
    if s.schedule in FREE_CHUNK_SCHEDULES:
        return False
    return s.virtual > 1


@rule(
    "MW-C204",
    title=N_("The number of chunks fits the schedule"),
    reason=N_("Interleaving means two or more chunks per rank; 1F1B, GPipe and DualPipe take one `virtual` chunk "
              "(DualPipe "
              "brings its own second direction), ZBV exactly two."),
    fix=N_("Use schedule `interleaved` with virtual >= 2, or virtual = 1."),
    condition="interleaved: virtual >= 2; zbv: virtual <= 2; 1f1b, gpipe, dualpipe: virtual == 1",
    source=f"Narayanan et al. 2021, arXiv:2104.04473, section 2.2; Qi et al. 2024, arXiv:2401.10241; {TORCH_SCHEDULES}",
    where="virtual",
    violated=chunks_misfit,
)  # fmt: skip
def chunks(c: RuleContext) -> Said:
    s = c.strategy
    legal = [2, 4] if s.schedule in CHUNKED_SCHEDULES else [1, 2] if s.schedule == "zbv" else [1]
    message = Text(N_("schedule {schedule} with virtual = {virtual}"), schedule=s.schedule, virtual=s.virtual)
    return message, Text(N_("virtual = {legal}"), legal=listed(legal)), {"legal": legal}


@rule(
    "MW-C205",
    title=N_("Several chunks need a pipeline"),
    reason=N_("Virtual stages alternate between pipeline ranks; with one rank there is nothing to alternate."),
    fix=N_("Use virtual = 1, or pipeline > 1."),
    condition="virtual == 1 or pipeline > 1",
    source="Megatron-LM arguments.py validate_args; megatron-core parallel_state.py",
    where="virtual",
    violated=lambda c: (c.strategy.virtual > 1) & (c.strategy.pipeline == 1),
)
def chunks_without_pipeline(c: RuleContext) -> Said:
    return Text(N_("virtual = {virtual} with pipeline = 1"), virtual=c.strategy.virtual), None, {"legal": [1]}


@rule(
    "MW-C206",
    severity="warning",
    title=N_("Interleaving over two pipeline ranks depends on the version"),
    reason=N_("With two ranks the previous and the next rank coincide; Megatron refuses it unless point-to-point "
              "overlap "
              "is on (older versions always)."),
    fix=N_("Keep point-to-point overlap on (no --no-overlap-p2p-communication), or use pipeline > 2."),
    condition="pipeline > 2 with interleaving, or overlap_p2p_comm",
    source="NVIDIA/Megatron-LM#750; Megatron-LM arguments.py validate_args",
    where="pipeline",
    frameworks=("megatron",),
    applies=lambda c: c.strategy.schedule in CHUNKED_SCHEDULES,
    violated=lambda c: (c.strategy.virtual > 1) & (c.strategy.pipeline == 2),
)  # fmt: skip
def interleaved_pair(c: RuleContext) -> Said:
    message = Text(
        N_("interleaving (virtual = {virtual}) over pipeline = 2 is valid only with point-to-point overlap"),
        virtual=c.strategy.virtual,
    )
    return message, None, {"requires": "overlap_p2p_comm"}


def too_few_micro_batches(c: RuleContext) -> Mask:
    """Fewer micro-batches than pipeline ranks."""
    return c.micro_batches < c.strategy.pipeline


def few_micro_batches_said(c: RuleContext) -> Said:
    """Too few micro-batches, with the batch that would be enough."""
    s = c.strategy
    need = int(c.replicas_batch) * s.pipeline
    message = Text(
        N_("{count} micro-batches for {pipeline} pipeline ranks"), count=c.micro_batches, pipeline=s.pipeline
    )
    fix = Text(
        N_("global batch at least {need}, or pipeline at most {count}"), need=need, count=max(c.micro_batches, 1)
    )
    return message, fix, {"legal": [need]}


@rule(
    "MW-C207",
    stage="batch",
    title=N_("Torch's 1F1B needs at least as many micro-batches as stages"),
    reason=N_("Schedule1F1B refuses to start with fewer micro-batches than pipeline ranks."),
    fix=N_("Use more micro-batches, fewer pipeline ranks, or GPipe."),
    condition="micro_batches >= pipeline with 1f1b",
    source=f"{TORCH_SCHEDULES}: Schedule1F1B",
    where="global_batch",
    frameworks=("fsdp",),
    applies=lambda c: c.strategy.schedule == "1f1b",
    violated=too_few_micro_batches,
)
def torch_micro_batches(c: RuleContext) -> Said:
    return few_micro_batches_said(c)


@rule(
    "MW-C208",
    stage="batch",
    severity="warning",
    title=N_("Fewer micro-batches than pipeline ranks"),
    reason=N_(
        "With fewer micro-batches than ranks some ranks are never busy at the same time: most of the step is bubble."
    ),
    fix=N_("Use more micro-batches or fewer pipeline ranks."),
    condition="micro_batches >= pipeline",
    source="Huang et al. 2019, arXiv:1811.06965, section 2.3; Narayanan et al. 2021, arXiv:2104.04473, section 2.2",
    where="global_batch",
    applies=lambda c: not (c.strategy.framework == "fsdp" and c.strategy.schedule == "1f1b"),
    violated=too_few_micro_batches,
)
def micro_batches_few(c: RuleContext) -> Said:
    return few_micro_batches_said(c)


def dualpipe_misfit(c: RuleContext) -> Mask:
    """DualPipe runs two directions at once: even ranks, and enough micro-batches, an even number of them."""
    pipeline, count = c.strategy.pipeline, c.micro_batches
    return (pipeline % 2 != 0) | (count % 2 != 0) | (count < 2 * pipeline)


@rule(
    "MW-C209",
    stage="batch",
    title=N_("DualPipe needs an even pipeline and an even number of micro-batches, at least two per rank"),
    reason=N_("Half of the micro-batches enter at each end of the pipeline."),
    fix=N_("Use an even pipeline degree and micro-batches in an even number of at least 2 × pipeline."),
    condition="pipeline % 2 == 0; micro_batches % 2 == 0; micro_batches >= 2 * pipeline",
    source="deepseek-ai/DualPipe dualpipe/dualpipe.py; DeepSeek-V3, arXiv:2412.19437, section 3.2.1",
    where="schedule",
    applies=lambda c: c.strategy.schedule == "dualpipe",
    violated=dualpipe_misfit,
)
def dualpipe(c: RuleContext) -> Said:
    pipeline = c.strategy.pipeline + c.strategy.pipeline % 2
    message = Text(
        N_("DualPipe with pipeline {pipeline} and {count} micro-batches"),
        pipeline=c.strategy.pipeline, count=c.micro_batches,
    )  # fmt: skip
    step = 2 * int(c.replicas_batch)
    need = max(step * pipeline, -(-c.job.global_batch // step) * step)
    fix = Text(N_("pipeline {pipeline} with a global batch of {need}"), pipeline=pipeline, need=need)
    return message, fix, {"pipeline": pipeline, "global_batch": need}
