"""Parameter formulas against totals their authors publish, and the walk over blocks against its own split."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.catalog import models
from meshwright.engine.params import block_params, model_params, params_of_block
from meshwright.formulas import params as f
from meshwright.spec.model import Attention, Block, LinearAttention, Mamba1, Mamba2, Mlp, Moe, MultiLatentAttention

ENTRIES = [models.model_entry(id) for id in models.model_ids()]


@pytest.mark.parametrize("entry", [e for e in ENTRIES if "total" in e.published], ids=lambda e: e.id)
def test_published_totals_are_met_to_the_last_parameter(entry: models.ModelEntry) -> None:
    assert model_params(models.model(entry.id)).total == entry.published["total"]


@pytest.mark.parametrize("entry", [e for e in ENTRIES if "stated" in e.published], ids=lambda e: e.id)
def test_rounded_totals_are_met_within_two_percent(entry: models.ModelEntry) -> None:
    assert model_params(models.model(entry.id)).total == pytest.approx(entry.published["stated"], rel=0.02)


@pytest.mark.parametrize("entry", [e for e in ENTRIES if "stated_active" in e.published], ids=lambda e: e.id)
def test_active_parameters_agree_with_one_of_the_conventions(entry: models.ModelEntry) -> None:
    """Authors count active parameters with or without the embedding, and with or without the head."""
    p = model_params(models.model(entry.id))
    conventions = (p.active, p.active - p.embedding, p.active - p.embedding - p.head)
    assert min(abs(c / entry.published["stated_active"] - 1) for c in conventions) < 0.085


def test_megatron_closed_form_differs_only_by_the_final_norm() -> None:
    for id in ("megatron-22b", "megatron-175b", "megatron-530b", "megatron-1t"):
        m = models.model(id)
        closed = f.megatron_params(m.layers, m.hidden, m.vocab, m.learned_positions)
        assert model_params(m).total == pytest.approx(closed + 2 * m.hidden, rel=1e-14)


def test_gpt2_block_by_hand() -> None:
    # h = 768: qkv 768*2304+2304, out 768*768+768, mlp 768*3072+3072 and 3072*768+768, two layer norms
    p = block_params(models.model("gpt2"), 0)
    assert p.total == 1771776 + 590592 + 2362368 + 2360064 + 3072
    assert p.replicated == 768 + 768 + 3072  # the biases of both outputs, and the norms
    assert p.expert == 0


def test_mixtral_split() -> None:
    p = block_params(models.model("mixtral-8x7b"), 0)
    assert p.expert == 8 * 3 * 4096 * 14336
    assert p.expert_active == 2 * 3 * 4096 * 14336
    assert p.replicated == 8 * 4096 + 2 * 4096
    assert p.tensor_sharded == 4096 * (4096 + 2 * 1024) + 4096 * 4096


def test_mtp_of_deepseek_v3_is_counted_apart() -> None:
    """The V3 repository states 671B for the main model and 14B for the module (11.5B of them its own)."""
    p = model_params(models.model("deepseek-v3"))
    assert p.total == 671026404352
    assert p.mtp == pytest.approx(11.5e9, rel=0.01)
    assert p.total_with_mtp == p.total + p.mtp


COUNT = st.integers(1, 64)
MIXERS = st.one_of(
    st.builds(
        Attention, heads=COUNT, kv_heads=COUNT, head_dim=COUNT, qkv_bias=st.booleans(), out_bias=st.booleans(),
        qk_norm=st.sampled_from(["none", "head", "full"]), sinks=st.booleans(), output_gate=st.booleans(),
    ),
    st.builds(MultiLatentAttention, heads=COUNT, q_rank=st.none() | COUNT, kv_rank=COUNT, nope_dim=COUNT,
              rope_dim=COUNT, v_dim=COUNT, bias=st.booleans()),
    st.builds(LinearAttention, key_heads=COUNT, key_dim=COUNT, value_heads=COUNT, value_dim=COUNT,
              gate=st.booleans(), decay=st.booleans(), out_norm=st.booleans()),
    st.builds(Mamba2, inner=COUNT, state=COUNT, heads=COUNT, groups=COUNT, proj_bias=st.booleans()),
    st.builds(Mamba1, inner=COUNT, state=COUNT, dt_rank=COUNT, proj_bias=st.booleans(), inner_norms=st.booleans()),
)  # fmt: skip
MLPS = st.one_of(
    st.builds(Mlp, width=COUNT, gated=st.booleans(), bias=st.booleans()),
    st.builds(Moe, experts=COUNT, top_k=st.just(1), width=COUNT, gated=st.booleans(), bias=st.booleans(),
              shared_width=st.integers(0, 8), router_bias=st.booleans(), shared_gate=st.booleans()),
)  # fmt: skip


@given(mixer=MIXERS, mlp=MLPS, hidden=COUNT)
def test_parts_sum_to_totals_and_blocks_add(mixer: object, mlp: object, hidden: int) -> None:
    both = params_of_block(Block(mixer=mixer, mlp=mlp), hidden)  # type: ignore[arg-type]
    assert sum(p.params for p in both.parts) == both.total == both.tensor_sharded + both.replicated + both.expert
    assert both.active <= both.total
    alone = [Block(mixer=mixer, mlp=None, norms=1), Block(mixer=None, mlp=mlp, norms=1)]  # type: ignore[arg-type]
    assert sum(params_of_block(b, hidden).total for b in alone) == both.total
