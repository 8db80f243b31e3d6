"""What a communication hook would do for a data-parallel run."""

from __future__ import annotations

from dataclasses import dataclass

from meshwright.messages import Text


@dataclass(frozen=True, slots=True, kw_only=True)
class HookOption:
    """One way to synchronise gradients: what travels, how long, what stays exposed, what it costs elsewhere."""

    hook: str
    wire_bytes: float  # that a rank sends in a step
    communication_seconds: float
    compression_seconds: float
    exposed_seconds: float  # compression included
    step_seconds: float
    memory_bytes: float  # more than dense, per rank
    risk: Text
    costs_more: bool  # it takes longer than dense


@dataclass(frozen=True, slots=True, kw_only=True)
class HookAdvice:
    """Whether communication hides behind the backward pass, and what closes the gap if not."""

    ranks: int
    micro_batches: int
    gradient_bytes: float
    backward_seconds: float  # of one micro-batch: what communication can hide behind
    compute_seconds: float
    hidden: bool  # dense all-reduce, but for its last bucket
    options: tuple[HookOption, ...]  # dense first, then by step time
    recommended: str
    algorithm: str  # the fastest for one bucket
    bucket_bytes: float
    local_sgd_period: int  # steps between synchronisations that make dense cost next to nothing
    fits: bool
    reasons: tuple[Text, ...]
    assumptions: tuple[Text, ...]

    @property
    def best(self) -> HookOption:
        """The recommended one."""
        return next(option for option in self.options if option.hook == self.recommended)
