"""A rule's answer: what is wrong or advisable, where, and the nearest legal values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from meshwright.messages import Text

Severity = Literal["error", "warning", "advice", "info"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding. `code` is stable (MW-…), `where` names the field, `fix` says what to try, `data` is for machines."""

    code: str
    severity: Severity
    message: Text
    where: str = ""
    fix: Text | None = None
    data: dict[str, Any] = field(default_factory=dict)
