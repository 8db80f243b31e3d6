"""A rule code, with what it says about the plan at hand."""

from __future__ import annotations

from meshwright.engine.explain.case import Case
from meshwright.engine.explain.words import Row
from meshwright.messages import N_, Text
from meshwright.rules.base import RULES, Rule, RuleContext
from meshwright.rules.explain import rule_explanation
from meshwright.spec.plan import Explanation, Plan, Section


def rule_in_plan(code: str, case: Case | None, plan: Plan | None) -> Explanation:
    """The card of rule `code`; with a plan, whether it fires there and how many candidates it rejected."""
    card = rule_explanation(code)
    own = _section(RULES[card.subject], case, plan)
    if not (own.body or own.rows):
        return card
    return Explanation(
        subject=card.subject, kind=card.kind, title=card.title, sections=(own, *card.sections), sources=card.sources,
        see_also=card.see_also,
    )  # fmt: skip


def _section(rule: Rule, case: Case | None, plan: Plan | None) -> Section:
    body: list[Text] = []
    rows: list[Row] = []
    if case is not None:
        body += [case.origin] if case.origin else []
        p = case.problem
        context = RuleContext(p.model, p.cluster, p.job, case.strategy, estimate=case.estimate)
        if not rule.concerns(context):
            body.append(Text(N_("it does not concern this plan")))
        elif not rule.violated(context):
            body.append(Text(N_("this plan satisfies it")))
        else:
            finding = rule.finding(context)
            body += [finding.message, *((finding.fix,) if finding.fix else ())]
            rows += [(k, v, "") for k, v in finding.data.items() if isinstance(v, (bool, int, float, str))]
    plan = plan or (case.plan if case else None)
    for step in plan.funnel if plan else ():
        if step.code == rule.id:
            text = N_("it rejected {count} of {all} candidates")
            body.append(Text(text, count=f"{step.rejected:,}", all=f"{plan.candidates if plan else 0:,}"))
    return Section(title=Text(N_("In your plan")), body=tuple(body), rows=tuple(rows))
