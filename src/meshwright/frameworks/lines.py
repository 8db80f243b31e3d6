"""On which line a setting stands, for annotations. A best effort on the text: parsers of plain data do not say."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any


def json_lines(text: str, data: Mapping[str, Any]) -> dict[str, int]:
    """Line of every key of nested tables: its first mention behind the key of the table around it."""
    return _walk(text, data, "", 0, lambda key: re.compile(re.escape(json.dumps(key)) + r"\s*:"))


def yaml_lines(text: str, data: Mapping[str, Any]) -> dict[str, int]:
    """The same for YAML."""
    return _walk(text, data, "", 0, lambda key: re.compile(rf"^\s*[\"']?{re.escape(key)}[\"']?\s*:", re.MULTILINE))


def _walk(text: str, data: Mapping[str, Any], prefix: str, start: int, pattern: Any) -> dict[str, int]:
    lines: dict[str, int] = {}
    for key, value in list(data.items())[:1000]:
        found = pattern(str(key)).search(text, start)
        if found is None:
            continue
        lines[f"{prefix}{key}"] = (
            text.count("\n", 0, found.start() + len(found.group()) - len(found.group().lstrip())) + 1
        )
        if isinstance(value, Mapping):
            lines.update(_walk(text, value, f"{prefix}{key}.", found.end(), pattern))
    return lines
