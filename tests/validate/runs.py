"""Small tables of measured runs for tests: real rows from tests/data, and rows made by changing cells of one."""

from __future__ import annotations

import csv
import io
from pathlib import Path

DATA = Path(__file__).parents[1] / "data/measured_runs/rows.csv"
with DATA.open(newline="", encoding="utf-8") as file:
    ROWS = {row["id"]: row for row in csv.DictReader(file)}
HEADS = tuple(next(iter(ROWS.values())))


def changed(base: str = "kor22-003", **cells: str) -> dict[str, str]:
    """A real row with other cells."""
    return {**ROWS[base], **cells}


def table(*rows: dict[str, str], delimiter: str = ",") -> bytes:
    """Rows as the bytes of a CSV file."""
    out = io.StringIO()
    writer = csv.DictWriter(out, HEADS, delimiter=delimiter, lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().encode("utf-8", "surrogatepass")
