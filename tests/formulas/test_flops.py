"""FLOPs per token against numbers printed in papers, closed forms against sums over parts, limits of conventions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.catalog import models
from meshwright.engine.flops import model_flops_per_token
from meshwright.engine.params import model_params
from meshwright.formulas import flops as f


def test_gpt3_training_compute_of_the_paper() -> None:
    """GPT-3, appendix D: 3.14e23 FLOPs for 300B tokens, counted as 6 N."""
    assert f.six_n_flops(174.6e9) * 300e9 == pytest.approx(3.14e23, rel=0.005)


@pytest.mark.parametrize(
    ("id", "teraflops_per_gpu", "seconds", "gpus", "batch"),
    [("megatron-175b", 0.514 * 312, 13.75, 64, 64), ("megatron-530b", 0.560 * 312, 37.83, 280, 280),
     ("megatron-1t", 0.563 * 312, 71.49, 512, 512)],
)  # fmt: skip
def test_korthikanti_model_flops_utilisation(
    id: str, teraflops_per_gpu: float, seconds: float, gpus: int, batch: int
) -> None:
    """Table 5 of Korthikanti et al. 2022: iteration time, MFU and batch determine the model FLOPs they counted."""
    m = models.model(id)
    flops = model_flops_per_token(m, 2048).training * 2048 * batch
    assert flops / gpus / seconds / 1e12 == pytest.approx(teraflops_per_gpu, rel=0.005)
    assert f.megatron_model_flops(m.layers, m.hidden, 2048, m.vocab) * batch == pytest.approx(flops, rel=1e-12)


def test_hardware_flops_of_megatron_are_four_forward_passes_but_for_the_logits() -> None:
    m = models.model("megatron-1t")
    forward = model_flops_per_token(m, 2048)
    head = next(p.forward for p in forward.parts if p.name == "head")
    hardware = f.megatron_hardware_flops(m.layers, m.hidden, 2048, m.vocab) / 2048
    assert hardware == pytest.approx(f.training_flops(forward.forward, forward.forward - head), rel=1e-12)


def test_llama3_405b_of_the_paper() -> None:
    """Llama 3, section 3.2: 3.8e25 FLOPs on 15.6T tokens (counted as 6 N)."""
    p = model_params(models.model("llama-3.1-405b"))
    assert f.six_n_flops(p.total) * 15.6e12 == pytest.approx(3.8e25, rel=0.01)


@pytest.mark.parametrize("id", ["llama-3.1-8b", "llama-3.1-70b", "gpt-3-175b", "bloom-176b"])
@pytest.mark.parametrize("seq", [512, 8192])
def test_palm_form_agrees_where_it_is_meant_to(id: str, seq: int) -> None:
    """PaLM's 6N + 12LHQT, N without the looked-up table, differs only by biases and norms counted as matrices."""
    m, p = models.model(id), model_params(models.model(id))
    a = m.blocks[0].mixer
    n = p.total - p.embedding - p.positions - p.head + p.head_matrix
    closed = f.palm_flops(n, m.layers, a.heads, a.head_dim, seq)
    assert model_flops_per_token(m, seq).training == pytest.approx(closed, rel=3e-4)
    assert model_flops_per_token(m, seq).training < closed


def test_reference_measurement_of_llama_8b() -> None:
    """torch's counter saw 4.920e14 for one 8B step at 8192, flash backward's extra 2 L s^2 d included."""
    m = models.model("llama-3.1-8b")
    flops = model_flops_per_token(m, 8192)
    extra = flops.attention / 2 * 8192
    assert flops.training * 8192 + extra == pytest.approx(4.920e14, rel=2e-4)


def test_window_caps_attention() -> None:
    m = models.model("mistral-7b")  # window 4096 in every layer
    near, far = model_flops_per_token(m, 4096), model_flops_per_token(m, 32768)
    assert near.attention == far.attention
    half = models.model("gemma-2-9b")  # every other layer
    assert model_flops_per_token(half, 16384).attention == 2.5 * model_flops_per_token(half, 4096).attention


@given(seq=st.integers(1, 5000), window=st.integers(1, 5000))
def test_causal_mean_is_the_mean_over_queries(seq: int, window: int) -> None:
    mean = sum(min(i, window) for i in range(1, seq + 1)) / seq
    assert f.attended_causal(seq, window) == pytest.approx(mean, rel=1e-12)
    assert f.attended_causal(seq, window) <= f.attended_full(seq, window)


@pytest.mark.parametrize("id", models.model_ids())
def test_every_model_has_finite_positive_flops_with_causal_at_most_full(id: str) -> None:
    m = models.model(id)
    full, causal = (model_flops_per_token(m, 2048, masking=k) for k in ("full", "causal"))
    assert 0 < causal.forward <= full.forward < float("inf")
    assert full.forward == pytest.approx(sum(p.forward for p in full.parts), rel=1e-12)
    matrices = sum(p.forward for p in full.parts if p.kind == "matrix")
    tied_head = model_params(m).head_matrix - model_params(m).head
    assert matrices <= 2 * (model_params(m).active + tied_head)  # no matrix is used twice by a token


def test_multi_token_prediction_adds_a_block_a_projection_and_a_head() -> None:
    m = models.model("deepseek-v3")
    with_, without = (model_flops_per_token(m, 4096, mtp=flag).forward for flag in (True, False))
    head = 2 * m.vocab * m.hidden
    assert with_ - without > head + 4 * m.hidden**2
