"""From the checkpoint of one layout to the ranks of another: what each framework needs, and how long it takes."""

from __future__ import annotations

from meshwright.formulas.checkpoint import transfer_time
from meshwright.glossary import Label
from meshwright.messages import N_, Text
from meshwright.resilience.checkpoint import Sizes
from meshwright.spec.resilience import Resharding, Storage
from meshwright.spec.strategy import Strategy

LAYOUT = ("tensor", "pipeline", "virtual", "context", "expert", "expert_tensor")
FIELDS = (*LAYOUT, "data", "sharding", "shard")
FULLY = "fully_reshardable"  # the optimizer format of Megatron that any layout can read
FORMATS = (FULLY, "dp_reshardable", "fully_sharded_model_space")


def reshard(old: Strategy, new: Strategy, of: Sizes, storage: Storage, nodes: int, *,
            optimizer_format: str = FULLY) -> Resharding:  # fmt: skip
    """What changes, what has to be done, and the seconds of it on `nodes` nodes.

    `optimizer_format` is how Megatron wrote the optimizer (the default of a plan made here is the reshardable one).
    """
    changes = tuple(name for name in FIELDS if getattr(old, name) != getattr(new, name))
    if old.expert == new.expert == 1:  # without experts to divide, their tensor parallelism says nothing
        changes = tuple(name for name in changes if name != "expert_tensor")
    read = transfer_time(of.total, storage.read, nodes, storage.node_read)
    if old.framework != new.framework:
        text = N_("{old} and {new} write different checkpoints: only weights can be carried over")
        return Resharding(changes=("framework", *changes), steps=(Text(text, old=old.framework, new=new.framework),),
                          seconds=read, possible=False)  # fmt: skip
    layout = [name for name in changes if name in LAYOUT and name != "context"]
    steps, possible, convert = [], True, 0.0
    if old.framework == "megatron" and layout and optimizer_format != FULLY:
        possible = False
        text = N_(
            "the optimizer was saved as {format}, which pins the layout: {fields} may not change; load weights only, or"
            " go back to the old layout once and save with --dist-ckpt-optim-fully-reshardable"
        )
        steps.append(Text(text, format=optimizer_format, fields=_names(layout)))
    elif old.framework == "megatron":
        steps.append(Text(N_("load the torch_dist checkpoint with the new degrees; every rank reads its own part")))
    elif old.framework == "deepspeed" and changes:
        write = transfer_time(of.total, storage.write, nodes, storage.node_write)
        convert = read + write
        steps.append(
            Text(N_("a ZeRO checkpoint of another number of ranks is refused: convert it with ds_to_universal"))
        )
        steps.append(Text(N_('load it with "checkpoint": {{"load_universal": true}}')))
    elif old.framework == "deepspeed":
        steps.append(Text(N_("load the checkpoint as it is")))
    elif old.framework == "fsdp":
        steps.append(Text(N_("torch.distributed.checkpoint.load reads any layout into the new shards")))
    else:
        steps.append(Text(N_("Orbax restores into the shardings of the new mesh")))
    return Resharding(changes=changes, steps=tuple(steps), seconds=float(read + convert), possible=possible)


def _names(fields: list[str]) -> Text:
    """Labels of fields as one text of the reader's language."""
    text = Text("")
    for name in fields:
        more = Text(N_("{first}, {second}"), first=text, second=Label(name))
        text = Label(name) if not text.template else more
    return text
