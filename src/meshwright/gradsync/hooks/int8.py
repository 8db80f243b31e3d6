"""Int8 in blocks, each with a scale of its own, with error feedback: a quarter of the bytes of float32.

Sums of int8 do not fit int8, so messages are gathered ("all_gather", which from 8 ranks on costs more than dense), or
go in two shots: each rank collects, adds and quantises its share again, and all gather the shares. The owner of a share
takes the second rounding error into its own error feedback, so that the sum over all ranks loses nothing.
"""

import torch
import torch.distributed as dist

from meshwright.errors import InputError
from meshwright.formulas.compression import block_quantised_bytes, gathered_wire_bytes, two_shot_wire_bytes
from meshwright.gradsync.hooks.blocks import layout_of, owners_of
from meshwright.gradsync.hooks.lossy import Reduced, is_finite, reduced_with_feedback
from meshwright.gradsync.state import Bucket, CommHookState
from meshwright.gradsync.wire import Wire
from meshwright.messages import N_, Text

EXCHANGES = ("auto", "all_gather", "two_shot")


class Int8State(CommHookState):
    """`block`: values per scale. `exchange`: how the messages meet. `stochastic`: round at random, without bias."""

    def __init__(
        self,
        process_group: dist.ProcessGroup | None = None,
        *,
        block: int = 256,
        exchange: str = "auto",
        stochastic: bool = False,
        **options: object,
    ) -> None:
        super().__init__(process_group, **options)  # type: ignore[arg-type]
        if exchange not in EXCHANGES:
            raise InputError(
                Text(N_("'{name}' is not a way to exchange int8 gradients"), name=exchange),
                where="exchange",
                fix=Text(N_("choose one of {names}"), names=", ".join(EXCHANGES)),
            )
        self.block, self.stochastic = block, stochastic
        self.exchange = exchange
        self._generator: torch.Generator | None = None

    def generator(self, device: torch.device) -> torch.Generator | None:
        """Random numbers for rounding: differ between ranks."""
        if self.stochastic and self._generator is None:
            self._generator = torch.Generator(device).manual_seed(self.seed * 1_000_003 + int(self.group.rank()))
        return self._generator


def int8_blockwise_hook(state: Int8State, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Mean of gradients that travel as int8."""

    def codec(corrected: torch.Tensor, bucket: Bucket, wire: Wire) -> Reduced:
        layout = layout_of(bucket.lengths, state.block)
        message = float(block_quantised_bytes(sum(layout.rows) * state.block, 8, state.block))
        gather = state.exchange == "all_gather" or (state.exchange == "auto" and state.ranks == 2)
        sent = (gathered_wire_bytes if gather else two_shot_wire_bytes)(message, state.ranks)
        state.warn_if_costly("int8_blockwise_hook", float(sent), bucket)
        rows = layout.pack(corrected)
        if gather:
            mean, contributed, finite = _gathered(state, rows, wire)
        else:
            mean, contributed, finite = _two_shot(state, rows, owners_of(layout, state.ranks), wire)
        return Reduced(layout.unpack(mean), layout.unpack(contributed), finite)

    return reduced_with_feedback(state, bucket, codec)


def quantise(rows: torch.Tensor, generator: torch.Generator | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """int8 values and the scale of each row; rounded at random, without bias, given a generator."""
    scales = rows.abs().amax(dim=1) / 127.0
    levels = rows / torch.where(scales == 0, 1.0, scales)[:, None]
    if generator is not None:
        levels = levels.add_(torch.rand(levels.shape, generator=generator, device=rows.device)).floor_()
    else:
        levels = levels.round_()
    return levels.clamp_(-127, 127).to(torch.int8), scales


def dequantise(values: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """float32 rows of the quantised values."""
    return values.float().mul_(scales[:, None])


def packed(values: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """One message of bytes: the scales, then the values."""
    return torch.cat([scales.view(torch.uint8), values.view(-1).view(torch.uint8)])


def unpacked(message: torch.Tensor, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Values and scales of a message of so many rows."""
    return message[4 * rows :].view(torch.int8).view(rows, -1), message[: 4 * rows].clone().view(torch.float32)


def _gathered(state: Int8State, rows: torch.Tensor, wire: Wire) -> Reduced:
    values, scales = quantise(rows, state.generator(rows.device))
    mean = torch.zeros_like(rows)
    finite = True
    for message in wire.all_gather(packed(values, scales)):
        their_values, their_scales = unpacked(message, scales.numel())
        finite = finite and is_finite(their_scales)
        mean += dequantise(their_values, their_scales)
    return Reduced(mean.div_(state.ranks), dequantise(values, scales), finite)


def _two_shot(state: Int8State, rows: torch.Tensor, owners: torch.Tensor, wire: Wire) -> Reduced:
    """`owners` says which rank adds up which rows; a number past the last stands for a row of zeros."""
    ranks, generator = state.ranks, state.generator(rows.device)
    owners = owners.to(rows.device)
    width = owners.shape[1]
    values, scales = quantise(torch.cat([rows, rows.new_zeros(1, rows.shape[1])]), generator)
    messages = torch.stack([packed(values[share], scales[share]) for share in owners])
    total = torch.zeros(width, rows.shape[1], dtype=torch.float32, device=rows.device)
    for message in wire.all_to_all(messages):
        total += dequantise(*unpacked(message, width))
    total /= ranks
    again, again_scales = quantise(total, generator)
    mean, contributed = rows.new_empty(rows.shape[0] + 1, rows.shape[1]), dequantise(values, scales)
    finite = True
    for share, message in zip(owners, wire.all_gather(packed(again, again_scales)), strict=True):
        their_values, their_scales = unpacked(message, width)
        finite = finite and is_finite(their_scales)
        mean[share] = dequantise(their_values, their_scales)
    contributed[owners[wire.rank]] -= ranks * (total - dequantise(again, again_scales))
    return Reduced(mean[:-1], contributed[:-1], finite)
