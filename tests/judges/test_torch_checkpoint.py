"""Bytes of checkpoints against files that torch.distributed.checkpoint really writes, from two ranks of FSDP2 on CPU.

Run with `.venv-torch/bin/pytest -m judge_torch tests/judges`.
"""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from meshwright import api
from meshwright.catalog import models
from meshwright.resilience.checkpoint import sizes
from meshwright.resilience.folder import check
from meshwright.spec.strategy import Strategy

os.environ["HF_HUB_OFFLINE"] = "1"

pytestmark = pytest.mark.judge_torch
torch = pytest.importorskip("torch", reason="torch is not installed (extra `torch`)")
transformers = pytest.importorskip("transformers", reason="transformers is not installed (extra `torch`)")

RANKS = 2
CONFIG: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 8192, "max_position_embeddings": 512,
    "tie_word_embeddings": False, "rms_norm_eps": 1e-5, "hidden_act": "silu",
}  # fmt: skip
OPTIMIZERS = ("adamw", "sgd-momentum")


def _optimizer(name: str, parameters: Any) -> Any:
    if name == "adamw":
        return torch.optim.AdamW(parameters, lr=1e-4)
    return torch.optim.SGD(parameters, lr=1e-4, momentum=0.9)


def _save(rank: int, folder: str, port: int, optimizer: str) -> None:
    """One step of FSDP2, then a save of weights and optimizer by all ranks."""
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict
    from torch.distributed.fsdp import fully_shard

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank), "WORLD_SIZE": str(RANKS)}
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    torch.manual_seed(0)
    settings = {k: v for k, v in CONFIG.items() if k != "model_type"}
    network = transformers.LlamaForCausalLM(transformers.LlamaConfig(**settings))
    for layer in network.model.layers:
        fully_shard(layer)
    fully_shard(network)
    steps = _optimizer(optimizer, network.parameters())
    network(input_ids=torch.zeros((1, 8), dtype=torch.long)).logits.float().mean().backward()
    steps.step()
    weights, moments = get_state_dict(network, steps)
    dcp.save({"model": weights, "optimizer": moments}, checkpoint_id=folder)
    dist.destroy_process_group()


def _port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_fsdp_writes_what_is_predicted(optimizer: str, tmp_path: Path) -> None:
    """The whole, and the share of each rank; what is over is metadata and file heads."""
    saved = tmp_path / "step-1"
    torch.multiprocessing.spawn(_save, args=(str(saved), _port(), optimizer), nprocs=RANKS)
    spec = models.model("config.json", text=json.dumps(CONFIG).encode())
    problem = api.problem(model=spec, cluster="h100-sxm:2", seq_len=512, global_batch=2, optimizer=optimizer)
    strategy = Strategy(framework="fsdp", data=RANKS, sharding="zero3", precision="bf16")
    of = sizes(problem, strategy)
    by_rank = {rank: sum(f.stat().st_size for f in saved.glob(f"__{rank}_*.distcp")) for rank in range(RANKS)}
    assert sum(by_rank.values()) == pytest.approx(of.total, rel=0.02)
    assert max(by_rank.values()) == pytest.approx(of.rank, rel=0.02)
    assert check(tmp_path).resume == "step-1"
    next(saved.glob("*.distcp")).write_bytes(b"")
    assert check(tmp_path).resume is None
