"""One bit per value, the sign, with one scale per block and error feedback: 1/32 of float32.

A sign cannot say zero. A gradient that is always exactly zero (a row of an embedding that no batch uses) would be sent
as plus or minus the scale, and its error would grow: places that were zero on every rank during the dense first steps
are masked, as 1-bit Adam masks its momentum, and stay exactly zero.
"""

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist

from meshwright.formulas.compression import block_quantised_bytes, gathered_wire_bytes
from meshwright.gradsync.error_feedback import ByName
from meshwright.gradsync.hooks.blocks import layout_of
from meshwright.gradsync.hooks.lossy import Reduced, is_finite, plain, reduced_with_feedback
from meshwright.gradsync.state import Bucket, CommHookState
from meshwright.gradsync.wire import Wire

WEIGHTS = (1, 2, 4, 8, 16, 32, 64, 128)


class OneBitState(CommHookState):
    """`start_iter` dense steps find the places that live; `block`: values per scale, a multiple of 8."""

    def __init__(
        self,
        process_group: dist.ProcessGroup | None = None,
        *,
        block: int = 2048,
        start_iter: int = 1,
        **options: object,
    ) -> None:
        super().__init__(process_group, start_iter=start_iter, **options)  # type: ignore[arg-type]
        self.block = -(-block // 8) * 8
        self.live = ByName(torch.bool)

    def shared_by_name(self) -> dict[str, Any]:
        """Which places live."""
        return {"live": self.live.state_dict()}

    def load_shared(self, shared: Mapping[str, Any]) -> None:
        """Take them over."""
        self.live.load(shared["live"])


def onebit_hook(state: OneBitState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Mean of signs times scales."""
    if state.warming_up:
        return _dense_and_watch(state, bucket)

    def codec(corrected: torch.Tensor, bucket: Bucket, wire: Wire) -> Reduced:
        layout = layout_of(bucket.lengths, state.block)
        rows = layout.pack(corrected)
        live = torch.ones_like(corrected, dtype=torch.bool)
        if state.start_iter:
            live = state.live.of(bucket.names, bucket.lengths, corrected.device)
        alive = layout.pack(live)
        sent = gathered_wire_bytes(float(block_quantised_bytes(rows.numel(), 1, state.block)), state.ranks)
        state.warn_if_costly("onebit_hook", float(sent), bucket)
        signs, scales = sign_rows(rows, alive)
        mean = torch.zeros_like(rows)
        finite = True
        for message in wire.all_gather(torch.cat([scales.view(torch.uint8), signs])):
            theirs = message[: 4 * scales.numel()].clone().view(torch.float32)
            finite = finite and is_finite(theirs)
            mean += from_signs(message[4 * scales.numel() :], theirs)
        mean.div_(state.ranks).masked_fill_(~alive, 0.0)
        contributed = from_signs(signs, scales).masked_fill_(~alive, 0.0)
        return Reduced(layout.unpack(mean), layout.unpack(contributed), finite)

    return reduced_with_feedback(state, bucket, codec)


def _dense_and_watch(state: OneBitState, raw: Any) -> torch.futures.Future[torch.Tensor]:
    bucket = state.bucket(raw)

    def body() -> torch.Tensor:
        mean = plain(state, bucket)
        state.live.of(bucket.names, bucket.lengths, mean.device).logical_or_(mean != 0)
        return mean

    return state.launch(bucket, body)


def sign_rows(rows: torch.Tensor, live: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Signs packed eight to a byte, and the mean magnitude of each row over the places that live."""
    scales = (rows.abs() * live).sum(1) / live.sum(1).clamp_(min=1)
    bits = (rows >= 0).view(-1, 8).to(torch.uint8)
    weights = torch.tensor(WEIGHTS, dtype=torch.uint8, device=rows.device)
    return (bits * weights).sum(1, dtype=torch.uint8), scales


def from_signs(signs: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """float32 rows of packed signs and scales."""
    weights = torch.tensor(WEIGHTS, dtype=torch.uint8, device=signs.device)
    bits = ((signs[:, None] & weights) != 0).view(scales.numel(), -1)
    return torch.where(bits, scales[:, None], -scales[:, None])
