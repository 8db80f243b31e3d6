"""DDP communication hooks: `hook(state, bucket) -> Future[Tensor]`, as torch's. One file each; `HOOKS` is the table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from meshwright.gradsync.hooks.allreduce import allreduce_hook, hierarchical_allreduce_hook
from meshwright.gradsync.hooks.half import bf16_compress_hook, fp16_compress_hook
from meshwright.gradsync.hooks.int8 import Int8State, int8_blockwise_hook
from meshwright.gradsync.hooks.noop import noop_hook
from meshwright.gradsync.hooks.onebit import OneBitState, onebit_hook
from meshwright.gradsync.hooks.powersgd import PowerSGDState, powersgd_hook
from meshwright.gradsync.hooks.randomk import RandomKState, randomk_hook
from meshwright.gradsync.hooks.topk import TopKState, topk_hook
from meshwright.gradsync.state import CommHookState

Hook = Callable[..., Any]

HOOKS: dict[str, tuple[Hook, type[CommHookState]]] = {
    "allreduce": (allreduce_hook, CommHookState),
    "fp16": (fp16_compress_hook, CommHookState),
    "bf16": (bf16_compress_hook, CommHookState),
    "int8": (int8_blockwise_hook, Int8State),
    "topk": (topk_hook, TopKState),
    "randomk": (randomk_hook, RandomKState),
    "onebit": (onebit_hook, OneBitState),
    "powersgd": (powersgd_hook, PowerSGDState),
    "hierarchical": (hierarchical_allreduce_hook, CommHookState),
    "noop": (noop_hook, CommHookState),
}

__all__ = [
    "HOOKS", "Hook", "Int8State", "OneBitState", "PowerSGDState", "RandomKState", "TopKState", "allreduce_hook",
    "bf16_compress_hook", "fp16_compress_hook", "hierarchical_allreduce_hook", "int8_blockwise_hook", "noop_hook",
    "onebit_hook", "powersgd_hook", "randomk_hook", "topk_hook",
]  # fmt: skip
