"""Training that survives its workers: torchrun restarts them, this resumes where the last whole checkpoint was."""

from __future__ import annotations

from meshwright.gradsync.elastic.checkpoint import CheckpointError, Checkpoints, Restored
from meshwright.gradsync.elastic.connect import NoPeersError, connect
from meshwright.gradsync.elastic.deal import Turn, deal
from meshwright.gradsync.elastic.feed import Feed
from meshwright.gradsync.elastic.journal import Curve, Journal, curve, entries
from meshwright.gradsync.elastic.loop import Outcome, StepReport, train
from meshwright.gradsync.elastic.manifest import Flaw
from meshwright.gradsync.elastic.order import derived_seed, samples_at
from meshwright.gradsync.elastic.signals import Signals
from meshwright.gradsync.elastic.state import HookState, Parts

__all__ = [
    "connect", "NoPeersError",
    "train", "Parts", "Feed", "Outcome", "StepReport",
    "Checkpoints", "CheckpointError", "Restored", "Flaw", "HookState",
    "samples_at", "derived_seed", "deal", "Turn", "Signals",
    "Journal", "Curve", "curve", "entries",
]  # fmt: skip
