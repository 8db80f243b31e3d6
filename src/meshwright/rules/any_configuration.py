"""MW-F0xx: faults of any configuration file. Readers meet them while reading; here stands what they are."""

from __future__ import annotations

from collections.abc import Iterator

from meshwright.messages import N_
from meshwright.rules.base import RuleContext
from meshwright.rules.configuration import Hit, configuration_rule
from meshwright.spec.configuration import Configuration


def by_readers(_: Configuration, __: RuleContext | None) -> Iterator[Hit]:
    """Nothing: the reader finds these, since it alone sees how the file was written."""
    yield from ()


UNKNOWN, TYPE, TWICE, GONE, RANGE = "MW-F001", "MW-F002", "MW-F003", "MW-F004", "MW-F005"

configuration_rule(
    UNKNOWN,
    title=N_("Every setting is one that the framework knows"),
    reason=N_(
        "A misspelt setting is either refused at start or, worse, ignored without a word, and its default rules."
    ),
    fix=N_("Correct the spelling, or remove the setting."),
    condition="name in the settings of the framework and version",
    source="the field table of each framework, compared with the framework's own parser by the judges",
)(by_readers)

configuration_rule(
    TYPE,
    title=N_("A value has the type of its setting"),
    reason=N_("A number or a flag in quotes is text: it differs from the same number elsewhere (8 and '8'), and "
              "the text "
              "'false' counts as true."),
    fix=N_("Write numbers, true and false without quotes."),
    condition="type(value) is the type of the setting",
    source="hiyouga/LlamaFactory#1116; deepspeed/runtime/config_utils.py; transformers "
           "integrations/deepspeed.py is_true",
)(by_readers)  # fmt: skip

configuration_rule(
    TWICE,
    title=N_("A setting stands once"),
    reason=N_("Of two values one is dropped, and readers do not agree which; DeepSpeed refuses the file."),
    fix=N_("Keep one of the two."),
    condition="each name once",
    source="deepspeed/runtime/config_utils.py dict_raise_error_on_duplicate_keys",
)(by_readers)

configuration_rule(
    GONE,
    title=N_("The version has the setting"),
    reason=N_("Settings come and go between versions; one that the version lacks is refused or ignored."),
    fix=N_("Use what replaces it, or the version that has it."),
    condition="version in the versions of the setting",
    source="the field table of each framework",
)(by_readers)

configuration_rule(
    RANGE,
    title=N_("A value is one that the setting can take"),
    reason=N_("The framework refuses other values at start."),
    fix=N_("Choose a legal value."),
    condition="value in the choices, or between the bounds, of the setting",
    source="the field table of each framework",
)(by_readers)
