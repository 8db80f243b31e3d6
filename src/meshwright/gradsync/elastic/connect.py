"""A process group for one generation of workers, whatever earlier generations left in the launcher's store.

torchrun keeps one key-value store over all restarts (since torch 2.4, and 2.13 still does without a prefix for each
attempt), so a restarted worker may read the address of a dead peer and fail to connect, again and again until the
restarts are used up. TORCHELASTIC_RESTART_COUNT is no remedy: each node counts its own. Here the ranks of a generation
find one another first and put all their keys under a name of their own.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from datetime import timedelta

import torch
import torch.distributed as dist

from meshwright.errors import EXIT_USAGE, MeshwrightError
from meshwright.messages import N_, Text

PAUSE = 0.02  # seconds between two looks at the store
STEP = "meshwright/"


class NoPeersError(MeshwrightError):
    """The other ranks of this generation did not come."""

    exit_code = EXIT_USAGE
    code = "no-peers"


def connect(
    backend: str | None = None, *, timeout: timedelta = timedelta(minutes=10), patience: float = 300.0
) -> torch.device:
    """`init_process_group` under torchrun, safe to call again after a restart; returns the device of this process.

    Without torchrun nothing is initialised and the process is a world of one. `timeout` is that of the collectives,
    `patience` the seconds to wait for the other ranks. The backend is gloo, and NCCL for CUDA tensors.
    """
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    if "RANK" not in os.environ:
        return device
    store, rank, world = next(iter(dist.rendezvous("env://", timeout=timedelta(seconds=patience))))
    dist.init_process_group(
        backend or ("cpu:gloo,cuda:nccl" if cuda else "gloo"),
        store=dist.PrefixStore(STEP + generation(store, rank, world, patience), store),
        rank=rank,
        world_size=world,
        timeout=timeout,
    )
    return device


def generation(store: dist.Store, rank: int, world: int, patience: float) -> str:
    """A name that exactly the ranks alive now agree on.

    Rank 0 proposes one; the others answer to it with a word nobody used before; rank 0 confirms by repeating all the
    words. Who reads a proposal of the dead finds their confirmation without its own word in it, and looks again.
    """
    end = time.monotonic() + patience
    word = uuid.uuid4().hex
    if rank == 0:
        name = word
        store.set(STEP + "proposal", name)
        words = {other: _awaited(store, f"{STEP}{name}/{other}", end, other) for other in range(1, world)}
        store.set(f"{STEP}{name}/confirmed", json.dumps(words))
        return name
    answered = ""
    while time.monotonic() < end:
        if store.check([STEP + "proposal"]):
            name = store.get(STEP + "proposal").decode()
            if name != answered:
                store.set(f"{STEP}{name}/{rank}", word)
                answered = name
            confirmed = f"{STEP}{name}/confirmed"
            if store.check([confirmed]) and json.loads(store.get(confirmed)).get(str(rank)) == word:
                return name
        time.sleep(PAUSE)
    raise _missing(0)


def _awaited(store: dist.Store, key: str, end: float, rank: int) -> str:
    while time.monotonic() < end:
        if store.check([key]):
            return store.get(key).decode()
        time.sleep(PAUSE)
    raise _missing(rank)


def _missing(rank: int) -> NoPeersError:
    return NoPeersError(
        Text(N_("rank {rank} did not come to meet the others"), rank=rank),
        where="connect",
        fix=Text(N_("check that every node reaches the store of the launcher at MASTER_ADDR:MASTER_PORT")),
    )
