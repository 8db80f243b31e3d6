"""No communication: what a step would take if gradients were free. Replicas diverge; for measuring only."""

import torch
import torch.distributed as dist

from meshwright.gradsync.state import CommHookState


def noop_hook(state: CommHookState | None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The local gradient as it is."""
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    future.set_result(bucket.buffer())
    if state is not None:
        state.count.bucket(bucket.buffer().numel(), bucket.buffer().element_size(), state.ranks)
        state.step += bucket.is_last()
    return future
