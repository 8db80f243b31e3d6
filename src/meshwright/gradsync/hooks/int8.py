"""Int8 in blocks, each with a scale of its own, with error feedback: a quarter of the bytes of float32.

Sums of int8 do not fit int8, so messages are gathered ("all_gather", which from 8 ranks on costs more than dense), or
go in two shots: each rank collects, adds and quantises its share again, and all gather the shares. The owner of a share
takes the second rounding error into its own error feedback, so that the sum over all ranks loses nothing.
"""

import torch
import torch.distributed as dist

from meshwright.errors import InputError
from meshwright.formulas.compression import block_quantised_bytes, gathered_wire_bytes, two_shot_wire_bytes
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
        message = float(block_quantised_bytes(corrected.numel(), 8, state.block))
        gather = state.exchange == "all_gather" or (state.exchange == "auto" and state.ranks == 2)
        sent = (gathered_wire_bytes if gather else two_shot_wire_bytes)(message, state.ranks)
        state.warn_if_costly("int8_blockwise_hook", float(sent), bucket)
        return (_gathered if gather else _two_shot)(state, corrected, wire)

    return reduced_with_feedback(state, bucket, codec)


def quantise(
    flat: torch.Tensor, block: int, generator: torch.Generator | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """int8 values (padded to whole blocks) and the scale of each block; at random, without bias, given a generator."""
    blocks = torch.nn.functional.pad(flat, (0, -flat.numel() % block)).view(-1, block)
    scales = blocks.abs().amax(dim=1) / 127.0
    levels = blocks / torch.where(scales == 0, 1.0, scales)[:, None]
    if generator is not None:
        levels = (levels + torch.rand(levels.shape, generator=generator, device=flat.device)).floor_()
    else:
        levels = levels.round_()
    return levels.clamp_(-127, 127).to(torch.int8).view(-1), scales


def dequantise(values: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """float32 of the quantised values."""
    return (values.view(scales.numel(), -1).float() * scales[:, None]).view(-1)


def _packed(values: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    return torch.cat([scales.view(torch.uint8), values.view(torch.uint8)])


def _unpacked(message: torch.Tensor, blocks: int) -> tuple[torch.Tensor, torch.Tensor]:
    return message[4 * blocks :].view(torch.int8), message[: 4 * blocks].clone().view(torch.float32)


def _gathered(state: Int8State, corrected: torch.Tensor, wire: Wire) -> Reduced:
    length = corrected.numel()
    values, scales = quantise(corrected, state.block, state.generator(corrected.device))
    rows = wire.all_gather(_packed(values, scales))
    mean = torch.zeros_like(values, dtype=torch.float32)
    finite = True
    for row in rows:
        their_values, their_scales = _unpacked(row, scales.numel())
        finite = finite and is_finite(their_scales)
        mean += dequantise(their_values, their_scales)
    return Reduced((mean / state.ranks)[:length], dequantise(values, scales)[:length], finite)


def _two_shot(state: Int8State, corrected: torch.Tensor, wire: Wire) -> Reduced:
    length, ranks, block = corrected.numel(), state.ranks, state.block
    padded = torch.nn.functional.pad(corrected, (0, -length % (ranks * block)))
    generator = state.generator(corrected.device)
    values, scales = quantise(padded, block, generator)
    share_blocks = scales.numel() // ranks
    messages = [_packed(v, s) for v, s in zip(values.chunk(ranks), scales.chunk(ranks), strict=True)]
    share = torch.zeros(share_blocks * block, dtype=torch.float32, device=corrected.device)
    for row in wire.all_to_all(torch.stack(messages)):
        share += dequantise(*_unpacked(row, share_blocks))
    share /= ranks
    again, again_scales = quantise(share, block, generator)
    rows = wire.all_gather(_packed(again, again_scales))
    parts = [_unpacked(row, share_blocks) for row in rows]
    contributed = dequantise(values, scales)
    mine = contributed.view(ranks, -1)[wire.rank]
    mine -= ranks * (share - dequantise(again, again_scales))
    mean = torch.cat([dequantise(v, s) for v, s in parts])
    return Reduced(mean[:length], contributed[:length], all(is_finite(s) for _, s in parts))
