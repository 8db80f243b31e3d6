"""Error feedback: what a compressor left out of a gradient is kept, in float32, and added to the next one.

Kept by parameter name, so that it survives when DDP rebuilds its buckets, a checkpoint, and another world size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch


class ByName:
    """One flat float32 (or other) tensor per bucket, whose pieces are known by the names of the parameters."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        self.dtype = dtype
        self._flat: dict[tuple[str, ...], torch.Tensor] = {}
        self._pieces: dict[str, torch.Tensor] = {}

    def of(self, names: Sequence[str], lengths: Sequence[int], device: torch.device) -> torch.Tensor:
        """The flat tensor of a bucket of these parameters, made of what is known of each; zero where nothing is."""
        key = tuple(names)
        flat = self._flat.get(key)
        if flat is None:
            flat = self._assemble(key, lengths, device)
        return flat

    def _assemble(self, key: tuple[str, ...], lengths: Sequence[int], device: torch.device) -> torch.Tensor:
        flat = torch.zeros(sum(lengths), dtype=self.dtype, device=device)
        for name, piece in zip(key, flat.split(list(lengths)), strict=True):
            known = self._pieces.get(name)
            if known is not None:
                piece.copy_(known.reshape(-1))
            self._pieces[name] = piece
        taken = set(key)
        self._flat = {k: f for k, f in self._flat.items() if not taken.intersection(k)}  # the buckets were rebuilt
        self._flat[key] = flat
        return flat

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Copies of the pieces, by name."""
        return {name: piece.detach().clone() for name, piece in self._pieces.items()}

    def load(self, pieces: Mapping[str, torch.Tensor]) -> None:
        """Take over the pieces; buckets are put together anew when they come."""
        self._flat.clear()
        self._pieces = {name: piece.detach().to(self.dtype).reshape(-1).clone() for name, piece in pieces.items()}
