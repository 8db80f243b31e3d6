"""State of a communication hook: the group, the options, what each parameter left behind, and bytes counted.

Everything that lasts is keyed by parameter name, and saved per rank: `state_dict()` on every rank, and on loading
either the rank's own (same world size) or all of them with `reshard`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from meshwright.errors import InputError
from meshwright.gradsync.error_feedback import ByName
from meshwright.gradsync.names import Parameters, named
from meshwright.gradsync.runner import start
from meshwright.gradsync.wire import Wire, WireCount
from meshwright.messages import N_, Text


class CostlierThanDense(UserWarning):
    """A compressing hook that sends more bytes than it saves."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """A gradient bucket as the hooks see it: the flat buffer and whose gradients lie in it."""

    buffer: torch.Tensor
    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]
    is_last: bool

    @property
    def lengths(self) -> list[int]:
        """Elements of each parameter."""
        return [shape.numel() for shape in self.shapes]

    def pieces(self, flat: torch.Tensor) -> dict[str, torch.Tensor]:
        """A flat tensor of the bucket's length cut by parameter, each in its shape."""
        parts = flat.split(self.lengths)
        return {n: p.view(s) for n, p, s in zip(self.names, parts, self.shapes, strict=True)}


class CommHookState:
    """What every hook needs. `parameters` (a module or name-tensor pairs) gives the names; `register_comm_hook` too.

    `error_feedback`: keep what compression left out. `start_iter`: steps of plain all-reduce first. `algorithm`: for
    the all-reduce inside ("backend" is torch's own). `local`: ranks per node.
    `timeout`: seconds after which a silent peer is an error (default: the group's).
    """

    def __init__(
        self,
        process_group: dist.ProcessGroup | None = None,
        *,
        parameters: Parameters | None = None,
        error_feedback: bool = True,
        start_iter: int = 0,
        seed: int = 0,
        algorithm: str = "backend",
        local: int | None = None,
        timeout: float | None = None,
    ) -> None:
        self.process_group = process_group
        self.error_feedback = error_feedback
        self.start_iter = start_iter
        self.seed = seed
        self.algorithm = algorithm
        self.local = local
        self.timeout = timeout
        self.step = 0
        self.errors = ByName()
        self.count = WireCount()
        self._warned = False
        self._names: dict[int, str] = {}
        self._alive: list[torch.Tensor] = []  # an id names a parameter only while the parameter lives
        if parameters is not None:
            self.name_parameters(parameters)

    @property
    def group(self) -> dist.ProcessGroup:
        """The process group, the default one unless told otherwise."""
        return self.process_group if self.process_group is not None else dist.group.WORLD

    @property
    def ranks(self) -> int:
        """Members of the group."""
        return int(self.group.size())

    def name_parameters(self, parameters: Parameters) -> None:
        """Learn the names under which state is kept."""
        pairs = named(parameters)
        self._names = {id(p): name for name, p in pairs}
        self._alive = [p for _, p in pairs]

    def bucket(self, bucket: Any) -> Bucket:
        """What the hooks need of DDP's GradBucket, copied out because the object does not outlive the call."""
        if isinstance(bucket, Bucket):
            return bucket
        parameters = bucket.parameters()
        names = tuple(self._names.get(id(p), "") for p in parameters)
        if not all(names):
            raise InputError(
                Text(N_("the bucket holds parameters whose names the hook's state does not know")),
                where="CommHookState",
                fix=Text(N_("register with {call}, or give the state {argument}"),
                         call="gradsync.register_comm_hook(module, state, hook)", argument="parameters=module"),
            )  # fmt: skip
        return Bucket(bucket.buffer(), names, tuple(p.shape for p in parameters), bucket.is_last())

    def wire(self) -> Wire:
        """Collectives of the group, counted; what is not torch's own is chosen by cost."""
        return Wire(self.group, self.count, timeout=self.timeout)

    def launch(self, bucket: Bucket, body: Callable[[], torch.Tensor]) -> torch.futures.Future[torch.Tensor]:
        """Run a hook's body in the background of the group; count the bucket, and the step with its last one."""

        def counted() -> torch.Tensor:
            result = body()
            self.done(bucket)
            return result

        return start(self.group, bucket.buffer.device, counted).get_future()

    def done(self, bucket: Bucket) -> None:
        """Note that a bucket was reduced."""
        self.count.bucket(bucket.buffer.numel(), bucket.buffer.element_size(), self.ranks)
        self.step += bucket.is_last

    @property
    def warming_up(self) -> bool:
        """Whether this step is still one of plain all-reduce."""
        return self.step < self.start_iter

    def wire_stats(self) -> dict[str, float]:
        """bytes_sent, bytes_dense, ratio, calls since the state was made."""
        return self.count.as_dict()

    def warn_if_costly(self, hook: str, sent: float, bucket: Bucket) -> None:
        """Say once that a bucket goes cheaper without compression, with the numbers."""
        if self._warned or self.ranks == 1:
            return
        rival = WireCount()
        rival.bucket(bucket.buffer.numel(), bucket.buffer.element_size(), self.ranks)
        if sent < rival.bytes_dense:
            return
        self._warned = True
        text = Text(
            N_("{hook} sends {sent} bytes per rank where a dense all-reduce sends {dense}, on {ranks} ranks"),
            hook=hook, sent=f"{sent:,.0f}", dense=f"{rival.bytes_dense:,.0f}", ranks=self.ranks,
        )  # fmt: skip
        warnings.warn(str(text), CostlierThanDense, stacklevel=2)

    # --- checkpoints -------------------------------------------------------------------------------------------

    def by_name(self) -> dict[str, Any]:
        """State kept by name that is this rank's own; hooks with more than errors add theirs."""
        return {"errors": self.errors.state_dict()}

    def shared_by_name(self) -> dict[str, Any]:
        """State kept by name that is the same on all ranks."""
        return {}

    def load_shared(self, shared: Mapping[str, Any]) -> None:
        """Take over what `shared_by_name` gave."""

    def state_dict(self) -> dict[str, Any]:
        """Everything that lasts, of this rank: save it on every rank."""
        return {
            "step": self.step,
            "ranks": self.ranks,
            "rank": int(self.group.rank()),
            **self.by_name(),
            "shared": self.shared_by_name(),
        }

    def load_state_dict(
        self, state: Mapping[str, Any] | Sequence[Mapping[str, Any]], *, strict: bool = True, reshard: str = ""
    ) -> None:
        """Take over this rank's saved state, or those of all ranks for another world size.

        `reshard`: "average" gives every rank the mean of the saved errors, so that what the averaged gradient still
        lacks, the sum of the errors over the number of ranks, stays the same; "zero" forgets them. `strict`: a
        parameter without a saved error is an error.
        """
        states = [state] if isinstance(state, Mapping) else list(state)
        own = self._own(states)
        errors = own["errors"] if own is not None else self._resharded(states, reshard)
        missing = sorted(set(self._names.values()) - set(errors)) if errors else []
        if strict and missing:
            raise InputError(
                Text(N_("no saved error feedback for {names}"), names=", ".join(missing[:5])),
                where="load_state_dict",
                fix=Text(N_("load with strict=False to start those from zero")),
            )
        self.errors.load(errors)
        self.step = int(states[0]["step"])
        self.load_shared(states[0]["shared"])

    def _own(self, states: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
        """This rank's state, if the world has the size it was saved with."""
        rank = int(self.group.rank())
        return next((s for s in states if s["ranks"] == self.ranks and s["rank"] == rank), None)

    def _resharded(self, states: Sequence[Mapping[str, Any]], reshard: str) -> dict[str, torch.Tensor]:
        saved, rank = int(states[0]["ranks"]), int(self.group.rank())
        if reshard == "zero":
            return {}
        if reshard != "average":
            raise InputError(
                Text(
                    N_("the state was saved by rank {saved} of {old} and is loaded by rank {rank} of {new}"),
                    saved=int(states[0]["rank"]), old=saved, rank=rank, new=self.ranks,
                ),
                where="load_state_dict",
                fix=Text(N_("give the states of all ranks with reshard={choices}"), choices="'average' | 'zero'"),
            )  # fmt: skip
        if sorted(int(s["rank"]) for s in states) != list(range(saved)):
            raise InputError(
                Text(N_("to average, the states of all {old} ranks are needed; {given} were given"),
                     old=saved, given=len(states)),
                where="load_state_dict",
                fix=Text(N_("give the states of all ranks with reshard={choices}"), choices="'average'"),
            )  # fmt: skip
        names = states[0]["errors"]
        return {n: torch.stack([s["errors"][n].float() for s in states]).mean(0) for n in names}
