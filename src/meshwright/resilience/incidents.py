"""An incident log (CSV) as a failure rate: maximum likelihood with its exact interval, causes, lemon nodes."""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from meshwright.catalog.failures import SECONDS_PER_DAY
from meshwright.errors import InputError
from meshwright.files import decode, read_bytes
from meshwright.formulas.failures import count_high, count_low, poisson_cdf
from meshwright.messages import N_, Text
from meshwright.resilience.failures import causes_from, given_rate
from meshwright.spec.resilience import CauseCount, Incident, IncidentStudy, LemonNode
from meshwright.units import parse_quantity

LARGEST = 64 * 10**6  # bytes of a log
LEMON = 0.01  # chance that any node looks like this by accident, over all nodes
_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "time": ("time", "timestamp", "date", "datetime", "start", "started_at", "fecha", "hora"),
    "node": ("node", "host", "hostname", "machine", "instance", "nodo"),
    "cause": ("cause", "component", "reason", "category", "error", "type", "causa", "componente"),
    "downtime": ("downtime", "duration", "down", "outage", "downtime_s", "duración", "duracion"),
}
# Words of causes, the first that fits.
_GROUPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("hbm", ("hbm", "ecc", "dram", "row remap", "xid 63", "xid 94", "xid 95")),
    ("software", ("nccl", "watchdog", "software", "bug", "oom", "exception", "dependency", "python", "hang", "user")),
    ("network", ("switch", "cable", "network", "infiniband", "link flap", "nic", "roce", "ib ", "fabric")),
    ("accelerator", ("gpu", "xid", "nvlink", "sram", "thermal", "tpu", "accelerator", "cuda")),
    ("host", ("host", "cpu", "memory", "psu", "power", "ssd", "disk", "nvme", "chassis", "node", "kernel", "board")),
)
_FORMATS = ("%d/%m/%Y %H:%M", "%d/%m/%Y", "%m/%d/%Y %H:%M", "%b %d %H:%M:%S %Y")


def group_of(cause: str) -> str:
    """The component that the words of a cause name, or `other`."""
    text = f"{cause.lower()} "
    return next((group for group, words in _GROUPS if any(word in text for word in words)), "other")


def read_incidents(log: str | Path | bytes, *, where: str = "") -> tuple[tuple[Incident, ...], datetime, datetime]:
    """The incidents of a CSV file in order of time, with the first and the last moment.

    Columns: a time and a node, and if there are, a cause and a downtime (seconds, or with a unit).
    """
    where = where or ("-" if isinstance(log, bytes) else str(log))
    content = log if isinstance(log, bytes) else read_bytes(log, largest=LARGEST, fix=Text(N_("check the path")))
    reader = csv.reader(io.StringIO(decode(content, where=where)))
    try:
        rows = [(line, row) for line, row in enumerate(reader, 1) if any(cell.strip() for cell in row)]
    except csv.Error as error:
        raise InputError(
            Text(N_("not a table in CSV: {reason}"), reason=str(error)),
            where=f"{where}:{reader.line_num}",
            fix=Text(N_("write it like {examples}"), examples="time,node,cause"),
        ) from None
    if len(rows) < 2:
        raise InputError(
            Text(N_("the log holds no incident")),
            where=where,
            fix=Text(N_("write it like {examples}"), examples="time,node,cause"),
        )
    columns = _columns(rows[0][1], where)
    read = [_incident(row, columns, f"{where}:{line}") for line, row in rows[1:]]
    read.sort(key=lambda item: item[0])
    first, last = read[0][0], read[-1][0]
    return tuple(replace(i, seconds=(time - first).total_seconds()) for time, i in read), first, last


def _columns(header: Sequence[str], where: str) -> dict[str, int]:
    names = [cell.strip().lower() for cell in header]
    found = {
        what: next((names.index(alias) for alias in aliases if alias in names), -1)
        for what, aliases in _COLUMNS.items()
    }
    for what in ("time", "node"):
        if found[what] < 0:
            raise InputError(
                Text(N_("the log has no column '{name}'"), name=what),
                where=where,
                fix=Text(N_("name it one of: {names}"), names=", ".join(_COLUMNS[what])),
            )
    return found


def _incident(row: Sequence[str], columns: Mapping[str, int], where: str) -> tuple[datetime, Incident]:
    def cell(what: str) -> str:
        at = columns[what]
        return row[at].strip() if 0 <= at < len(row) else ""

    node = cell("node")
    if not node:
        raise InputError(
            Text(N_("this incident names no node")),
            where=where,
            fix=Text(N_("name one, e.g. {examples}"), examples="node-017"),
        )
    down = cell("downtime")
    downtime = parse_quantity(down, "seconds", where=where) if down else None
    return _time(cell("time"), where), Incident(seconds=0.0, node=node, cause=cell("cause"), downtime=downtime)


def _time(text: str, where: str) -> datetime:
    """A moment: ISO 8601, or as spreadsheets write it; without a zone it is taken as UTC."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = next((t for form in _FORMATS if (t := _strptime(text, form)) is not None), None)  # type: ignore[assignment]
    if found is None:
        raise InputError(
            Text(N_("'{value}' is no time"), value=text[:40]),
            where=where,
            fix=Text(N_("write it like {examples}"), examples="2026-03-01T12:30:00"),
        )
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _strptime(text: str, form: str) -> datetime | None:
    try:
        return datetime.strptime(text, form)
    except ValueError:
        return None


# ---------------------------------------------------------------------------------------------- study


def study(
    incidents: Iterable[Incident], *, nodes: int | None = None, days: float | None = None, span: float = 0.0
) -> IncidentStudy:
    """Rate, interval, causes and lemons of a log that watched `nodes` nodes for `days`.

    Without `nodes`, those that the log names; without `days`, the `span` of its times (seconds): both make the rate
    too high, and are listed as assumptions.
    """
    incidents = tuple(incidents)
    assumptions: list[Text] = []
    named = len({i.node for i in incidents})
    if nodes is None:
        nodes = named
        text = N_("{nodes} nodes, those that the log names: with the nodes that never failed the rate is lower")
        assumptions.append(Text(text, nodes=nodes))
    _enough(nodes, named)
    if days is None:
        # k failures have k - 1 gaps between them; one gap more is the time before the first or after the last.
        days = span / SECONDS_PER_DAY * len(incidents) / max(len(incidents) - 1, 1)
        text = N_("{days} days, from the first to the last incident and one gap more")
        assumptions.append(Text(text, days=f"{days:.1f}"))
    if days <= 0:
        raise InputError(
            Text(N_("all incidents have the same time, so that no rate follows")),
            where="--days",
            fix=Text(N_("say how long the nodes were watched, e.g. {example}"), example="--days 55"),
        )
    seconds = nodes * days * SECONDS_PER_DAY
    rate, low, high = _rate(len(incidents), seconds)
    lemons = find_lemons(Counter(i.node for i in incidents), nodes)
    kept = [i for i in incidents if i.node not in {lemon.node for lemon in lemons}]
    without = _rate(len(kept), seconds * (nodes - len(lemons)) / nodes) if lemons else (rate, low, high)
    counts = Counter(i.cause or "unknown" for i in incidents)
    causes = tuple(
        CauseCount(name=name, group=group_of(name), failures=count, **_named(_rate(count, seconds)))
        for name, count in counts.most_common()
    )
    downs = [i.downtime for i in incidents if i.downtime is not None]
    source = replace(given_rate(rate, low, high), id="incidents", basis="incidents", nodes=nodes, days=days,
                     failures=len(incidents))  # fmt: skip
    known = {c.name: (c.group, c.failures) for c in causes if c.group != "other"}
    source = replace(source, causes=causes_from(known, source.causes) or source.causes)
    return IncidentStudy(
        incidents=len(incidents), nodes=nodes, days=days, rate=rate, low=low, high=high, causes=causes, lemons=lemons,
        rate_without=without[0], low_without=without[1], high_without=without[2],
        downtime=math.fsum(downs) / len(downs) if downs else None, source=source,
        summary=_summary(len(incidents), nodes, days, (rate, low, high), lemons), assumptions=tuple(assumptions),
    )  # fmt: skip


def _enough(nodes: int, named: int) -> None:
    if named > nodes:
        raise InputError(
            Text(N_("the log names {named} nodes, more than the {nodes} given"), named=named, nodes=nodes),
            where="--nodes",
            fix=Text(N_("the nearest legal value is {value}"), value=named),
        )


def _rate(count: int, seconds: float) -> tuple[float, float, float]:
    """Maximum-likelihood rate and its exact 90 % interval."""
    return count / seconds, float(count_low(count)) / seconds, float(count_high(count)) / seconds


def _named(rate: tuple[float, float, float]) -> dict[str, float]:
    return dict(zip(("rate", "low", "high"), rate, strict=True))


def find_lemons(counts: Mapping[str, int], nodes: int, chance: float = LEMON) -> tuple[LemonNode, ...]:
    """Nodes with more failures than the others make likely, the worst first.

    Each time the node with most failures is held against the mean of the rest; `chance` is divided by the number of
    nodes, as the worst of many is looked at.
    """
    left = dict(counts)
    found: list[LemonNode] = []
    while left and nodes - len(found) > 1:
        node = max(left, key=lambda n: (left[n], n))
        others = nodes - len(found) - 1
        # Half an event, so that silence among few nodes does not make one failure a miracle.
        mean = (sum(left.values()) - left[node] + 0.5) / others
        probability = 1 - float(poisson_cdf(left[node] - 1, mean)) if left[node] else 1.0
        if left[node] < 2 or probability * nodes >= chance:
            break
        found.append(LemonNode(node=node, failures=left.pop(node), expected=mean, probability=max(probability, 0.0)))
    return tuple(found)


def _summary(
    count: int, nodes: int, days: float, rate: tuple[float, float, float], lemons: tuple[LemonNode, ...]
) -> Text:
    values = {
        "count": count, "nodes": nodes, "days": f"{days:.4g}",
        **{k: f"{v * SECONDS_PER_DAY * 1000:.3g}" for k, v in zip(("rate", "low", "high"), rate, strict=True)},
    }  # fmt: skip
    if not lemons:
        text = N_(
            "{count} incidents on {nodes} nodes in {days} days: {rate} in 1,000 node-days (90 % interval {low} to"
            " {high}); no node stands out"
        )
        return Text(text, **values)
    text = N_(
        "{count} incidents on {nodes} nodes in {days} days: {rate} in 1,000 node-days (90 % interval {low} to {high});"
        " {lemons} had {share} of them: take these nodes out"
    )
    share = f"{sum(lemon.failures for lemon in lemons) / count:.0%}"
    return Text(text, lemons=", ".join(lemon.node for lemon in lemons[:5]), share=share, **values)
