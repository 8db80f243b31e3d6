"""DiLoCo: H local steps, then one outer Nesterov step on how far the replicas went on average."""

from __future__ import annotations

from typing import Any

import torch

from meshwright.errors import InputError
from meshwright.gradsync.flat import all_reduce_coalesced_flat
from meshwright.gradsync.group import Group, world_size
from meshwright.gradsync.local_sgd import checked_period
from meshwright.gradsync.names import Parameters, named
from meshwright.messages import N_, Text


class DiLoCo:
    """Outer optimizer over local training (Douillard et al. 2023, arXiv 2311.08105).

        outer = DiLoCo(model, period=500)     # model not wrapped in DDP; any inner optimizer
        loss.backward(); optimizer.step()
        outer.after_step()

    The outer gradient is (parameters at the last synchronisation) − (mean of the parameters now), sent as `dtype`.
    With `fragments` the parameters are cut into as many parts that synchronise one after the other within a period:
    the same bytes in smaller bursts (Streaming DiLoCo, arXiv 2501.18512, without its overlap).
    """

    def __init__(
        self,
        parameters: Parameters,
        *,
        period: int,
        outer_lr: float = 0.7,
        outer_momentum: float = 0.9,
        nesterov: bool = True,
        fragments: int = 1,
        dtype: torch.dtype | None = None,
        group: Group = None,
    ) -> None:
        self.pairs = named(parameters)
        self.period = checked_period(period)
        self.fragments = _checked_fragments(fragments, period, len(self.pairs))
        self.dtype = dtype
        self.group = group
        self.step = 0
        self.bytes_sent = 0
        self.anchors = {name: p.detach().clone().requires_grad_() for name, p in self.pairs}
        self.outer = torch.optim.SGD(
            self.anchors.values(),
            lr=outer_lr,
            momentum=outer_momentum,
            nesterov=nesterov and outer_momentum > 0,
        )

    def after_step(self) -> bool:
        """After the inner optimizer. Returns whether a fragment was synchronised."""
        self.step += 1
        due = [f for f in range(self.fragments) if (self.step + f * self.period // self.fragments) % self.period == 0]
        for fragment in due:
            self._synchronise(self.pairs[fragment :: self.fragments])
        return bool(due)

    def _synchronise(self, pairs: list[tuple[str, torch.Tensor]]) -> None:
        self.outer.zero_grad(set_to_none=True)  # the optimizer passes over anchors without a gradient
        with torch.no_grad():
            for name, parameter in pairs:
                self.anchors[name].grad = self.anchors[name] - parameter
        gradients = [self.anchors[name].grad for name, _ in pairs]
        self.bytes_sent += all_reduce_coalesced_flat(
            [g for g in gradients if g is not None], self.group, factor=1 / world_size(self.group), dtype=self.dtype
        ).nbytes
        self.outer.step()
        with torch.no_grad():
            for name, parameter in pairs:
                parameter.copy_(self.anchors[name])

    def state_dict(self) -> dict[str, Any]:
        """Schedule, parameters of the last synchronisation and outer momentum, by parameter name."""
        momentum = {n: self.outer.state[a].get("momentum_buffer") for n, a in self.anchors.items()}
        return {
            "step": self.step,
            "bytes_sent": self.bytes_sent,
            "anchors": {name: anchor.detach() for name, anchor in self.anchors.items()},
            "momentum": {name: buffer for name, buffer in momentum.items() if buffer is not None},
        }

    def load_state_dict(self, state: dict[str, Any], reshard: str = "average") -> None:
        """Go on from there; all ranks hold the same outer state, so another world size changes nothing."""
        self.step, self.bytes_sent = state["step"], state["bytes_sent"]
        with torch.no_grad():
            for name, anchor in self.anchors.items():
                anchor.copy_(state["anchors"][name])
                if name in state["momentum"]:
                    self.outer.state[anchor]["momentum_buffer"] = state["momentum"][name].clone()


def _checked_fragments(fragments: int, period: int, parameters: int) -> int:
    most = min(period, parameters)
    if not 1 <= fragments <= most:
        raise InputError(
            Text(N_("{fragments} fragments cannot take turns in {period} steps"), fragments=fragments, period=period),
            where="fragments",
            fix=Text(N_("choose 1 to {most}"), most=most),
        )
    return fragments
