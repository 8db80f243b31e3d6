"""The record behind `explain MW-…`, and the generated page."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshwright.errors import UnknownNameError
from meshwright.rules import RULES, rule, rule_explanation
from meshwright.rules.reference import page

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "rules.md"


@pytest.mark.parametrize("id", sorted(RULES))
def test_explanation_holds_reason_condition_fix_and_source(id: str) -> None:
    record = rule_explanation(id.lower())
    said = "\n".join(str(line) for s in record.sections for line in s.body)
    assert (record.subject, record.kind, record.sources) == (id, "rule", (RULES[id].source,))
    for part in (str(RULES[id].reason), RULES[id].condition, str(RULES[id].fix)):
        assert part in said
    assert set(record.see_also) <= set(RULES) - {id}


def test_unknown_rule_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError) as caught:
        rule_explanation("MW-C10")
    assert "MW-C10" in str(caught.value.fix)  # as it is written


def test_page_is_up_to_date_and_names_every_rule() -> None:
    text = DOCS.read_text("utf-8")
    assert text == page(), "run: python -m meshwright.rules.reference > docs/reference/rules.md"
    for id in RULES:
        assert f"### {id} " in text


def test_an_id_is_registered_once() -> None:
    with pytest.raises(ValueError, match="MW-C101"):
        rule(
            "MW-C101", title="", reason="", fix="", condition="", source="", where="", violated=lambda c: False
        )(lambda c: (RULES["MW-C101"].title, None, {}))  # fmt: skip
