"""Buffers: values that frameworks document or users measured."""

from __future__ import annotations

import pytest

from meshwright.formulas import memory as f


def test_ddp_bucket_view_saves_all_gradient_bytes():
    """Case D07: 8,250 -> 7,183 MB with about 1 GB of parameters; ResNet 3,089 -> 2,988 MB."""
    for megabytes in (1067, 101):
        params = megabytes * 1e6 / 4
        assert (f.ddp_buckets(params) - f.ddp_buckets(params, view=True)) / 1e6 == pytest.approx(megabytes)


def test_deepspeed_bucket():
    """Case A01: a bucket of 5e8 fp16 values is 0.93 GiB; a small model never fills one."""
    assert f.zero_reduce_buckets(6.65e9, copies=1) / 2**30 == pytest.approx(0.93, abs=0.005)
    assert f.zero_reduce_buckets(1e6, copies=1) == 2e6


def test_zero3_gathers_within_its_limit_but_never_less_than_a_unit():
    assert f.zero3_gather(70e9, 1.5e9) == 3e9  # the unit exceeds stage3_max_live_parameters
    assert f.zero3_gather(70e9, 0.9e9) == 2 * 0.95e9
    assert f.zero3_gather(1e8, 0.9e8) == 2e8  # the whole model is smaller


def test_fsdp_units():
    unit = 218_112_000  # a Llama-3-8B block
    assert f.fsdp_gathered(unit, unit, 2.0, 0.0) == 4 * unit
    assert f.fsdp_gathered(unit, unit) == 6 * unit
    assert f.fsdp_gradients(unit, 2.0, 4.0) == 6 * unit


def test_unsynchronised_gradients_are_what_sharding_would_have_saved():
    assert f.unsynchronised_gradients(1e9, 1) == 0
    assert f.unsynchronised_gradients(1e9, 4) + 4e9 / 4 == 4e9


def test_boundary_buffers():
    assert f.sequence_gather(4096, 8192) == 2 * 4096 * 8192
    assert f.pipeline_buffers(4096, 8192, 8, 2) == f.pipeline_buffers(4096, 8192, 1, 2) / 8


def test_foreach_copy_and_context():
    assert f.foreach_temporaries(8e9, 8) == 4e9
    assert f.foreach_temporaries(8e9, 8, 0.0) == 0
    assert f.context(5e8, 2e8, 0) == 5e8
    assert f.allocator_reserve(100.0, 0.04) == pytest.approx(4)
