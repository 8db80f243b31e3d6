"""A small GPT under DistributedDataParallel, with every way of synchronising gradients by one flag.

    torchrun --standalone --nproc-per-node 2 examples/ddp_gpt/train.py --hook powersgd --steps 100
    torchrun --standalone --nproc-per-node 4 examples/ddp_gpt/train.py --hook allreduce --algorithm ring

It learns this repository's own documentation, byte by byte, on the CPU. Printed: loss, tokens per second, and what the
hook put on the wire against a dense all-reduce.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from meshwright import gradsync

DOCS = Path(__file__).resolve().parents[2] / "docs"


class Block(nn.Module):
    """Attention and a feed-forward layer, both with a norm before them."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """One block."""
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    """Bytes in, logits of the next byte out."""

    def __init__(self, width: int = 128, layers: int = 4, heads: int = 4, length: int = 128) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(256, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 256)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits of every position."""
        x = self.tokens(x) + self.places.weight[: x.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def options() -> argparse.Namespace:
    """The flags."""
    parser = argparse.ArgumentParser(description="A small GPT with every way of synchronising gradients")
    parser.add_argument("--hook", default="none", choices=["none", *gradsync.HOOKS], help="communication hook")
    parser.add_argument("--narrow", choices=["bf16", "fp16"], help="compose a half precision around the hook")
    parser.add_argument("--algorithm", default="backend", help="all-reduce of the hooks allreduce, fp16 and bf16")
    parser.add_argument("--ratio", type=float, default=0.01, help="part that topk and randomk send")
    parser.add_argument("--rank", type=int, default=4, help="rank of powersgd")
    parser.add_argument("--dense-steps", type=int, default=10, help="dense steps before compression")
    parser.add_argument("--no-error-feedback", action="store_true", help="forget what compression leaves out")
    parser.add_argument("--local", type=int, help="ranks per node, for the hierarchical hook")
    parser.add_argument("--bucket-mb", type=float, default=25.0, help="bucket size of DDP")
    parser.add_argument("--accumulate", type=int, default=1, help="micro-batches per step, synchronised once")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=8, help="sequences of a micro-batch on one rank")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def hook_of(flags: argparse.Namespace) -> tuple[gradsync.CommHookState, gradsync.Hook]:
    """The state and the hook that the flags ask for."""
    hook, state_type = gradsync.HOOKS[flags.hook]
    given = {"start_iter": flags.dense_steps, "error_feedback": not flags.no_error_feedback, "seed": flags.seed}
    given |= {"algorithm": flags.algorithm, "local": flags.local}
    given |= {"topk": {"ratio": flags.ratio}, "randomk": {"ratio": flags.ratio}, "powersgd": {"rank": flags.rank}}.get(
        flags.hook, {}
    )
    if flags.narrow:
        hook = gradsync.compose({"bf16": torch.bfloat16, "fp16": torch.float16}[flags.narrow], hook)
    return state_type(**given), hook


def main() -> None:
    """Train."""
    flags = options()
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(flags.seed)
    text = torch.frombuffer(bytearray(b"".join(p.read_bytes() for p in sorted(DOCS.rglob("*.md")))), dtype=torch.uint8)
    ddp = DistributedDataParallel(GPT(), bucket_cap_mb=flags.bucket_mb)
    state = None
    if flags.hook != "none":
        state, hook = hook_of(flags)
        gradsync.register_comm_hook(ddp, state, hook)
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=flags.lr)
    data = torch.Generator().manual_seed(1000 * flags.seed + rank)
    began = time.perf_counter()
    for step in range(flags.steps):
        optimizer.zero_grad()
        for micro in range(flags.accumulate):
            starts = torch.randint(0, len(text) - 129, (flags.batch,), generator=data)
            window = torch.stack([text[s : s + 129] for s in starts.tolist()]).long()
            ddp.require_backward_grad_sync = micro == flags.accumulate - 1  # what no_sync() sets
            loss = F.cross_entropy(ddp(window[:, :-1]).flatten(0, 1), window[:, 1:].flatten())
            (loss / flags.accumulate).backward()
        optimizer.step()
        if step % 10 == 0 or step == flags.steps - 1:
            mean = loss.detach() / ranks
            gradsync.all_reduce(mean)
            if rank == 0:
                tokens = (step + 1) * flags.accumulate * flags.batch * 128 * ranks
                print(
                    f"step {step:4d}  loss {mean:.4f}  {tokens / (time.perf_counter() - began):,.0f} tokens/s",
                    flush=True,
                )
    if state is not None and rank == 0:
        stats = state.wire_stats()
        sent, dense = stats["bytes_sent"], stats["bytes_dense"]
        print(f"sent {sent:,.0f} bytes per rank, dense {dense:,.0f}: {stats['ratio']:.1f} x less")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
