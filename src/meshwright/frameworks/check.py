"""A configuration judged: rules about the file, rules about its strategy, memory verdict and speed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from meshwright.engine.evaluate import evaluate
from meshwright.frameworks.records import Imported
from meshwright.messages import Text
from meshwright.rules.base import RuleContext
from meshwright.rules.check import ORDER, advise, check
from meshwright.rules.configuration import check_configuration, settles
from meshwright.spec.estimate import Estimate, Refusal
from meshwright.spec.finding import Finding
from meshwright.spec.plan import Problem
from meshwright.spec.strategy import Strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What was found; `problem`, `strategy` and `estimate` only where model and cluster are known."""

    imported: Imported
    findings: tuple[Finding, ...]
    problem: Problem | None = None
    strategy: Strategy | None = None
    estimate: Estimate | None = None
    assumptions: tuple[Text, ...] = ()
    open: tuple[Text, ...] = ()  # what could not be judged, and what is needed for it

    @property
    def errors(self) -> int:
        """How many findings make the check fail."""
        return sum(1 for f in self.findings if f.severity == "error")

    @property
    def passes(self) -> bool:
        """No error, and not out of memory."""
        return not self.errors and (self.estimate is None or self.estimate.verdict != "OVER")

    def line(self, finding: Finding) -> int | None:
        """The line of the file that a finding is about."""
        return self.imported.configuration.line(finding.where)


def judge(imported: Imported, problem: Problem | None, strategy: Strategy | None, open: tuple[Text, ...] = (),
          assumptions: tuple[Text, ...] = ()) -> Checked:  # fmt: skip
    """Everything that can be said of a configuration for a problem, or of the file alone."""
    if problem is None or strategy is None:
        findings = _ordered((*imported.findings, *check_configuration(imported.configuration)))
        return Checked(imported=imported, findings=findings, open=open, assumptions=imported.assumptions)
    context = RuleContext(
        problem.model, problem.cluster, problem.job, strategy, uneven_stages=bool(strategy.layers_per_stage)
    )
    own = (*imported.findings, *check_configuration(imported.configuration, context))
    settled = settles(imported.configuration)
    found = tuple(f for f in check(context) if f.code not in settled)
    estimate = None
    if not any(f.severity == "error" for f in found):
        answer = evaluate(problem, strategy)
        if not isinstance(answer, Refusal):
            estimate = answer
            found += tuple(f for f in advise(context, answer) if f.code not in settled)
    return Checked(
        imported=imported, findings=_ordered((*own, *found)), problem=problem, strategy=strategy, estimate=estimate,
        assumptions=(*imported.assumptions, *assumptions), open=open,
    )  # fmt: skip


def _ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(findings, key=lambda f: (ORDER[f.severity], f.code, f.where)))
