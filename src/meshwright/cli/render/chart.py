"""Charts of characters: a curve over device counts on logarithmic axes, and stacked bars of shares."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from meshwright.cli.render.parts import stacked_bar


def curve(
    points: Sequence[tuple[float, float]], ideal: Sequence[tuple[float, float]], *, width: int, height: int,
    mark: float | None, y_label: str, show_x: Sequence[tuple[float, str]], show_y: Sequence[tuple[float, str]],
) -> list[str]:  # fmt: skip
    """Both curves on log-log axes: `●` points joined by `•`, `·` the ideal, `┆` the marked x."""
    xs = [x for x, _ in (*points, *ideal)]
    ys = [y for _, y in (*points, *ideal) if y > 0]
    if not ys or len(points) < 2:
        return []
    column = _scale(min(xs), max(xs), width)
    row = _scale(min(ys), max(ys), height)
    cells = [[" "] * width for _ in range(height)]
    if mark is not None:
        for line in cells:
            line[column(mark)] = "┆"
    _trace(cells, ideal, column, row, "·", "·")
    _trace(cells, points, column, row, "•", "●")
    labels = {height - 1 - row(y): text for y, text in show_y}
    margin = max([len(text) for _, text in show_y] or [0])
    lines = [y_label]
    lines += [f"{labels.get(i, ''):>{margin}} │{''.join(line)}" for i, line in enumerate(cells)]
    lines.append(f"{'':>{margin}} └{'─' * width}")
    lines.append(f"{'':>{margin}}  {_axis(show_x, column, width)}")
    return [line.rstrip() for line in lines]


def _scale(low: float, high: float, cells: int):
    span = math.log(high / low) if high > low else 1.0
    return lambda value: min(cells - 1, max(0, round((cells - 1) * math.log(value / low) / span)))


def _trace(cells, points, column, row, between, at) -> None:
    height = len(cells)
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        steps = max(1, abs(column(x1) - column(x0)))
        for i in range(steps + 1):
            share = i / steps
            x, y = x0 * (x1 / x0) ** share, y0 * (y1 / y0) ** share
            cells[height - 1 - row(y)][column(x)] = between
    for x, y in points:
        cells[height - 1 - row(y)][column(x)] = at


def _axis(labels: Sequence[tuple[float, str]], column, width: int) -> str:
    axis = [" "] * (width + 12)
    end = -1
    for x, text in labels:
        start = max(0, min(column(x) - len(text) // 2, width + 12 - len(text)))
        if start <= end:
            continue
        axis[start : start + len(text)] = text
        end = start + len(text)
    return "".join(axis)


def shares(rows: Sequence[tuple[str, Sequence[tuple[str, float]]]], *, width: int) -> list[str]:
    """One bar of 100 % per row, and one legend for all."""
    margin = max(len(name) for name, _ in rows)
    lines, legend = [], ""
    for name, parts in rows:
        bar, legend = stacked_bar(parts, 1.0, width)
        lines.append(f"{name:>{margin}} [{bar}]")
    return [*lines, f"{'':>{margin}}  {legend}"]
