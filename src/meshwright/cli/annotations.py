"""Findings for other programs: SARIF 2.1.0 for code scanning, workflow commands for annotations in pull requests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

from meshwright import __version__
from meshwright.cli.language import say, tell
from meshwright.messages import N_

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
LEVELS = {"error": "error", "warning": "warning", "advice": "note", "info": "note"}
COMMANDS = {"error": "error", "warning": "warning", "advice": "notice", "info": "notice"}
Checks = Sequence[tuple[str, Any]]


def _sentence(finding: Any) -> str:
    """What is wrong and what to try, in one line."""
    if finding.fix is None:
        return tell(finding.message)
    return f"{tell(finding.message)}. {say(N_('try: {fix}'), fix=tell(finding.fix))}"


def _over(checked: Any) -> str:
    """The verdict when it does not fit, else nothing."""
    estimate = checked.estimate
    if estimate is None or estimate.verdict != "OVER":
        return ""
    from meshwright.cli.render.parts import verdict

    return verdict(estimate).plain


def sarif(checks: Checks) -> str:
    """One run with all findings, rules described once."""
    findings = [(file, checked, finding) for file, checked in checks for finding in checked.findings]
    rules = list(dict.fromkeys(finding.code for _, _, finding in findings))
    results = [_result(file, checked.line(f), f.code, LEVELS[f.severity], _sentence(f), rules.index(f.code))
               for file, checked, f in findings]  # fmt: skip
    for file, checked in checks:
        if text := _over(checked):
            results.append(_result(file, None, "MW-MEMORY", "error", text, len(rules)))
    if len(results) > len(findings):
        rules.append("MW-MEMORY")
    driver = {"name": "meshwright", "version": __version__, "rules": [{"id": id} for id in rules]}
    run = {"tool": {"driver": driver}, "results": results, "columnKind": "unicodeCodePoints"}
    document = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(document, indent=2, ensure_ascii=True) + "\n"


def _result(file: str, line: int | None, rule: str, level: str, text: str, index: int) -> dict[str, Any]:
    place: dict[str, Any] = {"artifactLocation": {"uri": PurePath(file).as_posix() if file != "-" else "stdin"}}
    if line is not None:
        place["region"] = {"startLine": line}
    return {
        "ruleId": rule, "ruleIndex": index, "level": level, "message": {"text": text},
        "locations": [{"physicalLocation": place}],
    }  # fmt: skip


def github(checks: Checks) -> str:
    """One workflow command per finding; nothing where there is none."""
    lines = []
    for file, checked in checks:
        for finding in checked.findings:
            line = checked.line(finding)
            where = f"file={_property(file)}" + (f",line={line}" if line else "")
            lines.append(f"::{COMMANDS[finding.severity]} {where},title={finding.code}::{_data(_sentence(finding))}")
        if text := _over(checked):
            lines.append(f"::error file={_property(file)},title=memory::{_data(text)}")
    return "".join(f"{line}\n" for line in lines)


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
