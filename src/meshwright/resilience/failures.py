"""The failures of one job: published or own rates, scaled to its nodes, with a range and by cause."""

from __future__ import annotations

from dataclasses import replace

from meshwright.catalog import failures as known
from meshwright.formulas.failures import mtti
from meshwright.messages import N_, Text
from meshwright.spec.cluster import Cluster
from meshwright.spec.resilience import Cause, FailureModel, FailureSource

NORMAL_90 = 1.6448536269514722  # standard deviations from the middle to either end of a 90 % interval


def given_rate(rate: float, low: float | None = None, high: float | None = None) -> FailureSource:
    """A rate of the user's own, of one node per second; causes are those of the published list."""
    return replace(
        known.failure_source(),
        id="given",
        title="",
        rate=rate,
        low=rate if low is None else low,
        high=rate if high is None else high,
        nodes=None,
        days=None,
        failures=None,
        basis="given",
        source="",
    )


def failure_model(cluster: Cluster, source: FailureSource | None = None, *, mtti_given: float | None = None,
                  small_job: bool | None = None) -> FailureModel:  # fmt: skip
    """Failures of a job on all nodes of `cluster`.

    `mtti_given` is a mean time to interrupt measured on this very cluster. Rates of one's own hold what one's software
    does too; with published rates a small job is interrupted at least every so often (`small_job` says otherwise).
    """
    own = mtti_given is not None or (source is not None and source.basis in ("given", "incidents"))
    source = source or known.failure_source()
    assumptions: list[Text] = []
    if mtti_given is not None:
        source = given_rate(1 / (cluster.nodes * mtti_given))
        scale = 1.0
    else:
        scale = 1.0 if own else cluster.node_size / source.node_size
        if not own:
            assumptions.append(_published(source, scale, cluster))
    counted = not own if small_job is None else small_job
    floors = known.small_job() if counted else (None, None, None)
    floor = floors[0]
    rate, low, high = (value * scale for value in (source.rate, source.low, source.high))
    times = [_between(cluster.nodes, value, least) for value, least in zip((rate, high, low), floors, strict=True)]
    if floor is not None and times[0] == floor:
        text = N_("a job this small is taken to be interrupted every {hours} h by its own software ({low} to {high} h)")
        hours = {
            name: f"{(value or 0.0) / 3600:g}" for name, value in zip(("hours", "low", "high"), floors, strict=True)
        }
        assumptions.append(Text(text, **hours))
    return FailureModel(
        source=source, nodes=cluster.nodes, rate=rate, low=low, high=high, small_job=floor, mtti=times[0],
        mtti_low=times[1], mtti_high=times[2], causes=source.causes, assumptions=tuple(assumptions),
    )  # fmt: skip


def _published(source: FailureSource, scale: float, cluster: Cluster) -> Text:
    values = {
        "rate": f"{source.rate * known.SECONDS_PER_DAY * 1000:.3g}",
        "low": f"{source.low * known.SECONDS_PER_DAY * 1000:.3g}",
        "high": f"{source.high * known.SECONDS_PER_DAY * 1000:.3g}",
        "name": source.id,
    }
    if scale == 1:
        return Text(N_("{rate} failures in 1,000 node-days ({low} to {high}), the rate called {name}"), **values)
    text = N_(
        "{rate} failures in 1,000 node-days ({low} to {high}), the rate called {name}, per {counted} devices; a node"
        " here has {here}"
    )
    return Text(text, counted=source.node_size, here=cluster.node_size, **values)


def _between(nodes: int, rate: float, floor: float | None) -> float:
    """Mean time to interrupt; not above what the job itself allows."""
    return min(mtti(nodes, rate), floor) if floor is not None else float(mtti(nodes, rate))


def by_component(model: FailureModel) -> dict[str, float]:
    """Failures per second of the whole job, by group of causes; what the job itself adds stands as `small_job`."""
    out: dict[str, float] = {}
    for cause in model.causes:
        out[cause.group] = out.get(cause.group, 0.0) + cause.share * model.nodes * model.rate
    extra = 1 / model.mtti - model.nodes * model.rate
    return out | ({"small_job": extra} if model.bound_by_job else {})


def causes_from(counts: dict[str, tuple[str, int]], fallback: tuple[Cause, ...]) -> tuple[Cause, ...]:
    """Causes by name with their group and count; what a group takes with it is as published."""
    scopes = {cause.group: cause.scope for cause in fallback}
    whole = sum(count for _, count in counts.values())
    return tuple(
        Cause(name=name, group=group, scope=scopes.get(group, "node"), share=count / whole)
        for name, (group, count) in counts.items()
        if whole
    )
