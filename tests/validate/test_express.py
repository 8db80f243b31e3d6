"""A row in the words of the engine, or the reason why it cannot be said."""

from __future__ import annotations

from typing import Any

import pytest
from validate_runs import ROWS, changed, table

from meshwright.spec import MultiLatentAttention
from meshwright.validate import Compared, compare
from meshwright.validate.express import express
from meshwright.validate.rows import MeasuredRun, read_runs


def run_of(row: dict[str, str]) -> MeasuredRun:
    (run,) = read_runs(table(row), where="x")
    return run


def compared(row: dict[str, str]) -> Compared:
    (found,) = compare([run_of(row)])
    return found


def test_a_row_of_korthikanti_is_the_strategy_of_the_paper() -> None:
    found = express(run_of(ROWS["kor22-003"]))
    (s,) = found.strategies
    assert (s.tensor, s.pipeline, s.data, s.recompute, s.precision) == (8, 8, 1, "full", "fp16")
    model = found.problem.model
    assert (model.layers, model.hidden, model.tied_embeddings) == (96, 12288, True)
    assert found.problem.cluster.accelerator.id == "a100-sxm-80gb"
    assert found.problem.job.software == "megatron-2022"


def test_latent_attention_by_the_ranks_of_the_row() -> None:
    text = "MLA q_lora 768 kv_lora 256 qk_nope 96 qk_rope 32 v_head 64"
    mixer = express(run_of(changed("mb-001", other_arch=text))).problem.model.blocks[0].mixer
    assert isinstance(mixer, MultiLatentAttention)
    assert (mixer.q_rank, mixer.kv_rank, mixer.nope_dim, mixer.rope_dim, mixer.v_dim) == (768, 256, 96, 32, 64)


def test_alternating_windows_are_two_kinds_of_block() -> None:
    row = changed("lf-001", other_arch="head_dim 64; alternating sliding window 128; attention sinks; biases")
    model = express(run_of(row)).problem.model
    assert [b.mixer.window for b in model.blocks] == [128, None]  # type: ignore[union-attr]
    assert model.pattern[:4] == (0, 1, 0, 1)


def test_experts_and_dense_first_layers() -> None:
    model = express(run_of(ROWS["mb-001"])).problem.model
    first = int(ROWS["mb-001"]["dense_layers"])
    assert model.pattern == (0,) * first + (1,) * (int(ROWS["mb-001"]["n_layers"]) - first)
    assert model.moe is not None
    assert (model.moe.experts, model.moe.top_k) == (256, 8)


def test_a_row_without_recompute_is_every_choice() -> None:
    modes = ["none", "selective", "selective", "full"]  # of attention, then of all that is cheap to compute again
    assert [s.recompute for s in express(run_of(ROWS["nt-003"])).strategies] == modes


def test_selective_recompute_of_named_operators() -> None:
    (strategy,) = express(run_of(ROWS["zoo-001"])).strategies
    assert strategy.recompute_ops == ("layernorm", "moe_act")


def test_the_catalogue_tells_what_columns_cannot() -> None:
    row = changed("lf-001", model="Nemotron-H-8B", other_arch="hybrid Mamba2/attention blocks", n_layers="", hidden="",
                  n_heads="")  # fmt: skip
    assert express(run_of(row)).problem.model.name == "nemotron-h-8b"
    assert (
        str(compared({**row, "hidden": "5000"}).skipped) == "hidden is 5000, and 4096 in the catalogue's nemotron-h-8b"
    )


def test_host_size_and_network_of_the_row() -> None:
    where = express(run_of(ROWS["bs-002"])).problem.cluster
    assert where.nic_bandwidth == pytest.approx(float(ROWS["bs-002"]["inter_gbps_per_accelerator"]) / 8 * 1e9)
    assert express(run_of(changed("lf-001", gpus_per_node="4"))).problem.cluster.node_size == 4


def test_a_slice_larger_than_a_pod_is_several() -> None:
    where = express(run_of(ROWS["mx-110"])).problem.cluster
    assert (where.devices, where.slices) == (512, 2)


def test_overlap_as_the_notes_say() -> None:
    (strategy,) = express(run_of(ROWS["simumax-003"])).strategies
    assert (strategy.overlap_grad_reduce, strategy.overlap_param_gather) == (False, False)


def test_a_framework_never_seen_is_taken_by_its_kin() -> None:
    assert express(run_of(changed("lf-001", framework="torchtune-fsdp3"))).strategies[0].framework == "fsdp"
    assert express(run_of(changed("mx-110", framework="saxml"))).strategies[0].framework == "jax"
    assert express(run_of(changed("lf-001", framework=""))).strategies[0].framework == "megatron"


def test_a_broken_cell_that_no_prediction_needs_does_not_stop_the_row() -> None:
    found = compared(changed(year="soon", params_b="big", peak_mem_gb="?"))
    assert (found.skipped, found.predicted_peak is None, found.memory_error) == (None, False, None)


def test_an_accelerator_by_another_name_is_the_same() -> None:
    found = compared(changed(accelerator="NVIDIA A100-SXM4-80GB"))
    assert (found.skipped, found.accelerator) == (None, "a100-sxm-80gb")


SKIPS: list[tuple[dict[str, Any], str]] = [
    ({"tier": "C"}, "tier C: the row contradicts itself"),
    ({"tier": "L"}, "tier L: low-rank or quantised fine-tuning is not modelled"),
    ({"recompute": "partial"}, "recompute partial is not modelled"),
    ({"recompute": "offload"}, "recompute offload is not modelled"),
    ({"recompute": "selective:every2"}, "recompute every2 is not modelled"),
    ({"precision": "int8"}, "precision int8 is not modelled"),
    ({"sharding": "zero9"}, "sharding zero9 is not modelled"),
    ({"micro_batch": ""}, "micro_batch is not stated"),
    ({"seq_len": "nine"}, "column seq_len holds 'nine', which is no number"),
    ({"accelerator": ""}, "accelerator is not stated"),
    ({"accelerator": "/etc/passwd"}, "no accelerator is called '/etc/passwd'"),
    ({"accelerator": "abacus-9"}, "no accelerator is called 'abacus-9'"),
    ({"n_layers": "100000000"}, "n_layers = 1e+08 is outside what makes sense here: from 1 to 4096"),
    ({"gated_mlp": "2"}, "gated_mlp = 2 is outside what makes sense here: from 0 to 1"),
    ({"seq_parallel": "1e30"}, "seq_parallel = 1e+30 is outside what makes sense here: from 0 to 1"),
    ({"tp": "7"}, "the degrees of the mesh do not multiply to 64 devices"),
    ({"dp": "3"}, "the degrees of the mesh do not multiply to 64 devices"),
    ({"vpp": "99"}, "792 pipeline stages of 96 layers"),
    ({"micro_batch": "3"}, "a batch of 64 does not split over 1 data ranks in micro-batches of 3"),
    ({"tokens_per_s_per_gpu": "", "step_time_s": ""}, "neither throughput nor memory was measured"),
    ({"other_arch": "encoder-decoder"}, "the columns cannot describe the architecture: encoder-decoder"),
    ({"n_experts": "4", "top_k": "9"}, "9 of 4 experts"),
    ({"n_heads": "16384"}, "12288 channels in 16384 heads"),
]


@pytest.mark.parametrize(("cells", "reason"), SKIPS, ids=[reason[:40] for _, reason in SKIPS])
def test_every_row_that_cannot_be_predicted_says_why(cells: dict[str, str], reason: str) -> None:
    found = compared(changed(model="none of the catalogue", **cells))
    assert found.skipped is not None
    assert str(found.skipped) == reason
    assert (found.error, found.predicted, found.interval) == (None, None, None)
