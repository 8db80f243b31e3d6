"""Arithmetic that serves a Python number and a numpy column through the same lines.

numpy calls on Python floats cost about a microsecond each; a single estimate makes thousands. These helpers take
the plain-Python path when no argument is an array, so one strategy costs microseconds and a million share the code.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

_ARRAY = np.ndarray
Number = float | int | npt.NDArray[Any]


class Unit(str):
    """Unit of a parameter or result, in pint's spelling; checked by tests/formulas/test_dimensions.py."""

    __slots__ = ()


Bytes = Annotated[Any, Unit("byte")]
Seconds = Annotated[Any, Unit("second")]
Flops = Annotated[Any, Unit("flop")]
FlopsPerSecond = Annotated[Any, Unit("flop / second")]
BytesPerSecond = Annotated[Any, Unit("byte / second")]
Count = Annotated[Any, Unit("dimensionless")]
Fraction = Annotated[Any, Unit("dimensionless")]
Tokens = Annotated[Any, Unit("token")]
Dollars = Annotated[Any, Unit("dollar")]
SqrtCost = Annotated[Any, Unit("second / byte ** 0.5")]
PerSecond = Annotated[Any, Unit("1 / second")]


def maximum(a: Any, b: Any) -> Any:
    """The larger of `a` and `b`, element by element on arrays."""
    if isinstance(a, _ARRAY) or isinstance(b, _ARRAY):
        return np.maximum(a, b)
    return a if a >= b else b


def two_largest(values: Iterable[Any]) -> Any:
    """Sum of the two largest of non-negative `values`, element by element where any is an array; 0 of none.

    >>> two_largest([3.0, 1.0, 2.0])
    5.0
    """
    first: Any = 0.0
    second: Any = 0.0
    for value in values:
        second = maximum(second, minimum(first, value))
        first = maximum(first, value)
    return first + second


def minimum(a: Any, b: Any) -> Any:
    """The smaller of `a` and `b`, element by element on arrays."""
    if isinstance(a, _ARRAY) or isinstance(b, _ARRAY):
        return np.minimum(a, b)
    return a if a <= b else b


def where(condition: Any, a: Any, b: Any) -> Any:
    """`a` where `condition` holds, else `b`. Both are evaluated: neither may divide by zero."""
    if isinstance(condition, _ARRAY) or isinstance(a, _ARRAY) or isinstance(b, _ARRAY):
        return np.where(condition, a, b)
    return a if condition else b


def ceil(x: Any) -> Any:
    """Smallest whole number not below `x`."""
    return np.ceil(x) if isinstance(x, _ARRAY) else math.ceil(x)


def floor(x: Any) -> Any:
    """Largest whole number not above `x`."""
    return np.floor(x) if isinstance(x, _ARRAY) else math.floor(x)


def log2(x: Any) -> Any:
    """Base-2 logarithm."""
    return np.log2(x) if isinstance(x, _ARRAY) else math.log2(x)


def log(x: Any) -> Any:
    """Natural logarithm."""
    return np.log(x) if isinstance(x, _ARRAY) else math.log(x)


def exp(x: Any) -> Any:
    """e to the power of `x`."""
    return np.exp(x) if isinstance(x, _ARRAY) else math.exp(x)


def expm1(x: Any) -> Any:
    """e to the power of `x`, minus one, without losing a small `x` to rounding."""
    return np.expm1(x) if isinstance(x, _ARRAY) else math.expm1(x)


def log1p(x: Any) -> Any:
    """Natural logarithm of one plus `x`, without losing a small `x` to rounding."""
    return np.log1p(x) if isinstance(x, _ARRAY) else math.log1p(x)


def sqrt(x: Any) -> Any:
    """Square root; keeps units of quantities (`x ** 0.5`)."""
    return np.sqrt(x) if isinstance(x, _ARRAY) else x**0.5
