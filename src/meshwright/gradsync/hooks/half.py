"""Gradients in half precision on the wire: half the bytes, no memory of what rounding lost."""

import torch
import torch.distributed as dist

from meshwright.gradsync.hooks.allreduce import dense
from meshwright.gradsync.state import CommHookState


def fp16_compress_hook(state: CommHookState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Mean in float16; divided before the sum, because 4 ranks of 6e4 are more than it holds."""
    return _narrow(torch.float16, state, bucket)


def bf16_compress_hook(state: CommHookState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Mean in bfloat16: the range of float32 with 8 bits of precision."""
    return _narrow(torch.bfloat16, state, bucket)


bf16_compress_hook.__name__ = "bf16_hook"  # DDP refuses a hook of torch's name without NCCL; gloo adds bfloat16 well


def _narrow(dtype: torch.dtype, state: CommHookState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    buffer = bucket.buffer()
    is_last = bucket.is_last()

    def widen(future: torch.futures.Future[torch.Tensor]) -> torch.Tensor:
        buffer.copy_(future.value())
        state.count.bucket(buffer.numel(), buffer.element_size(), state.ranks)
        state.step += is_last
        return buffer

    return dense(state, buffer.to(dtype).div_(state.ranks)).then(widen)
