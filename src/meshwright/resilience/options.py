"""What people write about failures and checkpoints, understood: names, durations, shares and rates."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from meshwright.catalog import failures as known
from meshwright.catalog.constants import names
from meshwright.errors import InputError, UsageError
from meshwright.messages import N_, Text
from meshwright.resilience.failures import given_rate
from meshwright.resilience.situation import Options
from meshwright.spec.resilience import MODES, SPARES, FailureSource
from meshwright.units import Kind, parse_duration, parse_quantity

SECONDS_PER_DAY = 86400.0
_FLAGS = {"mtti": "--mtti", "repair": "--repair", "interval": "--interval", "write": "--storage-write",
          "read": "--storage-read", "slowdown": "--slow", "hook_bytes": "--hook-bytes", "rate": "--rate",
          "measured": "--measured",
          "steps": "--steps", "spare_nodes": "--spare-nodes", "kept": "--keep", "trials": "--trials"}  # fmt: skip
_BOUNDS: Mapping[str, tuple[float, float]] = {
    "steps": (1, 10**7), "spare_nodes": (0, 10**5), "kept": (1, 10**4), "trials": (10, 20_000), "slowdown": (0, 10),
    "rate": (1e-4, 1e4), "hook_bytes": (0, 64), "measured": (0.01, 1), "interval": (1e-3, 30 * SECONDS_PER_DAY),
    "mtti": (1.0, 3650 * SECONDS_PER_DAY), "repair": (1.0, 365 * SECONDS_PER_DAY), "write": (1e3, 1e15),
    "read": (1e3, 1e15),
}  # fmt: skip
_KINDS: Mapping[str, Kind] = {"slowdown": "fraction", "measured": "fraction", "write": "bandwidth",
                              "read": "bandwidth", "rate": "count",
                              "hook_bytes": "count"}  # fmt: skip


def options(given: Mapping[str, Any], incidents: FailureSource | None = None) -> Options:
    """Options from what was given (None: not given); rates of an incident log win over a published one.

    Raises `InputError` or `UsageError` with the nearest fix.
    """
    values = {name: value for name, value in given.items() if value is not None}
    fields: dict[str, Any] = {"source": _source(values, incidents)}
    for name, legal in (("policy", MODES), ("spare_kind", SPARES), ("recovery", _recoveries())):
        if name in values:
            fields["mode" if name == "policy" else name] = chosen(values.pop(name), legal, _flag(name))
    if "storage" in values:
        fields["storage"] = known.storage(str(values.pop("storage")), 1, 1.0).id
    for name in ("mtti", "repair", "interval"):
        if name in values:
            fields[name] = bounded(parse_duration(values.pop(name), where=_flag(name)), name)
    for name in ("write", "read", "slowdown", "hook_bytes", "measured"):
        if name in values:
            fields[name] = bounded(parse_quantity(values.pop(name), _KINDS[name], where=_flag(name)), name)
    for name in ("steps", "spare_nodes", "kept", "trials"):
        if name in values:
            number = bounded(parse_quantity(values.pop(name), "count", where=_flag(name)), name)
            fields[name] = _whole(number, name)
    if fields.get("interval") is not None and fields.get("steps") is not None:
        raise UsageError(
            Text(N_("the interval is given twice")), where="--interval --steps", fix=Text(N_("leave one of them out"))
        )
    return Options(**{name: value for name, value in fields.items() if value is not None})


def _recoveries() -> tuple[str, ...]:
    return tuple(name for name in names("recovery") if name != "common")


def _source(values: dict[str, Any], incidents: FailureSource | None) -> FailureSource | None:
    name, rate = values.pop("failures", None), values.pop("rate", None)
    given = [flag for flag, value in (("--failures", name), ("--rate", rate), ("--incidents", incidents),
                                      ("--mtti", values.get("mtti"))) if value is not None]  # fmt: skip
    if len(given) > 1:
        raise UsageError(
            Text(N_("the failure rate is given twice")), where=" ".join(given), fix=Text(N_("leave one of them out"))
        )
    if incidents is not None:
        return incidents
    if rate is not None:
        number = bounded(parse_quantity(rate, "count", where="--rate"), "rate")
        return given_rate(number / 1000 / SECONDS_PER_DAY)
    return None if name is None else known.failure_source(str(name))


def chosen(value: Any, legal: Sequence[str], where: str) -> str:
    """`value` if it is one of the legal words."""
    text = str(value).strip().lower()
    if text in legal:
        return text
    close = difflib.get_close_matches(text, legal, n=3, cutoff=0.5) or legal
    raise InputError(
        Text(N_("'{value}' is not known here"), value=text[:60]),
        where=where,
        fix=Text(N_("choose one of {names}"), names=", ".join(close)),
    )


def bounded(number: float, name: str) -> float:
    """`number` inside the bounds of `name`."""
    low, high = _BOUNDS[name]
    if low <= number <= high:
        return number
    raise InputError(
        Text(N_("{value} is outside what makes sense here: from {low} to {high}"), value=f"{number:,.10g}",
             low=f"{low:,.10g}", high=f"{high:,.10g}"),
        where=_flag(name),
        fix=Text(N_("the nearest legal value is {value}"), value=f"{low if number < low else high:,.10g}"),
    )  # fmt: skip


def _whole(number: float, name: str) -> int:
    if number != int(number):
        raise InputError(
            Text(N_("{value} is not a whole number"), value=f"{number:,.10g}"),
            where=_flag(name),
            fix=Text(N_("the nearest legal value is {value}"), value=f"{max(1, round(number)):,}"),
        )
    return int(number)


def _flag(name: str) -> str:
    return _FLAGS.get(name, {"policy": "--policy", "spare_kind": "--spares", "recovery": "--recovery"}.get(name, name))
