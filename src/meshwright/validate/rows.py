"""A file of measured runs as records: one row one `MeasuredRun`, cells that say nothing are None or empty."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from meshwright.errors import InputError
from meshwright.files import decode
from meshwright.messages import N_, Text

LARGEST = 64 * 10**6  # bytes of a file; the thousand published runs have half a megabyte
LONGEST_CELL = 4000  # characters that are read of one cell


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """One published training run as its source states it; the columns are those of measured_runs.csv."""

    id: str = ""
    source: str = ""
    source_ref: str = ""
    year: int | None = None
    model: str = ""
    n_layers: int | None = None
    hidden: int | None = None
    n_heads: int | None = None
    n_kv_heads: int | None = None
    ffn_hidden: int | None = None
    gated_mlp: int | None = None
    vocab: int | None = None
    seq_len: int | None = None
    n_experts: int | None = None
    top_k: int | None = None
    moe_ffn_hidden: int | None = None
    shared_experts: int | None = None
    dense_layers: int | None = None
    other_arch: str = ""
    params_b: float | None = None
    accelerator: str = ""
    gpus_per_node: int | None = None
    inter_gbps_per_accelerator: float | None = None
    n_gpus: int | None = None
    tp: int | None = None
    pp: int | None = None
    vpp: int | None = None
    cp: int | None = None
    ep: int | None = None
    etp: int | None = None
    dp: int | None = None
    sharding: str = ""
    sharding_note: str = ""
    seq_parallel: int | None = None
    micro_batch: int | None = None
    global_batch: int | None = None
    precision: str = ""
    recompute: str = ""
    optimizer: str = ""
    framework: str = ""
    step_time_s: float | None = None
    tokens_per_s_per_gpu: float | None = None
    peak_mem_gb: float | None = None
    tier: str = ""
    notes: str = ""
    malformed: tuple[tuple[str, str], ...] = ()  # columns of numbers that hold something else, and what

    @property
    def measured_tokens_per_second(self) -> float | None:
        """Tokens/s per device: as printed, else from the step time.

        Runs of tier M were timed in a deterministic mode that nobody trains in: their times say nothing.
        """
        if self.tier == "M":
            return None
        if self.tokens_per_s_per_gpu:
            return self.tokens_per_s_per_gpu
        if self.step_time_s and self.seq_len and self.global_batch and self.n_gpus:
            return self.seq_len * self.global_batch / self.step_time_s / self.n_gpus
        return None


_KINDS: Mapping[str, Any] = {f.name: f.type for f in fields(MeasuredRun) if f.name != "malformed"}
COLUMNS = tuple(_KINDS)
NEEDED = ("n_layers", "hidden", "n_heads", "seq_len", "accelerator", "n_gpus", "global_batch")  # nothing works without


def read_runs(content: str | bytes, *, where: str) -> tuple[MeasuredRun, ...]:
    """The rows of a CSV file (comma, semicolon or tab). Columns in any order; those not known are passed over."""
    text = decode(content, where=where)
    delimiter = _delimiter(text)
    before = csv.field_size_limit(max(len(text), 1))
    try:
        lines = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
    except csv.Error as error:
        raise InputError(
            Text(N_("not a table in CSV: {reason}"), reason=str(error)), where=where, fix=Text(N_("check the path"))
        ) from None
    finally:
        csv.field_size_limit(before)
    if not lines:
        raise InputError(
            Text(N_("the file is empty")),
            where=where,
            fix=Text(N_("name the columns in the first line: {names}"), names=", ".join(COLUMNS)),
        )
    heads = [head.strip().lower() for head in lines[0]]
    if absent := [name for name in NEEDED if name not in heads]:
        raise InputError(
            Text(N_("the first line lacks columns of a table of measured runs: {names}"), names=", ".join(absent)),
            where=where,
            fix=Text(N_("name the columns in the first line: {names}"), names=", ".join(COLUMNS)),
        )
    rows = [(i, cells) for i, cells in enumerate(lines[1:], 2) if any(cell.strip() for cell in cells)]
    if not rows:
        raise InputError(
            Text(N_("the table has no rows")), where=where, fix=Text(N_("write one measured run per line"))
        )
    return tuple(_run(heads, cells, line) for line, cells in rows)


def _delimiter(text: str) -> str:
    """The character that separates the heads: spreadsheets of other countries write semicolons."""
    head = text.lstrip().split("\n", 1)[0]
    return max(",;\t", key=head.count)


def _run(heads: list[str], cells: list[str], line: int) -> MeasuredRun:
    values: dict[str, Any] = {}
    malformed = []
    for name, cell in zip(heads, cells, strict=False):
        kind, text = _KINDS.get(name), cell.strip()[:LONGEST_CELL]
        if kind is None or not text:
            continue
        value = text if kind == "str" else _number(text, whole=kind.startswith("int"))
        if value is None:
            malformed.append((name, text[:40]))
        else:
            values[name] = value
    values.setdefault("id", f"line-{line}")
    return MeasuredRun(**values, malformed=tuple(malformed))


LARGEST_NUMBER = 1e100  # far beyond anything measured, and far enough below the overflow of doubles for unit changes


def _number(text: str, *, whole: bool) -> float | int | None:
    """A cell as a number, not negative; None for anything else."""
    try:
        value = float(text)
    except ValueError:
        return None
    if not math.isfinite(value) or not 0 <= value <= LARGEST_NUMBER or (whole and value != int(value)):
        return None
    return int(value) if whole else value
