"""All-reduce without compression: by torch's backend (equal to no hook, bit for bit) or by an algorithm of ours."""

import torch
import torch.distributed as dist

from meshwright.formulas.collectives import all_reduce_wire_bytes
from meshwright.gradsync.allreduce import Flat, reduce_flat
from meshwright.gradsync.peers import Peers
from meshwright.gradsync.reduction import combine_for
from meshwright.gradsync.runner import start
from meshwright.gradsync.state import CommHookState


def allreduce_hook(state: CommHookState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Mean of the gradients. Divides before the sum, as DDP does, so that half precision does not overflow."""
    buffer = bucket.buffer()
    is_last = bucket.is_last()
    buffer.mul_(1.0 / state.ranks)  # not div_: these are the bits of DDP without a hook, also for 3 ranks

    def settle(result: torch.Tensor) -> torch.Tensor:
        state.count.bucket(buffer.numel(), buffer.element_size(), state.ranks)
        state.step += is_last
        return result

    return dense(state, buffer).then(lambda future: settle(future.value()))


def dense(state: CommHookState, flat: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
    """Sum `flat` in place over the group of `state` by its algorithm, in the background; the value is `flat`."""
    group = state.group
    if state.algorithm == "backend":
        state.count.add(float(all_reduce_wire_bytes(float(flat.numel() * flat.element_size()), state.ranks)))
        return dist.all_reduce(flat, group=group, async_op=True).get_future().then(lambda future: future.value()[0])

    def body() -> torch.Tensor:
        with Flat(flat, group) as here:
            peers = Peers(group, timeout=state.timeout, local=state.local)
            reduce_flat(peers, here, combine_for("sum", here.dtype), state.algorithm)
        state.count.add(peers.bytes_sent)
        return flat

    return start(group, flat.device, body).get_future()


def hierarchical_allreduce_hook(state: CommHookState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """All-reduce in the node, across nodes per rail, and back: each network card carries 1/local of the gradient."""
    state.algorithm = "hierarchical"
    return allreduce_hook(state, bucket)
