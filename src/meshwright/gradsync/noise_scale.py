"""Gradient noise scale while training, from norms before and after the reduction: data parallelism has both."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from meshwright.errors import InputError
from meshwright.formulas.noise import gradient_noise, gradient_signal, simple_noise_scale
from meshwright.gradsync.group import Group, summed, world_size
from meshwright.messages import N_, Text

Hook = Callable[[Any, dist.GradBucket], Any]


@dataclass(slots=True)
class Smoothed:
    """Exponential average without the pull towards its start."""

    decay: float
    total: float = 0.0
    weight: float = 0.0

    def add(self, value: float) -> None:
        """One more observation."""
        self.total = self.decay * self.total + (1 - self.decay) * value
        self.weight = self.decay * self.weight + (1 - self.decay)

    @property
    def value(self) -> float | None:
        """The average so far."""
        return self.total / self.weight if self.weight else None


class GradientNoiseScale:
    """Smooths signal |G|² and noise tr(Σ) separately; their quotient estimates the critical batch.

        noise = GradientNoiseScale(group)
        noise.update(local_sq, global_sq, small=samples_of_this_rank, large=samples_of_all)
        noise.critical_batch

    `local_sq` is the squared norm of this rank's mean gradient, `global_sq` that of the mean over ranks, both before
    any lossy compression. With DDP, `watch` a hook to have both measured.
    """

    def __init__(self, group: Group = None, *, decay: float = 0.99) -> None:
        self.group = group
        self.signal = Smoothed(decay)
        self.noise = Smoothed(decay)
        self._local_sq = 0.0
        self._reduced: list[Any] = []

    def update(self, local_sq: float, global_sq: float, small: float, large: float) -> None:
        """Add one step; `small` samples behind the local gradient, `large` behind the global one."""
        if not 0 < small < large:
            raise InputError(
                Text(N_("two batch sizes are needed, not {small} and {large}"), small=str(small), large=str(large)),
                where="GradientNoiseScale.update",
                fix=Text(N_("compare a rank's gradient with the mean of several ranks, or of several micro-batches")),
            )
        local_sq = summed([local_sq], self.group)[0] / world_size(self.group)
        self.signal.add(gradient_signal(large, small, global_sq, local_sq))
        self.noise.add(gradient_noise(large, small, global_sq, local_sq))

    @property
    def critical_batch(self) -> float | None:
        """B_simple in samples; None while the estimate of |G|² is not positive (too noisy: keep collecting)."""
        signal, noise = self.signal.value, self.noise.value
        if signal is None or noise is None or signal <= 0:
            return None
        return simple_noise_scale(noise, signal)

    def watch(self, hook: Hook) -> Hook:
        """The DDP hook with both norms taken on the way; call `update_watched` after each reducing backward pass.

        DDP hands the hook the local mean; what comes back is taken for the mean over ranks, so a lossy hook bends it.
        """

        # DDP compares the annotations of a hook with its own types, so this file keeps them as types, not as strings.
        def watched(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
            self._local_sq += float(bucket.buffer().detach().double().square().sum())
            return hook(state, bucket).then(self._note)

        return watched

    def _note(self, future: Any) -> torch.Tensor:
        reduced = future.value()
        reduced = reduced[0] if isinstance(reduced, list) else reduced
        self._reduced.append(reduced.detach().double().square().sum())
        return reduced

    def update_watched(self, small: float, large: float) -> None:
        """Add what the watched hook saw since the last call."""
        global_sq = float(sum(self._reduced))
        local_sq, self._local_sq, self._reduced = self._local_sq, 0.0, []
        self.update(local_sq, global_sq, small, large)

    def state_dict(self) -> dict[str, Any]:
        """Both averages."""
        return {n: (s.total, s.weight) for n, s in (("signal", self.signal), ("noise", self.noise))}

    def load_state_dict(self, state: dict[str, Any], reshard: str = "average") -> None:
        """Go on from there; both averages are the same on all ranks, so another world size changes nothing."""
        self.signal.total, self.signal.weight = state["signal"]
        self.noise.total, self.noise.weight = state["noise"]
