"""Train a small GPT that survives its workers. On two CPU processes:

    torchrun --standalone --nproc-per-node 2 --max-restarts 10 examples/elastic_gpt/train.py --out runs/gpt

Kill any worker while it runs (`kill -9`), or stop it with Ctrl-C and start it again with another --nproc-per-node: it
goes on from the newest whole checkpoint, with the same global batch and the same order of data.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from model import GPT
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from meshwright import gradsync
from meshwright.gradsync import elastic

HERE = Path(__file__).resolve()


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/elastic_gpt"), help="checkpoints and journal go here")
    parser.add_argument("--text", type=Path, default=HERE.parents[2] / "LICENSE", help="what to learn, read as bytes")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--every", type=int, default=20, help="steps between checkpoints")
    parser.add_argument("--keep", type=int, default=2, help="checkpoints to keep")
    parser.add_argument("--global-batch", type=int, default=24, help="sequences of one step, at any world size")
    parser.add_argument("--micro-batches", type=int, default=12, help="parts of a step, at any world size")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sharded", action="store_true", help="FSDP2 instead of DDP")
    return parser.parse_args()


def build(args: argparse.Namespace, device: torch.device) -> elastic.Parts:
    """Model, optimizer and schedule as every start makes them; what was trained is loaded afterwards."""
    torch.manual_seed(args.seed)
    model: Any = GPT(
        layers=args.layers, width=args.width, heads=args.heads, context=args.context, dropout=args.dropout
    ).to(device)
    if args.sharded and dist.is_initialized():
        for block in model.blocks:
            fully_shard(block)
        fully_shard(model)
    elif dist.is_initialized():
        model = DistributedDataParallel(model)
        model.register_comm_hook(None, gradsync.rank_ordered_hook)
    optimizer = torch.optim.AdamW(model.parameters(), args.lr)
    return elastic.Parts(
        model=model,
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps),
    )


def feed(args: argparse.Namespace, device: torch.device) -> elastic.Feed[torch.Tensor]:
    """Every place in the text begins a sample of context + 1 bytes."""
    text = torch.frombuffer(bytearray(args.text.read_bytes()), dtype=torch.uint8)

    def fetch(indices: Sequence[int]) -> torch.Tensor:
        return torch.stack([text[i : i + args.context + 1].long() for i in indices]).to(device)

    return elastic.Feed(
        size=len(text) - args.context,
        global_batch=args.global_batch,
        micro_batches=args.micro_batches,
        seed=args.seed,
        fetch=fetch,
        count=lambda rows: rows.shape[0] * (rows.shape[1] - 1),
    )


def loss_sum(model: nn.Module, rows: torch.Tensor) -> torch.Tensor:
    """Sum, not mean, of the losses of all bytes."""
    scores = model(rows[:, :-1])
    return F.cross_entropy(scores.flatten(0, 1), rows[:, 1:].flatten(), reduction="sum")


def main() -> int:
    args = options()
    device = elastic.connect()
    journal = elastic.Journal(args.out / "journal.jsonl") if gradsync.my_rank() == 0 else None

    def on_start(restored: elastic.Restored | None) -> None:
        if journal is not None:
            flaws = [str(flaw) for flaw in restored.rejected] if restored else []
            step = restored.step if restored else 0
            journal.note("start", step=step, world_size=gradsync.world_size(), rejected=flaws)
            print(f"from step {step} on {gradsync.world_size()} ranks", *flaws, sep="\n  ", file=sys.stderr)

    def on_step(report: elastic.StepReport) -> None:
        if journal is not None:
            journal.note("step", step=report.step, loss=report.loss, stalled=report.stalled, seconds=report.seconds)
            if report.step % 10 == 0:
                print(f"step {report.step:5}  loss {report.loss:.4f}  {report.seconds:.3f} s", flush=True)

    outcome = elastic.train(
        build(args, device),
        feed(args, device),
        loss_sum,
        elastic.Checkpoints(args.out / "checkpoints", keep=args.keep),
        steps=args.steps,
        every=args.every,
        max_norm=1.0,
        check_every=0 if args.sharded else 50,
        on_start=on_start,
        on_step=on_step,
    )
    if journal is not None:
        journal.note("end", step=outcome.step, finished=outcome.finished)
    if dist.is_initialized():
        dist.destroy_process_group()
    return outcome.exit_code


if __name__ == "__main__":
    sys.exit(main())
