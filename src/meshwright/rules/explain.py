"""What a rule is: the record behind `explain MW-…`."""

from __future__ import annotations

from meshwright.errors import UnknownNameError
from meshwright.messages import N_, Text
from meshwright.rules import check  # noqa: F401  (registers the built-in rules)
from meshwright.rules.base import RULES, Rule
from meshwright.spec.plan import Explanation, Section

SEVERITY_NAMES = {
    "error": N_("error: the strategy is refused"),
    "warning": N_("warning: it runs, but something is likely wrong"),
    "advice": N_("advice: something else is likely better"),
    "info": N_("information"),
}


def rule_explanation(id: str) -> Explanation:
    """Title, reason, what is checked, fix and source of rule `id` (any case); raises `UnknownNameError`."""
    rule = RULES.get(id.upper())
    if rule is None:
        raise UnknownNameError(Text(N_("rule")), id, RULES)
    return Explanation(
        subject=rule.id,
        kind="rule",
        title=rule.title,
        sections=(
            Section(title=Text(N_("Why")), body=(rule.reason,)),
            Section(title=Text(N_("What must hold")), body=_conditions(rule)),
            Section(title=Text(N_("What to do")), body=(rule.fix,)),
            Section(title=Text(N_("Severity")), body=(Text(SEVERITY_NAMES[rule.severity]),)),
        ),
        sources=(rule.source,),
        see_also=tuple(other for other in sorted(RULES) if other != rule.id and RULES[other].where == rule.where),
    )


def _conditions(rule: Rule) -> tuple[Text, ...]:
    stated = Text("{condition}", condition=rule.condition)
    if not rule.frameworks:
        return (stated,)
    return (stated, Text(N_("only for {frameworks}"), frameworks=", ".join(sorted(rule.frameworks))))
