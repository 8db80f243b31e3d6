"""What is to be trained: batch, sequence, optimizer, precision, length of the run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Precision = Literal["fp32", "tf32", "bf16", "fp16", "fp8", "mxfp8", "nvfp4"]
Optimizer = Literal["adamw", "adamw-bf16", "adamw-8bit", "adafactor", "sgd", "sgd-momentum", "lion", "muon"]

PRECISIONS: tuple[str, ...] = ("fp32", "tf32", "bf16", "fp16", "fp8", "mxfp8", "nvfp4")
OPTIMIZERS: tuple[str, ...] = (
    "adamw", "adamw-bf16", "adamw-8bit", "adafactor", "sgd", "sgd-momentum", "lion", "muon",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One training job. `global_batch` counts sequences of `seq_len` tokens."""

    seq_len: int
    global_batch: int
    precision: Precision = "bf16"
    optimizer: Optimizer = "adamw"
    tokens: float | None = None  # length of the run
    dropout: bool = False
    expert_imbalance: float | None = None  # tokens of the busiest expert rank over the mean; None: modelled
    data_time: float = 0.0  # seconds per step that the loader is not hidden
    software: str = ""  # software profile id; empty: the framework's current one

    @property
    def tokens_per_step(self) -> int:
        """Tokens of one optimizer step."""
        return self.seq_len * self.global_batch
