"""What the name of a functional test of Megatron-LM says of its settings, beyond the columns of a row.

The tests (tests/functional_tests/test_cases of NVIDIA/Megatron-LM) train with the defaults of Megatron's command line,
dropout of 0.1 among them, and in deterministic mode; the name of a test lists what it sets otherwise. The name of a
golden file tells the container: `dev` or `lts`, and the cluster it was recorded on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from meshwright.validate.rows import MeasuredRun

_NAMES = re.compile(r"^(gpt3|hybrid)_(?!.*release)")  # of tests on Megatron's defaults; release runs state their own


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedSettings:
    """Settings of a functional test that no column holds."""

    software: str
    dropout: bool
    loss: str
    qk_norm: bool
    learned_positions: bool
    optimizer_instances: int


def is_functional_test(run: MeasuredRun) -> bool:
    """Whether a row comes from Megatron's own tests on its defaults."""
    return "functional_tests/test_cases" in run.source_ref and _NAMES.search(run.model.lower()) is not None


def settings_of(run: MeasuredRun) -> NamedSettings:
    """Settings of a functional test, from the words of its name and of its golden file."""
    words = frozenset(re.split(r"[_\W]+", run.model.lower()))
    ring = (run.cp or 1) > 1  # ring attention: FlashAttention, no dropout, deterministic only where its name says so
    gpt = "hybrid" not in words
    return NamedSettings(
        software=_profile(run, words, ring=ring),
        dropout=gpt and not ring,
        loss="compiled" if "cross_entropy_loss_fusion" in run.model else "auto",
        qk_norm="qk_layernorm" in run.model,
        learned_positions=gpt and "rope" not in words,
        optimizer_instances=2 if "multi_dist_optimizer_instances" in run.model else 1,
    )


def layers_per_stage(run: MeasuredRun) -> tuple[int, ...]:
    """Layers of each stage of a test of uneven pipelines: the first and the last hold one less, for embedding and head.

    Empty for any other run.
    """
    stages, layers = run.pp or 1, run.n_layers or 0
    if not (is_functional_test(run) and "uneven_pipeline" in run.model and stages > 2 and layers % stages == 0):
        return ()
    end = layers // stages - 1
    inner, rest = divmod(layers - 2 * end, stages - 2)
    return () if rest else (end, *[inner] * (stages - 2), end)


def ffn_width(run: MeasuredRun, stated: int) -> int:
    """Width of a dense MLP: four times the hidden size is Megatron's default, and two thirds of that with SwiGLU."""
    if not (is_functional_test(run) and run.gated_mlp and not run.n_experts and stated == 4 * (run.hidden or 0)):
        return stated
    return stated * 2 // 3 // 64 * 64


def _profile(run: MeasuredRun, words: frozenset[str], *, ring: bool) -> str:
    if "uninstall" in words or ("mcore" in words and not words & {"te", "weekly"}):
        return "megatron-local"
    # In the first `lts` containers (recorded on the dracooci clusters) Transformer Engine had no fused attention that
    # is deterministic. Tests that start afresh ask for unfused attention, those that resume leave the choice to it.
    old = re.search(r"golden_values_lts\w*_dracooci", run.source_ref) is not None
    afresh = "mcore" in words and not words & {"resume", "weekly", "fuser", "hybrid"}
    if not ring and (old or afresh):
        return "megatron-unfused"
    if "defer_embedding_wgrad_compute" in run.model:
        return "megatron-deferred-head"
    free = (ring and not run.n_experts) or words & {"nondeterministic", "fusion", "hybrid"}
    return "megatron-core" if free and not (ring and run.n_experts) else "megatron-deterministic"


__all__ = ["NamedSettings", "ffn_width", "is_functional_test", "layers_per_stage", "settings_of"]
