"""From the options of a verb to the arguments of the api."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from meshwright.cli.output import Screen
from meshwright.errors import InputError
from meshwright.files import read_stdin
from meshwright.messages import N_, Text

if TYPE_CHECKING:
    from meshwright.spec.plan import Problem

_JOB = ("seq_len", "global_batch", "precision", "optimizer", "tokens", "software", "price")
_LARGEST_INPUT = 8 * 2**20
_STAGES = {"0": "none", "1": "zero1", "2": "zero2", "3": "zero3"}


def problem_of(screen: Screen, options: dict[str, Any]) -> Problem:
    """Take model, cluster and job out of `options`; a missing model on a terminal gets a hint, not a wait."""
    from meshwright import api

    model = options.pop("model", None)
    hint = "cat config.json | meshwright plan - --cluster …"
    text = read_stdin(largest=_LARGEST_INPUT, hint=hint) if model == "-" else None
    job = {name: options.pop(name, None) for name in _JOB}
    return api.problem(
        model=model, cluster=options.pop("cluster", None), settings=screen.settings, model_text=text, **job
    )


def with_assumptions(problem: Problem, assumed: tuple[Text, ...]) -> Problem:
    """The problem with more assumptions."""
    return dataclasses.replace(problem, assumptions=(*problem.assumptions, *assumed))


def sharding_of(options: dict[str, Any], *, many: bool = False) -> Any:
    """`--zero` as a sharding name (or several)."""
    value = options.pop("zero", None)
    if value is None:
        return None
    names = []
    for part in str(value).lower().split(","):
        stage = part.strip().removeprefix("zero-").removeprefix("zero")
        if stage not in _STAGES:
            raise InputError(
                Text(N_("'{value}' is not a ZeRO stage"), value=part[:40]),
                where="--zero",
                fix=Text(N_("choose one of {names}"), names="0, 1, 2, 3"),
            )
        names.append(_STAGES[stage])
    if many:
        return tuple(names)
    if len(names) > 1:
        raise InputError(
            Text(N_("one strategy has one ZeRO stage")),
            where="--zero",
            fix=Text(N_("choose one of {names}"), names=value),
        )
    return names[0]


CONSTRAINTS = (
    "framework", "tensor", "pipeline", "virtual", "context", "expert", "expert_tensor", "data", "micro_batch",
    "shard", "recompute", "recompute_ops", "schedule", "offload", "max_memory_fraction",
)  # fmt: skip


def constraints_of(screen: Screen, options: dict[str, Any]) -> Any:
    """Take the constraints of a search out of `options`."""
    from meshwright import api

    given = {name: options.pop(name, None) for name in CONSTRAINTS}
    return api.constraints(screen.settings, sharding=sharding_of(options, many=True), **given)


FAILURES = ("failures", "rate", "mtti", "storage", "write", "read")
SAVING = ("policy", "interval", "steps", "recovery", "spare_kind", "spare_nodes", "repair", "slowdown", "kept",
          "hook_bytes", "measured", "trials")  # fmt: skip


def resilience_of(options: dict[str, Any]) -> tuple[Any, bool]:
    """Take what is said of failures and checkpoints out of `options`, and whether anything was said of failures."""
    from meshwright import api

    given = {name: options.pop(name, None) for name in (*FAILURES, *SAVING)}
    log = options.pop("incidents", None)
    study = None if log is None else api.resilience_incidents(log)
    said = study is not None or any(given[name] is not None for name in FAILURES)
    return api.resilience_options(incidents=study, **given), said
