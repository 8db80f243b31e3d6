"""Every constraint and every piece of advice: one rule, one id, one reason, one fix."""

from meshwright.rules.base import RULES, Rule, RuleContext, rule
from meshwright.rules.check import advise, check, hard_mask
from meshwright.rules.explain import rule_explanation

__all__ = ["RULES", "Rule", "RuleContext", "advise", "check", "hard_mask", "rule", "rule_explanation"]
