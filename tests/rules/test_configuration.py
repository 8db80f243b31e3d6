"""Rules about files: each fires on a file that breaks it and is silent on one that does not, by format and version."""

from __future__ import annotations

import json
from typing import Any

import pytest

from meshwright import api
from meshwright.errors import UnknownNameError
from meshwright.rules import RULES, RuleContext, check
from meshwright.rules.configuration import SEARCHES, check_configuration
from meshwright.rules.versions import covers, numbers
from meshwright.spec.configuration import Configuration

from .samples import LLAMA_8B, context

GOOD: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4, "bf16": {"enabled": True},
    "zero_optimization": {"stage": 3},
}  # fmt: skip
ARGS = "python a.py --num-layers 4 --bf16 "


def deepspeed(**changes: Any) -> bytes:
    return json.dumps({**GOOD, **changes}).encode()


def zero(**changes: Any) -> bytes:
    return deepspeed(zero_optimization={"stage": 2, **changes})


# rule: a file that breaks it (both formats recognised by their content), with the trainer's arguments where they matter
BROKEN: dict[str, tuple[bytes, dict[str, Any]]] = {
    "MW-F001": (deepspeed(nonsense=1), {}),
    "MW-F002": (deepspeed(gradient_accumulation_steps="4"), {}),
    "MW-F003": (b'{"train_batch_size": 8, "train_batch_size": 8}', {}),
    "MW-F004": (deepspeed(sparse_gradients=True), {}),
    "MW-F005": (zero(stage=7), {}),
    "MW-F101": (deepspeed(train_batch_size=60), {}),
    "MW-F102": (b'{"bf16": {"enabled": true}, "zero_optimization": {"stage": 1}}', {}),
    "MW-F103": (deepspeed(), {"per_device_train_batch_size": 8, "bf16": True}),
    "MW-F104": (deepspeed(gradient_accumulation_steps="auto"), {}),
    "MW-F105": (zero(stage="auto"), {}),
    "MW-F106": (deepspeed(fp16={"enabled": True}), {}),
    "MW-F107": (zero(stage3_max_reuse_distance=1), {}),
    "MW-F108": (zero(offload_param={"device": "cpu"}), {}),
    "MW-F109": (deepspeed(bf16={"enabled": True, "bf16_optimizer_states": True}), {}),
    "MW-F110": (deepspeed(optimizer={"type": "RMSprop"}), {}),
    "MW-F111": (deepspeed(scheduler={"type": "WarmupLR", "params": {"warmup_num_steps": 0}}), {}),
    "MW-F201": (f"CUDA_DEVICE_MAX_CONNECTIONS=1 {ARGS} --use-megatron-fsdp".encode(), {}),
    "MW-F202": (f"{ARGS} --pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 1 "
                "--no-overlap-p2p-communication".encode(), {}),
    "MW-F203": (f"{ARGS} --deepspeed --zero-stage 3".encode(), {}),
    "MW-F204": (f"{ARGS} --overlap-param-gather".encode(), {}),
    "MW-F205": (f"{ARGS} --sequence-parallel".encode(), {}),
}  # fmt: skip


FSDP = "distributed_type: FSDP\nnum_processes: 8\nmixed_precision: bf16\nfsdp_config:\n  fsdp_version: 2\n"
WRAP = f"{FSDP}  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
BROKEN |= {
    "MW-F401": (f"{WRAP}  fsdp_transformer_layer_cls_to_wrap: BertLayer\n".encode(), {}),
    "MW-F402": (f"{WRAP}  fsdp_cpu_ram_efficient_loading: true\n  fsdp_sync_module_states: false\n".encode(), {}),
    "MW-F403": (WRAP.encode(), {}),
    "MW-F404": (FSDP.encode(), {}),
    "MW-F405": (f"{WRAP}  fsdp_activation_checkpointing_offload: true\n".encode(), {}),
    "MW-F406": (f"{WRAP}parallelism_config:\n  parallelism_config_tp_size: 2\n".encode(), {}),
    "MW-F407": (f"{WRAP}  fsdp_use_orig_params: true\n".encode(), {}),
}
BROKEN |= {
    "MW-F301": (b"[parallelism]\ntensor_parallel_degree = 3\n", {}),
    "MW-F302": (b"[training]\nlocal_batch_size = 3\n[parallelism]\npipeline_parallel_degree = 2\n"
                b"pipeline_parallel_microbatch_size = 2\n", {}),
}  # fmt: skip
MODEL = {"MW-F401": {"model": "gpt2", "cluster": "h100-sxm:8"}}  # rules that need the model


def found(source: bytes, trainer: dict[str, Any], **target: Any) -> dict[str, Any]:
    return {f.code: f for f in api.check(source, api.Target(devices=8, trainer=trainer, **target)).findings}


def test_every_rule_about_files_has_a_case() -> None:
    assert set(BROKEN) == set(SEARCHES) == {id for id, rule in RULES.items() if rule.stage == "configuration"}


@pytest.mark.parametrize("id", sorted(BROKEN))
def test_fires_and_says_what_to_do(id: str) -> None:
    finding = found(*BROKEN[id], **MODEL.get(id, {}))[id]
    assert finding.fix is not None and finding.where
    for language in ("en", "es"):
        said = finding.message.render(language) + finding.fix.render(language)
        assert "{" not in said.replace("${", "")
    json.dumps(finding.data)


@pytest.mark.parametrize("source", [deepspeed(), f"{ARGS} --micro-batch-size 1".encode()])
def test_silent_on_files_without_fault(source: bytes) -> None:
    assert found(source, {}) == {}


def test_they_never_touch_a_strategy() -> None:
    c: RuleContext = context(LLAMA_8B)
    assert not [f for f in check(c) if f.code.startswith("MW-F")]


def test_other_formats_are_left_alone() -> None:
    file = Configuration(format="another", version="", values={"train_batch_size": 7}, data=2)
    assert list(check_configuration(file)) == []


@pytest.mark.parametrize("id", sorted(BROKEN))
def test_explained_like_any_other(id: str) -> None:
    card = api.explain(id)
    assert card.subject == id and card.sources == (RULES[id].source,)


def test_an_unknown_code_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="MW-F999"):
        api.explain("MW-F999")


@pytest.mark.parametrize(
    ("clauses", "version", "yes"),
    [("", "1.0", True), (">=0.17", "0.17.0", True), (">=0.17", "0.16.9", False), (">=0.17,<0.19", "0.18.3", True),
     ("<0.19.8", "0.19.8", False), ("<0.19.8", "0.19.10", False), ("<0.19.8", "0.9.10", True), (">=1", "", True),
     (">=0.17", "core_r0.17.1", True)],
)  # fmt: skip
def test_versions(clauses: str, version: str, yes: bool) -> None:
    assert covers(clauses, version) == yes


def test_release_numbers() -> None:
    assert numbers("core_r0.16.1") == (0, 16, 1) and numbers("2") == (2, 0, 0)
