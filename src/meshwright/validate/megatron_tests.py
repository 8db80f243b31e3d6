"""What the name of a functional test of Megatron-LM says of its settings, beyond the columns of a row.

The tests (tests/functional_tests/test_cases of NVIDIA/Megatron-LM) train with the defaults of Megatron's command line,
dropout of 0.1 among them, and in deterministic mode; the name of a test lists what it sets otherwise. The name of a
golden file tells the container: `dev` or `lts`, and the cluster it was recorded on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from meshwright.validate.rows import MeasuredRun


@dataclass(frozen=True, slots=True, kw_only=True)
class TestSettings:
    """Settings of a functional test that no column holds."""

    software: str
    dropout: bool
    loss: str


def is_functional_test(run: MeasuredRun) -> bool:
    """Whether a row comes from Megatron's own tests."""
    return "functional_tests/test_cases" in run.source_ref


def settings_of(run: MeasuredRun) -> TestSettings:
    """Settings of a functional test, from the words of its name and of its golden file."""
    words = frozenset(re.split(r"[_\W]+", run.model.lower()))
    ring = (run.cp or 1) > 1  # ring attention: FlashAttention, no dropout, deterministic only where its name says so
    return TestSettings(
        software=_profile(run, words, ring=ring),
        dropout=not ring,
        loss="compiled" if "cross_entropy_loss_fusion" in run.model else "auto",
    )


def _profile(run: MeasuredRun, words: frozenset[str], *, ring: bool) -> str:
    if "te" not in words or "uninstall" in words:
        return "megatron-local"
    if ring or "nondeterministic" in words or "fusion" in words:
        return "megatron-core"
    # Tests that start afresh ask for unfused attention, those that resume leave the choice to Transformer Engine; in the
    # first `lts` containers (recorded on the dracooci clusters) it had no fused kernel that is deterministic.
    old = re.search(r"golden_values_lts\w*_dracooci", run.source_ref) is not None
    return "megatron-unfused" if old or "resume" not in words else "megatron-deterministic"


__all__ = ["TestSettings", "is_functional_test", "settings_of"]
