"""Composition: an outer precision around an inner hook, e.g. `compose(torch.bfloat16, powersgd_hook)`."""

from typing import Any

import torch
import torch.distributed as dist

from meshwright.gradsync.hooks import Hook


def compose(outer: torch.dtype, inner: Hook) -> Hook:
    """A hook that hands `inner` the bucket in the precision `outer`, and widens what comes back.

    What `inner` puts on the wire has that precision; error feedback stays in float32. `inner` may be torch's own hook.
    """

    def hook(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        wide = bucket.buffer()
        bucket.set_buffer(wide.to(outer))
        future = inner(state, bucket)
        bucket.set_buffer(wide)
        return future.then(lambda done: wide.copy_(done.value()))

    hook.__name__ = hook.__qualname__ = f"{str(outer).removeprefix('torch.')}_{getattr(inner, '__name__', 'hook')}"
    return hook
