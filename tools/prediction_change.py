"""What a change does to predictions: the fixed grid and the measured rows at two revisions, side by side.

    python tools/prediction_change.py [BASE] [--json] [--most N] [--measured FILE]

The head is the working tree. The base is where the branch left BASE (default origin/main, else main); on BASE itself
it is the commit before, or HEAD while there are changes that are not committed. Where there is no such commit (a
shallow clone, a first commit, no git), it says that there is nothing to compare. Exits with 0 whatever changed: a
drift is for people to judge. `gain`: nearer to a measurement than before; `regression`: farther from it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
WORKER = Path(__file__).with_name("prediction_grid.py")
MEASURED = ROOT / ".." / "shared" / "validation" / "measured_runs.csv"
STILL = 0.001  # relative change of a prediction that is none
SAME = 0.001  # change of an error against a measurement that is neither gain nor regression
CATEGORIES = ("verdict", "plan", "time", "memory", "answer", "new", "gone", "same")


class Nothing(Exception):
    """There is nothing to compare; the message says why."""


# ---------------------------------------------------------------------------------------------- which revisions


def git(*arguments: str, root: Path = ROOT) -> str:
    """Output of git, or `Nothing` with what it complains of."""
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
    except OSError as error:
        raise Nothing(f"git cannot be run ({error.strerror})") from error
    if done.returncode:
        complaint = (done.stderr.strip() or done.stdout.strip() or "no answer").splitlines()[-1]
        raise Nothing(complaint)
    return done.stdout.strip()


def commit(name: str, root: Path = ROOT) -> str | None:
    """The commit that `name` means here, if any."""
    try:
        return git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}", root=root)
    except Nothing:
        return None


def base_commit(name: str | None, root: Path = ROOT) -> str:
    """The commit to compare the working tree with."""
    head = git("rev-parse", "--verify", "HEAD^{commit}", root=root)
    names = [name] if name else ["origin/main", "main"]
    given = next((found for one in names if (found := commit(one, root))), None)
    if given is None:
        if name:
            raise Nothing(f"no commit is called {name} here{_shallow(root)}")
        given = head
    try:
        base = git("merge-base", given, "HEAD", root=root)
    except Nothing:
        raise Nothing(f"{name or names[0]} and HEAD have no commit in common here{_shallow(root)}") from None
    if base != head:
        return base
    if git("status", "--porcelain", "--", "src", "tools/prediction_grid.toml", root=root):
        return head
    before = commit("HEAD~1", root)
    if before is None:
        raise Nothing(f"HEAD has no commit before it here{_shallow(root)}")
    return before


def _shallow(root: Path) -> str:
    return (
        " (a shallow clone: fetch more history)"
        if git("rev-parse", "--is-shallow-repository", root=root) == "true"
        else ""
    )


@contextmanager
def checkout(revision: str, root: Path = ROOT) -> Iterator[Path]:
    """A worktree of `revision` in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="meshwright-base-") as folder:
        place = Path(folder) / "tree"
        git("worktree", "add", "--detach", "--quiet", str(place), revision, root=root)
        try:
            yield place
        finally:
            git("worktree", "remove", "--force", str(place), root=root)


def predicted(tree: Path, measured: Path | None) -> dict[str, Any]:
    """Answers of the package in `tree` to the questions of this checkout."""
    command = [sys.executable, str(WORKER), str(tree), *(["--measured", str(measured)] if measured else [])]
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tree, check=False)
    if done.returncode:
        raise Nothing(f"the grid cannot be evaluated in {tree}: {done.stderr.strip().splitlines()[-1:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


# ---------------------------------------------------------------------------------------------- comparing


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One point of the grid, before and after."""

    id: str
    category: str  # the most telling of CATEGORIES
    time: float | None = None  # relative change of the step time
    memory: float | None = None
    before: str = ""  # verdict, plan or error, where these differ
    after: str = ""

    @property
    def size(self) -> float:
        """How large the change is, to put the largest first."""
        return max((abs(math.log1p(c)) for c in (self.time, self.memory) if c is not None), default=0.0)


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Change]:
    """Every point of both revisions."""
    ids = dict.fromkeys([*before, *after])
    return [change(id, before.get(id), after.get(id)) for id in ids]


def change(id: str, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> Change:
    """What became of one point."""
    if before is None or after is None:
        return Change(id=id, category="new" if before is None else "gone")
    time, memory = (ratio(before.get(key), after.get(key)) for key in ("step_seconds", "peak_bytes"))
    said = [
        (key, str(before.get(key, "")), str(after.get(key, ""))) for key in ("error", "verdict", "strategy", "codes")
    ]
    names = {"error": "answer", "verdict": "verdict", "strategy": "plan", "codes": "answer"}
    for key, old, new in said:
        if old != new:
            return Change(id=id, category=names[key], time=time, memory=memory, before=old, after=new)
    category = "time" if moved(time) else "memory" if moved(memory) else "same"
    return Change(id=id, category=category, time=time, memory=memory)


def ratio(before: float | None, after: float | None) -> float | None:
    """Relative change, where both have the figure."""
    return None if not before or after is None else after / before - 1


def moved(value: float | None) -> bool:
    """Whether a figure changed."""
    return value is not None and abs(value) > STILL


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The error of one measured row, before and after; `kind` is `tokens/s` or `peak memory`."""

    id: str
    kind: str
    before: float
    after: float

    @property
    def nearer(self) -> float:
        """How much nearer to the measurement (negative: farther)."""
        return abs(self.before) - abs(self.after)


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Errors against measurements: of the rows that both revisions compare, and how many only one does."""

    kind: str
    rows: tuple[Row, ...]
    only_before: int
    only_after: int

    @property
    def gains(self) -> list[Row]:
        """Rows that came nearer, most first."""
        return sorted((row for row in self.rows if row.nearer > SAME), key=lambda row: -row.nearer)

    @property
    def regressions(self) -> list[Row]:
        """Rows that went farther, most first."""
        return sorted((row for row in self.rows if row.nearer < -SAME), key=lambda row: row.nearer)

    def summary(self, when: str) -> dict[str, float]:
        """Median and mean absolute error, bias, 90th percentile."""
        errors = [getattr(row, when) for row in self.rows]
        sizes = sorted(abs(e) for e in errors)
        return {
            "median": statistics.median(sizes), "mean": statistics.fmean(sizes), "bias": statistics.fmean(errors),
            "p90": sizes[math.ceil(0.9 * len(sizes)) - 1],
        }  # fmt: skip


class Unread(Exception):
    """One of the revisions could not read the measured rows."""


KINDS = {"tokens/s": "error", "peak memory": "memory_error"}


def errors(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> list[Errors]:
    """Gains and regressions of throughput and of memory; empty without a table of measured rows."""
    for when, rows in (("before", before), ("now", after)):
        if rows is not None and "error" in rows:
            raise Unread(f"{when}: {rows['error']}")
    if before is None or after is None:
        return []
    found = []
    for kind, key in KINDS.items():
        pairs = {
            id: (before.get(id, {}).get(key), after.get(id, {}).get(key)) for id in dict.fromkeys([*before, *after])
        }
        rows = tuple(
            Row(id=id, kind=kind, before=old, after=new)
            for id, (old, new) in pairs.items()
            if old is not None and new is not None
        )
        only = Counter(
            "before" if new is None else "after" for old, new in pairs.values() if (old is None) != (new is None)
        )
        found.append(Errors(kind=kind, rows=rows, only_before=only["before"], only_after=only["after"]))
    return found


# ---------------------------------------------------------------------------------------------- telling


def percent(value: float | None) -> str:
    """A signed share."""
    return "-" if value is None else f"{100 * value:+.1f}%"


def report(base: str, grid: Sequence[Change], measured: Sequence[Errors], most: int) -> Iterator[str]:
    """The report, line by line."""
    counts = Counter(c.category for c in grid)
    yield f"Predictions of this checkout against {base}"
    yield f"{len(grid)} points: " + ", ".join(f"{counts[name]} {name}" for name in CATEGORIES if counts[name])
    times, sizes = ([v for c in grid if (v := getattr(c, name)) is not None] for name in ("time", "memory"))
    for name, values in (("step time", times), ("peak memory", sizes)):
        far = [value for value in values if moved(value)]
        if far:
            yield (f"{name}: {len(far)} of {len(values)} moved, those by {percent(statistics.median(far))} in the"
                   f" median, from {percent(min(far))} to {percent(max(far))}")  # fmt: skip
    yield from grid_lines([c for c in grid if c.category != "same"], most)
    for found in measured:
        yield from measured_lines(found, most)


def grid_lines(moved: Sequence[Change], most: int) -> Iterator[str]:
    """The largest changes of each category."""
    for category in CATEGORIES:
        chosen = sorted((c for c in moved if c.category == category), key=lambda c: -c.size)
        if chosen:
            yield ""
            yield f"{category} ({len(chosen)})   step time, peak memory"
        for c in chosen[:most]:
            words = f"   {c.before or '-'} → {c.after or '-'}" if c.before != c.after else ""
            yield f"  {percent(c.time):>8} {percent(c.memory):>8}  {c.id}{words}"
        if len(chosen) > most:
            yield f"  … {len(chosen) - most} more"


def measured_lines(found: Errors, most: int) -> Iterator[str]:
    """Errors against measured rows before and after, then who came nearer and who went farther."""
    yield ""
    if not found.rows:
        yield f"{found.kind}: no measured row is compared by both"
        return
    before, after = found.summary("before"), found.summary("after")
    yield (f"{found.kind} of {len(found.rows)} measured rows: {len(found.gains)} gains,"
           f" {len(found.regressions)} regressions; compared only before {found.only_before}, only after"
           f" {found.only_after}")  # fmt: skip
    for name in before:
        sign = "+" if name == "bias" else ""
        yield f"  {name:7} {before[name]:{sign}.2%} → {after[name]:{sign}.2%}"
    for title, rows in (("gains", found.gains), ("regressions", found.regressions)):
        for row in rows[:most]:
            yield f"  {title[:-1]:10}  {percent(row.before):>8} → {percent(row.after):>8}  {row.id}"
        if len(rows) > most:
            yield f"  … {len(rows) - most} more {title}"


def as_json(base: str, grid: Sequence[Change], measured: Sequence[Errors]) -> dict[str, Any]:
    """The report as plain data."""
    return {
        "schema": "meshwright.prediction-change/1",
        "base": base,
        "counts": dict(Counter(c.category for c in grid)),
        "changes": [asdict(c) for c in grid if c.category != "same"],
        "measured": [
            {
                "kind": found.kind, "rows": len(found.rows), "gains": len(found.gains),
                "regressions": len(found.regressions), "before": found.summary("before") if found.rows else None,
                "after": found.summary("after") if found.rows else None,
                "changed": [asdict(row) for row in (*found.gains, *found.regressions)],
            }
            for found in measured
        ],
    }  # fmt: skip


def main(arguments: list[str]) -> int:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("base", nargs="?", help="a revision; default origin/main, else main")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--most", type=int, default=10, help="lines of each kind")
    parser.add_argument("--measured", type=Path, default=MEASURED, help="table of measured runs, where there is one")
    options = parser.parse_args(arguments)
    measured = options.measured.resolve() if options.measured.is_file() else None
    try:
        base = base_commit(options.base or None)
        name = git("show", "--no-patch", "--format=%h %s", base)
        with checkout(base) as tree:
            before = predicted(tree, measured)
        after = predicted(ROOT, measured)
    except Nothing as reason:
        print(f"nothing to compare: {reason}")
        return 0
    grid = changes(before["points"], after["points"])
    try:
        rows, unread = errors(before["rows"], after["rows"]), ""
    except Unread as error:
        rows, unread = [], str(error)
    if options.json:
        print(json.dumps(as_json(name, grid, rows), indent=2))
    else:
        print("\n".join(report(name, grid, rows, options.most)))
        if unread:
            print(f"\nmeasured rows cannot be compared; {unread}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
