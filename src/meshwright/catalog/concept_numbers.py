"""The numbers of a reader's own plan under the names that concept cards use."""

from __future__ import annotations

from typing import Any

from meshwright.catalog.concepts import PLACEHOLDERS
from meshwright.spec.estimate import Estimate, Term
from meshwright.spec.model import Attention, LinearAttention, MultiLatentAttention
from meshwright.spec.plan import Problem

_GIB = 2.0**30
_COMMUNICATION = ("tensor_comm", "context_comm", "expert_comm", "data_comm", "pipeline_comm")


def numbers_of(problem: Problem, estimate: Estimate, *, params: float | None = None) -> dict[str, Any]:
    """Values for `Concept.explanation`; what the plan does not have is absent and its sentences are left out."""
    values = {
        **_strategy(estimate),
        **_problem(problem),
        **_memory(estimate),
        **_time(estimate),
        "params": params,
    }
    return {name: value for name, value in values.items() if value is not None and name in PLACEHOLDERS}


def _strategy(estimate: Estimate) -> dict[str, Any]:
    strategy = estimate.strategy
    names = ("tensor", "pipeline", "virtual", "context", "expert", "data", "micro_batch")
    words = ("framework", "sharding", "recompute", "precision")
    return {name: getattr(strategy, name) for name in (*names, *words)} | {"micro_batches": estimate.micro_batches}


def _problem(problem: Problem) -> dict[str, Any]:
    model, cluster, job = problem.model, problem.cluster, problem.job
    mixers = [block.mixer for block in model.blocks]
    attention = next((m for m in mixers if isinstance(m, (Attention, MultiLatentAttention))), None)
    linear = next((m for m in mixers if isinstance(m, LinearAttention)), None)
    return {
        "model": model.name,
        "cluster": cluster.id,
        "devices": cluster.devices,
        "nodes": cluster.nodes,
        "domain": cluster.domain_size,
        "link_gbs": cluster.link_bandwidth / 1e9,
        "nic_gbs": cluster.nic_bandwidth / 1e9,
        "global_batch": job.global_batch,
        "seq_len": job.seq_len,
        "layers": model.layers,
        "hidden": model.hidden,
        "heads": attention.heads if attention else linear.value_heads if linear else None,
        "kv_heads": attention.kv_heads if isinstance(attention, Attention) else attention.heads if attention else None,
    }


def _memory(estimate: Estimate) -> dict[str, Any]:
    leaves: dict[str, float] = {}
    for _, term in estimate.memory.walk():
        leaves.setdefault(term.name, float(term.value))
    parameters, master = leaves.get("parameters", 0.0), leaves.get("main_parameters", leaves.get("master_weights", 0.0))
    # FSDP has fp32 parameters only, and they are the parameters; beside a 16-bit copy they belong to the optimizer.
    optimizer = leaves.get("optimizer", 0.0) + (master if parameters else 0.0)
    amounts = {
        "parameters_gib": parameters or master,
        "gradients_gib": leaves.get("gradients", 0.0),
        "optimizer_gib": optimizer,
        "activations_gib": leaves.get("activations"),
        "peak_gib": estimate.peak_bytes,
        "capacity_gib": estimate.capacity_bytes,
    }
    return {name: value / _GIB for name, value in amounts.items() if value is not None}


def _time(estimate: Estimate) -> dict[str, Any]:
    step = estimate.step_seconds
    parts = {name: _seconds(estimate.time, name) for name in (*_COMMUNICATION, "compute", "bubble", "optimizer")}
    return {
        **{f"{name}_s": value for name, value in parts.items()},
        "recompute_s": _seconds(estimate.time, "compute.recompute"),
        "step_s": step,
        "bubble_pct": 100 * parts["bubble"] / step,
        "exposed_pct": 100 * sum(parts[name] for name in _COMMUNICATION) / step,
        "mfu_pct": 100 * estimate.mfu,
        "hfu_pct": 100 * estimate.hfu,
        "tokens_per_s": estimate.tokens_per_second,
    }


def _seconds(tree: Term, path: str) -> float:
    term = tree.find(path)
    return float(term.value) if term is not None else 0.0
