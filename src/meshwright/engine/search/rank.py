"""Order of candidates and Pareto front, from the columns of a finished search."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from meshwright.spec.plan import Problem

if TYPE_CHECKING:
    from meshwright.engine.search.plan import Columns

Index = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
SAME = 0.02  # step times closer than this are equal (a fraction of any prediction error): the simpler one comes first
_DEGREES = ("tensor", "pipeline", "context", "expert", "virtual")


def order(columns: Columns, fits: Mask, goal: str, useful: Floats | None = None) -> Index:
    """Candidates that fit, best first: by time; near ties by how many kinds of parallelism they use, then how much.

    `useful` is the share of its time that each candidate makes progress (1 for those that do not fit); the time of a
    step is divided by it.
    """
    index = np.flatnonzero(fits)
    if useful is not None:
        columns = columns._replace(seconds=columns.seconds / useful)
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
    return np.array(
        [getattr(columns.groups[int(columns.group[i])].table, name)[int(columns.row[i])] for i in index], float
    )


def fitting(problem: Problem, columns: Columns, fraction: float = 1.0) -> Mask:
    """Candidates whose peak with the stated error stays under `fraction` of the device, and offload under the host.

    Where none does, those that fit without the error.
    """
    capacity = problem.cluster.accelerator.memory_usable_bytes * fraction
    hosts = columns.host <= (problem.cluster.host_memory_bytes or np.inf)
    safe, bare = hosts & (columns.safe <= capacity), hosts & (columns.peak <= capacity)
    return safe if safe.any() else bare


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
