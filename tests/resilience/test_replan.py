"""Going on with fewer nodes: legal plans, the batch kept or its change stated, reports of layouts that do not load."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from survival_cases import case, llama_70b

from meshwright import api
from meshwright.catalog import failures as known
from meshwright.errors import InputError
from meshwright.resilience.checkpoint import sizes
from meshwright.resilience.replan import replan
from meshwright.resilience.resharding import reshard
from meshwright.resilience.situation import Options
from meshwright.spec.estimate import Estimate
from meshwright.spec.resilience import Replan, ReplanOption
from meshwright.spec.strategy import Strategy

DAY = 86400.0
STORAGE = known.storage("tectonic", 64, 400e9)


@pytest.fixture(scope="module")
def two_lost() -> Replan:
    return replan(*llama_70b(), 2, away=DAY / 2)


def option(found: Replan, name: str) -> ReplanOption:
    return next(o for o in found.options if o.name == name)


def test_the_same_batch_on_what_is_left(two_lost: Replan) -> None:
    """62 nodes are no mesh that divides 512 sequences; the most that are is used, and its plan is legal and fits."""
    shrink = option(two_lost, "shrink")
    assert shrink.global_batch == 512 and shrink.learning_rate_scale == 1
    assert shrink.devices <= 62 * 8 and shrink.estimate is not None and shrink.estimate.verdict != "OVER"
    s = shrink.estimate.strategy
    assert s.devices == shrink.devices and 512 % (s.data * s.micro_batch) == 0
    problem = replace(two_lost.problem, cluster=two_lost.cluster)
    there = api.problem(model="llama-3.1-70b", cluster=f"h100-sxm:{shrink.devices}", seq_len=8192, global_batch=512)
    assert isinstance(api.estimate(there, s), Estimate)
    assert problem.cluster.devices == 496


def test_another_batch_is_stated_with_its_learning_rate(two_lost: Replan) -> None:
    """The same micro-batches per replica; Adam's rate follows the root of the batch, SGD's the batch."""
    smaller = option(two_lost, "shrink-batch")
    assert smaller.global_batch == 512 * 31 // 32 and smaller.devices == 496
    assert smaller.learning_rate_scale == pytest.approx((31 / 32) ** 0.5)
    problem, strategy, estimate = case("llama-3.1-8b", "h100-sxm:64", 4096, 128, optimizer="sgd-momentum",
                                       framework="megatron", tensor=8)  # fmt: skip
    sgd = option(replan(problem, strategy, estimate, 1), "shrink-batch")
    assert sgd.learning_rate_scale == pytest.approx(sgd.global_batch / 128)


def test_ways_are_ranked_by_the_tokens_they_lose(two_lost: Replan) -> None:
    lost = [o.lost_tokens for o in two_lost.options]
    assert lost == sorted(lost) and lost[0] > 0
    wait = option(two_lost, "wait")
    rate = llama_70b()[2].tokens_per_second
    assert wait.lost_tokens == pytest.approx(rate * wait.stop_seconds) and wait.stop_seconds > DAY / 2


def test_dealing_micro_batches_anew_costs_the_busiest_replica(two_lost: Replan) -> None:
    """512 micro-batches over 31 replicas: one of them does 17 where each did 16."""
    dealt = option(two_lost, "redeal")
    assert dealt.tokens_per_second == pytest.approx(llama_70b()[2].tokens_per_second * 16 / 17)
    assert dealt.global_batch == 512


def test_replicas_go_on_without_a_restart(two_lost: Replan) -> None:
    away = option(two_lost, "replicas")
    assert away.stop_seconds < 30 < option(two_lost, "shrink").stop_seconds
    assert away.tokens_per_second == pytest.approx(llama_70b()[2].tokens_per_second * 14 / 16)


def test_the_break_even_is_where_waiting_and_a_new_layout_lose_the_same(two_lost: Replan) -> None:
    assert two_lost.break_even is not None
    short, at, long = (replan(*llama_70b(), 2, away=two_lost.break_even * f) for f in (0.2, 1.0, 5.0))

    def gain(found: Replan) -> float:
        first = next(o for o in found.options if o.name in ("shrink", "redeal"))
        return option(found, "wait").lost_tokens - first.lost_tokens

    assert gain(short) < 0 < gain(long)
    assert abs(gain(at)) < 0.01 * option(at, "wait").lost_tokens


def test_no_legal_mesh_on_what_is_left_is_an_answer() -> None:
    """A model that filled two nodes does not fit into one."""
    problem, strategy, estimate = case("llama-3.1-70b", "h100-sxm:32", 4096, 32, framework="megatron", tensor=8,
                                       pipeline=4, recompute="full")  # fmt: skip
    found = replan(problem, strategy, estimate, 3)
    (finding,) = found.findings
    assert finding.code == "MW-G010" and finding.severity == "error"
    assert "8 devices that are left" in str(finding.message) and "GiB" in str(finding.message)
    assert "spare" in str(finding.fix)
    assert {o.name for o in found.options} == {"wait"} and found.break_even is None


@pytest.mark.parametrize("lost", [0, 64, 100])
def test_losing_none_or_all_is_refused(lost: int) -> None:
    with pytest.raises(InputError, match="cannot be lost"):
        replan(*llama_70b(), lost)


# ---------------------------------------------------------------------------------------------- layouts


def test_a_zero_checkpoint_of_32_ranks_is_refused_at_128(shared: Path) -> None:
    """Case E01: convert to a universal checkpoint, or lose the optimizer."""
    assert "DP world size of 32 but the current world size is 128" in (shared / "cases/inputs/E01_error.txt").read_text(
        "utf-8"
    )
    problem, old, _ = case("llama-3.1-8b", "h100-sxm:32", 4096, 128, framework="deepspeed", sharding="zero3")
    path = reshard(old, replace(old, data=128), sizes(problem, old), STORAGE, 16)
    said = " ".join(str(step) for step in path.steps)
    assert path.possible and path.changes == ("data",)
    assert "refused" in said and "ds_to_universal" in said and '"load_universal": true' in said
    same = reshard(old, old, sizes(problem, old), STORAGE, 16)
    assert same.changes == () and "as it is" in str(same.steps[0])
    assert path.seconds > 2 * same.seconds  # read, write, read again


def test_megatron_cannot_change_the_layout_of_a_pinned_optimizer(shared: Path) -> None:
    """Case E09: PP4 to EP4 with another format than fully_reshardable."""
    given = json.loads((shared / "cases/inputs/E09_meta.json").read_text("utf-8"))
    names = {"pipeline_parallel": "pipeline", "expert_parallel": "expert", "tensor_parallel": "tensor"}
    old, new = (
        Strategy(framework="megatron", data=4, **{names[k]: v for k, v in given[side].items()})
        for side in ("saved", "loading")
    )
    problem, _, _ = case("mixtral-8x7b", "h100-sxm:64", 4096, 128, framework="megatron", tensor=8, recompute="full")
    of = sizes(problem, case("mixtral-8x7b", "h100-sxm:64", 4096, 128, framework="megatron", tensor=8,
                             recompute="full")[1])  # fmt: skip
    pinned = reshard(old, new, of, STORAGE, 8, optimizer_format=given["optimizer_sharding_format"])
    assert pinned.possible is given["valid"] is False
    assert "pipeline" in str(pinned.steps[0]) and "weights only" in str(pinned.steps[0])
    free = reshard(old, new, of, STORAGE, 8, optimizer_format=given["reshardable_format"])
    assert free.possible and set(free.changes) >= {"pipeline", "expert"}
    more = reshard(old, replace(old, data=8), of, STORAGE, 8, optimizer_format="dp_reshardable")
    assert more.possible, "the data-parallel degree alone may always change"


@pytest.mark.parametrize(("framework", "word"), [("fsdp", "torch.distributed.checkpoint"), ("jax", "Orbax")])
def test_layout_free_checkpoints_load_anywhere(framework: str, word: str) -> None:
    old = Strategy(framework=framework, data=64, sharding="zero3")
    problem, strategy, _ = case("llama-3.1-8b", "h100-sxm:64", 4096, 128, framework="fsdp")
    path = reshard(old, replace(old, data=48, tensor=2), sizes(problem, strategy), STORAGE, 8)
    assert path.possible and word in str(path.steps[0]) and set(path.changes) == {"data", "tensor"}


def test_another_framework_takes_weights_only() -> None:
    problem, strategy, _ = case("llama-3.1-8b", "h100-sxm:64", 4096, 128, framework="fsdp")
    path = reshard(strategy, replace(strategy, framework="megatron"), sizes(problem, strategy), STORAGE, 8)
    assert not path.possible and "only weights" in str(path.steps[0])


def test_spare_nodes_at_hand_are_said() -> None:
    found = replan(*llama_70b(), 1, options=Options(spare_nodes=4))
    assert "spare nodes at hand" in str(option(found, "wait").note)
