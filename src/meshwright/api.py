"""The behaviour of the product: one function per verb, with typed arguments.

Shells (command line, web, MCP) call these and render what they return; nothing here prints. The engine and the
catalogue are imported inside the functions, so that importing `api` costs nothing.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from meshwright.errors import InputError, UnknownNameError, UsageError
from meshwright.messages import N_, Text
from meshwright.settings import CLUSTER_OVERRIDES, Settings
from meshwright.spec.job import OPTIMIZERS, PRECISIONS, Job
from meshwright.spec.plan import Comparison, Explanation, Plan, Problem, Scaling, Sizing
from meshwright.spec.strategy import (
    DISPATCHERS,
    FRAMEWORKS,
    GRAPHS,
    OFFLOADS,
    RECOMPUTES,
    SCHEDULES,
    SHARDINGS,
    Strategy,
)
from meshwright.units import parse_quantity

if TYPE_CHECKING:
    from meshwright.bench.device import DeviceBench
    from meshwright.catalog.verbs import Added, Row, Shown
    from meshwright.engine.explain import Subject
    from meshwright.engine.search.space import Constraints
    from meshwright.frameworks.check import Checked
    from meshwright.frameworks.convert import Converted
    from meshwright.frameworks.records import Exported, Imported
    from meshwright.gradsync.measure import Bench
    from meshwright.resilience.objective import Share
    from meshwright.resilience.situation import Options
    from meshwright.spec.cluster import Cluster
    from meshwright.spec.estimate import Estimate, Refusal
    from meshwright.spec.finding import Finding
    from meshwright.spec.hook_advice import HookAdvice
    from meshwright.spec.model import ModelSpec
    from meshwright.spec.resilience import (
        CheckpointFolder,
        IncidentStudy,
        PolicyComparison,
        Replan,
        ResiliencePlan,
        SpotAnswer,
    )  # fmt: skip
    from meshwright.validate import Validation

Progress = Callable[[float, str], None]
Goal = Literal["fastest", "memory", "goodput"]

GOALS: tuple[str, ...] = ("fastest", "memory", "goodput")  # on a fixed cluster cost follows time
SIZE_GOALS: tuple[str, ...] = ("fewest", "cheapest")
SCALE_MODES: tuple[str, ...] = ("fixed-batch", "growing-batch")
BENCH_SECONDS = 120.0
DEFAULT_TOKENS_PER_STEP = 4 * 2**20

_CATEGORIES: dict[str, tuple[str, ...]] = {
    "framework": FRAMEWORKS,
    "sharding": SHARDINGS,
    "schedule": SCHEDULES,
    "recompute": RECOMPUTES,
    "offload": OFFLOADS,
    "dispatcher": DISPATCHERS,
    "graphs": GRAPHS,
    "precision": PRECISIONS,
    "optimizer": OPTIMIZERS,
}
_DEGREES = ("tensor", "pipeline", "virtual", "context", "expert", "expert_tensor", "data", "micro_batch")
_FLAGS = {
    "tensor": "--tp", "pipeline": "--pp", "virtual": "--vpp", "context": "--cp", "expert": "--ep",
    "expert_tensor": "--etp", "data": "--dp", "micro_batch": "--mbs", "shard": "--hsdp", "sharding": "--zero",
}  # fmt: skip
_BOUNDS: dict[str, tuple[float, float]] = {
    "seq_len": (1, 2**27),
    "global_batch": (1, 10**8),
    "micro_batch": (1, 2**16),
    "devices": (1, 2**22),
    "tokens": (1, 1e18),
    "price": (1e-4, 1e4),
    "data_time": (0, 86400),
    "expert_imbalance": (1, 1e4),
    "deadline": (1e-3, 1e6),
    "budget": (1, 1e15),
    "max_memory_fraction": (0.05, 1.0),
    "top": (1, 1000),
    "bench_seconds": (1, 300),
    "processes": (1, 1024),
    "ranks": (1, 64),
    "rounds": (1, 1000),
    "payload": (4, 2**31),
}


# ---------------------------------------------------------------------------------------------- values


def choice(value: Any, kind: str, *, where: str = "") -> str:
    """`value` if it is one of the words of `kind`, else an error that names the closest."""
    legal = _CATEGORIES[kind]
    text = str(value).strip().lower()
    if text in legal:
        return text
    close = difflib.get_close_matches(text, legal, n=3, cutoff=0.6)  # not tf32 for int3
    raise InputError(
        Text(N_("'{value}' is not a {kind} that is known here"), value=str(value)[:60], kind=kind.replace("_", " ")),
        where=where or f"--{kind}",
        fix=(
            Text(N_("did you mean {names}?"), names=", ".join(close))
            if close
            else Text(N_("choose one of {names}"), names=", ".join(legal))
        ),
    )


def bounded(value: Any, name: str, *, where: str = "", kind: Any = "count") -> float:
    """A number inside the bounds stated for `name`, else an error that says the nearest legal value."""
    low, high = _BOUNDS.get(name, (1, 2**22))
    number = parse_quantity(value, kind, where=where)
    if not low <= number <= high:
        nearest = low if number < low else high
        raise InputError(
            Text(
                N_("{value} is outside what makes sense here: from {low} to {high}"),
                value=f"{number:,.10g}",
                low=f"{low:,.10g}",
                high=f"{high:,.10g}",
            ),
            where=where or name,
            fix=Text(N_("the nearest legal value is {value}"), value=f"{nearest:,.10g}"),
        )
    return number


def whole(value: Any, name: str, *, where: str = "") -> int:
    """A whole number inside the bounds stated for `name`."""
    number = bounded(value, name, where=where)
    if number != int(number):
        raise InputError(
            Text(N_("{value} is not a whole number"), value=f"{number:,.10g}"),
            where=where or name,
            fix=Text(N_("the nearest legal value is {value}"), value=f"{max(1, round(number)):,}"),
        )
    return int(number)


# ---------------------------------------------------------------------------------------------- problem


def problem(
    *,
    model: str | Path | ModelSpec | None = None,
    cluster: str | Path | Cluster | None = None,
    seq_len: int | str | None = None,
    global_batch: int | str | None = None,
    precision: str | None = None,
    optimizer: str | None = None,
    tokens: float | str | None = None,
    software: str | None = None,
    price: float | str | None = None,
    model_text: str | bytes | None = None,
    settings: Settings | None = None,
) -> Problem:
    """Model, cluster and job, resolved. Arguments win over `settings`; every default becomes an assumption.

    `model_text` is the content of a config.json (or a TOML architecture) where `model` is `-`.
    """
    settings = settings or Settings()
    spec = _model(model, settings, model_text)
    hardware = _cluster(cluster, settings, price)
    assumptions = [*spec.assumptions, *(Text(N_("{note}"), note=note) for note in hardware.assumptions)]
    given = {
        "seq_len": seq_len,
        "global_batch": global_batch,
        "precision": precision,
        "optimizer": optimizer,
        "tokens": tokens,
        "software": software,
    }
    values = {**settings.section("job"), **{key: value for key, value in given.items() if value is not None}}
    job = _job(values, spec, hardware, assumptions)
    return Problem(model=spec, cluster=hardware, job=job, assumptions=tuple(assumptions))


def _model(given: str | Path | ModelSpec | None, settings: Settings, text: str | bytes | None) -> ModelSpec:
    from meshwright.catalog import models

    if given is None:
        given = settings.get("model", "name") or _beside(settings.get("model", "path"), settings)
    if given is None:
        raise UsageError(
            Text(N_("no model is given")),
            where="MODEL",
            fix=Text(N_("name one, e.g. {examples}"), examples="llama-3.1-70b, ./config.json"),
        )
    return models.model(str(given), text=text) if isinstance(given, (str, Path)) else given


def _cluster(given: str | Path | Cluster | None, settings: Settings, price: Any) -> Cluster:
    from meshwright.catalog import hardware

    if given is None:
        given = settings.get("cluster", "name") or _beside(settings.get("cluster", "path"), settings)
    if given is None:
        raise UsageError(
            Text(N_("no cluster is given")),
            where="--cluster",
            fix=Text(N_("name one, e.g. {examples}"), examples="--cluster h100-sxm:512"),
        )
    overrides = {name: settings.get("cluster", name) for name in CLUSTER_OVERRIDES}
    price = settings.get("cluster", "price") if price is None else price
    if price is not None:
        overrides["price_per_device_hour"] = bounded(price, "price", where="--price", kind="dollars")
    if not isinstance(given, (str, Path)):
        return (
            given
            if price is None
            else dataclasses.replace(given, price_per_device_hour=overrides["price_per_device_hour"])
        )
    return hardware.cluster(str(given), **overrides)


def _beside(path: Any, settings: Settings) -> str | None:
    if path is None or settings.path is None:
        return None if path is None else str(path)
    return str(settings.path.parent / str(path))


def _job(values: Mapping[str, Any], model: ModelSpec, cluster: Cluster, assumptions: list[Text]) -> Job:
    fields: dict[str, Any] = {}
    if values.get("seq_len") is None:
        fields["seq_len"] = min(model.max_positions or 4096, 8192)
        assumptions.append(Text(N_("sequences of {value} tokens, because none was given"), value=fields["seq_len"]))
    else:
        fields["seq_len"] = whole(values["seq_len"], "seq_len", where="--seq")
    if values.get("global_batch") is None:
        fields["global_batch"] = default_batch(fields["seq_len"], cluster.devices)
        assumptions.append(
            Text(
                N_("a global batch of {value} sequences ({tokens} tokens a step), because none was given"),
                value=fields["global_batch"],
                tokens=f"{fields['global_batch'] * fields['seq_len']:,}",
            )
        )
    else:
        fields["global_batch"] = whole(values["global_batch"], "global_batch", where="--gbs")
    for name, default in (("precision", "bf16"), ("optimizer", "adamw")):
        if values.get(name) is None:
            fields[name] = default
            assumptions.append(Text(N_("{name} {value}, because none was given"), name=name, value=default))
        else:
            fields[name] = choice(values[name], name)
    if values.get("tokens") is not None:
        fields["tokens"] = bounded(values["tokens"], "tokens", where="--tokens")
    if values.get("data_time") is not None:
        fields["data_time"] = bounded(values["data_time"], "data_time", where="job.data_time", kind="seconds")
    if values.get("expert_imbalance") is not None:
        fields["expert_imbalance"] = bounded(
            values["expert_imbalance"], "expert_imbalance", where="job.expert_imbalance"
        )
    if values.get("dropout") is not None:
        fields["dropout"] = flag(values["dropout"], where="job.dropout")
    if values.get("software") is not None:
        fields["software"] = str(values["software"])
    return Job(**fields)


def flag(value: Any, *, where: str) -> bool:
    """True or False, also from the words true, false, yes, no, on, off."""
    if isinstance(value, bool):
        return value
    words = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
    if str(value).lower() not in words:
        raise InputError(
            Text(N_("'{value}' is neither true nor false"), value=str(value)[:60]),
            where=where,
            fix=Text(N_("choose one of {names}"), names="true, false"),
        )
    return words[str(value).lower()]


def default_batch(seq_len: int, devices: int) -> int:
    """Sequences of about four million tokens, at least one for eight devices, that split over the devices.

    A power of two, times the odd part of the device count: 28 racks of 72 take 504 sequences, which 512 would not.
    """
    from meshwright.engine.search.legal import odd_part

    least = max(devices / 8, 1)
    wanted = max(DEFAULT_TOKENS_PER_STEP / seq_len, least)
    odd = odd_part(devices)
    batch = odd * 2 ** max(round(math.log2(wanted / odd)), 0)
    return int(batch if batch >= least else 2 * batch)


# ---------------------------------------------------------------------------------------------- strategy


def strategy(problem: Problem, settings: Settings | None = None, **given: Any) -> tuple[Strategy, tuple[Text, ...]]:
    """The strategy named by `given` (field names of `Strategy`) over `settings`, with what was assumed to fill it."""
    values = {**(settings or Settings()).section("strategy"), **{k: v for k, v in given.items() if v is not None}}
    fields: dict[str, Any] = {}
    assumptions: list[Text] = []
    for name, value in values.items():
        fields[name] = _strategy_field(name, value)
    if "framework" not in fields:
        fields["framework"] = _first_framework(fields, problem)
        assumptions.append(
            Text(N_("{name} {value}, because none was given"), name="framework", value=fields["framework"])
        )
    _fill(fields, problem, assumptions)
    return Strategy(**fields), tuple(assumptions)


def _fill(fields: dict[str, Any], problem: Problem, assumptions: list[Text]) -> None:
    _fill_categories(fields, problem, assumptions)
    _fill_degrees(fields, problem, assumptions)
    # As the search sets them, so that the printed degrees of a plan give the same estimate.
    fields.setdefault("sequence_parallel", fields.get("tensor", 1) > 1)
    fields.setdefault("overlap_expert", fields["framework"] == "megatron" and fields.get("expert", 1) > 1)
    fields.setdefault("graphs", "partial" if fields["framework"] == "megatron" and problem.model.is_moe else "none")


def _first_framework(given: Mapping[str, Any], problem: Problem) -> str:
    """The first framework of the device that would run what was given: ZeRO-3 alone, say, does not mean Megatron."""
    from meshwright.engine.search.space import Constraints, frameworks_for
    from meshwright.rules.base import RuleContext
    from meshwright.rules.check import check

    names = frameworks_for(problem.cluster, Constraints())
    for name in names:
        fields = {**given, "framework": name}
        _fill(fields, problem, [])
        context = RuleContext(problem.model, problem.cluster, problem.job, Strategy(**fields))
        if not any(finding.severity == "error" for finding in check(context)):
            return name
    return names[0]


def _strategy_field(name: str, value: Any) -> Any:
    where = _FLAGS.get(name, f"--{name.replace('_', '-')}")
    if name in _DEGREES:
        return whole(value, "micro_batch" if name == "micro_batch" else "devices", where=where)
    if name == "shard":
        return 0 if value == 0 else whole(value, "devices", where=where)
    if name in _CATEGORIES:
        return choice(value, name, where=where)
    if name == "recompute_ops":
        return recompute_operators(value.split(",") if isinstance(value, str) else value)
    if name == "layers_per_stage":
        parts = value.split(",") if isinstance(value, str) else value
        return tuple(whole(part, "devices", where=where) for part in parts)
    return flag(value, where=where)


def recompute_operators(names: Sequence[str]) -> tuple[str, ...]:
    """Groups of operators for selective recomputation; other spellings become the engine's."""
    from meshwright.engine.activations import recompute_groups
    from meshwright.engine.operators import RECOMPUTE_GROUPS

    groups = recompute_groups(Strategy(recompute_ops=tuple(str(name).strip() for name in names)))
    for name, group in zip(names, groups, strict=True):
        if group not in RECOMPUTE_GROUPS:
            close = difflib.get_close_matches(group, RECOMPUTE_GROUPS, n=3, cutoff=0.4) or RECOMPUTE_GROUPS
            raise InputError(
                Text(N_("'{name}' cannot be recomputed selectively"), name=str(name)[:60]),
                where="--recompute-ops",
                fix=Text(N_("choose one of {names}"), names=", ".join(close)),
            )
    return tuple(dict.fromkeys(groups))


def _fill_categories(fields: dict[str, Any], problem: Problem, assumptions: list[Text]) -> None:
    def assume(name: str, value: Any) -> None:
        fields[name] = value
        assumptions.append(Text(N_("{name} {value}, because none was given"), name=name, value=value))

    if "sharding" not in fields:
        assume("sharding", "zero1" if fields["framework"] == "megatron" else "zero3")
    if "recompute" not in fields:
        if "recompute_ops" in fields:
            fields["recompute"] = "selective"
        else:
            assume("recompute", "none")
    if "schedule" not in fields:
        fields["schedule"] = "interleaved" if fields.get("virtual", 1) > 1 else "1f1b"
    if "micro_batch" not in fields:
        assume("micro_batch", 1)
    fields.setdefault("precision", problem.job.precision)


def _fill_degrees(fields: dict[str, Any], problem: Problem, assumptions: list[Text]) -> None:
    devices = problem.cluster.devices
    model_ranks = fields.get("tensor", 1) * fields.get("pipeline", 1) * fields.get("context", 1)
    _fill_expert_tensor(fields, problem, assumptions)
    if "data" in fields:
        used = model_ranks * fields["data"]
        if used != devices:
            raise InputError(
                Text(
                    N_("tp·pp·cp·dp = {used}, but the cluster has {devices} devices"),
                    used=used,
                    devices=devices,
                ),
                where="--dp",
                fix=_mesh_fix(model_ranks, devices, problem.cluster),
            )
        return
    if devices % model_ranks:
        raise InputError(
            Text(
                N_("{devices} devices cannot be divided into groups of tp·pp·cp = {ranks}"),
                devices=devices,
                ranks=model_ranks,
            ),
            where="--tp --pp --cp",
            fix=_mesh_fix(model_ranks, devices, problem.cluster),
        )
    fields["data"] = devices // model_ranks


def _fill_expert_tensor(fields: dict[str, Any], problem: Problem, assumptions: list[Text]) -> None:
    if problem.model.is_moe and "expert_tensor" not in fields:  # Megatron's default, also without expert parallelism
        fields["expert_tensor"] = fields.get("tensor", 1)
        if fields["expert_tensor"] > 1:
            assumptions.append(
                Text(N_("{name} {value}, because none was given"), name="expert tensor", value=fields["expert_tensor"])
            )


def _mesh_fix(model_ranks: int, devices: int, cluster: Cluster) -> Text:
    if devices % model_ranks == 0:
        return Text(N_("use --dp {data}, or leave --dp out"), data=devices // model_ranks)
    below, above = devices // model_ranks * model_ranks, -(-devices // model_ranks) * model_ranks
    legal = " / ".join(str(n) for n in dict.fromkeys((below, above)) if n > 0)
    return Text(N_("use degrees whose product divides {devices}, or {legal} devices"), devices=devices, legal=legal)


# ---------------------------------------------------------------------------------------------- constraints


def constraints(settings: Settings | None = None, **given: Any) -> Constraints:
    """Constraints of a search: degrees (one or several), methods, memory limit; `given` wins over `settings`."""
    from meshwright.engine.search.space import Constraints

    known = {f.name for f in dataclasses.fields(Constraints)}
    values = {
        **(settings or Settings()).section("constraints"),
        **{key: value for key, value in given.items() if value not in (None, ())},
    }
    fields = {}
    for name, value in values.items():
        target = _CONSTRAINT_FIELDS.get(name, name)
        if name in ("goal", "top"):
            continue
        if target not in known:
            raise UsageError(
                Text(N_("the search cannot be constrained by '{name}' yet"), name=name),
                where=_FLAGS.get(name, name),
                fix=Text(N_("known here: {names}"), names=", ".join(sorted(known))),
            )
        fields[target] = _constraint(name, value)
    return Constraints(**fields)


_CONSTRAINT_FIELDS = {"framework": "frameworks"}


def _constraint(name: str, value: Any) -> Any:
    if name == "max_memory_fraction":
        return bounded(value, name, where="--max-memory", kind="fraction")
    if name == "recompute_ops":
        return _strategy_field(name, value)
    singular = {"frameworks": "framework"}.get(name, name)
    parts = value.split(",") if isinstance(value, str) else value if isinstance(value, (list, tuple)) else [value]
    return tuple(dict.fromkeys(_strategy_field(singular, part) for part in parts))


# ---------------------------------------------------------------------------------------------- verbs


def estimate(problem: Problem, strategy: Strategy) -> Estimate | Refusal:
    """Memory, time, cost and findings of one strategy, or the findings that forbid it."""
    from meshwright.engine.evaluate import evaluate

    return evaluate(problem, strategy)


def recommend_hook(problem: Problem, *, micro_batch: int | str | None = None) -> HookAdvice:
    """Whether gradients hide behind the backward pass of a DDP run, and which hook closes the gap if not."""
    from meshwright.engine.hook_advice import advise

    return advise(problem, None if micro_batch is None else whole(micro_batch, "micro_batch", where="--mbs"))


def plan(
    problem: Problem,
    *,
    goal: str = "fastest",
    constraints: Constraints | None = None,
    top: int = 10,
    resilience: Options | None = None,
    progress: Progress | None = None,
) -> Plan:
    """The best strategies for a problem, what was rejected and why.

    Goal goodput ranks by useful tokens per second under the failures of `resilience` (or the defaults).
    """
    from meshwright.engine.search.plan import plan as search

    useful = None
    if _goal(goal, GOALS) == "goodput":
        problem, useful = _with_failures(problem, resilience)
    limits = constraints if constraints is not None else _no_constraints()
    return search(
        problem, goal=goal, constraints=limits, top=whole(top, "top", where="--top"), useful=useful, progress=progress
    )


def _with_failures(problem: Problem, options: Options | None) -> tuple[Problem, Share]:
    """The problem with what is assumed of failures and storage, and the useful share of a strategy on it."""
    from meshwright.resilience.objective import share
    from meshwright.resilience.situation import Options, hardware

    o = options or Options()
    assumed = (*problem.assumptions, *hardware(problem, o).assumptions)
    return dataclasses.replace(problem, assumptions=assumed), share(problem, o)


def scale(
    problem: Problem,
    devices: Sequence[int | str] = (),
    *,
    mode: str = "fixed-batch",
    constraints: Constraints | None = None,
    progress: Progress | None = None,
) -> Scaling:
    """What more devices buy: throughput, MFU, exposed communication and cost against their number."""
    from meshwright.engine.scale import scale as run

    limits = constraints if constraints is not None else _no_constraints()
    counts = tuple(sorted({whole(n, "devices", where="--devices") for n in devices})) or None
    return run(problem, counts, mode=_goal(mode, SCALE_MODES, "--mode"), constraints=limits, progress=progress)


def size(
    problem: Problem,
    *,
    tokens: float | str | None = None,
    deadline: float | str | None = None,
    budget: float | str | None = None,
    goal: str = "fewest",
    constraints: Constraints | None = None,
    resilience: Options | None = None,
    progress: Progress | None = None,
) -> Sizing:
    """The fewest devices, or the least cost, that meets a deadline (days) or a budget (dollars).

    With `resilience`, days and dollars count failures.
    """
    wanted = problem.job.tokens if tokens is None else bounded(tokens, "tokens", where="--tokens")
    if wanted is None:
        raise UsageError(
            Text(N_("the length of the run is not given")),
            where="--tokens",
            fix=Text(N_("name one, e.g. {examples}"), examples="--tokens 15T"),
        )
    if deadline is None and budget is None:
        raise UsageError(
            Text(N_("neither a deadline nor a budget is given")),
            where="--deadline --budget",
            fix=Text(N_("name one, e.g. {examples}"), examples="--deadline 30d, --budget 2M"),
        )
    from meshwright.engine.size import size as run

    useful = None
    if resilience is not None:
        problem, useful = _with_failures(problem, resilience)
    return run(
        problem,
        tokens=wanted,
        deadline_days=None if deadline is None else bounded(deadline, "deadline", where="--deadline", kind="days"),
        budget=None if budget is None else bounded(budget, "budget", where="--budget", kind="dollars"),
        goal=_goal(goal, SIZE_GOALS),
        constraints=constraints if constraints is not None else _no_constraints(),
        useful=useful,
        progress=progress,
    )


def compare(problem: Problem, strategies: Sequence[tuple[str, Strategy | Estimate]]) -> Comparison:
    """Several strategies side by side, term by term; estimates stand as they are, whatever problem they are of."""
    if len(strategies) < 2:
        raise UsageError(
            Text(N_("comparing needs at least two strategies")),
            where="compare",
            fix=Text(N_("give two result files, or one result file that holds a plan")),
        )
    from meshwright.engine.compare import compare as run

    return run(problem, strategies)


def explain(
    subject: str, *, plan: Plan | None = None, estimate: Estimate | None = None, problem: Problem | None = None
) -> Explanation:
    """What a term, a rule code, a formula or a concept is, with the numbers of a plan when one is given."""
    from meshwright.engine.explain import explain as run

    return run(subject, plan=plan, estimate=estimate, problem=problem)


def explainable() -> list[Subject]:
    """Everything `explain` knows, by kind."""
    from meshwright.engine.explain import subjects

    return subjects()


def validate(
    runs: str | Path | bytes,
    *,
    tiers: Sequence[str] = (),
    leave_out: str = "",
    where: str = "",
    progress: Progress | None = None,
) -> Validation:
    """Predictions against the measured runs of a CSV file (its path, or its content as bytes).

    `leave_out`: source, publisher or model. Every run is then predicted by constants fitted to the runs of the file
    without its own group, and its interval comes from theirs (needs the extra `fit`; minutes).
    """
    from meshwright.validate import summarise
    from meshwright.validate import validate as run

    if not leave_out:
        return run(runs, tiers=tiers, where=where, progress=progress)
    from meshwright.calibrate import GROUPINGS, cross_validated
    from meshwright.validate.compare import of_compared

    if leave_out not in GROUPINGS:
        raise UnknownNameError(Text(N_("group of runs")), leave_out, GROUPINGS)
    found = run(runs, where=where, progress=None)  # constants learn from every tier, whichever are shown
    rows = of_compared(cross_validated(found.rows, leave_out, progress=progress), tiers)
    return dataclasses.replace(found, rows=rows, summary=summarise(rows), held_out=leave_out)


def bench_device(
    *,
    seconds: float | str = BENCH_SECONDS,
    device: str | None = None,
    accelerator: str | None = None,
    processes: int | str = 1,
    parts: Sequence[str] = (),
    progress: Progress | None = None,
) -> DeviceBench | None:
    """Measure the device here in about `seconds`; `accelerator` names it where its driver's name does not.

    Under a launcher such as torchrun only the first rank gets a result.
    """
    from meshwright.bench.device import measure
    from meshwright.bench.records import PARTS
    from meshwright.catalog.load import resolve

    for part in parts:
        _goal(part, PARTS, "--only")
    return measure(
        seconds=bounded(seconds, "bench_seconds", where="--seconds", kind="seconds"),
        device=device,
        accelerator=None if accelerator is None else resolve("accelerators", accelerator),
        processes=whole(processes, "processes", where="--processes"),
        parts=tuple(parts) or PARTS,
        progress=progress,
    )


def bench_device_file(path: str | Path) -> DeviceBench:
    """A file of measurements (`-` reads standard input) beside what is predicted today; needs no torch."""
    from meshwright.bench.device import read

    return read(path)


def resilience_options(*, incidents: IncidentStudy | None = None, **given: Any) -> Options:
    """What is known of failures, storage and recovery; texts as people write them, None for what is not given."""
    from meshwright.resilience.options import options

    return options(given, None if incidents is None else incidents.source)


def resilience_plan(problem: Problem, estimate: Estimate, options: Options | None = None) -> ResiliencePlan:
    """How a strategy survives: failures, checkpoints, spares, the useful share of its time, the length of the run."""
    from meshwright.resilience.plan import plan as run

    return run(problem, estimate.strategy, estimate, options)


def resilience_compare(
    problem: Problem, estimate: Estimate, options: Options | None = None, devices: Sequence[int | str] = ()
) -> PolicyComparison:
    """Ways to save and recover, over the size of the cluster."""
    from meshwright.resilience.compare import compare as run

    counts = tuple(whole(n, "devices", where="--devices") for n in devices)
    return run(problem, estimate.strategy, estimate, options, counts)


def resilience_replan(
    problem: Problem, estimate: Estimate, lose: int | str, *, away: float | str | None = None,
    options: Options | None = None, optimizer_format: str | None = None,
) -> Replan:  # fmt: skip
    """What to do after losing so many nodes: fewer devices, a smaller batch, waiting, replicas that stay away."""
    from meshwright.resilience.options import chosen
    from meshwright.resilience.replan import replan as run
    from meshwright.resilience.resharding import FORMATS, FULLY
    from meshwright.units import parse_duration

    return run(
        problem, estimate.strategy, estimate, whole(lose, "devices", where="--lose"),
        away=None if away is None else parse_duration(away, where="--away"), options=options,
        optimizer_format=chosen(optimizer_format or FULLY, FORMATS, "--optimizer-format"),
    )  # fmt: skip


def resilience_spot(
    problem: Problem, estimate: Estimate, *, price: float | str, every: float | str, notice: float | str | None = None,
    wait: float | str | None = None, options: Options | None = None,
) -> SpotAnswer:  # fmt: skip
    """Preemptible machines at a lower price, each taken away every so often, against machines that stay."""
    from meshwright.resilience.spot import spot as run
    from meshwright.units import parse_duration

    times = {
        name: parse_duration(value, where=f"--{name}")
        for name, value in (("notice", notice), ("wait", wait))
        if value is not None
    }
    return run(
        problem, estimate.strategy, estimate, price=bounded(price, "price", where="--spot-price", kind="dollars"),
        between=parse_duration(every, where="--every"), options=options, **times,
    )  # fmt: skip


def resilience_incidents(
    log: str | Path | bytes, *, nodes: int | str | None = None, days: float | str | None = None, where: str = ""
) -> IncidentStudy:
    """What an incident log (CSV) says: the failure rate with its interval, causes, lemon nodes."""
    from meshwright.resilience.incidents import read_incidents, study

    incidents, first, last = read_incidents(log, where=where)
    return study(
        incidents,
        nodes=None if nodes is None else whole(nodes, "devices", where="--nodes"),
        days=None if days is None else bounded(days, "deadline", where="--days", kind="days"),
        span=(last - first).total_seconds(),
    )


def resilience_check(folder: str | Path | bytes) -> CheckpointFolder:
    """Which checkpoint of a folder (or of a listing, as a file or as bytes) is whole."""
    from meshwright.resilience.folder import check

    return check(folder)


def bench_allreduce(
    *,
    ranks: int | str = 2,
    sizes: Sequence[int | str] = ("1KiB", "1MiB", "16MiB"),
    algorithms: Sequence[str] = (),
    local: int | str | None = None,
    rounds: int | str = 5,
    calibrated: bool = False,
) -> Bench | None:
    """All-reduce algorithms timed between processes here; None on the other ranks of a launcher. Needs torch."""
    from meshwright.gradsync.allreduce import CHOICES
    from meshwright.gradsync.measure import bench_all_reduce

    for name in algorithms:
        if name not in CHOICES:
            raise UnknownNameError("algorithm", name, CHOICES)
    count = whole(ranks, "ranks", where="--ranks")
    together = 2 if count % 2 == 0 and count > 2 else 1
    if local is not None:
        together = whole(local, "ranks", where="--local")
        if count % together:
            raise _uneven(count, together)
    payloads = [int(bounded(size, "payload", where="--sizes", kind="bytes")) for size in sizes]
    return bench_all_reduce(
        count, payloads, tuple(algorithms), rounds=whole(rounds, "rounds", where="--rounds"), local=together,
        calibrated=calibrated,
    )  # fmt: skip


def bench_hooks(
    *, ranks: int | str = 2, size: int | str = "25MiB", hooks: Sequence[str] = (), rounds: int | str = 5
) -> Bench | None:
    """Communication hooks timed on a bucket between processes here; None on other ranks of a launcher. Needs torch."""
    from meshwright.gradsync.hooks import HOOKS
    from meshwright.gradsync.measure import TORCH_HOOKS
    from meshwright.gradsync.measure import bench_hooks as run

    known = (*HOOKS, *TORCH_HOOKS, *(f"{outer}+{inner}" for outer in ("bf16", "fp16") for inner in HOOKS))
    for name in hooks:
        if name not in known:
            raise UnknownNameError("hook", name, known)
    return run(
        whole(ranks, "ranks", where="--ranks"),
        int(bounded(size, "payload", where="--size", kind="bytes")),
        tuple(hooks),
        rounds=whole(rounds, "rounds", where="--rounds"),
    )


def _uneven(ranks: int, local: int) -> InputError:
    return InputError(
        Text(N_("{ranks} ranks do not divide into nodes of {local}"), ranks=ranks, local=local),
        where="--local",
        fix=Text(N_("the same number of ranks on every node, or another algorithm")),
    )


def catalog_list(kind: str | None = None, contains: str = "") -> list[Row]:
    """Entries of the catalogue, of one kind or all, whose name contains a text."""
    from meshwright.catalog import verbs

    return verbs.list_entries(kind, contains)


def catalog_show(name: str, kind: str | None = None) -> Shown:
    """One entry with the source and basis of each value."""
    from meshwright.catalog import verbs

    return verbs.show(name, kind)


def catalog_add(path: str | Path, *, kind: str | None = None, replace: bool = False) -> Added:
    """Add a file to the user's own catalogue, after checking it."""
    from meshwright.catalog import verbs

    return verbs.add(path, kind=kind, replace=replace)


def catalog_validate(paths: Sequence[str | Path] = ()) -> list[Finding]:
    """Check catalogue files: schema, a source per value, and plausibility."""
    from meshwright.catalog import verbs

    return verbs.validate(paths)


# ---------------------------------------------------------------------------------------------- configurations


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a configuration is read for: model, cluster and job as for `problem`, and degrees that it leaves out.

    `trainer` are arguments of the Hugging Face Trainer; `devices` counts them where no cluster is named.
    """

    model: str | Path | ModelSpec | None = None
    model_text: str | bytes | None = None
    cluster: str | Path | Cluster | None = None
    devices: int | str | None = None
    trainer: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    version: str = ""
    job: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    strategy: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    settings: Settings = dataclasses.field(default_factory=Settings)


def import_(source: str | Path | bytes, target: Target | None = None, *, format: str = "", where: str = "") -> Imported:
    """The configuration of a framework (a path, or its content as bytes), every setting accounted for."""
    return _imported(source, target or Target(), format, where)[0]


def check(source: str | Path | bytes, target: Target | None = None, *, format: str = "", where: str = "") -> Checked:
    """A configuration judged: the file, its strategy, memory and speed; the last three need model and cluster."""
    return _judged(*_imported(source, target or Target(), format, where), target or Target())


def export(problem: Problem, strategy: Strategy, format: str, *, version: str = "") -> Exported | Refusal:
    """The files of a strategy for a framework, and what they cannot express; or the findings that forbid it."""
    from meshwright.frameworks import verbs
    from meshwright.rules.base import RuleContext
    from meshwright.rules.check import check as findings_of
    from meshwright.spec.estimate import Refusal

    wanted = dataclasses.replace(strategy, framework=verbs.runs(format))
    findings = findings_of(RuleContext(problem.model, problem.cluster, problem.job, wanted))
    if any(finding.severity == "error" for finding in findings):
        return Refusal(strategy=wanted, findings=findings)
    return verbs.write_files(problem, wanted, format, version)


def convert(
    source: str | Path | bytes, to: str, target: Target | None = None, *, format: str = "", where: str = ""
) -> Converted:
    """A configuration of one framework as that of another, with the table of what maps, changes or is lost."""
    from meshwright.frameworks import convert as convertor

    target = target or Target()
    imported, model, cluster = _imported(source, target, format, where)
    checked = _judged(imported, model, cluster, target)
    if checked.problem is None or checked.strategy is None:
        raise UsageError(
            checked.open[0], where=where or str(source)[:200], fix=Text(N_("name one, e.g. {examples}"),
                                                                      examples="--model llama-3.1-8b --cluster h100:8"),
        )  # fmt: skip
    strategy, changes = convertor.adapted(checked.strategy, to)
    return convertor.convert(checked, export(checked.problem, strategy, to), to, changes)


def project_file(imported: Imported, given: Mapping[str, Mapping[str, Any]], language: str = "en") -> str:
    """What was imported as the text of a project file."""
    from meshwright.frameworks import project

    return project.project_file(imported, given, language)


def framework_of(format: str) -> str:
    """Which framework of a strategy a format belongs to."""
    from meshwright.frameworks import verbs

    return verbs.runs(format)


def formats() -> tuple[str, ...]:
    """Frameworks whose configurations are read and written."""
    from meshwright.frameworks.registry import FRAMEWORKS

    return tuple(FRAMEWORKS)


def _imported(
    source: str | Path | bytes, target: Target, format: str, where: str
) -> tuple[Imported, ModelSpec | None, Cluster | None]:
    from meshwright.frameworks import verbs
    from meshwright.frameworks.records import Surroundings

    settings = target.settings
    named = target.model is not None or settings.get("model", "name") or settings.get("model", "path")
    model = _model(target.model, settings, target.model_text) if named else None
    known = target.cluster is not None or settings.get("cluster", "name") or settings.get("cluster", "path")
    cluster = _cluster(target.cluster, settings, None) if known else None
    devices = whole(target.devices, "devices", where="--devices") if target.devices is not None else None
    degrees = {
        name: _strategy_field(name, target.strategy[name])
        for name in ("tensor", "pipeline", "context")
        if target.strategy.get(name) is not None
    }
    around = Surroundings(
        devices=cluster.devices if cluster else devices, hidden=model.hidden if model else None, beside=target.trainer,
        environment=target.environment, version=target.version, **degrees,
    )  # fmt: skip
    return verbs.read_file(source, around, format, where=where), model, cluster


def _judged(imported: Imported, model: ModelSpec | None, cluster: Cluster | None, target: Target) -> Checked:
    from meshwright.frameworks.check import judge

    model = model or imported.model or (_model(None, imported.settings, None) if "model" in imported.sections else None)
    needed = [name for name, value in (("--model", model), ("--cluster", cluster)) if value is None]
    if model is None or cluster is None:
        text = Text(N_("memory and speed are not judged: {names} is not given"), names=", ".join(needed))
        return judge(imported, None, None, open=(text,))
    project = Settings({k: v for k, v in target.settings.sections.items() if k not in ("strategy", "model", "cluster")})
    settings = project.overlaid(imported.sections)
    case = problem(model=model, cluster=cluster, settings=settings, **target.job)
    strategy, assumed = _file_strategy(case, settings, target.strategy)
    return judge(imported, case, strategy, assumptions=(*case.assumptions, *assumed))


def _file_strategy(problem: Problem, settings: Settings, given: Mapping[str, Any]) -> tuple[Strategy, tuple[Text, ...]]:
    """The strategy of a file as it is: degrees that do not fit the devices are for the rules to report."""
    values = {**settings.section("strategy"), **{k: v for k, v in given.items() if v is not None}}
    fields = {name: _strategy_field(name, value) for name, value in values.items()}
    assumptions: list[Text] = []
    _fill_categories(fields, problem, assumptions)
    _fill_expert_tensor(fields, problem, assumptions)
    ranks = fields.get("tensor", 1) * fields.get("pipeline", 1) * fields.get("context", 1)
    fields.setdefault("data", max(problem.cluster.devices // ranks, 1))
    fields.setdefault("sequence_parallel", fields.get("tensor", 1) > 1)
    return Strategy(**fields), tuple(assumptions)


def _no_constraints() -> Constraints:
    from meshwright.engine.search.space import Constraints

    return Constraints()


def _goal(value: str, legal: tuple[str, ...], where: str = "--goal") -> Any:
    if value not in legal:
        raise InputError(
            Text(N_("'{value}' is not known here"), value=str(value)[:60]),
            where=where,
            fix=Text(N_("choose one of {names}"), names=", ".join(legal)),
        )
    return value
