"""A term of a result: what it is, its value in a plan, the formulas behind it, and what would change it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from meshwright import glossary
from meshwright.engine import memory, timetree
from meshwright.engine.explain import formulas
from meshwright.engine.explain.case import Case, host_of
from meshwright.engine.explain.evidence import evidence, formulas_of
from meshwright.engine.explain.knobs import depends_on, what_changes_it
from meshwright.engine.explain.words import Row, key, label, meaning, row_name, shown
from meshwright.formulas.registry import REGISTRY
from meshwright.messages import N_, Text
from meshwright.spec.estimate import Estimate, Term
from meshwright.spec.plan import Explanation, Section

SHOWN_FORMULAS = 4
_TREES = {"memory": "device", "time": "step", "device_memory": "device", "step_seconds": "step"}

_RING = ("comm.pipelined", "comm.all_reduce.ring", "comm.all_reduce.double_tree", "comm.torus.all_reduce")
_GATHER = ("comm.pipelined", "comm.all_gather.ring", "comm.torus.all_gather")

# Formulas to show for a term when there is no plan to look into.
TERM_FORMULAS: dict[str, tuple[str, ...]] = {
    **{name: (formula,) for name, (_, formula, _) in memory._TERMS.items() if formula},
    **dict.fromkeys(("steady", "offloaded"), ("memory.host.offload",)),
    "states": ("memory.states.unsharded", "memory.states.zero1", "memory.states.zero2", "memory.states.zero3"),
    "activations": ("memory.activations.total", "memory.activations.sequence", "pipeline.in_flight.1f1b"),
    "recompute": ("memory.activations.full", "memory.activations.selective"),
    "gathered_units": ("memory.buffers.fsdp_forward", "memory.buffers.zero3_gather"),
    "buckets": ("memory.buffers.ddp", "memory.buffers.zero_reduce"),
    "reserve": ("memory.reserve",),
    "device.context": ("memory.context",),
    "host.initialise": ("memory.host.initialise",),
    "host.checkpoint": ("memory.host.checkpoint",),
    "tensor_comm": (*_GATHER, "comm.all_reduce.ring"),
    "context_comm": _GATHER,
    "expert_comm": ("moe.all_to_all", "moe.dispatch_bytes", "moe.distinct_places", "comm.torus.all_to_all"),
    "pipeline_comm": ("comm.pipelined", "comm.point_to_point", "comm.torus.send"),
    "param_gather": _GATHER,
    "grad_reduce": _RING,
    "data_comm": _RING,
    "bubble": (
        "pipeline.bubble.1f1b", "pipeline.bubble.interleaved", "pipeline.bubble.zb_h1", "pipeline.bubble.zbv",
        "pipeline.bubble.dualpipe", "pipeline.bubble.fraction",
    ),
    "compute": ("roofline.matmul.time", "roofline.time", "flops.training"),
    "forward": ("roofline.matmul.time", "roofline.time"),
    "backward": ("roofline.matmul.time", "roofline.time"),
    **dict.fromkeys(("mlp", "head"), ("roofline.matmul.time", "roofline.matmul.wave_utilisation")),
    "moe": ("roofline.matmul.time", "moe.busiest_rank"),
    "attention": ("roofline.time", "flops.attention_core", "roofline.matmul.time"),
    **{name: (formula,) for name, formula in timetree._FORMULA.items() if name != "attention"},
    "step.optimizer": ("optimizer.update",),
}  # fmt: skip


def find_terms(case: Case, subject: str) -> tuple[tuple[str, Term], ...]:
    """Terms of the plan's trees that `subject` names: a path, the end of one, or a label; the shallowest first."""
    wanted = key(subject)
    head, dot, rest = wanted.partition(".")
    wanted = _TREES.get(head, head) + dot + rest
    if "total" in (head, rest):  # the last line of a printed tree is its root
        return tuple((t.name, t) for t in case.trees() if head == "total" or t.name == _TREES.get(head, head))
    hits = [(p, t) for p, t in case.nodes() if p == wanted or p.endswith(f".{wanted}")]
    if not hits and "." not in wanted:
        hits = [(p, t) for p, t in case.nodes() if wanted in _spoken(row_name(p))]
    return tuple(sorted(hits, key=lambda hit: hit[0].count(".")))


def _spoken(name: str) -> tuple[str, ...]:
    return tuple(key(glossary.label(name, language)) for language in ("en", "es"))


def term_explanation(case: Case, hits: tuple[tuple[str, Term], ...]) -> Explanation:
    """The first of `hits` with its numbers; the others are where to read on."""
    path, term = hits[0]
    found = evidence(case, path, term)
    ids = (formulas_of(term, found.calls) or general_formulas(row_name(path)))[:SHOWN_FORMULAS]
    name = row_name(path)
    value = float(term.value)
    sections = (
        Section(title=Text(N_("What it is")), body=meaning(name)),
        _value(case, path, term),
        Section(title=Text(N_("Where it comes from")), body=found.body, rows=found.rows),
        *(formulas.section(id, found.calls) for id in ids),
        what_changes_it(case, term.name, term.unit, value, _reader(path)),
    )
    return Explanation(
        subject=path,
        kind="term",
        title=label(name),
        sections=tuple(s for s in sections if s.body or s.rows),
        sources=tuple(dict.fromkeys(REGISTRY[id].source for id in ids)),
        see_also=(*(p for p, _ in hits[1:4]), *ids),
    )


def _reader(path: str) -> Callable[[Estimate], float | None]:
    """Finds the term at `path` in another estimate; a term that is gone is zero."""
    root, _, rest = path.partition(".")

    def read(estimate: Estimate) -> float | None:
        tree = {"device": estimate.memory, "step": estimate.time}.get(root) or host_of(estimate)
        term = tree.find(path) if rest and tree is not None else tree
        return float(term.value) if term is not None else 0.0

    return read


def _value(case: Case, path: str, term: Term) -> Section:
    """The number, its share of the whole, how certain it is."""
    tree = next(t for t in case.trees() if t.name == path.split(".", 1)[0])
    whole = float(tree.value)
    rows: list[Row] = [(row_name(path), float(term.value), term.unit)]
    body: list[Text] = [case.origin] if case.origin else []
    body.append(Text(N_("strategy: {strategy}"), strategy=_named(case)))
    if term is not tree and whole:
        share = shown(float(term.value) / whole, "1")
        body.append(Text(N_("{share} of {whole}"), share=share, whole=label(row_name(tree.name))))
    if path.startswith("device"):
        body.append(
            Text(
                N_("stage {stage}, in the phase of the peak: {phase}"),
                stage=case.estimate.peak_stage,
                phase=label(case.estimate.peak_phase),
            )
        )
    body.append(
        Text(
            N_("certainty: {certainty}. {meaning}"), certainty=label(term.certainty), meaning=meaning(term.certainty)[0]
        )
    )
    body += _differs(case, path, term)
    return Section(title=Text(N_("In your plan")), body=tuple(body), rows=tuple(rows))


def _named(case: Case) -> str:
    s = case.strategy
    return f"{s.framework} {s.short} {s.sharding}"


def _differs(case: Case, path: str, term: Term) -> list[Text]:
    """A result written by another release may hold another number."""
    again = _reader(path)(case.evaluated[0])
    if again is None or abs(again - float(term.value)) <= 1e-6 * abs(float(term.value)):
        return []
    return [Text(N_("the result holds this number, this release computes {value}"), value=shown(again, term.unit))]


def general_explanation(name: str, case: Case | None) -> Explanation:
    """A word of the glossary that is no term of the plan's trees: meaning, value where the plan has one, formulas."""
    ids = general_formulas(name)
    entry = glossary.entry(name)
    sections = [Section(title=Text(N_("What it is")), body=meaning(name))]
    if case is not None:
        sections.append(_setting(case, name))
    sections += [Section(title=Text(N_("What would change it")), body=depends_on(name))]
    sections += [formulas.section(id) for id in ids]
    return Explanation(
        subject=entry.name if entry else name,
        kind="term",
        title=label(name),
        sections=tuple(s for s in sections if s.body or s.rows),
        sources=tuple(dict.fromkeys(REGISTRY[id].source for id in ids)),
        see_also=ids,
    )


def general_formulas(name: str) -> tuple[str, ...]:
    """Formulas of a term by its path or its own name."""
    return TERM_FORMULAS.get(name) or TERM_FORMULAS.get(name.rsplit(".", 1)[-1], ())


def _setting(case: Case, name: str) -> Section:
    """The field of strategy, job, cluster, model or estimate with that name; a term that is absent is zero."""
    title, own = Text(N_("In your plan")), name.rsplit(".", 1)[-1]
    p = case.problem
    for record in (case.strategy, p.job, p.cluster, p.model, case.estimate):
        value: Any = getattr(record, own, None)
        if isinstance(value, (bool, int, float, str)):
            unit = glossary.unit(own)
            return Section(title=title, rows=((own, str(value) if isinstance(value, bool) else value, unit),))
    entry = glossary.entry(name)
    if entry is not None and entry.kind in ("memory", "host", "time"):
        return Section(title=title, body=(Text(N_("it is zero in this plan: {strategy}"), strategy=_named(case)),))
    return Section(title=title)
