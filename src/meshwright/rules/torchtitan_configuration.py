"""MW-F3xx: faults of a torchtitan TOML file."""

from __future__ import annotations

import math
from collections.abc import Iterator

from meshwright.messages import N_, Text
from meshwright.rules.base import RuleContext
from meshwright.rules.configuration import Hit, configuration_rule
from meshwright.spec.configuration import Configuration

TORCHTITAN = ("torchtitan",)
SEVERAL = ("Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV")


@configuration_rule(
    "MW-F301",
    title=N_("The degrees multiply to the number of devices"),
    reason=N_("The batch is sharded over dp_shard and then each sequence over cp: context parallelism is an "
              "axis of its own, "
              "not taken out of data parallelism. One degree may be -1: what is left."),
    fix=N_("Set data_parallel_shard_degree to -1, and it takes what is left."),
    condition="dp_replicate * dp_shard * cp * tp * pp == devices",
    source="torchtitan distributed/parallel_dims.py ParallelDims; pytorch/torchtitan#1184, #27",
    where="parallelism",
    formats=TORCHTITAN,
)  # fmt: skip
def mesh_product(c: Configuration, _: RuleContext | None) -> Iterator[Hit]:
    """The product against the devices."""
    sizes = c.values.get("mesh")
    if not isinstance(sizes, dict) or not c.devices:
        return
    fixed = math.prod(size for size in sizes.values() if size > 0)
    rest = sizes["dp_shard"] < 0
    if (c.devices % fixed == 0) if rest else (fixed == c.devices):
        return
    shown = " × ".join(f"{name} {size}" for name, size in sizes.items())
    text = Text(N_("{shown} = {product} != {devices} devices"), shown=shown, product=fixed, devices=c.devices)
    others = fixed // max(sizes["dp_shard"], 1)
    data = {"product": fixed, "devices": c.devices, "dp_shard": None if c.devices % others else c.devices // others}
    if c.devices % others == 0:
        fix = Text(N_("data_parallel_shard_degree = {legal} or -1"), legal=c.devices // others)
    else:
        legal = (c.devices // others * others, -(-c.devices // others) * others)
        fix = Text(N_("use degrees whose product divides {devices}, or {legal} devices"), devices=c.devices,
                   legal=" / ".join(str(n) for n in dict.fromkeys(legal) if n))  # fmt: skip
    yield Hit("parallelism", text, fix, data)


@configuration_rule(
    "MW-F302",
    title=N_("The pipeline has whole micro-batches, and enough of them"),
    reason=N_(
        "With a pipeline the local batch is cut into micro-batches of pipeline_parallel_microbatch_size; the schedule "
        "needs at least as many as stages."
    ),
    fix=N_("Change local_batch_size or pipeline_parallel_microbatch_size."),
    condition="local_batch_size % pipeline_parallel_microbatch_size == 0",
    source="torchtitan distributed/pipeline_parallel.py build_pipeline_schedule",
    where="training.local_batch_size",
    formats=TORCHTITAN,
    versions=">=0.1",
)
def whole_micro_batches(c: Configuration, _: RuleContext | None) -> Iterator[Hit]:
    """A local batch that is no multiple."""
    local = c.values.get("training.local_batch_size") or 8
    micro = c.values.get("parallelism.pipeline_parallel_microbatch_size") or 1
    if (c.values.get("parallelism.pipeline_parallel_degree") or 1) > 1 and local % micro:
        text = Text(
            N_("local_batch_size {local} is not a multiple of the micro-batch {micro}"), local=local, micro=micro
        )
        legal = [n for n in (local // micro * micro, -(-local // micro) * micro) if n]
        fix = Text(N_("local_batch_size = {legal}"), legal=", ".join(map(str, legal)))
        yield Hit("training.local_batch_size", text, fix, {"legal": legal})
