"""Every rule fires on a strategy that breaks it and is silent on one that does not."""

from __future__ import annotations

import dataclasses
import json
from types import SimpleNamespace
from typing import Any

import pytest

from meshwright.messages import Text
from meshwright.rules import RULES, RuleContext, check
from meshwright.spec.estimate import Term

from .samples import (
    A100,
    B200,
    DEEPSEEK,
    GAUDI3,
    GPT2,
    H100,
    LINEAR,
    LLAMA_8B,
    LLAMA_70B,
    LLAMA_405B,
    MAMBA1,
    MAMBA2,
    MI300X,
    MIXTRAL,
    QWEN_3B,
    TPU,
    V100,
    cluster,
    context,
)

jax = {"framework": "jax", "sharding": "zero3", "on": TPU}
fsdp = {"framework": "fsdp", "sharding": "zero3"}
deepspeed = {"framework": "deepspeed"}


def estimated(c: RuleContext, verdict: str, peak: float, times: dict[str, float], host: float = 0) -> RuleContext:
    """`c` with an estimate of a capacity of 80 GB on the device and 1,024 GB on the host."""
    parts = tuple(Term(k, v, "s") for k, v in times.items())
    memory = Term("device", peak, "B", children=(Term("states", peak, "B"),))
    estimate: Any = SimpleNamespace(
        verdict=verdict, peak_bytes=peak, capacity_bytes=80e9, peak_stage=0, memory=memory,
        time=Term("step", sum(times.values()), "s", children=parts), step_seconds=sum(times.values()),
        host_bytes=host, host_capacity_bytes=1024e9,
    )  # fmt: skip
    return dataclasses.replace(c, estimate=estimate)


two_slices = cluster(TPU, 8, slices=2, domain_size=4)
torus = cluster(TPU, 64, domain_size=64, torus=(4, 4, 4))
one_node = cluster(H100, 8)
pcie = cluster(A100, 16, link="pcie", link_bandwidth=31e9, nic_bandwidth=12.5e9)
slow_nodes = cluster(A100, 64, nic_bandwidth=12.5e9)
busy = {"compute": 1.0, "tensor_comm": 0.1, "data_comm": 0.4}
calm = {"compute": 1.0, "data_comm": 0.05}

# rule: (context that breaks it, context that does not)
CASES: dict[str, tuple[RuleContext, RuleContext]] = {
    "MW-C100": (context(tensor=0, data=8, devices=8), context(tensor=1)),
    "MW-C101": (context(on=cluster(devices=8), data=8, context=8), context(on=cluster(devices=64), data=8, context=8)),
    "MW-C102": (context(GPT2, tensor=8), context(GPT2, tensor=4)),
    "MW-C103": (context(LLAMA_8B, tensor=16, **fsdp), context(LLAMA_8B, tensor=16)),
    "MW-C104": (context(LLAMA_70B, tensor=16), context(LLAMA_70B, tensor=8)),
    "MW-C105": (context(QWEN_3B, tensor=3), context(QWEN_3B, tensor=16)),
    "MW-C106": (
        context(LLAMA_405B, pipeline=16, uneven_stages=False),
        context(LLAMA_405B, pipeline=18, uneven_stages=False),
    ),
    "MW-C107": (context(LLAMA_405B, pipeline=16), context(LLAMA_405B, pipeline=14)),
    "MW-C108": (context(pipeline=16, virtual=4, schedule="interleaved"), context(pipeline=16)),
    "MW-C109": (
        context(pipeline=4, layers_per_stage=(8, 8, 8, 9)),
        context(LLAMA_405B, pipeline=16, layers_per_stage=(7, *[8] * 14, 7)),
    ),
    "MW-C110": (context(MIXTRAL, expert=16, data=16), context(MIXTRAL, expert=8)),
    "MW-C111": (context(LLAMA_8B, expert=2), context(LLAMA_8B)),
    "MW-C112": (context(MIXTRAL, expert=8, data=4), context(MIXTRAL, expert=8, data=4, tensor=2)),
    "MW-C113": (context(MIXTRAL, tensor=2, expert_tensor=4), context(MIXTRAL, tensor=4, expert_tensor=2)),
    "MW-C114": (context(MIXTRAL, tensor=12, expert_tensor=3), context(MIXTRAL, tensor=4, expert_tensor=4)),
    "MW-C115": (context(seq_len=4098, context=4, tensor=8), context(seq_len=4096, context=4, tensor=8)),
    "MW-C116": (context(GPT2, context=8, **deepspeed), context(GPT2, context=8)),
    "MW-C117": (context(GPT2, tensor=2, **jax), context(LLAMA_8B, tensor=2, **jax)),
    "MW-C118": (context(GPT2, tensor=2, **fsdp), context(LLAMA_8B, tensor=2, **fsdp)),
    "MW-C119": (context(GPT2, tensor=1), context(LLAMA_8B, tensor=2)),
    "MW-C120": (context(MAMBA2, tensor=16), context(MAMBA2, tensor=8)),
    "MW-C121": (context(data=8, shard=3, **fsdp), context(data=8, shard=4, **fsdp)),
    "MW-C122": (
        context(LLAMA_8B, two_slices, tensor=8, framework="jax", sharding="zero3"),
        context(LLAMA_8B, two_slices, tensor=4, framework="jax", sharding="zero3"),
    ),
    "MW-C201": (context(global_batch=19, data=4), context(global_batch=20, data=4)),
    "MW-C202": (
        context(pipeline=4, virtual=2, schedule="interleaved", global_batch=80, data=8),
        context(pipeline=4, virtual=2, schedule="interleaved", global_batch=96, data=8),
    ),
    "MW-C203": (
        context(pipeline=4, virtual=2, schedule="interleaved", global_batch=9, data=1, **fsdp),
        context(pipeline=4, virtual=2, schedule="interleaved", global_batch=10, data=1, **fsdp),
    ),
    "MW-C204": (context(pipeline=4, virtual=2), context(pipeline=4, virtual=2, schedule="interleaved")),
    "MW-C205": (context(virtual=2, schedule="interleaved"), context(virtual=2, pipeline=2, schedule="interleaved")),
    "MW-C206": (
        context(pipeline=2, virtual=2, schedule="interleaved"),
        context(pipeline=4, virtual=2, schedule="interleaved"),
    ),
    "MW-C207": (context(pipeline=8, global_batch=32, **fsdp), context(pipeline=8, global_batch=64, **fsdp)),
    "MW-C208": (context(pipeline=8, global_batch=32), context(pipeline=8, global_batch=64)),
    "MW-C209": (
        context(pipeline=4, schedule="dualpipe", data=1, global_batch=6),
        context(pipeline=4, schedule="dualpipe", data=1, global_batch=8),
    ),
    "MW-C301": (context(pipeline=4, schedule="gpipe", **deepspeed), context(pipeline=4, schedule="gpipe", **fsdp)),
    "MW-C302": (context(pipeline=4, schedule="zb-h1"), context(pipeline=4, schedule="1f1b")),
    "MW-C303": (
        context(tensor=2, pipeline=2, sharding="zero3", **deepspeed),
        context(tensor=4, pipeline=1, sharding="zero3", **deepspeed),
    ),
    "MW-C304": (context(sharding="zero3"), context(sharding="zero1")),
    "MW-C305": (context(shard=4, sharding="zero2", **deepspeed), context(shard=4, sharding="zero3", **deepspeed)),
    "MW-C306": (
        context(data=64, shard=8, sharding="zero3", offload="optimizer", **deepspeed),
        context(data=64, shard=8, sharding="zero3", **deepspeed),
    ),
    "MW-C307": (
        context(tensor=2, sharding="zero3", **deepspeed),
        context(tensor=2, sharding="zero2", **deepspeed),
    ),
    "MW-C308": (
        context(MIXTRAL, sharding="zero3", **deepspeed),
        context(MIXTRAL, sharding="zero2", **deepspeed),
    ),
    "MW-C309": (
        context(MIXTRAL, expert=8, tensor=2, sharding="zero3", **deepspeed),
        context(MIXTRAL, expert=8, tensor=2, sharding="zero2", **deepspeed),
    ),
    "MW-C310": (context(offload="parameters"), context(offload="optimizer")),
    "MW-C311": (
        context(offload="parameters", sharding="zero2", **deepspeed),
        context(offload="parameters", sharding="zero3", **deepspeed),
    ),
    "MW-C312": (
        context(offload="optimizer", sharding="none", **deepspeed),
        context(offload="optimizer", sharding="zero1", **deepspeed),
    ),
    "MW-C313": (context(offload="activations", pipeline=2), context(offload="activations")),
    "MW-C314": (context(pipeline=2, **jax), context(**jax)),
    "MW-C315": (context(on=TPU), context(**jax)),
    "MW-C316": (context(on=GAUDI3), context(on=H100)),
    "MW-C317": (
        context(MIXTRAL, tensor=4, expert_tensor=2, **fsdp),
        context(MIXTRAL, tensor=4, expert_tensor=4, **fsdp),
    ),
    "MW-C318": (context(LINEAR, context=2, **fsdp), context(MAMBA2, context=2)),
    "MW-C319": (context(recompute="selective", **deepspeed), context(recompute="full", **deepspeed)),
    "MW-C320": (context(job={"optimizer": "adafactor"}), context(job={"optimizer": "adafactor"}, **jax)),
    "MW-C321": (
        context(MIXTRAL, tensor=2, sequence_parallel=False),
        context(LLAMA_8B, tensor=2, sequence_parallel=False),
    ),
    "MW-C322": (
        context(tensor=2, overlap_tensor=True, sequence_parallel=False),
        context(tensor=2, overlap_tensor=True, sequence_parallel=True),
    ),
    "MW-C323": (context(tensor=1, sequence_parallel=True), context(tensor=1, sequence_parallel=False)),
    "MW-C324": (context(overlap_grad_reduce=False), context(overlap_grad_reduce=False, overlap_param_gather=False)),
    "MW-C325": (
        context(recompute="selective", recompute_ops=("layernorm", "mlp_act")),
        context(recompute="selective", recompute_ops=("core_attention", "layernorm")),
    ),
    "MW-C401": (context(on=V100, precision="bf16"), context(on=V100, precision="fp16")),
    "MW-C402": (context(on=B200, precision="nvfp4", **fsdp), context(on=B200, precision="nvfp4")),
    "MW-C403": (context(QWEN_3B, precision="fp8", tensor=32), context(QWEN_3B, precision="fp8", tensor=4)),
    "MW-C404": (context(precision="fp8", job={"precision": "bf16"}), context(precision="fp8")),
    "MW-C405": (context(on=A100, precision="fp16"), context(on=V100, precision="fp16")),
    "MW-P101": (context(LLAMA_70B, cluster(devices=64), tensor=16), context(LLAMA_70B, cluster(devices=64), tensor=8)),
    "MW-P102": (context(GPT2, cluster(devices=48), tensor=3), context(GPT2, cluster(devices=48), tensor=4)),
    "MW-P103": (
        context(DEEPSEEK, cluster(devices=64), expert=64),
        context(DEEPSEEK, cluster(devices=64), expert=8),
    ),
    "MW-P104": (
        context(LLAMA_70B, cluster(devices=64), tensor=8, context=2),
        context(LLAMA_70B, cluster(devices=64), tensor=4, context=2),
    ),
    "MW-P105": (context(LLAMA_8B, one_node, pipeline=2), context(LLAMA_8B, one_node, tensor=2)),
    "MW-P106": (
        context(LLAMA_8B, cluster(devices=64), shard=16, **fsdp),
        context(LLAMA_8B, cluster(devices=64), shard=8, **fsdp),
    ),
    "MW-P107": (context(LLAMA_8B, pcie, tensor=4), context(LLAMA_8B, one_node, tensor=4)),
    "MW-P108": (context(on=MI300X, tensor=2), context(on=MI300X, tensor=8)),
    "MW-P109": (context(on=cluster(devices=12)), context(on=cluster(devices=16))),
    "MW-P110": (
        context(LLAMA_8B, torus, tensor=2, framework="jax", sharding="zero3"),
        context(LLAMA_8B, torus, tensor=4, framework="jax", sharding="zero3"),
    ),
    "MW-A101": (context(LLAMA_8B, tensor=8), context(LLAMA_8B, tensor=4)),
    "MW-A102": (
        context(LLAMA_8B, cluster(devices=64), tensor=4, seq_len=2048),
        context(LLAMA_70B, cluster(devices=64), tensor=4, seq_len=2048),
    ),
    "MW-A103": (context(sharding="none"), context(sharding="zero1")),
    "MW-A104": (
        context(LLAMA_70B, slow_nodes, seq_len=2048, framework="fsdp", sharding="zero3"),
        context(LLAMA_70B, slow_nodes, seq_len=65536, framework="fsdp", sharding="zero3"),
    ),
    "MW-A105": (context(seq_len=1024), context(seq_len=1024, micro_batch=2)),
    "MW-A106": (context(pipeline=8, global_batch=128), context(pipeline=8, global_batch=1024)),
    "MW-A107": (context(seq_len=8192, context=4), context(seq_len=131072, context=4)),
    "MW-A108": (context(tensor=2, sequence_parallel=False), context(tensor=2)),
    "MW-A109": (
        context(MIXTRAL, cluster(devices=16), tensor=4, expert_tensor=4),
        context(MIXTRAL, cluster(devices=16), tensor=2, expert=8),
    ),
    "MW-A110": (context(seq_len=131072), context(seq_len=131072, context=8)),
    "MW-A111": (context(LLAMA_8B, H100), context(LLAMA_8B, A100)),
    "MW-A112": (context(QWEN_3B, seq_len=4096, **fsdp), context(QWEN_3B, seq_len=2048, **fsdp)),
    "MW-A113": (context(on=V100, precision="fp16"), context(on=A100, precision="fp16")),
    "MW-A114": (context(tensor=2), context(tensor=2, on=B200)),
    "MW-A115": (context(on=cluster(devices=512)), context(on=cluster(devices=64))),
    "MW-A116": (
        context(pipeline=4, **fsdp),
        context(pipeline=4, framework="fsdp", sharding="zero2"),
    ),
    "MW-A117": (
        context(overlap_grad_reduce=False, overlap_param_gather=False),
        context(),
    ),
    "MW-A118": (
        context(MIXTRAL, cluster(devices=16), tensor=2, expert=8, overlap_expert=True),
        context(MIXTRAL, cluster(devices=16), tensor=2, expert=8),
    ),
    "MW-A135": (
        context(MIXTRAL, cluster(devices=16), tensor=2, expert=8, graphs="partial"),
        context(MIXTRAL, cluster(devices=16), tensor=2, expert=8),
    ),
    "MW-A119": (
        context(dataclasses.replace(LLAMA_8B, max_positions=4096), seq_len=8192),
        context(dataclasses.replace(LLAMA_8B, max_positions=8192), seq_len=8192),
    ),
    "MW-A131": (estimated(context(), "FITS", 40e9, busy), estimated(context(), "FITS", 40e9, calm)),
    "MW-A132": (
        estimated(context(recompute="full", tensor=4), "FITS", 30e9, calm),
        estimated(context(recompute="full", tensor=4), "FITS", 75e9, calm),
    ),
    "MW-A133": (estimated(context(), "TIGHT", 79e9, calm), estimated(context(), "FITS", 40e9, calm)),
    "MW-A136": (
        estimated(context(offload="parameters", **deepspeed, sharding="zero3"), "OVER", 9e9, calm, host=1242e9),
        estimated(context(offload="parameters", **deepspeed, sharding="zero3"), "FITS", 9e9, calm, host=1000e9),
    ),
    "MW-A134": (estimated(context(), "OVER", 90e9, calm), estimated(context(), "TIGHT", 79e9, calm)),
}


def fires(id: str, c: RuleContext) -> bool:
    rule = RULES[id]
    return rule.concerns(c) and bool(rule.violated(c))


def test_every_rule_has_cases() -> None:
    assert set(CASES) == {id for id, rule in RULES.items() if rule.stage != "configuration"}


@pytest.mark.parametrize("id", sorted(CASES))
def test_fires_and_stays_silent(id: str) -> None:
    broken, fine = CASES[id]
    assert fires(id, broken)
    assert not fires(id, fine)


@pytest.mark.parametrize("id", sorted(CASES))
def test_says_what_is_wrong_and_what_to_do(id: str) -> None:
    finding = RULES[id].finding(CASES[id][0])
    assert (finding.code, finding.severity, finding.where) == (id, RULES[id].severity, RULES[id].where)
    assert finding.fix is not None
    for text in (finding.message, finding.fix, RULES[id].title, RULES[id].reason, RULES[id].fix):
        assert isinstance(text, Text)
        assert text.render("en")
        assert "{" not in text.render("en")
    json.dumps(finding.data)


@pytest.mark.parametrize("id", sorted(i for i in CASES if RULES[i].stage != "estimate"))
def test_check_reports_it(id: str) -> None:
    broken, fine = CASES[id]
    assert id in {f.code for f in check(broken)}
    assert id not in {f.code for f in check(fine)}


def test_ids_and_severities() -> None:
    for id, rule in RULES.items():
        files = {"MW-F0", "MW-F1", "MW-F2", "MW-F3", "MW-F4"}
        assert id[:5] in (
            files if rule.stage == "configuration" else {"MW-C1", "MW-C2", "MW-C3", "MW-C4", "MW-P1", "MW-A1"}
        )
        assert rule.source
        assert (rule.severity in ("advice", "info")) or not id.startswith("MW-A")


@pytest.mark.parametrize("model", [MAMBA1, MAMBA2, LINEAR])
def test_recurrent_models_pass_without_context_parallelism(model: Any) -> None:
    assert not [f for f in check(context(model, tensor=8)) if f.severity == "error"]


def test_the_advice_on_a_bubble_is_one_that_interleaving_takes() -> None:
    c = context(DEEPSEEK, pipeline=4, virtual=4, schedule="interleaved", data=128, global_batch=512)
    finding = next(f for f in check(c) if f.code == "MW-A106")
    assert finding.data["micro_batches"] % 4 == 0 and "chunks" not in str(finding.fix)  # 61 layers split evenly by none
    deeper = context(LLAMA_70B, pipeline=4, data=4, global_batch=32)
    assert "so do 3 chunks" not in str(next(f for f in check(deeper) if f.code == "MW-A106").fix)
