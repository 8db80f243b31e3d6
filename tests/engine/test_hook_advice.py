"""Advice on hooks: the ends that are known, the sums, and what must grow with what."""

from __future__ import annotations

import pytest

from meshwright import api
from meshwright.formulas.collectives import all_reduce_wire_bytes


def advice(model: str, cluster: str, **job):
    return api.recommend_hook(api.problem(model=model, cluster=cluster, **job))


@pytest.fixture(scope="module")
def slow():
    """A billion parameters over a slow network, one short micro-batch: nothing hides."""
    return advice("llama-3.2-1b", "g6e-48xlarge:64", global_batch=64, seq_len=1024)


def test_where_the_network_is_fast_and_the_backward_pass_long_no_hook_is_needed():
    found = advice("gpt2", "h100-sxm:8", global_batch=8 * 64, seq_len=1024)
    found = api.recommend_hook(
        api.problem(model="gpt2", cluster="h100-sxm:8", global_batch=8 * 64, seq_len=1024), micro_batch=64
    )
    assert found.hidden and found.recommended == "allreduce"
    dense = found.options[0]
    assert dense.communication_seconds <= found.backward_seconds
    assert dense.exposed_seconds < 0.05 * found.compute_seconds  # the last bucket only


def test_where_nothing_hides_a_hook_is_named_that_beats_dense(slow):
    dense = slow.options[0]
    assert not slow.hidden
    assert slow.recommended != "allreduce"
    assert slow.best.step_seconds < 0.98 * dense.step_seconds
    assert slow.local_sgd_period > 1


def test_the_local_sgd_period_makes_dense_one_percent(slow):
    dense, steps = slow.options[0], slow.local_sgd_period
    assert dense.communication_seconds <= 0.01 * steps * slow.compute_seconds
    assert dense.communication_seconds > 0.01 * (steps - 1) * slow.compute_seconds


def test_bytes_are_those_of_the_formulas(slow):
    dense = slow.options[0]
    by = {option.hook: option for option in slow.options}
    assert dense.wire_bytes == pytest.approx(all_reduce_wire_bytes(slow.gradient_bytes, 64))
    assert by["bf16"].wire_bytes == pytest.approx(dense.wire_bytes / 2)
    assert by["int8"].wire_bytes == pytest.approx(dense.wire_bytes / 4 * (1 + 4 / 256), rel=1e-3)
    assert by["topk"].wire_bytes == pytest.approx(63 * 0.01 * slow.gradient_bytes / 4 * 8, rel=1e-3)
    assert by["onebit"].wire_bytes > dense.wire_bytes * 63 / 64 * 0.9  # 64 ranks: signs gathered cost as much as dense
    assert slow.gradient_bytes == pytest.approx(4 * 1.2358e9, rel=1e-3)  # parameters of the model card


def test_steps_are_compute_and_what_is_exposed(slow):
    for option in slow.options:
        assert option.step_seconds == pytest.approx(slow.compute_seconds + option.exposed_seconds)
        assert option.exposed_seconds >= option.compression_seconds
        assert option.memory_bytes == 0 or option.memory_bytes >= slow.gradient_bytes


def test_a_longer_backward_pass_hides_more(slow):
    longer = advice("llama-3.2-1b", "g6e-48xlarge:64", global_batch=64, seq_len=8192)
    assert longer.backward_seconds > slow.backward_seconds
    assert longer.options[0].exposed_seconds <= slow.options[0].exposed_seconds


def test_one_device_has_nothing_to_send():
    found = advice("gpt2", "h100-sxm:1", global_batch=8)
    assert found.recommended == "allreduce"
    assert all(option.wire_bytes == 0 for option in found.options)


def test_a_model_that_does_not_fit_is_said():
    found = advice("llama-3.1-8b", "h100-sxm:8", global_batch=8)
    assert not found.fits
    assert any("does not fit" in str(reason) for reason in found.reasons)
