"""What more devices buy: the best strategy at each count, the knee of the curve and what binds beyond it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

from meshwright.engine.points import Found, as_points, best_at, feasible_counts, grown_batch, rungs
from meshwright.engine.search.legal import BATCH
from meshwright.engine.search.reasons import TERM_NAMES
from meshwright.engine.search.space import Constraints
from meshwright.messages import N_, Text
from meshwright.spec.plan import Problem, Scaling

Progress = Callable[[float, str], None]
Mode = Literal["fixed-batch", "growing-batch"]
WORTH = 1.5  # a doubling of the devices that buys less than this is not worth it: half of what was added is idle
LARGER = 1.4  # counts closer than this say little about what a doubling buys
SLIGHT = 0.05  # a loss of efficiency that needs no mention
REACH = 16  # default: as far as this many times the given cluster
GROWING_NOTE = N_(
    "the batch grows with the devices from {batch} sequences on {devices}: beyond the critical batch of the model more"
    " tokens are needed for the same loss, and learning rate and warm-up may have to change"
)

# What helps, once more devices do not, by the term that binds.
LEVERS = {
    "compute": N_("each device has too little work for its kernels: give it more with a larger global batch"),
    "tensor_comm": N_("use a larger or faster scale-up domain, or device memory that lets the tensor degree shrink"),
    "context_comm": N_("use shorter sequences, or a faster link between the devices that share a sequence"),
    "expert_comm": N_("route each token to fewer nodes, or use a larger scale-up domain or a faster network"),
    "pipeline_comm": N_("use fewer pipeline stages, or a faster network between nodes"),
    "bubble": N_("use a larger global batch, or device memory that lets the pipeline be shorter"),
    "data_comm": N_("use a larger global batch, or a faster network between nodes"),
    "optimizer": N_("shard the optimizer over more ranks"),
    "host_overhead": N_("give each launch more work (larger micro-batches), or capture the step in CUDA graphs"),
    "data_loading": N_("make the data loader faster, or load further ahead"),
}


def scale(
    problem: Problem,
    devices: Sequence[int] | None = None,
    *,
    mode: Mode = "fixed-batch",
    constraints: Constraints | None = None,
    progress: Progress | None = None,
) -> Scaling:
    """Best strategy at each of `devices` (default: doublings up to 16 times the cluster), and the knee.

    `fixed-batch` keeps the global batch (strong scaling); `growing-batch` keeps the sequences per device of the
    given cluster (weak scaling).
    """
    c = constraints or Constraints()
    chosen = sorted(set(devices)) if devices else None
    counts = chosen or default_counts(problem, mode, c)
    found: list[Found] = []
    for n, count in enumerate(counts):
        if progress:
            progress(n / len(counts), f"{count:,}")
        found.append(best_at(problem, count, _batch(problem, count, mode), c))
    if progress:
        progress(1.0, "")
    if chosen is None:
        found = _without_hopeless(found)
    knee, beyond = _knee(found)
    binds, summary = _verdict(found, knee, beyond)
    if mode == "growing-batch":
        note = Text(GROWING_NOTE, batch=f"{problem.job.global_batch:,}", devices=f"{problem.cluster.devices:,}")
        problem = replace(problem, assumptions=(*problem.assumptions, note))
    return Scaling(
        problem=problem,
        mode=mode,
        points=as_points(found),
        knee=knee.devices if knee else None,
        binds=binds,
        summary=summary,
    )


def _batch(problem: Problem, devices: int, mode: Mode) -> int:
    batch = problem.job.global_batch
    return batch if mode == "fixed-batch" else grown_batch(batch, problem.cluster.devices, devices)


def default_counts(problem: Problem, mode: Mode, constraints: Constraints) -> list[int]:
    """One count for each doubling of the node up to 16 times the cluster (while the batch can be split), and itself."""
    cluster = problem.cluster
    limit = cluster.devices * REACH
    if mode == "growing-batch":  # the batch follows the devices, so that it never stops the ladder
        counts = [cluster.devices * 2**k for k in range(5)]
        while counts[0] % (2 * cluster.node_size) == 0:
            counts.insert(0, counts[0] // 2)
        return counts
    counts = rungs(feasible_counts(problem, constraints, limit), cluster.node_size)
    if counts and counts[-1] * 2 <= limit:
        counts.append(counts[-1] * 2)  # shows why the ladder ends
    return sorted({*counts, cluster.devices})


def _without_hopeless(found: list[Found]) -> list[Found]:
    """Drop leading counts that are too small, except the last of them."""
    first = next((i for i, f in enumerate(found) if f.estimate), 0)
    return found[max(first - 1, 0) :]


def _gain(a: Found, b: Found) -> float:
    """What one doubling of the devices multiplies tokens/s by, between two counts."""
    assert a.estimate is not None and b.estimate is not None
    doublings = math.log2(b.devices / a.devices)
    return float((b.estimate.tokens_per_second / a.estimate.tokens_per_second) ** (1 / doublings))


def _knee(found: list[Found]) -> tuple[Found | None, Found | None]:
    """The first count from which no larger one is worth it, and the count about twice as large that shows it."""
    works = [f for f in found if f.estimate]
    for here in works:
        later = [f for f in works if f.devices >= LARGER * here.devices]
        if later and all(_gain(here, f) < WORTH for f in later):
            return here, min(later, key=lambda f: abs(math.log2(f.devices / here.devices) - 1))
    after = [f for f in found if works and f.devices > works[-1].devices and f.blocker == BATCH]
    return (works[-1], after[0]) if after else (None, None)


def _grows_most(before: Found, after: Found) -> tuple[str, float]:
    """The term that most exceeds what perfect scaling would leave of it, and by which share of the larger step."""
    a, b = before.estimate, after.estimate
    assert a is not None and b is not None
    ideal = before.devices / after.devices * after.batch / before.batch
    old = {t.name: float(t.value) for t in a.time.children}
    new = {t.name: float(t.value) for t in b.time.children}
    excess = {name: new.get(name, 0.0) - ideal * old.get(name, 0.0) for name in {*old, *new}}
    most = max(excess, key=lambda name: (excess[name], name))
    return most, excess[most] / b.step_seconds


def _verdict(found: list[Found], knee: Found | None, beyond: Found | None) -> tuple[str, Text]:
    """The name of what binds, and the sentence that says whether more devices are the answer."""
    works = [f for f in found if f.estimate]
    if not works:
        why = found[-1].reason or Text(N_("nothing fits"))
        blocker = found[-1].blocker
        text = N_("nothing fits on any of the counts tried (at {devices} devices: {why})")
        return blocker, Text(text, devices=f"{found[-1].devices:,}", why=why)
    if knee is None or beyond is None:
        return _still_growing(works)
    if beyond.estimate is None:
        text = N_(
            "beyond {knee} devices the batch is the limit: {why}. More devices are not the answer; use a larger global"
            " batch, as far as the loss allows"
        )
        return BATCH, Text(text, knee=f"{knee.devices:,}", why=beyond.reason or Text(""))
    assert knee.estimate is not None
    binds, excess = _grows_most(knee, beyond)
    return binds, Text(
        N_(
            "beyond {knee} devices, doubling buys only {gain} more tokens/s: at {beyond} devices {term} takes {share}"
            " of the step more than if it had scaled perfectly from {knee}. More devices are not the answer; {lever}"
        ),
        knee=f"{knee.devices:,}",
        gain=f"{_gain(knee, beyond) - 1:.0%}",
        beyond=f"{beyond.devices:,}",
        term=Text(TERM_NAMES[binds]),
        share=f"{excess:.0%}",
        lever=Text(LEVERS[binds]),
    )


def _still_growing(works: list[Found]) -> tuple[str, Text]:
    """No knee: what the last doubling buys, what it costs in efficiency and through which term."""
    last = works[-1]
    assert last.estimate is not None
    if len(works) < 2:
        return last.estimate.bound_by, Text(
            N_("only {devices} devices work of the counts tried"), devices=f"{last.devices:,}"
        )
    best = max(works, key=_rate)
    values = {"devices": f"{last.devices:,}", "gain": f"{_gain(works[-2], last) - 1:.0%}"}
    kept = _rate(last) / _rate(best)
    if kept > 1 - SLIGHT:
        text = N_("more devices still pay at {devices}: the last doubling buys {gain} more tokens/s")
        return last.estimate.bound_by, Text(text, **values)
    binds, _ = _grows_most(best, last)
    return binds, Text(
        N_(
            "more devices still pay at {devices}: the last doubling buys {gain} more tokens/s, but each device does"
            " only {kept} of what it does at {best}; {term} grows most"
        ),
        kept=f"{kept:.0%}",
        best=f"{best.devices:,}",
        term=Text(TERM_NAMES[binds]),
        **values,
    )


def _rate(found: Found) -> float:
    return found.estimate.tokens_per_second_per_device if found.estimate else 0.0
