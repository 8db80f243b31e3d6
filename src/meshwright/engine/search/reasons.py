"""The sentences of a plan: why this rank, why these degrees, what would make a miss fit, what to try next."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from meshwright.engine.evaluate import estimate_legal
from meshwright.engine.search.legal import BATCH, nothing_legal, odd_part
from meshwright.engine.search.rank import SAME
from meshwright.glossary import Label
from meshwright.messages import N_, Text
from meshwright.rules.base import RULES, RuleContext
from meshwright.rules.check import check
from meshwright.spec.estimate import Estimate
from meshwright.spec.job import Precision
from meshwright.spec.plan import NearMiss, Problem, Ranked
from meshwright.spec.strategy import Strategy
from meshwright.units import figures

if TYPE_CHECKING:
    from meshwright.engine.search.plan import Columns, Pool

Mask = npt.NDArray[np.bool_]
GIB = 2**30
HALF = 0.5  # a saving of less than this share of the loss is not worth a word


def gib(size: float) -> str:
    """Bytes as GiB with one decimal, not below zero."""
    return f"{max(size, 0) / GIB:.1f}"


def percent(share: float, digits: int = 0) -> str:
    """A share as a percentage, not below zero."""
    return f"{max(share, 0):.{digits}%}"


def _forbidden(problem: Problem, strategy: Strategy) -> bool:
    context = RuleContext(problem.model, problem.cluster, problem.job, strategy, uneven_stages=True)
    return any(f.severity == "error" for f in check(context))


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


def reason_for_rank(estimate: Estimate, winner: Estimate | None) -> Text | None:
    """What sets this strategy apart from the winner, or what binds the winner."""
    if winner is None:
        term = next(t for t in estimate.time.children if t.name == estimate.bound_by)
        share = term.value / estimate.step_seconds
        return Text(N_("{share} of the step is {term}"), share=percent(share), term=Text(TERM_NAMES[term.name]))
    ours = {t.name: t.value for t in estimate.time.children}
    theirs = {t.name: t.value for t in winner.time.children}
    more = {name: ours.get(name, 0.0) - theirs.get(name, 0.0) for name in {*ours, *theirs}}
    worst = max(more, key=lambda name: (more[name], name))
    saving = min(more, key=lambda name: (more[name], name))
    slower = estimate.step_seconds / winner.step_seconds - 1
    change = Text(N_("{seconds} s more {term}"), seconds=f"{max(more[worst], 0):.2f}", term=Text(TERM_NAMES[worst]))
    if more[saving] <= -HALF * more[worst]:  # else the saving hides in the rounding of what is lost
        change = Text(
            N_("{change}, {seconds} s less {term}"),
            change=change, seconds=f"{-more[saving]:.2f}", term=Text(TERM_NAMES[saving]),
        )  # fmt: skip
    if abs(slower) <= SAME:
        return Text(N_("as fast within {same}, less simple or equal: {change}"), same=percent(SAME), change=change)
    return Text(N_("{slower} slower: {change}"), slower=percent(slower, 1), change=change)


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


def reasons(columns: Columns, fits: Mask, best: Ranked) -> tuple[Text, ...]:
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
            share=percent(term.value / best.estimate.step_seconds),
            exposed=percent(exposed / best.estimate.step_seconds),
        )
    )
    return tuple(out)


def _compared(columns: Columns, fits: Mask, mine: Mask, best: Ranked) -> tuple[float | None, float | None, str]:
    """How much slower the best fitting candidate of a subset is, or by how many bytes its smallest is over; whose."""
    here = np.flatnonzero(fits & mine)
    if len(here):
        at = here[int(columns.seconds[here].argmin())]
        return float(columns.seconds[at]) / best.estimate.step_seconds - 1, None, _framework(columns, at)
    here = np.flatnonzero(mine)
    if len(here):
        at = here[int(columns.peak[here].argmin())]
        return None, float(columns.peak[at]) - best.estimate.capacity_bytes, _framework(columns, at)
    return None, None, ""


def _difference(slower: float) -> Text:
    """How far off the winner's step time; a faster one lost a near tie to a simpler strategy, or takes more memory."""
    if slower >= 0:
        return Text(N_("{slower} slower"), slower=percent(slower, 1))
    if -slower <= SAME:
        return Text(N_("{faster} faster, a near tie that the simpler one wins"), faster=percent(-slower, 1))
    return Text(N_("{faster} faster, with more memory"), faster=percent(-slower, 1))


def _framework(columns: Columns, index: Any) -> str:
    return str(columns.groups[int(columns.group[index])].like.framework)


def _degree_reasons(columns: Columns, fits: Mask, best: Ranked, name: str, label: str, value: int) -> list[Text]:
    column = _degree(columns, name)
    values = np.unique(column)
    if len(values) < 2:
        return []
    at = int(np.flatnonzero(values == value)[0])
    neighbours = [int(values[i]) for i in (at - 1, at + 1) if 0 <= i < len(values)]
    parts = []
    for other in neighbours:
        slower, over, _ = _compared(columns, fits, column == other, best)
        if slower is not None:
            parts.append(Text(N_("{degree}: {difference}"), degree=other, difference=_difference(slower)))
        elif over is not None:
            text = N_("{degree}: does not fit (over by {gib} GiB or within the stated error)")
            parts.append(Text(text, degree=other, gib=gib(over)))
    known: dict[str, Any] = {"label": Text(label), "value": value}
    if len(parts) == 1:
        return [Text(N_("{label} {value}; with {first}"), first=parts[0], **known)]
    if len(parts) == 2:
        return [Text(N_("{label} {value}; with {first}, with {second}"), first=parts[0], second=parts[1], **known)]
    return []


def _category_reasons(
    columns: Columns, fits: Mask, best: Ranked, name: str, column: npt.NDArray[Any], value: str
) -> list[Text]:
    out = []
    for other in np.unique(column).tolist():
        if other == value:
            continue
        slower, over, framework = _compared(columns, fits, column == other, best)
        # A choice that another framework alone offers costs what that framework costs: it is named.
        named = other if framework in (other, best.strategy.framework) else f"{other} ({framework})"
        values = {"name": Label(name), "value": value, "other": named}
        if slower is not None:
            text = N_("{name} {value}: the best with {other} is {difference}")
            out.append(Text(text, difference=_difference(slower), **values))
        elif over is not None:
            text = N_("{name} {value}: nothing with {other} fits (closest: {gib} GiB over)")
            out.append(Text(text, gib=gib(over), **values))
    return out


def fix_for(problem: Problem, strategy: Strategy, over: float, over_safe: float, over_host: float) -> Text | None:
    """The least change that makes a near miss fit: stronger recompute, a smaller micro-batch, a sharded optimizer."""
    if over_host > 0:
        return Text(N_("give each host {gib} GiB more memory for what is offloaded"), gib=gib(over_host))
    if over <= 0:
        text = N_("measure it: the stated memory error asks for {gib} GiB more to spare")
        return Text(text, gib=gib(over_safe))
    capacity = problem.cluster.accelerator.memory_usable_bytes
    for changed, change in _changes(strategy):
        if _forbidden(problem, changed):
            continue
        e = estimate_legal(problem, changed)
        if e.peak_bytes <= capacity and e.verdict != "OVER":
            text = N_("{change} would fit: {gib} GiB, step {seconds} s")
            return Text(text, change=change, gib=gib(e.peak_bytes), seconds=figures(e.step_seconds))
    return Text(N_("over by {gib} GiB; neither recomputation nor a smaller micro-batch is enough"), gib=gib(over))


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


def what_next(problem: Problem, best: Ranked | None, misses: tuple[NearMiss, ...], pool: Pool) -> tuple[Text, ...]:
    """What to try next: another precision, a larger batch against the bubble, or how far a fit is."""
    if best is None:
        return _nothing_fits(problem, misses) if misses else _nothing_legal(problem, pool)
    e, s = best.estimate, best.strategy
    out = [t for t in (_other_precision(problem, s, e), _larger_batch(problem, s, e)) if t is not None]
    out.append(Text(N_("see where more devices stop paying: meshwright scale")))
    out.append(
        Text(
            N_("open a number: add --json -o plan.json, then meshwright explain {term} --plan plan.json"),
            term=e.bound_by,
        )
    )
    return tuple(out)


def _larger_batch(problem: Problem, s: Strategy, e: Estimate) -> Text | None:
    bubble = e.time.find("bubble")
    if bubble is None or bubble.value <= 0.1 * e.step_seconds:
        return None
    double = problem.job.global_batch * 2
    changed = estimate_legal(replace(problem, job=replace(problem.job, global_batch=double)), s)
    return Text(
        N_("a global batch of {batch} would give {gain} more tokens/s: the bubble is {share} of the step"),
        batch=double,
        gain=percent(changed.tokens_per_second / e.tokens_per_second - 1),
        share=percent(bubble.value / e.step_seconds),
    )


def _other_precision(problem: Problem, s: Strategy, e: Estimate) -> Text | None:
    accelerator = problem.cluster.accelerator
    if s.precision != "bf16" or "fp8" not in accelerator.peak_flops:
        return None
    recipe: Precision = "mxfp8" if accelerator.architecture == "blackwell" else "fp8"
    other = replace(s, precision=recipe)
    if _forbidden(problem, other):
        return None
    changed = estimate_legal(replace(problem, job=replace(problem.job, precision=recipe)), other)
    gain = e.step_seconds / changed.step_seconds - 1
    if gain < 0.02 or changed.verdict == "OVER":
        return None
    return Text(
        N_("{precision} would be {gain} faster ({gib} GiB peak); check the loss against bf16 first"),
        precision=recipe,
        gain=percent(gain),
        gib=gib(changed.peak_bytes),
    )


def _nothing_legal(problem: Problem, pool: Pool) -> tuple[Text, ...]:
    """What stands in the way of every strategy, and the nearest batch where the batch does."""
    devices, batch = problem.cluster.devices, problem.job.global_batch
    blocker, why = nothing_legal(pool.rejected, pool.candidates, devices, batch)
    odd = odd_part(devices)
    if blocker != BATCH or batch % odd == 0:
        rule = RULES.get("MW-C201" if blocker == BATCH else blocker)
        return (why, rule.fix) if rule else (why,)
    near = max(round(batch / odd), 1) * odd
    return (why, Text(N_("try a global batch of {batch} sequences (--gbs {batch})"), batch=near))


def _nothing_fits(problem: Problem, misses: tuple[NearMiss, ...]) -> tuple[Text, ...]:
    capacity = problem.cluster.accelerator.memory_usable_bytes
    # A strategy that is within the device may still ask too much of the host: its own sentence says so.
    short_of_host = tuple(m.fix for m in misses if m.over_bytes <= 0 and m.fix)
    over = [m.over_bytes for m in misses if m.over_bytes > 0]
    if not over:
        return short_of_host
    need = (min(over) + capacity) / capacity
    return (
        *short_of_host,
        Text(N_("nothing fits: the smallest strategy needs {ratio} times the device memory"), ratio=f"{need:.2f}"),
        Text(
            N_(
                "try about {devices} devices or more, devices with more memory, a lighter optimizer, or optimizer"
                " offload (--framework deepspeed --offload optimizer)"
            ),
            devices=int(problem.cluster.devices * need) + 1,
        ),
    )
