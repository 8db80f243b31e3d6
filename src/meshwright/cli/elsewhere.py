"""What our options are called elsewhere, so that a mistyped one can name ours."""

from __future__ import annotations

import click

# Megatron-LM arguments, DeepSpeed and torchtitan keys, habits.
_ELSEWHERE = {
    "--cluster": ("--gpus", "--num-gpus", "--nodes", "--devices", "--hardware", "--accelerator"),
    "--seq": ("--seq-len", "--seq-length", "--sequence-length", "--max-seq-len", "--context-length"),
    "--gbs": ("--batch", "--batch-size", "--global-batch", "--global-batch-size", "--train-batch-size"),
    "--mbs": ("--micro-batch", "--micro-batch-size", "--local-batch-size", "--train-micro-batch-size-per-gpu"),
    "--framework": ("--fsdp", "--megatron", "--deepspeed", "--backend"),
    "--precision": ("--dtype", "--bf16", "--fp16", "--fp8"),
    "--tp": ("--tensor", "--tensor-parallel", "--tensor-parallel-degree", "--tensor-model-parallel-size"),
    "--pp": ("--pipeline", "--pipeline-parallel", "--pipeline-parallel-degree", "--pipeline-model-parallel-size"),
    "--vpp": ("--virtual", "--interleave", "--virtual-pipeline-model-parallel-size"),
    "--cp": ("--context", "--context-parallel", "--context-parallel-degree", "--context-parallel-size"),
    "--ep": ("--expert", "--expert-parallel", "--expert-parallel-degree", "--expert-model-parallel-size"),
    "--etp": ("--expert-tensor-parallel-size", "--expert-tensor-parallel-degree"),
    "--dp": ("--data", "--data-parallel", "--data-parallel-size", "--data-parallel-shard-degree"),
    "--hsdp": ("--data-parallel-replicate-degree", "--replicas"),
    "--zero": ("--sharding", "--zero-stage", "--stage"),
    "--recompute": ("--recompute-granularity", "--activation-checkpointing", "--gradient-checkpointing"),
}
_OURS = {theirs: ours for ours, names in _ELSEWHERE.items() for theirs in names}


def our_name(error: click.NoSuchOption) -> str | None:
    """The option of the called command that means what the refused one means elsewhere, or None."""
    ours = _OURS.get(error.option_name.lower().replace("_", "-"))
    parameters = error.ctx.command.params if error.ctx else ()
    return ours if any(ours in parameter.opts for parameter in parameters) else None
