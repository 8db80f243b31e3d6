"""Which layers a pipeline rank holds: Megatron's chunk order, uneven splits, embedding and head, mirrored schedules."""

from __future__ import annotations

import pytest

from meshwright.engine.stages import all_stages, chunk_sizes, split_layers, stage_classes
from meshwright.spec.model import Attention, Block, Mlp, ModelSpec, Moe
from meshwright.spec.strategy import SCHEDULES


def model(layers: int, dense: int = 0, **kwargs) -> ModelSpec:
    mixer = Attention(heads=8, kv_heads=8, head_dim=16)
    blocks = (
        Block(mixer=mixer, mlp=Mlp(width=512)),
        Block(mixer=mixer, mlp=Moe(experts=8, top_k=2, width=64)),
    )
    pattern = (0,) * dense + (1,) * (layers - dense) if dense else (0,) * layers
    return ModelSpec(name="m", family="llama", hidden=128, vocab=1000, blocks=blocks, pattern=pattern, **kwargs)


def test_llama_405b_has_fewer_layers_on_its_ends():
    """Llama 3 paper, section 3.3.2: one layer less on the first and on the last stage of 126 over 16."""
    assert split_layers(126, 16) == (7, *(8,) * 14, 7)


@pytest.mark.parametrize(("layers", "parts"), [(8, 3), (61, 16), (5, 8), (7, 1), (96, 24)])
def test_every_layer_is_placed_once(layers, parts):
    sizes = split_layers(layers, parts)
    assert sum(sizes) == layers and len(sizes) == parts and max(sizes) - min(sizes) <= 1


def test_uneven_layout_of_case_a10():
    stages = all_stages(model(8), 4, 1, (1, 2, 2, 3))
    assert [s.layers for s in stages] == [1, 2, 2, 3]
    assert [s.embedding for s in stages] == [True, False, False, False]
    assert [s.head for s in stages] == [False, False, False, True]
    # the heaviest stage has one layer more than the average that the estimator used
    assert max(s.layers for s in stages) == 8 // 4 + 1


def test_interleaved_chunks_follow_megatron():
    """Megatron's help text: 8 layers, p = 2, v = 4 chunks of one layer: rank 0 holds 0 2 4 6, rank 1 holds 1 3 5 7."""
    first, last = all_stages(model(8, dense=3), 2, 4)
    assert first.chunks == ((1, 0), (1, 0), (0, 1), (0, 1))  # layers 0 2 | 4 6
    assert last.chunks == ((1, 0), (0, 1), (0, 1), (0, 1))  # layers 1 | 3 5 7
    assert last.head and last.head_chunk == 3 and first.embedding_chunk == 0


def test_layers_per_rank_are_spread_over_chunks():
    assert chunk_sizes(12, 2, 2, (4, 8)) == (2, 4, 2, 4)
    assert chunk_sizes(12, 2, 2, (1, 2, 4, 5)) == (1, 2, 4, 5)


def test_classes_count_every_stage_once_and_keep_the_earliest():
    m = model(61, dense=3, mtp_layers=1)
    for pipeline, virtual in ((1, 1), (4, 1), (16, 1), (8, 2)):
        classes = stage_classes(m, pipeline, virtual)
        assert sum(c.stages_in_class for c in classes) == pipeline
        assert sum(c.layers * c.stages_in_class for c in classes) == 61
        assert sum(c.mtp for c in classes) == 1
        indices = [c.index for c in classes]
        assert indices == sorted(indices)
    assert stage_classes(model(32), 8) is stage_classes(model(32), 8)


def test_middle_stages_are_one_class():
    assert [(c.index, c.stages_in_class) for c in stage_classes(model(32), 8)] == [(0, 1), (1, 6), (7, 1)]


def test_mirrored_schedules():
    v = all_stages(model(16), 4, 1, (), "zbv")
    assert all(s.layers == 4 for s in v)
    assert v[0].embedding and v[0].head and not v[3].head  # the V returns to the first rank
    dual = all_stages(model(16), 4, 1, (), "dualpipe")
    assert [s.layers for s in dual] == [8, 8, 8, 8]  # twice the parameters
    assert dual[0].head and dual[0].embedding and dual[3].head and dual[3].embedding


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("pipeline", [1, 2, 4, 8])
def test_every_layer_sees_every_micro_batch_once(schedule, pipeline):
    """Layers on a rank times their share of the micro-batches, over all ranks: the model, copies or not."""
    spec, virtual = model(32), 2 if schedule == "interleaved" else 1
    for stages in (all_stages, stage_classes):
        found = stages(spec, pipeline, virtual, (), schedule)
        assert sum(s.stages_in_class * s.share * s.layers for s in found) == spec.layers
        assert sum(s.stages_in_class * s.share * s.head for s in found) == 1
