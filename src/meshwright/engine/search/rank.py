"""Order, Pareto front, and the sentences that say why: from the columns of a finished search."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from meshwright.engine.evaluate import estimate_legal
from meshwright.messages import N_, Text
from meshwright.rules.base import RuleContext
from meshwright.rules.check import check
from meshwright.spec.estimate import Estimate
from meshwright.spec.plan import NearMiss, Problem, Ranked
from meshwright.spec.strategy import Strategy

if TYPE_CHECKING:
    from meshwright.engine.search.plan import Columns

Index = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
SAME = 0.02  # step times closer than this are equal (a fraction of any prediction error): the simpler one comes first
_DEGREES = ("tensor", "pipeline", "context", "expert", "virtual")
_MODES = {"none": 0, "selective": 1, "full": 2}


def _degree(columns: Columns, name: str) -> npt.NDArray[Any]:
    """A degree or category of every candidate as one column."""
    out = np.empty(len(columns.row), dtype=np.int64)
    for n, g in enumerate(columns.groups):
        mine = columns.group == n
        out[mine] = getattr(g.table, name)[columns.row[mine]]
    return out


def _category(columns: Columns, name: str) -> npt.NDArray[Any]:
    names = np.array([str(getattr(g.like, name)) for g in columns.groups] or [""])
    return names[columns.group] if len(columns.group) else np.empty(0, dtype=names.dtype)


def _recompute(columns: Columns) -> npt.NDArray[Any]:
    out = np.empty(len(columns.mode), dtype="U9")
    for n, g in enumerate(columns.groups):
        mine = columns.group == n
        out[mine] = np.array([mode.recompute for mode in g.modes])[columns.mode[mine]]
    return out


def order(columns: Columns, fits: Mask, goal: str) -> Index:
    """Candidates that fit, best first: by time; near ties by how many kinds of parallelism they use, then how much."""
    index = np.flatnonzero(fits)
    seconds, peak = columns.seconds[index], columns.peak[index]
    if goal == "memory":
        return index[np.lexsort((seconds, peak))]
    if not len(index):
        return index
    quick = index[np.argsort(seconds, kind="stable")]
    near = quick[columns.seconds[quick] <= columns.seconds[quick[0]] * (1 + SAME)]
    rest = quick[len(near) :]
    kinds, size = np.zeros(len(near)), np.zeros(len(near))
    for name in _DEGREES:
        degree = _degree_of(columns, near, name)
        kinds += degree > 1
        size += np.log2(degree)
    simplest = near[np.lexsort((columns.seconds[near], size, kinds))]
    return np.concatenate([simplest, rest])


def _degree_of(columns: Columns, index: Index, name: str) -> npt.NDArray[np.float64]:
    return np.array([getattr(columns.groups[int(columns.group[i])].table, name)[int(columns.row[i])] for i in index], float)


def distinct_meshes(columns: Columns, index: Iterable[int], top: int) -> list[int]:
    """The first candidate of every (framework, mesh), in order, at most `top`."""
    seen: set[tuple[Any, ...]] = set()
    out: list[int] = []
    for i in index:
        g = columns.groups[int(columns.group[i])]
        t, r = g.table, int(columns.row[i])
        key = (g.like.framework, t.tensor[r], t.context[r], t.pipeline[r], t.expert[r], t.expert_tensor[r])
        if key in seen:
            continue
        seen.add(key)
        out.append(int(i))
        if len(out) == top:
            break
    return out


def pareto_front(columns: Columns, fits: Mask) -> Index:
    """Candidates that no other beats in both time and peak memory (cost follows time on a fixed cluster)."""
    index = np.flatnonzero(fits)
    index = index[np.lexsort((columns.peak[index], columns.seconds[index]))]
    best = np.minimum.accumulate(np.concatenate([[np.inf], columns.peak[index]]))[:-1]
    return index[columns.peak[index] < best]


def reason_for_rank(estimate: Estimate, winner: Estimate | None) -> Text | None:
    """What sets this strategy apart from the winner, or what binds the winner."""
    if winner is None:
        term = next(t for t in estimate.time.children if t.name == estimate.bound_by)
        share = term.value / estimate.step_seconds
        return Text(N_("{share} of the step is {term}"), share=f"{share:.0%}", term=Text(TERM_NAMES[term.name]))
    ours = {t.name: t.value for t in estimate.time.children}
    theirs = {t.name: t.value for t in winner.time.children}
    more = {name: ours.get(name, 0.0) - theirs.get(name, 0.0) for name in {*ours, *theirs}}
    worst = max(more, key=lambda name: (more[name], name))
    slower = estimate.step_seconds / winner.step_seconds - 1
    return Text(
        N_("{slower} slower: {term} {seconds} s more"),
        slower=f"{max(slower, 0):.1%}",
        term=Text(TERM_NAMES[worst]),
        seconds=f"{max(more[worst], 0):.2f}",
    )


TERM_NAMES = {
    "compute": N_("compute"),
    "tensor_comm": N_("tensor-parallel communication"),
    "context_comm": N_("context-parallel communication"),
    "expert_comm": N_("expert all-to-all"),
    "pipeline_comm": N_("pipeline sends"),
    "bubble": N_("pipeline bubble"),
    "data_comm": N_("exposed data-parallel communication"),
    "optimizer": N_("optimizer update"),
    "host_overhead": N_("host overhead"),
    "data_loading": N_("data loading"),
}
DEGREE_NAMES = {
    "tensor": N_("tensor parallelism"),
    "pipeline": N_("pipeline parallelism"),
    "context": N_("context parallelism"),
    "expert": N_("expert parallelism"),
}


def reasons(problem: Problem, columns: Columns, fits: Mask, best: Ranked) -> tuple[Text, ...]:
    """Why these degrees, this sharding, this recompute mode: against the best candidate that differs in just that."""
    out: list[Text] = []
    s = best.strategy
    for name, label in DEGREE_NAMES.items():
        out += _degree_reasons(columns, fits, best, name, label, int(getattr(s, name)))
    out += _category_reasons(columns, fits, best, "sharding", _category(columns, "sharding"), str(s.sharding))
    out += _category_reasons(columns, fits, best, "recompute", _recompute(columns), str(s.recompute))
    out += _category_reasons(columns, fits, best, "framework", _category(columns, "framework"), str(s.framework))
    term = next(t for t in best.estimate.time.children if t.name == best.estimate.bound_by)
    exposed = sum(t.value for t in best.estimate.time.children if t.name.endswith("_comm"))
    out.append(
        Text(
            N_("what binds: {term} takes {share} of the step; exposed communication {exposed} in all"),
            term=Text(TERM_NAMES[term.name]),
            share=f"{term.value / best.estimate.step_seconds:.0%}",
            exposed=f"{exposed / best.estimate.step_seconds:.0%}",
        )
    )
    return tuple(out)


def _compared(columns: Columns, fits: Mask, mine: Mask, best: Ranked) -> tuple[float | None, float | None]:
    """Seconds of the best fitting candidate of a subset over the winner's, or by how many bytes the smallest is over."""
    here = fits & mine
    if here.any():
        return float(columns.seconds[here].min()) / best.estimate.step_seconds - 1, None
    if mine.any():
        return None, float(columns.peak[mine].min()) - best.estimate.capacity_bytes
    return None, None


def _degree_reasons(
    columns: Columns, fits: Mask, best: Ranked, name: str, label: str, value: int
) -> list[Text]:
    column = _degree(columns, name)
    values = np.unique(column)
    if len(values) < 2:
        return []
    at = int(np.flatnonzero(values == value)[0])
    neighbours = [int(values[i]) for i in (at - 1, at + 1) if 0 <= i < len(values)]
    parts = []
    for other in neighbours:
        slower, over = _compared(columns, fits, column == other, best)
        if slower is not None:
            parts.append(Text(N_("{degree}: {slower} slower"), degree=other, slower=f"{max(slower, 0):.1%}"))
        elif over is not None:
            over_gib = f"{max(over, 0) / 2**30:.1f}"
            parts.append(Text(N_("{degree}: does not fit (over by {gib} GiB or within the stated error)"), degree=other, gib=over_gib))
    if not parts:
        return []
    if len(parts) == 1:
        return [Text(N_("{label} {value}; with {first}"), label=Text(label), value=value, first=parts[0])]
    return [Text(N_("{label} {value}; with {first}, with {second}"), label=Text(label), value=value, first=parts[0], second=parts[1])]


def _category_reasons(
    columns: Columns, fits: Mask, best: Ranked, name: str, column: npt.NDArray[Any], value: str
) -> list[Text]:
    out = []
    for other in np.unique(column).tolist():
        if other == value:
            continue
        slower, over = _compared(columns, fits, column == other, best)
        values = {"name": name, "value": value, "other": other}
        if slower is not None:
            text = N_("{name} {value}: the best with {other} is {slower} slower")
            out.append(Text(text, slower=f"{max(slower, 0):.1%}", **values))
        elif over is not None:
            gib = f"{max(over, 0) / 2**30:.1f}"
            out.append(Text(N_("{name} {value}: nothing with {other} fits (closest: {gib} GiB over)"), gib=gib, **values))
    return out


def fix_for(problem: Problem, strategy: Strategy, over: float, over_safe: float) -> Text | None:
    """The least change that would make a near miss fit: a stronger recompute mode, a smaller micro-batch, more shards."""
    if over <= 0:
        return Text(N_("fits, but with less to spare than the stated memory error ({gib} GiB short of safe)"), gib=f"{over_safe / 2**30:.1f}")
    capacity = problem.cluster.accelerator.memory_usable_bytes
    for change, text in _changes(strategy):
        if any(f.severity == "error" for f in check(RuleContext(problem.model, problem.cluster, problem.job, change, uneven_stages=True))):
            continue
        e = estimate_legal(problem, change)
        if e.peak_bytes <= capacity:
            return Text(N_("{change} would fit: {gib} GiB, step {seconds} s"), change=text, gib=f"{e.peak_bytes / 2**30:.1f}", seconds=f"{e.step_seconds:.2f}")
    return Text(N_("over by {gib} GiB; neither recomputation nor a smaller micro-batch is enough"), gib=f"{over / 2**30:.1f}")


def _changes(s: Strategy) -> list[tuple[Strategy, Text]]:
    out = []
    if s.recompute == "none":
        out.append((replace(s, recompute="selective"), Text(N_("selective recompute"))))
    if s.recompute != "full":
        out.append((replace(s, recompute="full"), Text(N_("full recompute"))))
    if s.micro_batch > 1:
        half = s.micro_batch // 2
        out.append((replace(s, micro_batch=half), Text(N_("micro-batch {size}"), size=half)))
        out.append((replace(s, micro_batch=1, recompute="full"), Text(N_("micro-batch 1 with full recompute"))))
    if s.sharding == "none":
        out.append((replace(s, sharding="zero1"), Text(N_("a sharded optimizer (zero1)"))))
    return out


def what_next(
    problem: Problem, columns: Columns, best: Ranked | None, misses: tuple[NearMiss, ...], constraints: Any
) -> tuple[Text, ...]:
    """What to try next: another precision, a larger batch against the bubble, or how far a fit is."""
    if best is None:
        return _nothing_fits(problem, columns, misses)
    out: list[Text] = []
    e, s = best.estimate, best.strategy
    faster = _other_precision(problem, s, e)
    if faster:
        out.append(faster)
    bubble = e.time.find("bubble")
    if bubble is not None and bubble.value > 0.1 * e.step_seconds:
        double = problem.job.global_batch * 2
        bigger = replace(problem, job=replace(problem.job, global_batch=double))
        gain = estimate_legal(bigger, s).tokens_per_second / e.tokens_per_second - 1
        out.append(Text(N_("a global batch of {batch} would give {gain} more tokens/s: the bubble is {share} of the step"), batch=double, gain=f"{gain:.0%}", share=f"{bubble.value / e.step_seconds:.0%}"))
    out.append(Text(N_("see where more devices stop paying: meshwright scale")))
    out.append(Text(N_("open a number: meshwright explain {term} --plan plan.json"), term=e.bound_by))
    return tuple(out)


def _other_precision(problem: Problem, s: Strategy, e: Estimate) -> Text | None:
    peaks = problem.cluster.accelerator.peak_flops
    if s.precision != "bf16" or "fp8" not in peaks:
        return None
    recipe = "mxfp8" if problem.cluster.accelerator.architecture == "blackwell" else "fp8"
    other = replace(s, precision=recipe)
    context = RuleContext(problem.model, problem.cluster, problem.job, other, uneven_stages=True)
    if any(f.severity == "error" for f in check(context)):
        return None
    changed = estimate_legal(replace(problem, job=replace(problem.job, precision=recipe)), other)
    gain = e.step_seconds / changed.step_seconds - 1
    if gain < 0.02 or changed.verdict == "OVER":
        return None
    return Text(N_("{precision} would be {gain} faster ({gib} GiB peak); check the loss against bf16 first"), precision=recipe, gain=f"{gain:.0%}", gib=f"{changed.peak_bytes / 2**30:.1f}")


def _nothing_fits(problem: Problem, columns: Columns, misses: tuple[NearMiss, ...]) -> tuple[Text, ...]:
    if not misses:
        return (Text(N_("no legal strategy: see the funnel for the rule that rejects most, and relax what it names")),)
    closest = misses[0]
    capacity = problem.cluster.accelerator.memory_usable_bytes
    need = (closest.over_bytes + capacity) / capacity
    return (
        Text(N_("nothing fits: the smallest strategy needs {ratio} times the device memory"), ratio=f"{need:.2f}"),
        Text(
            N_("try about {devices} devices or more, devices with more memory, a lighter optimizer, or optimizer offload (--framework deepspeed --offload optimizer)"),
            devices=int(problem.cluster.devices * need) + 1,
        ),
    )
