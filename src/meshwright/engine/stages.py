"""Which layers each pipeline rank holds, and which ranks are alike.

Model chunks lie on ranks as the frameworks put them: chunk c of rank s is model chunk `c·p + s` in order
(Megatron's interleaving), a V for ZB-V, and two mirrored stages for DualPipe.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache

from meshwright.spec.model import ModelSpec


@dataclass(frozen=True, slots=True)
class StageClass:
    """Pipeline ranks that hold the same kinds of layers; `index` is the first, which holds most micro-batches."""

    index: int
    stages_in_class: int
    chunks: tuple[tuple[int, ...], ...]  # layers by block kind, per model chunk
    embedding: bool = False
    head: bool = False
    mtp: bool = False
    pipeline: int = 1
    embedding_chunk: int = 0
    head_chunk: int = 0
    share: float = 1.0  # of a step's micro-batches that pass each layer here: half where another rank holds a copy
    counts: tuple[int, ...] = field(init=False)  # layers by block kind, all chunks (no multi-token-prediction modules)
    layers: int = field(init=False)

    def __hash__(self) -> int:  # cheap: a key of many caches; equality stays exact
        return self.index + 1009 * self.layers + 31 * self.pipeline + len(self.chunks)

    def __post_init__(self) -> None:
        object.__setattr__(self, "counts", tuple(sum(kind) for kind in zip(*self.chunks, strict=True)))
        object.__setattr__(self, "layers", sum(self.counts))

    @property
    def virtual(self) -> int:
        """Model chunks on the rank."""
        return len(self.chunks)


def split_layers(layers: int, parts: int) -> tuple[int, ...]:
    """Layers per model chunk in pipeline order, as even as can be; the head's and the embedding's chunk get less first.

    126 layers over 16 stages: 7 on the last and the first stage, 8 elsewhere, as Llama 3 405B was trained.
    """
    whole, rest = divmod(layers, parts)
    if not rest:
        return (whole,) * parts
    sizes = [whole + 1] * parts
    order = [parts - 1, 0, *range(parts - 2, 0, -1)] if parts > 1 else [0]
    for chunk in order[: parts - rest]:
        sizes[chunk] = whole
    return tuple(sizes)


def chunk_sizes(layers: int, pipeline: int, virtual: int, layers_per_stage: tuple[int, ...] = ()) -> tuple[int, ...]:
    """Layers per model chunk, pipeline·virtual of them in pipeline order.

    `layers_per_stage` gives either one number per chunk in that order, or one per rank, divided evenly over its chunks.
    """
    parts = pipeline * virtual
    if not layers_per_stage:
        return split_layers(layers, parts)
    if len(layers_per_stage) == parts:
        return tuple(layers_per_stage)
    by_rank = [split_layers(n, virtual) for n in layers_per_stage]
    return tuple(by_rank[rank][chunk] for chunk in range(virtual) for rank in range(len(by_rank)))


def chunks_of_rank(rank: int, pipeline: int, virtual: int, schedule: str) -> tuple[int, ...]:
    """Indices, in pipeline order, of the model chunks that pipeline rank `rank` holds."""
    if schedule == "zbv":
        return (rank, 2 * pipeline - 1 - rank)
    if schedule == "dualpipe":
        return (rank,) if pipeline == 1 else (rank, pipeline - 1 - rank)
    return tuple(chunk * pipeline + rank for chunk in range(virtual))


def model_chunks(pipeline: int, virtual: int, schedule: str) -> int:
    """Model chunks along the whole pipeline (DualPipe holds each twice, ZB-V has two per rank)."""
    return {"zbv": 2 * pipeline, "dualpipe": pipeline}.get(schedule, pipeline * virtual)


@lru_cache(maxsize=4096)
def all_stages(
    model: ModelSpec,
    pipeline: int,
    virtual: int = 1,
    layers_per_stage: tuple[int, ...] = (),
    schedule: str = "1f1b",
) -> tuple[StageClass, ...]:
    """One record per pipeline rank, in order."""
    total = model_chunks(pipeline, virtual, schedule)
    sizes = chunk_sizes(model.layers, pipeline, total // pipeline, layers_per_stage)
    kinds, start = [], 0
    for size in sizes:
        layers = model.pattern[start : start + size]
        kinds.append(tuple(layers.count(k) for k in range(len(model.blocks))))
        start += size
    stages = []
    for rank in range(pipeline):
        mine = chunks_of_rank(rank, pipeline, virtual, schedule)
        head = total - 1 in mine
        stages.append(
            StageClass(
                index=rank,
                stages_in_class=1,
                chunks=tuple(kinds[c] for c in mine),
                embedding=0 in mine,
                head=head,
                mtp=head and model.mtp_layers > 0,
                pipeline=pipeline,
                embedding_chunk=mine.index(0) if 0 in mine else 0,
                head_chunk=mine.index(total - 1) if head else 0,
                share=total / (pipeline * len(mine)),
            )
        )
    return tuple(stages)


@lru_cache(maxsize=4096)
def stage_classes(
    model: ModelSpec,
    pipeline: int,
    virtual: int = 1,
    layers_per_stage: tuple[int, ...] = (),
    schedule: str = "1f1b",
) -> tuple[StageClass, ...]:
    """The distinct pipeline ranks, earliest of each kind: it holds the most micro-batches in flight."""
    first: dict[tuple[object, ...], StageClass] = {}
    count: dict[tuple[object, ...], int] = {}
    for stage in all_stages(model, pipeline, virtual, layers_per_stage, schedule):
        key = (stage.chunks, stage.embedding, stage.head, stage.mtp)
        first.setdefault(key, stage)
        count[key] = count.get(key, 0) + 1
    return tuple(replace(s, stages_in_class=count[k]) for k, s in first.items())
