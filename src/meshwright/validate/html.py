"""A comparison as one HTML file that needs nothing else: predicted against measured, and residuals by factor."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from html import escape
from itertools import groupby

from meshwright import __version__
from meshwright.messages import N_, Text
from meshwright.validate.compare import Compared
from meshwright.validate.summary import FACTORS, Group, Spread, Summary, values_of

SHOWN = ("accelerator", "framework", "precision", "feature", "scale", "tier")  # factors that get a residual plot
FAR = 1.0  # residuals beyond ±100 % are drawn at the edge
# Twelve hues that stay apart in both themes; further accelerators take them again with a ring instead of a disc.
HUES = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#ee8833", "#7a5195", "#999999", "#44aa99",
        "#882255", "#6699cc")  # fmt: skip
WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 760, 560, 70, 50, 14, 14

STYLE = """
:root{color-scheme:light dark;--ink:#1b1f24;--paper:#fff;--line:#d0d7de;--soft:#57606a}
@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--paper:#0d1117;--line:#30363d;--soft:#8b949e}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:64rem;margin:2rem auto;
padding:0 1rem}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2.2rem}p{color:var(--soft)}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}th,td{padding:.15rem .7rem;text-align:right;
border-bottom:1px solid var(--line)}th:first-child,td:first-child{text-align:left}.scroll{overflow-x:auto}
svg{width:100%;height:auto;max-width:760px}svg text{fill:var(--ink);font-size:12px}.grid{stroke:var(--line)}
.one{stroke:var(--ink)}.band{stroke:var(--soft);stroke-dasharray:4 4}.run{fill-opacity:.75}.run:hover{fill-opacity:1;
stroke:var(--ink)}.res{fill-opacity:.45}.legend{display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;list-style:none;padding:0}
.legend svg{width:12px;height:12px;vertical-align:-1px}
""".replace("\n", "")


def page(compared: Sequence[Compared], summary: Summary, language: str = "en") -> str:
    """The whole document in one language."""

    def say(template: str, **values: object) -> str:
        return escape(Text(template, **values).render(language))

    title = say(N_("Predicted against measured training runs"))
    timed = [c for c in compared if c.skipped is None and c.error is not None]
    hue = hues(timed)
    counts = say(
        N_("{compared} of {rows} rows compared, {skipped} skipped; Meshwright {version}"),
        compared=summary.compared, rows=summary.rows, skipped=summary.skipped, version=__version__,
    )  # fmt: skip
    parts = [
        f"<h1>{title}</h1><p>{counts}</p>",
        f"<h2>{say(N_('Throughput, tokens/s per device'))}</h2>",
        f"<p>{say(N_('Line: prediction equals measurement; dashed: 20 % off. Hover over a point for its row.'))}</p>",
        scatter(timed, hue, say(N_("measured")), say(N_("predicted")), language),
        legend(hue),
    ]
    for factor in SHOWN:
        groups = [g for g in summary.of(factor) if g.throughput is not None]
        heading = say(N_("Error by {factor}"), factor=Text(FACTORS[factor]))
        parts += [f"<h2>{heading}</h2>", residuals(factor, groups, timed, hue), table(groups, say)]
    parts += [f"<h2>{say(N_('Rows that were not compared'))}</h2>", reasons(summary, language)]
    body = "\n".join(parts)
    return (
        f'<!doctype html>\n<html lang="{language}"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width"><title>{title}</title><style>{STYLE}</style></head>'
        f"<body>\n{body}\n</body></html>\n"
    )


def hues(timed: Iterable[Compared]) -> dict[str, tuple[str, bool]]:
    """A colour for each accelerator, and whether its points are discs (or rings)."""
    names = sorted({c.accelerator for c in timed})
    return {name: (HUES[i % len(HUES)], i < len(HUES)) for i, name in enumerate(names)}


def _dot(x: float, y: float, look: tuple[str, bool], kind: str, radius: float, title: str) -> str:
    color, full = look
    paint = f'fill="{color}"' if full else f'fill="transparent" stroke="{color}" stroke-width="2"'
    return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}" {paint}><title>{title}</title></circle>'


def hover(c: Compared, language: str) -> str:
    """What a point says: which run, how it was partitioned, both rates and the error."""
    lines = [f"{c.run.id} · {c.run.model}", f"{c.run.n_gpus} × {c.run.accelerator} · {c.run.framework}"]
    if c.estimate is not None:
        s = c.estimate.strategy
        lines.append(f"{s.short} {s.sharding} · {s.precision} · recompute {s.recompute}")
    text = Text(
        N_("predicted {predicted}, measured {measured} tokens/s: {error}"),
        predicted=f"{c.predicted or 0:,.5g}",
        measured=f"{c.measured or 0:,.5g}",
        error=_error(c),
    )
    return escape("\n".join([*lines, text.render(language)]))


def _error(c: Compared) -> str:
    return f"{c.error or 0.0:+.1%}"


# ---------------------------------------------------------------------------------------------- scatter


def scatter(
    timed: Sequence[Compared], hue: dict[str, tuple[str, bool]], x_label: str, y_label: str, language: str
) -> str:
    """Predicted against measured, both logarithmic, one point per compared row."""
    if not timed:
        return ""
    values = [v for c in timed for v in (c.measured, c.predicted) if v]
    low, high = math.log10(min(values)) - 0.1, math.log10(max(values)) + 0.1

    def x(value: float) -> float:
        return LEFT + (math.log10(value) - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - (math.log10(value) - low) / (high - low) * (HEIGHT - BOTTOM - TOP)

    out = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{y_label} / {x_label}">']
    for tick in _ticks(low, high):
        out.append(f'<line class="grid" x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
        out.append(f'<line class="grid" y1="{y(tick):.1f}" y2="{y(tick):.1f}" x1="{LEFT}" x2="{WIDTH - RIGHT}"/>')
        out.append(f'<text x="{x(tick):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{tick:,.6g}</text>')
        out.append(f'<text x="{LEFT - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick:,.6g}</text>')
    first, last = 10**low, 10**high
    for factor, kind in ((1.0, "one"), (1.2, "band"), (1 / 1.2, "band")):
        start, end = max(first, first / factor), min(last, last / factor)
        out.append(
            f'<line class="{kind}" x1="{x(start):.1f}" y1="{y(start * factor):.1f}"'
            f' x2="{x(end):.1f}" y2="{y(end * factor):.1f}"/>'
        )
    for c in timed:
        point = x(c.measured or 1), y(c.predicted or 1)
        out.append(_dot(*point, hue[c.accelerator], "run", 4, hover(c, language)))
    out.append(f'<text x="{(LEFT + WIDTH) / 2}" y="{HEIGHT - 8}" text-anchor="middle">{x_label}</text>')
    out.append(f'<text transform="rotate(-90)" x="{-HEIGHT / 2}" y="14" text-anchor="middle">{y_label}</text></svg>')
    return "\n".join(out)


def _ticks(low: float, high: float) -> list[float]:
    """Powers of ten, with 2 and 5 times them where the range is short."""
    digits = (1, 2, 5) if high - low < 3 else (1,)
    every = [d * 10.0**e for e in range(math.floor(low), math.ceil(high) + 1) for d in digits]
    return [tick for tick in every if low <= math.log10(tick) <= high]


def legend(hue: dict[str, tuple[str, bool]]) -> str:
    """Which colour is which accelerator."""
    items = [
        f'<li><svg viewBox="0 0 12 12">{_dot(6, 6, look, "key", 5, escape(name))}</svg> {escape(name)}</li>'
        for name, look in hue.items()
    ]
    return f'<ul class="legend">{"".join(items)}</ul>'


# ---------------------------------------------------------------------------------------------- residuals


def residuals(factor: str, groups: Sequence[Group], timed: Sequence[Compared], hue: dict[str, tuple[str, bool]]) -> str:
    """Signed errors of every run, one line of points per group."""
    row, left, width = 22, 170, 760
    place = {group.value: i for i, group in enumerate(groups)}
    height = row * len(groups) + 34

    def x(error: float) -> float:
        return left + (max(-FAR, min(error, FAR)) + FAR) / (2 * FAR) * (width - left - 20)

    out = [f'<svg viewBox="0 0 {width} {height}" role="img">']
    for tick in (-1.0, -0.5, -0.2, 0.0, 0.2, 0.5, 1.0):
        kind = "one" if tick == 0 else "grid"
        out.append(f'<line class="{kind}" x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="4" y2="{height - 24}"/>')
        out.append(f'<text x="{x(tick):.1f}" y="{height - 8}" text-anchor="middle">{tick:+.0%}</text>')
    for value, i in place.items():
        out.append(f'<text x="{left - 8}" y="{row * i + 20}" text-anchor="end">{escape(value[:24])}</text>')
    pairs = sorted(((value, i) for i, c in enumerate(timed) for value in values_of(c, factor)), key=lambda p: p[0])
    for value, members in groupby(pairs, key=lambda p: p[0]):
        for order, (_, i) in enumerate(members):
            shift = (order * 5 % 7) - 3  # a fixed scatter, so that equal errors stay visible
            y = row * place[value] + 15 + shift
            c = timed[i]
            out.append(_dot(x(c.error or 0.0), y, hue[c.accelerator], "res", 3, escape(f"{c.run.id} {_error(c)}")))
    return "\n".join([*out, "</svg>"])


def table(groups: Sequence[Group], say: Callable[..., str]) -> str:
    """The figures behind a residual plot."""
    heads = ("", "n", say(N_("median error")), say(N_("mean error")), say(N_("bias")), say(N_("90th percentile")),
             say(N_("inside interval")), say(N_("naive guess, median")))  # fmt: skip
    lines = ["".join(f"<th>{head}</th>" for head in heads)]
    for group in groups:
        cells = (
            escape(group.value),
            *figures(group.throughput),
            share(group.naive.median_abs if group.naive else None),
        )
        lines.append("".join(f"<td>{cell}</td>" for cell in cells))
    rows = "".join(f"<tr>{line}</tr>" for line in lines)
    return f'<div class="scroll"><table>{rows}</table></div>'


def figures(found: Spread | None) -> tuple[str, ...]:
    """The cells of one spread."""
    if found is None:
        return ("-",) * 6
    return (str(found.n), share(found.median_abs), share(found.mean_abs), f"{found.bias:+.1%}", share(found.p90_abs),
            share(found.coverage))  # fmt: skip


def share(value: float | None) -> str:
    """A share in percent."""
    return "-" if value is None else f"{value:.1%}"


def reasons(summary: Summary, language: str) -> str:
    """Why rows were skipped."""
    rows = "".join(f"<tr><td>{escape(text.render(language))}</td><td>{n}</td></tr>" for text, n in summary.reasons)
    return f'<div class="scroll"><table>{rows}</table></div>'
