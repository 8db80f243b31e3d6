"""Peak memory and step time of a table of candidates, factorised.

Three levels, each computed once per distinct key and gathered: blocks (TP, CP, EP, ETP, micro-batch and recompute),
states (mesh and stage class), candidates. The functions are those of a single estimate; only the gathering is here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from meshwright.engine.activations import BlockActivations
from meshwright.engine.memory import FixedSums, fixed_memory, fixed_sums, host_from_sums, peak_from_sums
from meshwright.engine.memory import Setting as MemorySetting
from meshwright.engine.placement import Group, place
from meshwright.engine.search.space import Mode
from meshwright.engine.stages import StageClass, stage_classes
from meshwright.engine.step import GradientTraffic
from meshwright.engine.timing import Layout, Setting, blocks_of, layout_of, send_time, step_of, timed_blocks
from meshwright.spec.strategy import Strategy

Floats = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]

_MESH = ("tensor", "context", "pipeline", "expert", "expert_tensor", "data")
_BLOCK = ("tensor", "context", "expert", "expert_tensor", "micro_batch")


class Scores(NamedTuple):
    """Columns beside a table: one row per candidate and recompute mode (`mode` indexes the modes scored)."""

    row: Index  # row of the table
    mode: Index
    peak: Floats  # bytes of the fullest device
    host: Floats  # bytes of a host; 0 where nothing is offloaded
    seconds: Floats  # per step


def distinct(columns: tuple[npt.NDArray[np.int64], ...]) -> tuple[Index, Index]:
    """First row of every distinct combination, and for each row which combination it is."""
    key = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        values, code = np.unique(column, return_inverse=True)
        key = key * len(values) + code.reshape(-1)
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    return first, inverse.reshape(-1)


class BlockTable(NamedTuple):
    """Per distinct block key (rows) and recompute mode: what candidates gather."""

    key: Index  # candidate row → block key
    size: int  # block keys; mode j of key i stands at j·size + i
    forward: tuple[Floats, ...]  # by block kind
    backward: tuple[Floats, ...]
    host_forward: tuple[Floats, ...]
    host_backward: tuple[Floats, ...]
    stored: tuple[Floats, ...]
    transient: tuple[Floats, ...]
    head: tuple[Floats, Floats]
    embedding: tuple[Floats, Floats]


def _column(value: Any, n: int) -> Floats:
    return np.broadcast_to(np.asarray(value, dtype=np.float64), (n,))


def _take(strategy: Strategy, rows: Index | slice) -> Strategy:
    """The strategy of chosen rows."""
    names = (*_MESH, "virtual", "micro_batch", "shard")
    return replace(strategy, **{name: getattr(strategy, name)[rows] for name in names})


def block_table(s: Setting, strategy: Strategy, modes: tuple[Mode, ...]) -> BlockTable:
    """Cost of every distinct block shape of a table under every recompute mode."""
    first, inverse = distinct(tuple(getattr(strategy, name) for name in _BLOCK))
    keys = _take(strategy, first)
    n, kinds = len(first), len(s.model.blocks)
    groups = place(s.cluster, keys)
    timed = timed_blocks(s, keys, groups)
    by_mode = [
        blocks_of(s, replace(keys, recompute=mode.recompute, recompute_ops=mode.ops), groups, timed) for mode in modes
    ]

    def stack(values: list[Any]) -> Floats:
        return np.concatenate([_column(v, n) for v in values])

    def per_kind(get: Any) -> tuple[Floats, ...]:
        return tuple(stack([get(b, k) for b in by_mode]) for k in range(kinds))

    return BlockTable(
        key=inverse,
        size=n,
        forward=per_kind(lambda b, k: b.kinds[k].forward),
        backward=per_kind(lambda b, k: b.kinds[k].backward),
        host_forward=per_kind(lambda b, k: b.kinds[k].host_forward),
        host_backward=per_kind(lambda b, k: b.kinds[k].host_backward),
        stored=per_kind(lambda b, k: b.activations.stored[k]),
        transient=per_kind(lambda b, k: b.activations.transient[k]),
        head=(stack([b.head.forward for b in by_mode]), stack([b.head.backward for b in by_mode])),
        embedding=(stack([b.embedding.forward for b in by_mode]), stack([b.embedding.backward for b in by_mode])),
    )


class StageTable(NamedTuple):
    """States of one stage class for every distinct mesh of a slice."""

    stage: StageClass
    sums: FixedSums
    traffic: GradientTraffic
    optimizer: Floats


def _stage_table(
    s: Setting,
    mesh: Strategy,
    stage: StageClass,
    groups: dict[str, Group],
    known: dict[tuple[Any, ...], StageTable],
) -> StageTable:
    """Memory and traffic of the states of a stage class on every distinct mesh."""
    key = (stage.counts, stage.embedding, stage.head, stage.mtp)
    if key not in known:
        n = len(mesh.tensor)
        layout = layout_of(s, mesh, stage, groups)
        x = MemorySetting(s.model, s.cluster, s.job, mesh, stage, s.software)
        sums = FixedSums(*(_column(v, n) for v in fixed_sums(x, fixed_memory(x))))
        t = layout.traffic
        columns = (_column(v, n) for v in (t.gather_forward, t.gather_backward, t.reduce, t.buckets))
        gather_forward, gather_backward, reduce, buckets = columns
        traffic = GradientTraffic(gather_forward, gather_backward, reduce, t.gather_each, t.reduce_each, buckets)
        known[key] = StageTable(stage, sums, traffic, _column(layout.optimizer, n))
    return known[key]._replace(stage=stage)


def _runs(column: Index, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """Value, first and last row (exclusive) of every run of equal values in `column[start:stop]`."""
    edges = (np.flatnonzero(np.diff(column[start:stop])) + start + 1).tolist()
    bounds = [start, *edges, stop]
    for a, b in pairwise(bounds):
        if b > a:
            yield int(column[a]), a, b


def score(s: Setting, strategy: Strategy, blocks: BlockTable, modes: tuple[Mode, ...]) -> Iterator[Scores]:
    """Scores of a table, one run of equal (pipeline, virtual) at a time; what does not fit is scored like the rest.

    Stage classes that hold the same layers under different numbers of chunks share their states.
    """
    for pipeline, start, stop in _runs(strategy.pipeline, 0, len(strategy.pipeline)):
        here = _take(strategy, slice(start, stop))
        first, inverse = distinct(tuple(getattr(here, name) for name in _MESH))
        mesh = _take(here, first)
        groups = place(s.cluster, mesh)
        known: dict[tuple[Any, ...], StageTable] = {}
        for virtual, a, b in _runs(strategy.virtual, start, stop):
            stages = stage_classes(s.model, pipeline, virtual, (), str(strategy.schedule))
            tables = [_stage_table(s, mesh, stage, groups, known) for stage in stages]
            rows = _take(strategy, slice(a, b))
            yield _score_slice(s, rows, a, blocks, modes, tables, inverse[a - start : b - start], groups)


def _score_slice(
    s: Setting,
    strategy: Strategy,
    offset: int,
    blocks: BlockTable,
    modes: tuple[Mode, ...],
    tables: list[StageTable],
    mesh: Index,
    groups: dict[str, Group],
) -> Scores:
    n, k = len(strategy.tensor), len(modes)
    row = np.tile(np.arange(n, dtype=np.int64), k)
    mode = np.repeat(np.arange(k, dtype=np.int64), n)
    everyone = _take(strategy, row)
    block = mode * blocks.size + blocks.key[offset + row]
    mesh = mesh[row]
    per_kind = (blocks.forward, blocks.backward, blocks.host_forward, blocks.host_backward)
    kinds = [(f[block], b[block], i[block], j[block]) for f, b, i, j in zip(*per_kind, strict=True)]
    head = (blocks.head[0][block], blocks.head[1][block])
    embedding = (blocks.embedding[0][block], blocks.embedding[1][block])
    layouts = []
    peak: Any = None
    host: Any = 0.0
    activations = BlockActivations(tuple(v[block] for v in blocks.stored), tuple(v[block] for v in blocks.transient))
    for t in tables:
        traffic = t.traffic._replace(
            gather_forward=t.traffic.gather_forward[mesh],
            gather_backward=t.traffic.gather_backward[mesh],
            reduce=t.traffic.reduce[mesh],
            buckets=t.traffic.buckets[mesh],
        )
        layouts.append(Layout(t.stage, traffic, t.optimizer[mesh]))
        x = MemorySetting(s.model, s.cluster, s.job, everyone, t.stage, s.software)
        sums = FixedSums(*(v[mesh] for v in t.sums))
        here = peak_from_sums(x, sums, activations)
        peak = here if peak is None else np.maximum(peak, here)
        host = np.maximum(host, host_from_sums(x, sums, activations))
    micro_batches = s.job.global_batch // (everyone.data * everyone.micro_batch)
    send = send_time(s, everyone, _gathered(groups, mesh))
    step = step_of(s, everyone, micro_batches, kinds, head, embedding, layouts, send)
    return Scores(offset + row, mode, _column(peak, n * k), _column(host, n * k), _column(step.total, n * k))


def _gathered(groups: dict[str, Group], mesh: Index) -> dict[str, Group]:
    """The pipeline group of every candidate (the only one whose payload depends on the micro-batch)."""
    g = groups["pipeline"]

    def take(value: Any) -> Any:
        return value[mesh] if isinstance(value, np.ndarray) else value

    fields = {name: take(getattr(g, name)) for name in Group.__dataclass_fields__}
    return {"pipeline": Group(**fields)}
