"""What a term of an estimate was made of: the formula calls behind it, and the parts they add up from."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from meshwright.engine.activations import every_other_matmul, recompute_groups
from meshwright.engine.block import COMM_GROUPS, Recompute
from meshwright.engine.communication import algorithm_costs
from meshwright.engine.explain.case import Case
from meshwright.engine.explain.words import Row, plain, row_name, shown
from meshwright.engine.kernels import operator_time
from meshwright.engine.memory import passes, stage_memory
from meshwright.engine.operators import Collective, Walk, block_walk, embedding_walk, head_walk
from meshwright.engine.stages import StageClass
from meshwright.engine.states import padded_vocab, rank_params, shards, state_bytes
from meshwright.engine.timing import collective_timer, layout_of, send_time, shape_of
from meshwright.formulas.registry import REGISTRY, Call, recording
from meshwright.messages import N_, Text
from meshwright.spec.estimate import Term
from meshwright.spec.model import Moe


@dataclass(frozen=True, slots=True)
class Evidence:
    """Why a term has its value: sentences, named parts, and formula calls."""

    body: tuple[Text, ...] = ()
    rows: tuple[Row, ...] = ()
    calls: tuple[Call, ...] = ()


def evidence(case: Case, path: str, term: Term) -> Evidence:
    """The parts of a total, or what the leaf at `path` was computed from."""
    if term.children:
        return _total(case, path, term)
    root, _, rest = path.partition(".")
    if root == "host":
        return _host(case, term)
    if root == "device":
        special = _MEMORY.get(term.name)
        return special(case, term) if special else _matching(_memory_calls(case), term)
    if rest.startswith("compute."):
        return _compute(case, rest.split(".")[1], term)
    special = _TIME.get(term.name)
    return special(case, term) if special else _matching(case.calls, term)


def _total(case: Case, path: str, term: Term) -> Evidence:
    """A sum or a maximum is explained by its parts, the largest first, and by what its namesake consists of."""
    how = N_("the largest of its parts:") if term.combine == "max" else N_("the sum of its parts:")
    children = sorted(term.children, key=lambda c: -float(c.value))
    rows = tuple((row_name(f"{path}.{c.name}"), float(c.value), c.unit) for c in children)
    parts = ", ".join(f"{c.name} {shown(float(c.value), c.unit)}" for c in children)
    same = next((c for c in children if c.name == term.name), None)
    if same is None:
        return Evidence((Text(how),), rows)
    own = evidence(case, f"{path}.{same.name}", same)
    return Evidence((Text(how), plain(parts), *own.body), own.rows, own.calls)


def _matching(calls: Iterable[Call], term: Term) -> Evidence:
    """Calls that gave exactly the term's value; else the calls of the term's formula."""
    calls = tuple(calls)
    exact = tuple(c for c in calls if _same(c.output, term.value))
    named = tuple(c for c in exact if c.id == term.formula)
    return Evidence(calls=named or exact[:1] or tuple(c for c in calls if c.id == term.formula))


def _same(a: object, b: object) -> bool:
    return math.isclose(float(a), float(b), rel_tol=1e-9)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------ memory


def _memory_calls(case: Case) -> tuple[Call, ...]:
    """Formula calls of the memory of the peak stage alone."""
    p = case.problem
    activations = case.blocks.activations
    with recording() as calls:
        stage_memory(p.model, p.cluster, p.job, case.strategy, case.peak_stage, activations, case.setting.software)
    return tuple(calls)


_STATE = {"parameters": "weight", "gradients": "gradient", "main_parameters": "master", "optimizer": "moments"}


def _state(case: Case, term: Term) -> Evidence:
    """A model state: parameters of the rank × bytes each, divided over the ranks that share them."""
    p, strategy, field = case.problem, case.strategy, _STATE[term.name]
    stack = case.setting.software
    per = state_bytes(strategy.framework, strategy.precision, p.job.optimizer, stack.gradient_bytes, p.model.hidden)
    params, by = rank_params(p.model, strategy, case.peak_stage), getattr(shards(strategy), field)
    size = getattr(per, field)
    calls = tuple(
        c
        for c in _memory_calls(case)
        if c.id == "memory.states.one"
        and c.inputs["per_parameter"] == size
        and (c.inputs["params"], c.inputs["ranks"]) in ((params.dense, by[0]), (params.expert, by[1]))
    )
    rows: list[Row] = [("params", float(params.dense), ""), ("ranks", float(by[0]), "")]
    body = [Text(N_("{size} bytes per parameter, divided over {ranks} ranks"), size=f"{size:g}", ranks=int(by[0]))]
    if params.expert:
        rows += [("experts", float(params.expert), ""), ("ranks", float(by[1]), "")]
        body.append(Text(N_("experts are divided over {ranks} ranks"), ranks=int(by[1])))
    return Evidence(tuple(body), tuple(rows), calls)


def _activations(case: Case, term: Term) -> Evidence:
    """Stored tensors of a layer × layers × micro-batches in flight."""
    stage = case.peak_stage
    held = sum(float(n) for n in passes(case.strategy, stage, case.micro_batches)) / stage.virtual
    body = [
        Text(
            N_("stage {stage} holds {layers} layers and {held} micro-batches at its peak"),
            stage=stage.index,
            layers=stage.layers,
            held=f"{held:g}",
        )
    ]
    rows: list[Row] = []
    for kind, (count, stored) in enumerate(zip(stage.counts, case.blocks.activations.stored, strict=True)):
        if count:
            each = Text(
                N_("{count} layers of kind {kind}: {size} each and micro-batch, kept under recompute '{mode}'"),
                count=count,
                kind=kind,
                size=shown(float(stored), "B"),
                mode=str(case.strategy.recompute),
            )
            body.append(each)
            rows += _saved(case, kind)
    calls = tuple(c for c in _memory_calls(case) if c.id.startswith("pipeline.in_flight."))
    body.append(Text(N_("tensors that a layer saves in a forward pass, before any recomputation:")))
    return Evidence(tuple(body), tuple(rows), calls)


def _saved(case: Case, kind: int) -> list[Row]:
    model = case.problem.model
    walk = block_walk(model, model.blocks[kind], shape_of(case.setting, case.strategy))
    kinds = sum(1 for n in case.peak_stage.counts if n)
    suffix = f" ({kind})" if kinds > 1 else ""
    saved = sorted(walk.saved, key=lambda s: -float(s.bytes))
    return [(f"{s.name}{suffix}", float(s.bytes), "B") for s in saved if s.bytes]


def _recompute_memory(case: Case, term: Term) -> Evidence:
    text = N_("while one layer runs backward: twice its largest saved tensor, and the tensors computed again")
    return Evidence((Text(text),))


def _host(case: Case, term: Term) -> Evidence:
    """Host memory: what one rank adds × the ranks of a node."""
    per_node = min(case.problem.cluster.node_size, case.problem.cluster.devices)
    each = float(term.value) / per_node
    body = Text(N_("{size} per rank × {ranks} ranks of the node"), size=shown(each, "B"), ranks=per_node)
    calls = tuple(c for c in _memory_calls(case) if c.id.startswith("memory.host."))
    return Evidence((body,), (), calls)


_MEMORY: dict[str, Callable[[Case, Term], Evidence]] = {
    **dict.fromkeys(_STATE, _state),
    "activations": _activations,
    "recompute": _recompute_memory,
}


# -------------------------------------------------------------------------------------------------------- time


class Run(NamedTuple):
    """One walk, how often it runs in a step, and what times its collectives and recomputes its operators."""

    times: float
    walk: Walk
    seconds: Callable[[Collective], Any]
    recompute: Recompute


def _runs(case: Case) -> Iterator[Run]:
    """Every block kind, head and embedding of the slowest stage."""
    model, shape, stage = case.problem.model, shape_of(case.setting, case.strategy), _slowest(case)
    s, m, nothing = case.strategy, case.micro_batches * stage.share, Recompute()
    chosen = Recompute(s.recompute, recompute_groups(s), every_other_matmul(s))
    plain_timer = collective_timer(case.setting, shape, case.groups, None)
    mtp = model.pattern[-1] if stage.mtp else None
    for kind, count in enumerate(stage.counts):
        if runs := count + (kind == mtp):
            mlp = model.blocks[kind].mlp
            timer = collective_timer(case.setting, shape, case.groups, mlp if isinstance(mlp, Moe) else None)
            yield Run(m * runs, block_walk(model, model.blocks[kind], shape), timer, chosen)
    if stage.head or stage.mtp:
        heads = float(stage.head) + float(stage.mtp)
        yield Run(m * heads, head_walk(model, shape, padded_vocab(model, s)), plain_timer, nothing)
    if stage.embedding:
        yield Run(m, embedding_walk(model, shape), plain_timer, nothing)


def _slowest(case: Case) -> StageClass:
    """The stage whose compute the time tree shows."""
    costs = case.blocks
    kinds = [float(k.forward + k.backward) for k in costs.kinds]
    head = float(costs.head.forward + costs.head.backward)
    embedding = float(costs.embedding.forward + costs.embedding.backward)
    mtp = kinds[case.problem.model.pattern[-1]] + head

    def seconds(stage: StageClass) -> float:
        own = sum(n * k for n, k in zip(stage.counts, kinds, strict=True))
        return own + head * stage.head + embedding * stage.embedding + mtp * stage.mtp

    return max(case.stages, key=seconds)


def _compute(case: Case, which: str, term: Term) -> Evidence:
    """Seconds of a step by operator, and the kernel formulas of the largest."""
    sums: dict[str, float] = {}
    calls: list[Call] = []
    for run in _runs(case):
        for op in run.walk.operators:
            share = run.recompute.share(op.kind, op.group) if which == "recompute" else float(op.part == term.name)
            if not share:
                continue
            with recording() as made:
                forward, backward = operator_time(op, case.setting.rates)
            seconds = run.times * share * float(backward if which == "backward" else forward)
            sums[op.name] = sums.get(op.name, 0.0) + seconds
            calls += made
    if which == "recompute":
        text = Text(N_("recompute '{mode}' runs these operators again:"), mode=str(case.strategy.recompute))
    else:
        text = Text(N_("seconds of a step by operator, on the slowest stage:"))
    ordered = sorted(sums.items(), key=lambda item: -item[1])
    return Evidence((text,), tuple((name, seconds, "s") for name, seconds in ordered), tuple(calls))


_GROUPS = {"tensor_comm": ("tensor", "expert_tensor"), "context_comm": ("context",), "expert_comm": ("expert",)}


def _collectives(case: Case, term: Term) -> Evidence:
    """The collectives of a group: payload, algorithm, seconds each and per step."""
    wanted = _GROUPS[term.name]
    found: dict[str, tuple[Run, Collective, float]] = {}
    for run in _runs(case):
        for c in run.walk.collectives:
            if c.group in wanted:
                before = found[c.name][2] if c.name in found else 0.0
                again = run.recompute.share("matmul", c.recompute_group) if c.phase == "forward" else 0.0
                found[c.name] = (run, c, before + run.times * (1 + again))
    body, rows = [_placed(case, wanted[0])], []
    calls: list[Call] = []
    for run, c, times in sorted(found.values(), key=lambda item: -float(item[1].payload) * item[2]):
        with recording() as made:
            seconds = float(run.seconds(c))
        calls += [call for call in made if _same(call.output, seconds)] or made
        rows.append((c.name, seconds * times, "s"))
        body.append(_collective_text(c, times, seconds, _algorithm(case, c)))
    body.append(Text(N_("seconds per step before any of it is hidden behind compute:")))
    return Evidence(tuple(body), tuple(rows), tuple(calls))


def _algorithm(case: Case, c: Collective) -> str:
    """The algorithm that wins for one collective."""
    if c.group == "expert" and c.operation == "all_to_all":
        return "all-to-all"
    costs = algorithm_costs(case.setting.network, case.groups[c.group], c.operation, float(c.payload))
    return min(costs, key=lambda name: costs[name]) if costs else "-"


def _placed(case: Case, name: str) -> Text:
    group = case.groups[name]
    return Text(
        N_("{ranks} ranks, {local} of them inside one scale-up domain; {inside} inside, {outside} outside per rank"),
        ranks=int(group.ranks),
        local=int(group.local),
        inside=shown(float(group.scale_up_bandwidth), "B/s"),
        outside=shown(float(group.scale_out_bandwidth), "B/s"),
    )


def _collective_text(c: Collective, times: float, seconds: float, algorithm: str) -> Text:
    return Text(
        N_("{name}: {operation} of {payload}, {times} times a step, {seconds} each ({algorithm})"),
        name=c.name,
        operation=c.operation,
        payload=shown(float(c.payload), "B"),
        times=f"{times:,.0f}",
        seconds=shown(seconds, "s"),
        algorithm=algorithm,
    )


def _sends(case: Case, term: Term) -> Evidence:
    """Hops of activations between pipeline stages."""
    with recording() as calls:
        hop = float(send_time(case.setting, case.strategy, case.groups))
    best = tuple(c for c in calls if _same(c.output, hop))
    exposed = float(term.value) / hop if hop else 0.0
    text = Text(N_("{count} hops of {seconds} are not hidden"), count=f"{exposed:,.0f}", seconds=shown(hop, "s"))
    return Evidence((_placed(case, "pipeline"), text), (("pipeline_comm", float(term.value), "s"),), best)


def _state_traffic(case: Case, term: Term) -> Evidence:
    """Gathers of parameters and reductions of gradients: how long they take, and what of it is exposed."""
    best: tuple[float, tuple[Row, ...], tuple[Call, ...]] = (-1.0, (), ())
    for stage in case.stages:
        with recording() as calls:
            traffic = layout_of(case.setting, case.strategy, stage, case.groups).traffic
        m = float(case.micro_batches)
        gather = float(traffic.gather_forward + traffic.gather_backward) * (m if traffic.gather_each else 1.0)
        reduce = float(traffic.reduce) * (m if traffic.reduce_each else 1.0)
        whole = gather if term.name == "param_gather" else reduce
        if whole > best[0]:
            best = (whole, _traffic_rows(term, whole), tuple(c for c in calls if c.id.startswith("comm.")))
    whole, rows, calls_of = best
    hidden = max(whole - float(term.value), 0.0)
    text = Text(
        N_("{whole} a step over {ranks} ranks, of which {hidden} run behind compute"),
        whole=shown(max(whole, 0.0), "s"),
        ranks=int(case.groups["data"].ranks),
        hidden=shown(hidden, "s"),
    )
    return Evidence((_placed(case, "data"), text), rows, calls_of)


def _traffic_rows(term: Term, whole: float) -> tuple[Row, ...]:
    return (("communication", whole, "s"), ("exposed", float(term.value), "s"))


def _contention(case: Case, term: Term) -> Evidence:
    share = float(case.setting.rates.contention)
    hidden = float(term.value) / share if share else 0.0
    text = Text(
        N_("communication that runs behind compute ({hidden}) slows it by {share} of its own time"),
        hidden=shown(hidden, "s"),
        share=shown(share, "1"),
    )
    return Evidence((text,))


def _bubble(case: Case, term: Term) -> Evidence:
    calls = tuple(c for c in case.calls if c.id.startswith("pipeline.bubble."))
    share = float(term.value) / float(case.estimate.time.value)
    text = Text(
        N_("{stages} stages, {micro_batches} micro-batches, schedule {schedule}: {share} of the step"),
        stages=int(case.strategy.pipeline),
        micro_batches=case.micro_batches,
        schedule=str(case.strategy.schedule),
        share=shown(share, "1"),
    )
    return Evidence((text,), (), calls)


def _launch(case: Case, term: Term) -> Evidence:
    fixed = float(case.setting.software.step_overhead)
    text = Text(
        N_("{fixed} of fixed work per step, and {rest} in which the host launches kernels slower than they run"),
        fixed=shown(fixed, "s"),
        rest=shown(max(float(term.value) - fixed, 0.0), "s"),
    )
    return Evidence((text,))


def _loading(case: Case, term: Term) -> Evidence:
    return Evidence((Text(N_("stated by the job: seconds per step that loading data is not hidden")),))


_TIME: dict[str, Callable[[Case, Term], Evidence]] = {
    **dict.fromkeys((f"{name}_comm" for name in COMM_GROUPS), _collectives),
    "pipeline_comm": _sends,
    "param_gather": _state_traffic,
    "grad_reduce": _state_traffic,
    "contention": _contention,
    "bubble": _bubble,
    "host_overhead": _launch,
    "data_loading": _loading,
}


def formulas_of(term: Term, calls: Iterable[Call]) -> tuple[str, ...]:
    """Formula ids behind a term: those called, the one it names first."""
    ids = dict.fromkeys(c.id for c in calls)
    named = (term.formula,) if term.formula in REGISTRY else ()
    return tuple(dict.fromkeys((*named, *ids)))
