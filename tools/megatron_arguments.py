"""List the arguments of a Megatron-LM checkout again, into src/meshwright/frameworks/megatron/arguments.toml.

    PYTHONPATH=CHECKOUT .venv-frameworks/bin/python tools/megatron_arguments.py

Only names and kinds are taken. An argument that is known keeps its place; a new one goes where its group goes.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
import typing
from pathlib import Path

FILE = Path(__file__).resolve().parents[1] / "src" / "meshwright" / "frameworks" / "megatron" / "arguments.toml"
GROUPS = {
    "transformer configuration": "memory-or-time", "network size": "architecture", "regularization": "training",
    "profiling": "reporting", "training": "training", "rl": "other-programs", "RNG and initialization": "training",
    "learning rate and weight decay": "training", "checkpointing": "checkpoints", "mixed precision": "memory-or-time",
    "distributed init": "memory-or-time", "validation": "reporting", "data and dataloader": "training",
    "tokenizer": "training", "autoresume": "resilience", "biencoder": "other-programs", "vision": "other-programs",
    "moe": "architecture", "mla": "architecture", "experimental_attention_variant": "architecture",
    "heterogeneous architecture": "architecture", "logging": "reporting", "opentelemetry": "reporting",
    "Logits Distillation": "other-programs", "straggler": "resilience", "workload inspector": "reporting",
    "inference": "other-programs", "Transformer-Engine": "memory-or-time", "experimental": "memory-or-time",
    "one logger": "reporting", "In-process restart": "resilience", "ft_package": "resilience",
    "rerun engine": "resilience", "msc": "checkpoints", "sft": "training", "fault injector": "resilience",
}  # fmt: skip
# Of the groups above, what is not about what their group is about.
ARCHITECTURE = ("dsa-", "mamba-", "linear-", "mup-", "moe-router", "rotary-", "mhc-", "mtp-", "gdp-", "norm-", "apply-")
TIME = ("use-flash-attn", "no-masked-softmax-fusion", "no-bias-gelu-fusion", "no-bias-swiglu-fusion",
        "no-bias-dropout-fusion", "no-rope-fusion", "no-persist-layer-norm", "no-gradient-accumulation-fusion",
        "manual-gc", "manual-gc-interval", "optimizer-cuda-graph", "tp-comm-overlap-cfg")  # fmt: skip


def parser() -> argparse.ArgumentParser:
    """Megatron's own parser; it asks for a GPU, and is told of one."""
    import torch
    import typing_extensions

    if not hasattr(typing, "override"):
        typing.override = typing_extensions.override  # type: ignore[attr-defined]
    torch.cuda.get_device_capability = lambda *_, **__: (9, 0)
    from megatron.training.arguments import add_megatron_arguments

    return add_megatron_arguments(argparse.ArgumentParser(allow_abbrev=False))


def kind_of(action: argparse.Action) -> str:
    """The kind of a field for an argument."""
    if action.nargs == 0:
        return "flag"
    if action.nargs in ("+", "*") or isinstance(action.nargs, int):
        return "list"
    return {int: "int", float: "number"}.get(action.type, "any")  # type: ignore[arg-type]


def main() -> int:
    """Write the list."""
    old = tomllib.loads(FILE.read_text("utf-8"))["about"] if FILE.exists() else {}
    known = {name: about for about, kinds in old.items() for names in kinds.values() for name in names}
    lists: dict[str, dict[str, list[str]]] = {}
    own = parser()
    for group in own._action_groups:
        for action in group._group_actions:
            for option in action.option_strings:
                name = option.removeprefix("--")
                if not option.startswith("--") or name == "help":
                    continue
                about = known.get(name) or GROUPS.get(group.title or "", "training")
                about = "architecture" if name.startswith(ARCHITECTURE) else "memory-or-time" if name in TIME else about
                lists.setdefault(about, {}).setdefault(kind_of(action), []).append(name)
    lines = ["# Arguments of Megatron-LM by what they are about and by kind; written by tools/megatron_arguments.py.\n"]
    for about, kinds in sorted(lists.items()):
        lines.append(f"\n[about.{about}]\n")
        for kind, names in sorted(kinds.items()):
            lines.append(f"{kind} = [\n" + "".join(f'  "{name}",\n' for name in sorted(set(names))) + "]\n")
    FILE.write_text("".join(lines), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
