"""How a run survives: where its time goes, what is saved, what others would do; policies over size; ways to go on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from meshwright.cli.labels import label
from meshwright.cli.language import say, tell
from meshwright.cli.output import Grid, View
from meshwright.cli.render import chart, parts
from meshwright.messages import N_
from meshwright.spec.resilience import (
    CheckpointFolder,
    CheckpointPlan,
    FailureModel,
    IncidentStudy,
    PolicyComparison,
    Replan,
    ResiliencePlan,
    SpotAnswer,
)
from meshwright.units import (
    plain_days,
    show_bandwidth,
    show_bytes,
    show_count,
    show_money,
    show_percent,
    show_seconds,
)

SECONDS_PER_DAY = 86400.0
_SIGNS = {"blocking": ("●", "•"), "async": ("○", "·"), "peer": ("◆", "·"), "hot-spares": ("o", "·"),
          "replicas": ("▲", "·")}  # fmt: skip


def draw_plan(found: ResiliencePlan, view: View) -> Iterable[Any]:
    """The useful share, where the rest goes, checkpoints, failures, the run, settings, findings."""
    g, policy = found.goodput, found.policy
    yield parts.line(parts.problem_line(found.problem), "bold")
    yield parts.line(parts.strategy_words(found.strategy))
    for finding in found.findings:
        if finding.severity == "error":
            text = N_("CANNOT WORK ({code}): {message}")
            yield parts.line(say(text, code=finding.code, message=tell(finding.message)), "bold red")
    text = N_("{share} of the time is useful (between {low} and {high}): {rate} tokens/s, a failure every {mtti}")
    yield parts.line(
        say(text, share=show_percent(g.useful), low=show_percent(g.low), high=show_percent(g.high),
            rate=show_count(round(g.tokens_per_second)), mtti=show_seconds(found.failures.mtti)),
        "bold green" if found.legal else "",
    )  # fmt: skip
    yield parts.line(
        say(N_("policy: {policy}; simulated, {trials} runs: {share} ± {error}"), policy=label(policy.mode, "policy"),
            trials=g.trials, share=show_percent(g.simulated, 2), error=show_percent(1.96 * g.simulated_error, 2))
    )  # fmt: skip
    if found.unexplained is not None:
        text = N_("measured {measured}: {more} points more are lost than failures, saves and restarts explain")
        if found.unexplained < 0:
            text = N_("measured {measured}: {more} points fewer are lost than failures, saves and restarts would cost")
        more = f"{100 * abs(found.unexplained):.1f}"
        yield parts.line(say(text, measured=show_percent(found.measured or 0.0), more=more), "yellow")
    yield from _where_time_goes(found, view)
    yield from _checkpoints(found.checkpoint, view)
    yield from _failures(found.failures, view)
    yield from _run(found)
    if found.checkpoint.settings:
        yield parts.heading(say(N_("Settings")))
        for setting in found.checkpoint.settings:
            yield parts.line(f"{setting.framework}: {setting.text}", indent=2)
    yield from parts.findings_part(found.findings)
    yield from parts.assumptions_part((*found.problem.assumptions, *found.assumptions))


def _where_time_goes(found: ResiliencePlan, view: View) -> Iterable[Any]:
    tree = found.goodput.breakdown
    yield parts.heading(say(N_("Where a day goes")))
    rows = [
        (label(t.name, tree.name), show_seconds(t.value), show_percent(t.value / tree.value, 2)) for t in tree.children
    ]
    yield parts.table((say(N_("bucket")), say(N_("of a day")), say(N_("share"))), rows, view)
    lost = [(label(t.name, tree.name), t.value) for t in tree.children if t.name != "productive"]
    whole = sum(value for _, value in lost)
    if lost and not view.plain:
        largest = sorted(lost, key=lambda part: -part[1])[: len(parts.BAR)]
        bar, legend = parts.stacked_bar(largest, whole, 50)
        yield parts.line(say(N_("what is lost [{bar}] {share}"), bar=bar, share=show_percent(whole / tree.value)))
        yield parts.line(legend, indent=14)


def _checkpoints(c: CheckpointPlan, view: View) -> Iterable[Any]:
    yield parts.heading(say(N_("Checkpoints")))
    often = say(N_("every {steps} steps ({time})"), steps=f"{c.steps:,}", time=show_seconds(c.interval))
    rows = [(say(N_("to storage")), often)]
    if c.quick_steps is not None:
        rows.append((say(N_("to memory")), say(N_("every {steps} steps"), steps=f"{c.quick_steps:,}")))
    rows += [
        (say(N_("size")), say(N_("{total}, {each} bytes a parameter; at most {rank} of a rank, {host} of a host"),
                              total=show_bytes(c.total_bytes), each=f"{c.bytes_per_parameter:g}",
                              rank=show_bytes(c.rank_bytes), host=show_bytes(c.host_bytes))),
        (say(N_("times")), say(N_("copy to the host {copy}, write {write}, read {read}; the run stops for {stall}"),
                               copy=show_seconds(c.copy_seconds), write=show_seconds(c.write_seconds),
                               read=show_seconds(c.read_seconds), stall=show_seconds(c.stall))),
        (say(N_("best interval")), say(N_("Young {young}, Daly {daly}, exact {exact}"), young=show_seconds(c.young),
                                       daly=show_seconds(c.daly), exact=show_seconds(c.exact))),
        (say(N_("storage")), say(N_("{needed} for this interval, {loss} to lose 5 % if saves block; limit: {limit}"),
                                 needed=show_bandwidth(c.bandwidth_needed), loss=show_bandwidth(c.bandwidth_for_loss),
                                 limit=label(c.limited_by, "limit"))),
        (say(N_("kept")), say(N_("{kept} and one being written: {size}"), kept=c.kept, size=show_bytes(c.kept_bytes))),
    ]  # fmt: skip
    yield parts.table(("", ""), rows, view, left=(0, 1))


def _failures(model: FailureModel, view: View) -> Iterable[Any]:
    yield parts.heading(say(N_("Failures a day, by what breaks")))
    per_day = SECONDS_PER_DAY * model.nodes * model.rate
    groups: dict[str, float] = {}
    for cause in model.causes:
        groups[cause.group] = groups.get(cause.group, 0.0) + cause.share
    rows = [(label(name, "failures"), f"{share * per_day:,.3g}", show_percent(share)) for name, share in
            sorted(groups.items(), key=lambda item: -item[1])]  # fmt: skip
    if model.bound_by_job:
        whole = SECONDS_PER_DAY / model.mtti
        rows.append((label("small_job", "failures"), f"{whole - per_day:,.3g}", "-"))
    yield parts.table((say(N_("part")), say(N_("a day")), say(N_("share"))), rows, view)


def _run(found: ResiliencePlan) -> Iterable[Any]:
    run, held = found.goodput.run, found.spares
    yield parts.heading(say(N_("The run")))
    if run is not None:
        text = N_("{ideal} days without failures, {days} expected; half of all runs end by {p50}, nine in ten by {p90}")
        yield parts.line(say(text, ideal=plain_days(run.ideal_days), days=plain_days(run.days),
                             p50=plain_days(run.p50_days), p90=plain_days(run.p90_days)), indent=2)  # fmt: skip
        failures = found.failures.expected(run.days * SECONDS_PER_DAY)
        yield parts.line(say(N_("{count} failures expected until then"), count=f"{failures:,.0f}"), indent=2)
        if run.dollars is not None:
            text = N_("{dollars} expected with the spares; {p50} and {p90}")
            yield parts.line(say(text, dollars=show_money(run.dollars), p50=show_money(run.p50_dollars or 0),
                                 p90=show_money(run.p90_dollars or 0)), indent=2)  # fmt: skip
    text = N_("{nodes} spare nodes ({kind}); {away} in repair on average; they do not suffice {short} of the time")
    yield parts.line(say(text, nodes=f"{held.nodes:,}", kind=label(held.kind, "spares"), away=f"{held.in_repair:.2g}",
                         short=show_percent(held.short)), indent=2)  # fmt: skip


def plan_grid(found: ResiliencePlan) -> Grid:
    """One row per bucket of wall time."""
    tree = found.goodput.breakdown
    raw = tuple((t.name, t.value, t.value / tree.value) for t in tree.children)
    rows = tuple(
        (label(name, tree.name), show_seconds(seconds), show_percent(share, 2)) for name, seconds, share in raw
    )
    return Grid(keys=("bucket", "seconds_a_day", "share"),
                heads=(say(N_("bucket")), say(N_("of a day")), say(N_("share"))), rows=rows, raw=raw)  # fmt: skip


# ---------------------------------------------------------------------------------------------- policies


def draw_compare(found: PolicyComparison, view: View) -> Iterable[Any]:
    """Summary, curves, table, break-even sentences."""
    yield parts.line(parts.problem_line(found.problem), "bold")
    yield parts.line(parts.strategy_words(found.strategy))
    yield parts.line(tell(found.summary), "bold")
    yield from _curves(found, view)
    yield parts.heading(say(N_("Useful share of the time")))
    yield parts.grid_table(compare_grid(found), view)
    yield parts.heading(say(N_("From where on it is worth it (a tenth of a point)")))
    for even in found.break_even:
        names = {"better": label(even.better, "policy"), "than": label(even.than, "policy")}
        if even.devices is None:
            text = say(N_("{better} over {than}: at none of these sizes"), **names)
        elif even.until is None:
            text = say(N_("{better} over {than}: from {devices} devices on"), devices=f"{even.devices:,}", **names)
        else:
            text = say(N_("{better} over {than}: from {devices} to {until} devices"), devices=f"{even.devices:,}",
                       until=f"{even.until:,}", **names)  # fmt: skip
        yield parts.bullet(text)
    yield from parts.assumptions_part((*found.problem.assumptions, *found.assumptions))


def _curves(found: PolicyComparison, view: View) -> Iterable[Any]:
    drawn = [
        (mode, [(float(p.devices), p.useful) for p in found.points if p.mode == mode], signs)
        for mode, signs in _SIGNS.items()
    ]
    drawn = [(mode, points, signs) for mode, points, signs in drawn if len(points) > 1]
    if view.plain or not drawn:
        return
    low = min(share for _, points, _ in drawn for _, share in points)
    floor = max(0.0, int(low * 20) / 20)
    counts = [float(n) for n in found.counts]
    x = chart.Axis([(n, show_count(n)) for n in counts], counts[0], counts[-1])
    labels = [floor + (1 - floor) * i / 4 for i in range(5)]
    y = chart.Axis([(s, show_percent(s, 1)) for s in labels], floor, 1.0, logarithmic=False)
    legend = ", ".join(f"{signs[0]} {label(mode, 'policy')}" for mode, _, signs in drawn)
    yield parts.heading(say(N_("Useful share over devices ({legend})"), legend=legend))
    curves = [chart.Curve(points, *signs) for _, points, signs in drawn]
    here = float(found.problem.cluster.devices)
    mark = here if counts[0] <= here <= counts[-1] else None
    for text in chart.curves(curves, x, y, width=min(72, view.width - 14), height=14, mark=mark):
        yield parts.line(text)


def compare_grid(found: PolicyComparison) -> Grid:
    """One row per size, one column per policy."""
    modes = list(dict.fromkeys(p.mode for p in found.points))
    share = {(p.devices, p.mode): p.useful for p in found.points}
    mtti = {p.devices: p.mtti for p in found.points}
    raw: tuple[tuple[Any, ...], ...] = tuple(
        (n, mtti[n], *(share.get((n, mode)) for mode in modes)) for n in found.counts
    )
    rows = tuple(
        (
            f"{row[0]:,}",
            show_seconds(float(row[1] or 0)),
            *("-" if cell is None else show_percent(cell, 2) for cell in row[2:]),
        )
        for row in raw
    )
    heads = (say(N_("devices")), say(N_("a failure every")), *(label(mode, "policy") for mode in modes))
    return Grid(keys=("devices", "mtti", *modes), heads=heads, rows=rows, raw=raw)


# ---------------------------------------------------------------------------------------------- going on


def draw_replan(found: Replan, view: View) -> Iterable[Any]:
    """Summary, table of ways to go on, what each needs."""
    yield parts.line(parts.problem_line(found.problem), "bold")
    yield parts.line(parts.strategy_words(found.strategy))
    yield parts.line(tell(found.summary), "bold")
    yield parts.heading(say(N_("Ways to go on")))
    yield parts.grid_table(replan_grid(found), view, mark=0)
    for option in found.options:
        notes: list[str] = []
        if option.estimate is not None:
            notes.append(parts.strategy_words(option.estimate.strategy))
        if option.learning_rate_scale != 1:
            text = N_("multiply the learning rate by {scale}, since the batch changes")
            notes.append(say(text, scale=f"{option.learning_rate_scale:.3g}"))
        if option.resharding is not None:
            changed = ", ".join(label(name) for name in option.resharding.changes) or say(N_("nothing"))
            text = N_("changes: {changed}; moving the states takes {time}")
            notes.append(say(text, changed=changed, time=show_seconds(option.resharding.seconds)))
            notes += [tell(step) for step in option.resharding.steps]
        if option.note is not None:
            notes.append(tell(option.note))
        if notes:
            yield parts.heading(label(option.name, "replan"))
            yield from parts.bullets(notes)
    yield from parts.findings_part(found.findings)
    yield from parts.assumptions_part((*found.problem.assumptions, *found.assumptions))


def replan_grid(found: Replan) -> Grid:
    """One row per way to go on."""
    keys = ("name", "devices", "global_batch", "tokens_per_second", "stop_seconds", "lost_tokens")
    raw = tuple(tuple(getattr(option, key) for key in keys) for option in found.options)
    rows = tuple(
        (label(o.name, "replan"), f"{o.devices:,}", f"{o.global_batch:,}", show_count(round(o.tokens_per_second)),
         show_seconds(o.stop_seconds), show_count(round(o.lost_tokens)))
        for o in found.options
    )  # fmt: skip
    heads = (say(N_("way")), say(N_("devices")), say(N_("batch")), "tokens/s", say(N_("stops for")),
             say(N_("tokens lost")))  # fmt: skip
    return Grid(keys=keys, heads=heads, rows=rows, raw=raw)


def draw_spot(found: SpotAnswer, view: View) -> Iterable[Any]:
    """Summary and the two columns."""
    yield parts.line(parts.problem_line(found.problem), "bold")
    yield parts.line(parts.strategy_words(found.strategy))
    pays = found.dollars_per_token <= found.dollars_per_token_on_demand
    yield parts.line(tell(found.summary), "bold green" if pays else "bold red")
    text = N_("a notice of {notice} is enough for a last save: no work is lost")
    if not found.saved_on_notice:
        text = N_("a notice of {notice} is too short for a last save: work since the last one is lost")
    yield parts.line(say(text, notice=show_seconds(found.notice)))
    yield parts.grid_table(spot_grid(found), view)
    yield from parts.assumptions_part((*found.problem.assumptions, *found.assumptions))


def spot_grid(found: SpotAnswer) -> Grid:
    """Preemptible machines and those that stay."""
    raw: tuple[tuple[Any, ...], ...] = (
        ("preemptible", found.useful, found.dollars_per_token),
        ("on_demand", found.useful_on_demand, found.dollars_per_token_on_demand),
    )
    rows = tuple(
        (label(name, "machines"), show_percent(share, 2), show_money(price * 1e9)) for name, share, price in raw
    )
    heads = (say(N_("machines")), say(N_("useful")), say(N_("$ per 1B tokens")))
    return Grid(keys=("machines", "useful", "dollars_per_token"), heads=heads, rows=rows, raw=raw)


# ---------------------------------------------------------------------------------------------- incidents


def draw_incidents(study: IncidentStudy, view: View) -> Iterable[Any]:
    """Summary, causes, lemons, and the rate without them."""
    yield parts.line(tell(study.summary), "bold")
    yield parts.heading(say(N_("Causes")))
    yield parts.grid_table(incidents_grid(study), view, left=(0, 1))
    if study.lemons:
        yield parts.heading(say(N_("Nodes that fail more often than chance allows")))
        rows = [(lemon.node, f"{lemon.failures:,}", f"{lemon.expected:.2g}", f"{lemon.probability:.1g}")
                for lemon in study.lemons]  # fmt: skip
        heads = (say(N_("node")), say(N_("failures")), say(N_("expected")), say(N_("probability")))
        yield parts.table(heads, rows, view)
        text = N_("without them: {rate} in 1,000 node-days ({low} to {high})")
        rates = (study.rate_without, study.low_without, study.high_without)
        yield parts.line(say(text, **dict(zip(("rate", "low", "high"), map(_per_thousand, rates), strict=True))))
    if study.downtime is not None:
        yield parts.line(say(N_("mean downtime {time}"), time=show_seconds(study.downtime)))
    yield from parts.assumptions_part(study.assumptions)


def _per_thousand(rate: float) -> str:
    return f"{rate * SECONDS_PER_DAY * 1000:.3g}"


def incidents_grid(study: IncidentStudy) -> Grid:
    """One row per cause."""
    keys = ("name", "group", "failures", "rate", "low", "high")
    raw = tuple(tuple(getattr(cause, key) for key in keys) for cause in study.causes)
    rows = tuple(_cause_row(row) for row in raw)
    heads = (say(N_("cause")), say(N_("part")), say(N_("failures")), say(N_("in 1,000 node-days")), say(N_("from")),
             say(N_("to")))  # fmt: skip
    return Grid(keys=keys, heads=heads, rows=rows, raw=raw)


def _cause_row(row: Sequence[Any]) -> tuple[str, ...]:
    name, group, failures, *rates = row
    return (str(name)[:48], label(group, "failures"), f"{failures:,}", *(_per_thousand(rate) for rate in rates))


# ---------------------------------------------------------------------------------------------- folders


def draw_check(found: CheckpointFolder, view: View) -> Iterable[Any]:
    """Which checkpoint to start from, and what is wrong with the others."""
    yield parts.line(tell(found.summary), "bold red" if found.resume is None else "bold green")
    yield parts.grid_table(check_grid(found), view, left=(0, 3))


def check_grid(found: CheckpointFolder) -> Grid:
    """One row per checkpoint, the newest first."""
    raw = tuple(
        (c.name, c.files, c.size, "; ".join(fault.render("en") for fault in c.faults)) for c in found.checkpoints
    )
    rows = tuple(
        (c.name, f"{c.files:,}", show_bytes(c.size), "; ".join(map(tell, c.faults)) or say(N_("complete")))
        for c in found.checkpoints
    )
    heads = (say(N_("checkpoint")), say(N_("files")), say(N_("size")), say(N_("state")))
    return Grid(keys=("checkpoint", "files", "bytes", "faults"), heads=heads, rows=rows, raw=raw)
