"""Small models and clusters with published shapes, and a context builder."""

from __future__ import annotations

import dataclasses
from typing import Any

from meshwright.rules import RuleContext
from meshwright.spec import (
    Accelerator,
    Attention,
    Block,
    Cluster,
    Job,
    LinearAttention,
    Mamba1,
    Mamba2,
    Mlp,
    ModelSpec,
    Moe,
    MultiLatentAttention,
    Strategy,
)


def dense(name: str, layers: int, hidden: int, heads: int, kv: int, width: int, vocab: int) -> ModelSpec:
    block = Block(
        mixer=Attention(heads=heads, kv_heads=kv, head_dim=hidden // heads), mlp=Mlp(width=width, gated=kv != heads)
    )
    return ModelSpec(name=name, family=name, hidden=hidden, vocab=vocab, blocks=(block,), pattern=(0,) * layers)


GPT2 = dense("gpt2", 12, 768, 12, 12, 3072, 50257)
LLAMA_30B = dense("llama-30b", 60, 6656, 52, 52, 17920, 32000)
LLAMA_8B = dense("llama-3.1-8b", 32, 4096, 32, 8, 14336, 128256)
LLAMA_70B = dense("llama-3.1-70b", 80, 8192, 64, 8, 28672, 128256)
LLAMA_405B = dense("llama-3.1-405b", 126, 16384, 128, 8, 53248, 128256)
QWEN_3B = dense("qwen2.5-3b", 36, 2048, 16, 2, 11008, 151936)


def with_block(base: ModelSpec, name: str, **changes: Any) -> ModelSpec:
    block = dataclasses.replace(base.blocks[0], **changes)
    return dataclasses.replace(base, name=name, blocks=(block,))


MIXTRAL = dataclasses.replace(
    with_block(LLAMA_8B, "mixtral-8x7b", mlp=Moe(experts=8, top_k=2, width=14336)), vocab=32000
)
DEEPSEEK = dataclasses.replace(
    with_block(
        LLAMA_70B,
        "deepseek-v3-like",
        mixer=MultiLatentAttention(heads=128, q_rank=1536, kv_rank=512, nope_dim=128, rope_dim=64, v_dim=128),
        mlp=Moe(experts=256, top_k=8, width=2048, shared_width=2048),
    ),
    hidden=7168,
    pattern=(0,) * 61,
)
MAMBA2 = with_block(
    LLAMA_8B, "mamba2-8b", mixer=Mamba2(inner=8192, state=128, heads=128, groups=8), mlp=None
)  # fmt: skip
MAMBA1 = with_block(LLAMA_8B, "mamba1", mixer=Mamba1(inner=8192, state=16, dt_rank=256), mlp=None)
LINEAR = with_block(
    LLAMA_8B, "linear", mixer=LinearAttention(key_heads=16, key_dim=128, value_heads=32, value_dim=128), mlp=None
)


def accelerator(id: str, **changes: Any) -> Accelerator:
    base = Accelerator(
        id="h100", name="H100 SXM", vendor="NVIDIA", kind="gpu", architecture="hopper",
        peak_flops={"fp32": 67e12, "tf32": 494e12, "bf16": 989e12, "fp16": 989e12, "fp8": 1979e12},
        matmul_ceiling={"bf16": 0.8}, compute_units=132, memory_bytes=80e9, memory_usable_bytes=79.2 * 2**30,
        memory_bandwidth=3.35e12, link="nvswitch", link_bandwidth=450e9, link_pair_bandwidth=450e9,
        scale_up_domain=8, host_bandwidth=63e9,
    )  # fmt: skip
    return dataclasses.replace(base, id=id, **changes)


H100 = accelerator("h100")
A100 = accelerator("a100", name="A100", architecture="ampere", peak_flops={"fp32": 19.5e12, "tf32": 156e12,
                   "bf16": 312e12, "fp16": 312e12})  # fmt: skip
V100 = accelerator("v100", name="V100", architecture="volta", peak_flops={"fp32": 15.7e12, "fp16": 125e12})
B200 = accelerator("b200", name="B200", architecture="blackwell",
                   peak_flops={"bf16": 2250e12, "fp16": 2250e12, "fp8": 4500e12, "fp4": 9000e12})  # fmt: skip
MI300X = accelerator("mi300x", name="MI300X", vendor="AMD", architecture="cdna3", link="xgmi-mesh",
                     link_bandwidth=448e9, link_pair_bandwidth=64e9)  # fmt: skip
GAUDI3 = accelerator("gaudi3", name="Gaudi 3", vendor="Intel", kind="other", architecture="gaudi")
TPU = accelerator("tpu-v5p", name="TPU v5p", vendor="Google", kind="tpu", architecture="tpu", link="torus",
                  peak_flops={"bf16": 459e12})  # fmt: skip


def cluster(device: Accelerator = H100, devices: int = 64, **changes: Any) -> Cluster:
    base = Cluster(
        id=f"{device.id}-{devices}", accelerator=device, devices=devices, node_size=8, domain_size=8, link=device.link,
        link_bandwidth=device.link_bandwidth, nic_bandwidth=50e9, nics_per_node=8, fabric="infiniband",
    )  # fmt: skip
    return dataclasses.replace(base, **changes)


def context(
    model: ModelSpec = LLAMA_8B,
    on: Cluster | Accelerator = H100,
    devices: int | None = None,
    *,
    seq_len: int = 8192,
    global_batch: int = 512,
    job: dict[str, Any] | None = None,
    uneven_stages: bool = True,
    **strategy: Any,
) -> RuleContext:
    """A context whose data degree fills the cluster, and whose device count is that of the strategy when not given."""
    degrees = {k: strategy.get(k, 1) for k in ("tensor", "pipeline", "context")}
    per_replica = max(degrees["tensor"] * degrees["pipeline"] * degrees["context"], 1)
    if isinstance(on, Accelerator):
        on = cluster(on, devices or per_replica * strategy.get("data", 8))
    if "data" not in strategy:
        strategy["data"] = max(on.devices // per_replica, 1)
    work = Job(seq_len=seq_len, global_batch=global_batch, precision=strategy.get("precision", "bf16"))
    if job:
        work = dataclasses.replace(work, **job)
    return RuleContext(model, on, work, Strategy(**strategy), uneven_stages=uneven_stages)
