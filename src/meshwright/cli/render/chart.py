"""Charts of characters: curves over device counts on a logarithmic axis, and stacked bars of shares."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from meshwright.cli.render.parts import stacked_bar

Points = Sequence[tuple[float, float]]


class Curve(NamedTuple):
    """Points (x, y), the sign drawn at each and the sign between them."""

    points: Points
    at: str
    between: str


class Axis(NamedTuple):
    """Labels of an axis: value and text."""

    labels: Sequence[tuple[float, str]]
    low: float
    high: float
    logarithmic: bool = True

    def scale(self, cells: int) -> Callable[[float], int]:
        """Cell of a value, from 0 to `cells` − 1."""

        def share(value: float) -> float:
            if self.high <= self.low:
                return 0.0
            if self.logarithmic:
                return math.log(value / self.low) / math.log(self.high / self.low)
            return (value - self.low) / (self.high - self.low)

        return lambda value: min(cells - 1, max(0, round((cells - 1) * share(value))))


def curves(drawn: Sequence[Curve], x: Axis, y: Axis, *, width: int, height: int, mark: float | None) -> list[str]:
    """Curves over each other, later ones on top; `┆` marks an x."""
    column, row = x.scale(width), y.scale(height)
    cells = [[" "] * width for _ in range(height)]
    if mark is not None:
        for line in cells:
            line[column(mark)] = "┆"
    for curve in drawn:
        _trace(cells, curve, column, row)
    labels = {height - 1 - row(value): text for value, text in y.labels}
    margin = max(len(text) for _, text in y.labels)
    lines = [f"{labels.get(i, ''):>{margin}} │{''.join(line)}" for i, line in enumerate(cells)]
    lines.append(f"{'':>{margin}} └{'─' * width}")
    lines.append(f"{'':>{margin}}  {_labels(x.labels, column, width)}")
    return [line.rstrip() for line in lines]


def _trace(cells: list[list[str]], curve: Curve, column: Callable[[float], int], row: Callable[[float], int]) -> None:
    height = len(cells)
    for (x0, y0), (x1, y1) in itertools.pairwise(curve.points):
        first, last = column(x0), column(x1)
        low, high = row(y0), row(y1)
        for step in range(max(1, last - first) + 1):
            share = step / max(1, last - first)
            cells[height - 1 - round(low + (high - low) * share)][first + step] = curve.between
    for x, y in curve.points:
        cells[height - 1 - row(y)][column(x)] = curve.at


def _labels(labels: Sequence[tuple[float, str]], column: Callable[[float], int], width: int) -> str:
    """Labels under their columns; the last one first, then those that still have room."""
    axis = [" "] * (width + 12)
    for x, text in (*labels[-1:], *labels[:-1]):
        start = max(0, min(column(x) - len(text) // 2, width + 12 - len(text)))
        end = start + len(text)
        if all(cell == " " for cell in axis[max(0, start - 1) : end + 1]):
            axis[start:end] = text
    return "".join(axis)


def shares(rows: Sequence[tuple[str, Sequence[tuple[str, float]]]], *, width: int) -> list[str]:
    """One bar of 100 % per row, and one legend for all."""
    margin = max(len(name) for name, _ in rows)
    lines, legend = [], ""
    for name, parts in rows:
        bar, legend = stacked_bar(parts, 1.0, width)
        lines.append(f"{name:>{margin}} [{bar}]")
    return [*lines, f"{'':>{margin}}  {legend}"]
