"""Nearest legal values, and whole-number conditions that serve one strategy and a column of a million."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import numpy as np

TABLE_LIMIT = 1 << 20  # larger values are computed element by element
TABLE_WORTH = 4096  # shorter columns are not worth a table


@lru_cache(maxsize=1024)
def divisors(number: int) -> tuple[int, ...]:
    """All divisors of a positive `number`, rising."""
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return tuple(small + [number // d for d in reversed(small) if d * d != number])


def closest(values: Iterable[int], target: int, count: int = 6) -> list[int]:
    """The `count` positive values nearest to `target` by ratio, rising."""
    near = sorted(values, key=lambda v: (abs(math.log(v / target)), v))[:count]
    return sorted(near)


def nearest_divisors(number: int, target: int, count: int = 6) -> list[int]:
    """Divisors of `number` nearest to `target`, rising."""
    return closest(divisors(number), target, count)


def nearest_multiples(step: int, target: int) -> list[int]:
    """The multiples of `step` on either side of `target` (`target` alone where it is one)."""
    below, above = target // step * step, -(-target // step) * step
    return [v for v in dict.fromkeys((below, above)) if v > 0]


def listed(values: Iterable[int]) -> str:
    """Numbers for a sentence: `1, 2, 4`."""
    return ", ".join(str(v) for v in values)


def by_value(column: Any, predicate: Callable[[Any], Any]) -> Any:
    """`predicate(column)`. On a long column of small whole numbers it is evaluated once per possible value."""
    if isinstance(column, np.ndarray) and column.size > TABLE_WORTH:
        top = int(column.max())
        if 0 <= top < min(TABLE_LIMIT, column.size) and int(column.min()) >= 0:
            table: Any = np.asarray(predicate(np.arange(top + 1)))
            return table[column] if table.ndim else table
    return predicate(column)


def indivisible(number: int, by: Any) -> Any:
    """Whether `by` does not divide `number`; never for number 0 (the model has no such part)."""
    if number == 0:
        return False
    return by_value(by, lambda d: number % d != 0)


def any_indivisible(numbers: Iterable[int], by: Any) -> Any:
    """Whether `by` fails to divide at least one of `numbers`."""
    return indivisible(math.gcd(*numbers), by)


def negate(condition: Any) -> Any:
    """Logical not of a bool or a column of bools."""
    return np.logical_not(condition) if isinstance(condition, np.ndarray) else not condition
