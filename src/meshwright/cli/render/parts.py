"""Pieces that several results share: headings, trees of terms, tables, findings, assumptions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

from rich import box
from rich.padding import Padding
from rich.table import Table
from rich.text import Text as Styled

from meshwright.cli.labels import label
from meshwright.cli.language import say, tell
from meshwright.cli.output import Grid, View
from meshwright.messages import N_, Text
from meshwright.spec import Estimate, Finding, Strategy, Term
from meshwright.spec.plan import Problem
from meshwright.units import show_bytes, show_count, show_days, show_gib, show_percent, show_seconds

VERDICT_STYLE = {"FITS": "bold green", "TIGHT": "bold yellow", "OVER": "bold red"}
SEVERITY_STYLE = {"error": "bold red", "warning": "yellow", "advice": "cyan", "info": "dim"}
BAR = "█▓▒░"
SHORT = 18  # words up to this long are not broken in a table


def heading(text: str) -> Styled:
    """A section title, with a line of space above."""
    return Styled(f"\n{text}", style="bold")


def line(text: str, style: str = "", indent: int = 0) -> Any:
    """A sentence that wraps under itself."""
    return Padding(Styled(text, style=style), (0, 0, 0, indent))


def bullet(text: str, style: str = "", mark: str = "·") -> Any:
    """A sentence of a list."""
    table = Table.grid(padding=(0, 1))
    table.add_row(f"{mark:>3}", Styled(text, style=style))
    return table


def bullets(texts: Iterable[Text | str], style: str = "") -> Iterable[Any]:
    """A list of sentences."""
    return [bullet(tell(text), style) for text in texts]


def table(
    heads: Sequence[str], rows: Iterable[Sequence[Any]], view: View, *, left: Iterable[int] = (0,), mark: int = -1
) -> Any:
    """A table without vertical rules; columns in `left` are text, the others numbers; row `mark` is bold."""
    left, rows = set(left), [list(row) for row in rows]
    # Numbers and short words are never broken, so their column is as wide as its cells; heads and sentences wrap.
    widest = [
        max([len(str(row[i])) for row in rows] + [len(word) for word in str(head).split()] + [1])
        for i, head in enumerate(heads)
    ]
    fixed = [i not in left or widest[i] <= SHORT for i in range(len(heads))]
    needed = sum(width if kept else SHORT for width, kept in zip(widest, fixed, strict=True))
    gap = 1 if needed + 2 * (len(heads) - 1) <= view.width else 0  # beside the one that the box adds
    rule = None if view.plain else box.SIMPLE_HEAD
    drawn = Table(box=rule, show_edge=False, pad_edge=False, header_style="bold", show_header=any(heads),
                  padding=(0, gap + view.plain, 0, 0))  # fmt: skip
    for index, head in enumerate(heads):
        justify: Literal["left", "right"] = "left" if index in left else "right"
        drawn.add_column(head, justify=justify, overflow="fold", width=widest[index] if fixed[index] else None)
    for index, row in enumerate(rows):
        cells = [Styled(cell) if isinstance(cell, str) else cell for cell in row]
        drawn.add_row(*cells, style="bold" if index == mark else "")
    return drawn


def grid_table(grid: Grid, view: View, *, left: Iterable[int] = (0,), mark: int = -1) -> Any:
    """The main table of a result as drawn for people."""
    return table(grid.heads, grid.rows, view, left=left, mark=mark)


# ---------------------------------------------------------------------------------------------- problem


def problem_line(problem: Problem) -> str:
    """Model, cluster and job in one line."""
    cluster, job = problem.cluster, problem.job
    return say(
        N_("{model} · {devices} × {accelerator} ({nodes} × {node_size}) · seq {seq} · {batch} sequences a step"
           " ({tokens} tokens) · {precision} · {optimizer}"),
        model=problem.model.name,
        devices=f"{cluster.devices:,}",
        accelerator=cluster.accelerator.name,
        nodes=f"{cluster.nodes:,}",
        node_size=cluster.node_size,
        seq=f"{job.seq_len:,}",
        batch=f"{job.global_batch:,}",
        tokens=show_count(job.tokens_per_step),
        precision=job.precision,
        optimizer=job.optimizer,
    )  # fmt: skip


def strategy_words(strategy: Strategy) -> str:
    """The strategy with everything that is not a degree."""
    parts = [strategy.framework, strategy.short, strategy.sharding]
    if strategy.shard:
        parts.append(f"hsdp{strategy.shard}")
    parts.append(say(N_("recompute {what}"), what=strategy.recompute))
    if strategy.recompute == "selective" and strategy.recompute_ops:
        parts[-1] += f" ({', '.join(strategy.recompute_ops)})"
    if strategy.pipeline > 1:
        parts.append(strategy.schedule)
    if strategy.overlap_expert:
        parts.append(say(N_("all-to-all overlapped")))
    if strategy.graphs != "none":
        parts.append(say(N_("CUDA graphs {what}"), what=strategy.graphs))
    if strategy.offload != "none":
        parts.append(say(N_("offload {what}"), what=strategy.offload))
    return " · ".join(str(part) for part in parts)


# ---------------------------------------------------------------------------------------------- trees


def shares(term: Term) -> float:
    """What 100 % is for a tree: its own value, or 1 for an empty one."""
    return float(term.value) or 1.0


def rows_of(term: Term, *, depth: int = 2, least: float = 0.002) -> list[tuple[int, Term]]:
    """Terms to show, parents first: not deeper than `depth`, not less than `least` of the whole."""
    whole = abs(shares(term))
    rows: list[tuple[int, Term]] = []

    def visit(node: Term, level: int) -> None:
        if level and abs(float(node.value)) < least * whole:
            return
        rows.append((level, node))
        if level < depth and not (len(node.children) == 1 and node.children[0].name == node.name):
            for child in node.children:
                visit(child, level + 1)

    for child in term.children or (term,):
        visit(child, 0)
    return rows


class Tree(NamedTuple):
    """A drawn tree and the columns it takes."""

    table: Table
    width: int


def tree(term: Term, title: str, view: View, *, depth: int = 1, whole: float | None = None) -> Tree:
    """A tree of terms as a table: label, value, share of the whole, certainty of what is not divided further."""
    reference = shares(term) if whole is None else whole
    rows = []
    for level, node in rows_of(term, depth=depth):
        share = float(node.value) / reference
        certainty = label(node.certainty) if not node.children or level == depth else ""
        name = f"{'  ' * (level + 1)}{label(node.name, term.name)}"
        rows.append((name, _amount(node, view), show_percent(share, 1 if share < 0.1 else 0), certainty, level))
    rows.append((say(N_("  total")), _amount(term, view), "", label(term.certainty), -1))
    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    drawn.add_column(title, no_wrap=True)
    for justify in ("right", "right", "left"):
        drawn.add_column("", justify=justify, no_wrap=True)
    for *cells, level in rows:
        drawn.add_row(*cells, style={-1: "bold", 0: ""}.get(level, "dim"))
    names = max(len(title), *(len(row[0]) for row in rows))
    return Tree(drawn, names + sum(2 + max(len(str(row[i])) for row in rows) for i in (1, 2, 3)))


def _amount(term: Term, view: View) -> str:
    if view.exact:
        return view.value(float(term.value), term.unit)
    if term.unit in ("B", "bytes"):
        return show_gib(float(term.value))
    return view.value(float(term.value), term.unit)


def stacked_bar(parts: Sequence[tuple[str, float]], whole: float, width: int) -> tuple[str, str]:
    """A bar of `width` cells for `parts` of `whole` (rest empty), and its legend in words."""
    cells, legend, used, drawn = "", [], 0.0, 0
    for index, (name, value) in enumerate(parts):
        fill = BAR[index % len(BAR)]
        used += value
        end = min(width, round(width * used / whole)) if whole > 0 else 0
        cells += fill * (end - drawn)
        drawn = max(drawn, end)
        legend.append(f"{fill} {name}")
    return cells + " " * (width - drawn), "  ".join(legend)


GAP = 2


def side_by_side(left: Any, right: Any) -> Any:
    """Two blocks beside each other."""
    grid = Table.grid(padding=(0, GAP))
    grid.add_column()
    grid.add_column()
    grid.add_row(left, right)
    return grid


# ---------------------------------------------------------------------------------------------- sentences


def verdict(estimate: Estimate) -> Styled:
    """FITS, TIGHT or OVER in words, with the margin and where the peak is."""
    spare = estimate.capacity_bytes - estimate.peak_bytes
    template = {
        "FITS": N_("FITS with {amount} to spare (peak: {phase} of stage {stage})"),
        "TIGHT": N_("TIGHT: {amount} to spare, less than the stated error (peak: {phase} of stage {stage})"),
        "OVER": N_("OVER by {amount} (peak: {phase} of stage {stage})"),
    }[estimate.verdict]
    if estimate.verdict == "OVER" and spare >= 0:
        template = N_("OVER: memory of the host, or a rule, forbids it (peak: {phase} of stage {stage})")
    if estimate.verdict == "TIGHT" and spare < 0:
        template = N_("TIGHT: {amount} over, less than the stated error (peak: {phase} of stage {stage})")
    text = say(template, amount=show_gib(abs(spare)), phase=label(estimate.peak_phase), stage=estimate.peak_stage)
    return Styled(text, style=VERDICT_STYLE[estimate.verdict])


def speed_lines(estimate: Estimate, problem: Problem) -> list[str]:
    """Step, interval, throughput, MFU and HFU with their convention, cost, length of the run."""
    low, high = estimate.step_interval
    lines = [
        say(
            N_("step {step} (between {low} and {high}) · {rate} tokens/s · {per_device} tokens/s per device"),
            step=show_seconds(estimate.step_seconds),
            low=show_seconds(low),
            high=show_seconds(high),
            rate=show_count(round(estimate.tokens_per_second)),
            per_device=show_count(round(estimate.tokens_per_second_per_device)),
        ),
        say(
            N_(
                "MFU {mfu} · HFU {hfu} · {flops} TFLOP/s per device (model FLOPs: attention as if unmasked, no"
                " recomputation; against the dense {dtype} peak)"
            ),
            dtype=estimate.peak_dtype,
            mfu=show_percent(estimate.mfu),
            hfu=show_percent(estimate.hfu),
            flops=f"{estimate.model_flops / estimate.step_seconds / problem.cluster.devices / 1e12:.0f}",
        ),
    ]
    if estimate.dollars_per_step is not None:
        lines.append(_cost(estimate, problem))
    if estimate.days is not None and problem.job.tokens:
        lines.append(
            say(
                N_("{tokens} tokens take {time} without failures"),
                tokens=show_count(problem.job.tokens),
                time=show_days(estimate.days),
            )
        )
    return lines


def _cost(estimate: Estimate, problem: Problem) -> str:
    from meshwright.units import show_money

    dollars = estimate.dollars_per_step or 0.0
    per_billion = dollars / problem.job.tokens_per_step * 1e9
    price = problem.cluster.price_per_device_hour or 0.0
    values = {"per_billion": show_money(per_billion), "price": show_money(price)}
    if not problem.job.tokens:
        return say(N_("{per_billion} per billion tokens at {price} per device and hour"), **values)
    whole = dollars / problem.job.tokens_per_step * problem.job.tokens
    return say(
        N_("{per_billion} per billion tokens, {whole} for the run, at {price} per device and hour"),
        whole=show_money(whole),
        **values,
    )


def findings_part(findings: Sequence[Finding]) -> Iterable[Any]:
    """Findings with code, severity, place and what to try."""
    if not findings:
        return
    yield heading(say(N_("Findings")))
    order = {"error": 0, "warning": 1, "advice": 2, "info": 3}
    for finding in sorted(findings, key=lambda f: order[f.severity]):
        head = f"{finding.code} {label(finding.severity)}"
        where = f" [{finding.where}]" if finding.where else ""
        yield line(f"{head}: {tell(finding.message)}{where}", SEVERITY_STYLE[finding.severity], indent=2)
        if finding.fix is not None:
            yield line(say(N_("try: {fix}"), fix=tell(finding.fix)), indent=6)


def assumptions_part(texts: Iterable[Text | str]) -> Iterable[Any]:
    """What was assumed, each once."""
    sentences = list(dict.fromkeys(tell(text) for text in texts))
    if sentences:
        yield heading(say(N_("Assumed")))
        for sentence in sentences:
            yield bullet(sentence, "dim")


def bytes_or_dash(value: float | None) -> str:
    """Bytes for a cell that may be empty."""
    return "-" if value is None else show_bytes(value)
