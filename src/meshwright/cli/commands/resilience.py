"""`meshwright resilience plan|compare|replan|spot|incidents|check`: how a run survives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from meshwright.cli import render
from meshwright.cli.click_parts import Group
from meshwright.cli.options import (
    FAILURES,
    JOB,
    MAX_MEMORY,
    MODEL_ARGUMENT,
    RECOMPUTE_OPS,
    SAVING,
    SURVIVAL,
    language,
    option,
    partition,
    stack,
    verb,
)
from meshwright.cli.output import Answer, Screen
from meshwright.cli.request import problem_of, resilience_of, sharding_of, with_assumptions
from meshwright.errors import InputError, UsageError
from meshwright.messages import N_, Text

command = Group(
    "resilience",
    help=N_(
        "How a run survives: checkpoints and their interval, failures, spares, the useful share of the time, what to do"
        " after losing nodes, and what an incident log says."
    ),
    examples=("resilience plan --help", "resilience compare --help", "resilience incidents log.csv"),
    context_settings={"help_option_names": ["-h", "--help"]},
    params=[language()],
)

_CASE = stack(
    MODEL_ARGUMENT,
    option("--plan", "result", metavar="FILE", envvar=None,
           help=N_("A result written by --json: its first strategy on its own cluster.")),
    JOB,
    MAX_MEMORY,
    partition(many=False),
    RECOMPUTE_OPS,
    FAILURES,
    SAVING,
)  # fmt: skip
_STRATEGY = ("framework", "tensor", "pipeline", "virtual", "context", "expert", "expert_tensor", "data", "micro_batch",
             "shard", "recompute", "recompute_ops", "schedule", "offload")  # fmt: skip


class _Case:
    """The strategy that is asked about, on its problem: written out, read from a result, or the best one."""

    def __init__(self, screen: Screen, options: dict[str, Any]) -> None:
        from meshwright import api
        from meshwright.serialize import load_result

        self.options, _ = resilience_of(options)
        self.refusal: Any = None
        self.estimate: Any = None
        given = {name: options.pop(name, None) for name in _STRATEGY}
        given["sharding"] = sharding_of(options)
        result, limit = options.pop("result"), options.pop("max_memory_fraction", None)
        if result is not None:
            read = load_result(result)
            if not read.strategies:
                raise InputError(
                    Text(N_("the result holds no strategy")), where=result,
                    fix=Text(N_("write it with `meshwright plan … --json -o plan.json`")),
                )  # fmt: skip
            self.problem = read.problem
            self._evaluate(read.strategies[0][1])
            return
        self.problem = problem_of(screen, options)
        written = any(value is not None for value in given.values()) or screen.settings.section("strategy")
        if written:
            strategy, assumed = api.strategy(self.problem, screen.settings, **given)
            self.problem = with_assumptions(self.problem, assumed)
            self._evaluate(strategy)
            return
        limits = api.constraints(screen.settings, max_memory_fraction=limit)
        with screen.progress() as progress:
            plan = api.plan(self.problem, constraints=limits, top=1, progress=progress)
        if plan.best is None:
            self.refusal = plan
        else:
            self.estimate = plan.best.estimate
            self.problem = with_assumptions(
                self.problem,
                (Text(N_("the strategy that `plan` ranks first, {strategy}"), strategy=plan.best.strategy.short),),
            )

    def _evaluate(self, strategy: Any) -> None:
        from meshwright import api
        from meshwright.spec.estimate import Refusal

        found = api.estimate(self.problem, strategy)
        self.refusal, self.estimate = (found, None) if isinstance(found, Refusal) else (None, found)

    def refused(self) -> Answer:
        """The answer where there is no strategy to ask about."""
        from meshwright.cli.commands.estimate import refused
        from meshwright.serialize import document, to_json
        from meshwright.spec.plan import Plan

        if not isinstance(self.refusal, Plan):
            return refused(self.refusal, self.problem)
        plan = self.refusal
        return Answer(
            kind="plan", document=lambda: document("plan", plan), draw=lambda view: render.plan.draw(plan, view),
            grid=lambda: render.plan.grid(plan), lines=lambda: [to_json(r) for r in plan.ranked], yes=False,
        )  # fmt: skip


def _answer(
    screen: Screen, kind: str, case: _Case, ask: Callable[[], Any], yes: Callable[[Any], bool], lines: str = ""
) -> int:
    """Ask about the case, or say why there is none; the answer by its renderers in `render.resilience`."""
    from meshwright.serialize import document, to_json

    if case.estimate is None:
        return screen.answer(case.refused())
    found = ask()
    drawing, table = f"draw_{kind}", f"{kind}_grid"
    return screen.answer(
        Answer(
            kind=f"resilience-{kind}",
            document=lambda: document(f"resilience-{kind}", found),
            draw=lambda view: getattr(render.resilience, drawing)(found, view),
            grid=lambda: getattr(render.resilience, table)(found),
            lines=(lambda: [to_json(item) for item in getattr(found, lines)]) if lines else None,
            yes=yes(found),
        )
    )


@verb(
    "plan",
    help=N_(
        "Checkpoints, failures and spares of one strategy (the best one, unless one is written out): what is saved, how"
        " often, which share of the time is useful and where the rest goes, days and dollars with failures, and the"
        " settings of the framework. Exits with 1 when it cannot work."
    ),
    examples=(
        "resilience plan llama-3.1-405b --cluster llama3-h100-24k:16384 --tokens 15T --failures llama-3-405b",
        "resilience plan llama-3.1-70b --cluster h100-sxm:512 --storage nfs --policy blocking --steps 500",
        "resilience plan --plan plan.json --incidents log.csv --json",
    ),
)
@_CASE
def plan_command(screen: Screen, **options: Any) -> int:
    """Plan checkpoints and predict goodput."""
    from meshwright import api

    case = _Case(screen, options)
    return _answer(screen, "plan", case, lambda: api.resilience_plan(case.problem, case.estimate, case.options),
                   lambda found: found.legal)  # fmt: skip


@verb(
    "compare",
    help=N_(
        "Ways to save and recover (blocking, asynchronous, in host memory, in the memory of another node, hot spares,"
        " replicas that leave and join) over the size of the cluster, and from where on each is worth it."
    ),
    examples=(
        "resilience compare llama-3.1-70b --cluster h100-sxm:512",
        "resilience compare llama-3.1-405b --cluster h100-sxm:16384 --devices 1024,16384,131072 --jsonl",
    ),
)
@_CASE
@option("--devices", metavar="N,…", section=SURVIVAL, help=N_("Sizes of the cluster; default: doublings."))
def compare_command(screen: Screen, devices: str | None, **options: Any) -> int:
    """Compare policies."""
    from meshwright import api

    case = _Case(screen, options)
    counts = [part for part in (devices or "").split(",") if part.strip()]
    return _answer(screen, "compare", case,
                   lambda: api.resilience_compare(case.problem, case.estimate, case.options, counts),
                   lambda found: bool(found.points), "points")  # fmt: skip


@verb(
    "replan",
    help=N_(
        "After losing nodes: the best plan on what is left with the same batch or a smaller one, the path of the"
        " checkpoint to it, and what it loses against waiting and against replicas that stay away. Exits with 1 when no"
        " plan is legal on what is left."
    ),
    examples=(
        "resilience replan llama-3.1-70b --cluster h100-sxm:512 --seq 8192 --gbs 512 --lose 2 --away 12h",
        "resilience replan --plan plan.json --lose 1 --optimizer-format dp_reshardable",
    ),
)
@_CASE
@option("--lose", metavar="N", section=SURVIVAL, help=N_("Nodes that are lost (default 1)."))
@option("--away", metavar="TIME", section=SURVIVAL, help=N_("Until they are back; default: a repair."))
@option("--optimizer-format", metavar="NAME", section=SURVIVAL,
        help=N_("How Megatron saved the optimizer: fully_reshardable or dp_reshardable."))  # fmt: skip
def replan_command(
    screen: Screen, lose: str | None, away: str | None, optimizer_format: str | None, **options: Any
) -> int:
    """Plan on fewer nodes."""
    from meshwright import api

    case = _Case(screen, options)

    def ask() -> Any:
        return api.resilience_replan(case.problem, case.estimate, lose or 1, away=away, options=case.options,
                                     optimizer_format=optimizer_format)  # fmt: skip

    return _answer(screen, "replan", case, ask,
                   lambda found: not any(f.severity == "error" for f in found.findings), "options")  # fmt: skip


@verb(
    "spot",
    help=N_(
        "Preemptible machines at a lower price against machines that stay: useful share, cost of a token, and how long"
        " a node must stay for it to pay. Exits with 1 when it does not pay."
    ),
    examples=("resilience spot llama-3.1-8b --cluster h100-sxm:64 --spot-price 1.10 --every 2d --notice 30s",),
)
@_CASE
@option("--spot-price", metavar="DOLLARS", section=SURVIVAL, help=N_("Price of a preemptible device for one hour."))
@option("--every", metavar="TIME", section=SURVIVAL, help=N_("Mean time until a node is taken away, e.g. 2d."))
@option("--notice", metavar="TIME", section=SURVIVAL, help=N_("Warning before that (default 2min)."))
@option("--wait", metavar="TIME", section=SURVIVAL, help=N_("Until there is another node (default 10min)."))
def spot_command(
    screen: Screen, spot_price: str | None, every: str | None, notice: str | None, wait: str | None, **options: Any
) -> int:
    """Weigh preemptible machines."""
    from meshwright import api

    for value, flag, example in ((spot_price, "--spot-price", "--spot-price 1.10"), (every, "--every", "--every 2d")):
        if value is None:
            raise UsageError(
                Text(N_("{name} is not given"), name=flag), where=flag,
                fix=Text(N_("name one, e.g. {examples}"), examples=example),
            )  # fmt: skip
    case = _Case(screen, options)

    def ask() -> Any:
        return api.resilience_spot(case.problem, case.estimate, price=spot_price or "", every=every or "",
                                   notice=notice, wait=wait, options=case.options)  # fmt: skip

    return _answer(screen, "spot", case, ask,
                   lambda found: found.dollars_per_token <= found.dollars_per_token_on_demand)  # fmt: skip


@verb(
    "incidents",
    help=N_(
        "The failure rate of an incident log (CSV with time and node, and if there are, cause and downtime), with its"
        " exact 90 % interval, by cause, and the nodes that fail more often than chance allows. - reads stdin."
    ),
    examples=("resilience incidents log.csv --nodes 63 --days 55", "resilience incidents - --json < log.csv"),
)
@click.argument("file")
@option("--nodes", metavar="N", help=N_("Nodes that were watched; default: those the log names."))
@option("--days", metavar="TIME", help=N_("How long they were watched; default: from the first to the last incident."))
def incidents_command(screen: Screen, file: str, nodes: str | None, days: str | None) -> int:
    """Study a log."""
    from meshwright import api
    from meshwright.files import read_stdin
    from meshwright.serialize import document, to_json

    hint = "cat log.csv | meshwright resilience incidents -"
    log: Any = read_stdin(largest=LARGEST, hint=hint) if file == "-" else file
    study = api.resilience_incidents(log, nodes=nodes, days=days, where=file)
    return screen.answer(
        Answer(
            kind="resilience-incidents",
            document=lambda: document("resilience-incidents", study),
            draw=lambda view: render.resilience.draw_incidents(study, view),
            grid=lambda: render.resilience.incidents_grid(study),
            lines=lambda: [to_json(cause) for cause in study.causes],
        )
    )


@verb(
    "check",
    help=N_(
        "Which checkpoint of a folder is whole: no empty or temporary file, no shard that is missing or smaller than"
        " elsewhere, metadata written last. FOLDER may also be a listing (size and name a line); - reads one from"
        " stdin. Exits with 1 when none is whole."
    ),
    examples=("resilience check checkpoints/", "resilience check - < listing.txt"),
)
@click.argument("folder")
def check_command(screen: Screen, folder: str) -> int:
    """Look at a folder of checkpoints."""
    from meshwright import api
    from meshwright.files import read_stdin
    from meshwright.serialize import document, to_json

    hint = "ls -l checkpoints/ | meshwright resilience check -"
    where: Any = read_stdin(largest=LARGEST, hint=hint) if folder == "-" else folder
    found = api.resilience_check(where)
    return screen.answer(
        Answer(
            kind="resilience-check",
            document=lambda: document("resilience-check", found),
            draw=lambda view: render.resilience.draw_check(found, view),
            grid=lambda: render.resilience.check_grid(found),
            lines=lambda: [to_json(c) for c in found.checkpoints],
            yes=found.resume is not None,
        )
    )


for each in (plan_command, compare_command, replan_command, spot_command, incidents_command, check_command):
    command.add_command(each)

LARGEST = 64 * 10**6  # bytes of standard input
