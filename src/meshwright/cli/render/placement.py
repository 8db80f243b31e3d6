"""Where the ranks of each group lie: nodes as rows, devices as cells, and the link each group talks over.

Ranks are numbered as the frameworks do: tensor fastest, then context, then data (experts inside it), pipeline slowest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from meshwright.cli.labels import label
from meshwright.cli.language import say, tell
from meshwright.cli.output import View
from meshwright.cli.render import parts
from meshwright.messages import N_
from meshwright.spec import Cluster, Strategy
from meshwright.spec.plan import GroupPlacement
from meshwright.units import show

MOST_CELLS = 16  # devices of one node that are drawn


def coordinates(rank: int, strategy: Strategy) -> dict[str, int]:
    """Which tensor, context, expert, data and pipeline position a rank has."""
    tensor, rest = rank % strategy.tensor, rank // strategy.tensor
    context, rest = rest % strategy.context, rest // strategy.context
    data, pipeline = rest % strategy.data, rest // strategy.data
    return {"t": tensor, "c": context, "d": data, "p": pipeline}


def placement_part(groups: Sequence[GroupPlacement], strategy: Strategy, cluster: Cluster, view: View) -> Iterable[Any]:
    """The picture and the table of groups."""
    if not groups:
        return
    yield parts.heading(say(N_("Where the groups lie")))
    for text in picture(strategy, cluster):
        yield parts.line(text, indent=2)
    yield parts.line(legend(strategy), "dim", indent=2)
    rows: list[tuple[str, ...]] = []
    for group in groups:
        text = tell(group.text)
        speed = "-" if not group.bandwidth else show(group.bandwidth, "B/s")
        rows.append((label(group.group), str(group.ranks), str(group.ranks_per_domain), str(group.domains),
                     group.link, speed, text))  # fmt: skip
    heads = [say(N_("group")), say(N_("ranks")), say(N_("in a domain")), say(N_("domains")), say(N_("link")),
             say(N_("each rank gets")), say(N_("remark"))]  # fmt: skip
    if not any(row[-1] for row in rows):
        del heads[-1]
        rows = [row[:-1] for row in rows]
    yield parts.table(heads, rows, view, left=(0, 4, 6))


def picture(strategy: Strategy, cluster: Cluster) -> list[str]:
    """A row per node for the first nodes, the first node of the next stage, and the last node."""
    shown = min(cluster.node_size, MOST_CELLS, cluster.devices)
    nodes = cluster.nodes
    first_of_next = strategy.devices // max(1, strategy.pipeline) // cluster.node_size
    wanted = sorted({n for n in (0, 1, first_of_next, nodes - 1) if 0 <= n < nodes})
    sizes = {"p": strategy.pipeline, "d": strategy.data, "c": strategy.context, "t": strategy.tensor}
    axes = [axis for axis in "pdct" if sizes[axis] > 1]
    rows = []
    for node in wanted:
        ranks = range(node * cluster.node_size, min((node + 1) * cluster.node_size, strategy.devices))
        where = [coordinates(rank, strategy) for rank in ranks]
        varying = [axis for axis in axes if len({w[axis] for w in where}) > 1]
        cells = ["".join(f"{axis}{w[axis]}" for axis in varying) or "·" for w in where[:shown]]
        constant = " ".join(f"{axis}{where[0][axis]}" for axis in axes if axis not in varying and where)
        rows.append((node, cells, " …" if len(where) > shown else "", constant))
    size = max(len(cell) for _, cells, _, _ in rows for cell in cells)
    lines, previous, digits = [], -1, len(str(nodes - 1))
    for node, cells, more, constant in rows:
        if node > previous + 1:
            lines.append("  …")
        name = say(N_("node {number}"), number=f"{node:>{digits}}")
        lines.append(f"{name} │ " + " ".join(cell.ljust(size) for cell in cells) + f"{more} │ {constant}")
        previous = node
    return lines


def legend(strategy: Strategy) -> str:
    """What the letters stand for, of those that are drawn."""
    names = {
        "p": (strategy.pipeline, say(N_("p pipeline stage"))),
        "d": (strategy.data, say(N_("d data parallel rank"))),
        "c": (strategy.context, say(N_("c context rank"))),
        "t": (strategy.tensor, say(N_("t tensor rank"))),
    }
    return " · ".join(text for size, text in names.values() if size > 1)
