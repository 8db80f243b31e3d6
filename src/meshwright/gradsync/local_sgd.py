"""Local SGD: step alone, average parameters every H steps; post-local SGD averages gradients at first."""

from __future__ import annotations

from typing import Any

from meshwright.errors import InputError
from meshwright.gradsync.averaging import average_gradients, average_parameters
from meshwright.gradsync.group import Group
from meshwright.gradsync.names import Parameters
from meshwright.messages import N_, Text


def checked_period(period: int) -> int:
    """A period of at least one step."""
    if period < 1:
        raise InputError(
            Text(N_("a period of {period} steps between averages is none"), period=period),
            where="period",
            fix=Text(N_("give 1 to average every step, or more")),
        )
    return period


class LocalSGD:
    """Every `period` steps replace the parameters by their mean; before `start`, average gradients at every step.

        sync = LocalSGD(model, period=8, start=200)   # model not wrapped in DDP
        loss.backward()
        sync.before_step()                            # gradients, while warming up
        optimizer.step()
        sync.after_step()                             # parameters, when due

    `start=0` is local SGD, a later one post-local SGD (Lin et al. 2018, arXiv 1808.07217). A node group as `group`
    and a second instance with a longer period over all ranks give the hierarchical form. Optimizer states stay local.
    """

    def __init__(self, parameters: Parameters, *, period: int, start: int = 0, group: Group = None) -> None:
        self.parameters = parameters if hasattr(parameters, "parameters") else list(parameters)
        self.period = checked_period(period)
        self.start = start
        self.group = group
        self.step = 0
        self.bytes_sent = 0  # payload that this rank handed to collectives

    @property
    def warming_up(self) -> bool:
        """Whether gradients are still averaged at every step."""
        return self.step < self.start

    def before_step(self, weight: float | None = None) -> None:
        """Between the backward pass and the optimizer."""
        if self.warming_up:
            self.bytes_sent += average_gradients(self.parameters, self.group, weight=weight).nbytes

    def after_step(self, weight: float | None = None) -> bool:
        """After the optimizer: average parameters when due. Returns whether all ranks hold the same ones now."""
        warm = self.warming_up
        self.step += 1
        if warm:
            return True
        due = (self.step - self.start) % self.period == 0
        if due:
            self.bytes_sent += average_parameters(self.parameters, self.group, weight=weight).nbytes
        return due

    def state_dict(self) -> dict[str, Any]:
        """Where in the schedule it stands."""
        return {"step": self.step, "bytes_sent": self.bytes_sent}

    def load_state_dict(self, state: dict[str, Any], reshard: str = "average") -> None:
        """Go on from there; nothing in it belongs to one rank, so another world size changes nothing."""
        self.step, self.bytes_sent = state["step"], state["bytes_sent"]
