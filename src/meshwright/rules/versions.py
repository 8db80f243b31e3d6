"""Versions of frameworks: enough of PEP 440 for `>=0.17,<0.19` and `0.19.8`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable

_COMPARE: dict[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]] = {
    ">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt, "==": operator.eq,
}  # fmt: skip
_CLAUSE = re.compile(r"(>=|<=|==|<|>)\s*(\d+(?:\.\d+)*)")
LENGTH = 3  # 0.19 is 0.19.0


def numbers(version: str) -> tuple[int, ...]:
    """The release numbers of a version: `core_r0.16.1` is (0, 16, 1)."""
    found = re.search(r"\d+(?:\.\d+)*", version)
    parts = tuple(int(part) for part in found.group().split(".")) if found else ()
    return parts + (0,) * (LENGTH - len(parts))


def covers(clauses: str, version: str) -> bool:
    """Whether `version` satisfies all of `clauses`; no clauses, or a version not known, are satisfied."""
    if not clauses or not re.search(r"\d", version):
        return True
    return all(_COMPARE[sign](numbers(version), numbers(bound)) for sign, bound in _CLAUSE.findall(clauses))
