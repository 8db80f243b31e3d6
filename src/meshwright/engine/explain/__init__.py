"""The verb `explain`: a term of a result, a derived number, a rule code, a formula, or a concept."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from meshwright import glossary
from meshwright.catalog import concepts
from meshwright.catalog.concept_numbers import numbers_of
from meshwright.engine import update  # noqa: F401  (registers its formula)
from meshwright.engine.explain import formulas
from meshwright.engine.explain.case import Case, case_of
from meshwright.engine.explain.derived import ALIASES, DERIVED, derived_explanation
from meshwright.engine.explain.rules import rule_in_plan
from meshwright.engine.explain.terms import find_terms, general_explanation, general_formulas, term_explanation
from meshwright.engine.explain.words import key
from meshwright.engine.params import model_params
from meshwright.errors import UnknownNameError
from meshwright.formulas.registry import REGISTRY
from meshwright.messages import N_, Text
from meshwright.rules.base import RULES
from meshwright.rules.check import BUILT_IN  # noqa: F401  (registers every rule)
from meshwright.spec.estimate import Estimate
from meshwright.spec.plan import Explanation, Plan, Problem, Section

_RULE = re.compile(r"^mw-[a-z]\d+$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Subject:
    """Something that can be explained."""

    name: str
    kind: str  # concept, term, rule, formula
    title: Text


def explain(
    subject: str, *, problem: Problem | None = None, estimate: Estimate | None = None, plan: Plan | None = None
) -> Explanation:
    """What `subject` is, with the numbers of a plan when one is given (or of the best plan of a problem).

    A rule code, a formula id, a term of the estimate (a path or the end of one), a derived number such as `mfu`, or a
    concept, by any of its names in English or Spanish. With a plan, terms come before concepts of the same name.
    """
    name = subject.strip()
    if _RULE.match(name) and _card(name) is None:  # a code that is no rule of strategies belongs to a concept
        return rule_in_plan(name, case_of(problem, estimate, plan), plan)
    if name in REGISTRY:
        case = case_of(problem, estimate, plan)
        return formulas.formula_explanation(name, case.calls if case else ())
    case = case_of(problem, estimate, plan)
    found = _number(name, case) or _concept(name, case) or _word(name, case)
    if found is None:
        raise _unknown(name)
    return found


def _number(name: str, case: Case | None) -> Explanation | None:
    """A derived number or a term of the plan's trees, the card of the concept with the same name beside it."""
    derived = _derived(name)
    card = _card(name)
    if derived is not None and (case is not None or card is None):
        return _with_card(derived_explanation(derived, case), card, case)
    hits = find_terms(case, name) if case is not None else ()
    if case is None or not hits:
        return None
    return _with_card(term_explanation(case, hits), card, case)


def _derived(name: str) -> str | None:
    wanted = key(name)
    wanted = ALIASES.get(wanted, wanted)
    if wanted in DERIVED:
        return wanted
    for known in DERIVED:
        if wanted in (key(glossary.label(known, language)) for language in ("en", "es")):
            return known
    return next((ALIASES[a] for a in ALIASES if glossary.entry(a) and wanted == key(glossary.label(a, "es"))), None)


def _card(name: str) -> concepts.Concept | None:
    """The concept with exactly this name, in either language."""
    try:
        card = concepts.find(name)
    except UnknownNameError:
        return None
    wanted = key(name)
    names = (card.id, *card.aliases, card.title.template, card.title.spanish)
    return card if wanted in (key(n) for n in names) else None


def _with_card(explained: Explanation, card: concepts.Concept | None, case: Case | None) -> Explanation:
    if card is None:
        return explained
    lines = card.plan_lines(_numbers(case)) if case else ()
    extra = Section(title=Text(N_("The concept: {title}"), title=card.title), body=(card.what, card.rule, *lines))
    other = () if card.id == explained.subject else (card.id,)
    return replace(explained, sections=(*explained.sections, extra), see_also=(*other, *explained.see_also))


def _numbers(case: Case) -> Mapping[str, Any]:
    """The plan's values under the names that concept cards use."""
    return numbers_of(case.problem, case.estimate, params=float(model_params(case.problem.model).total))


def _concept(name: str, case: Case | None) -> Explanation | None:
    """A card by its exact name, with the formulas of the term of the same name; fragments of names come last."""
    card = _card(name)
    if card is None:
        return None
    explained = card.explanation(_numbers(case) if case else None)
    ids = _formulas_beside(card.id)
    sections = list(explained.sections)
    if case is not None and case.origin is not None:
        sections = [
            replace(s, body=(case.origin, *s.body)) if s.title.template == "In your plan" else s for s in sections
        ]
    return replace(
        explained,
        sections=(*sections, *(formulas.section(id) for id in ids)),
        see_also=(*explained.see_also, *ids),
    )


def _formulas_beside(concept: str) -> tuple[str, ...]:
    name = key(concept)
    if name in DERIVED:
        return DERIVED[name].formulas
    return general_formulas(name)[:2]


def _word(name: str, case: Case | None) -> Explanation | None:
    """A word of the glossary by name or label, then a concept by a unique fragment."""
    wanted = key(name)
    entry = glossary.entry(wanted)
    known = entry.name if entry else _by_label(wanted)
    if known is not None:
        return general_explanation(wanted if entry else known, case)
    if any(id.startswith(f"{wanted}.") for id in REGISTRY):
        family = [id for id in REGISTRY if id.startswith(f"{wanted}.")]
        raise UnknownNameError(Text(N_("formula")), name, family, ambiguous=True)
    try:
        card = concepts.find(name)
    except UnknownNameError as error:
        if error.ambiguous:
            raise
        return None
    return card.explanation(_numbers(case) if case else None)


def _by_label(wanted: str) -> str | None:
    for name, entry in glossary.entries().items():
        if wanted in (key(text) for text in entry.labels.values()):
            return name
    return None


def _unknown(name: str) -> UnknownNameError:
    """Nobody knows the name: the nearest of all that can be explained."""
    known = {s.name.lower() for s in subjects()} | {
        alias.lower() for c in concepts.concept_ids() for alias in concepts.load(c).aliases
    }
    close = difflib.get_close_matches(name.lower(), known, n=4, cutoff=0.4)
    error = UnknownNameError(Text(N_("term, rule, formula or concept")), name, known)
    if not close:
        error.fix = Text(N_("see `meshwright explain` for everything that can be explained"))
    return error


def subjects() -> list[Subject]:
    """Everything that can be explained: concepts, derived numbers and terms, rules, formulas, in this order."""
    out = [Subject(c, "concept", concepts.load(c).title) for c in concepts.concept_ids()]
    terms = [e.name for e in glossary.entries().values() if e.kind in ("memory", "host", "time", "answer", "derived")]
    out += [Subject(n, "term", concepts.CardText(glossary.label(n), glossary.label(n, "es"))) for n in terms]
    out += [Subject(r.id, "rule", r.title) for r in sorted(RULES.values(), key=lambda r: r.id)]
    out += [Subject(id, "formula", formulas.summary(id)) for id in sorted(REGISTRY)]
    return out
