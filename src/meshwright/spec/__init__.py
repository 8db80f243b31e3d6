"""Frozen records: the nouns every other room speaks in."""

from meshwright.spec.cluster import Accelerator, Cluster, Node
from meshwright.spec.estimate import Estimate, Refusal, StageMemory, Term, total
from meshwright.spec.finding import Finding
from meshwright.spec.job import Job
from meshwright.spec.model import (
    Attention,
    Block,
    Extra,
    LinearAttention,
    Mamba1,
    Mamba2,
    Mlp,
    ModelSpec,
    Moe,
    MultiLatentAttention,
)
from meshwright.spec.strategy import Strategy

__all__ = [
    "Accelerator", "Attention", "Block", "Cluster", "Estimate", "Extra", "Finding", "Job", "LinearAttention",
    "Mamba1", "Mamba2", "Mlp", "ModelSpec", "Moe", "MultiLatentAttention", "Node", "Refusal", "StageMemory", "Strategy",
    "Term", "total",
]  # fmt: skip
