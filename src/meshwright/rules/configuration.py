"""MW-F…: what is wrong in a configuration file, beyond the strategy it describes.

A rule here reads the framework's own names and values (`Configuration`) and, where model and cluster are known, the
`RuleContext` of the strategy. It stands in the same registry as the others, so `explain` and the reference know it;
it never touches a search.

Ids: MW-F0xx any file, F1xx DeepSpeed, F2xx Megatron-LM, F3xx torchtitan, F4xx Accelerate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from meshwright.messages import Text
from meshwright.rules.base import RULES, Rule, RuleContext
from meshwright.rules.versions import covers
from meshwright.spec.configuration import Configuration
from meshwright.spec.finding import Finding, Severity


class Hit(NamedTuple):
    """One place that violates a rule; `fix` None: the rule's own."""

    where: str
    message: Text
    fix: Text | None = None
    data: dict[str, Any] = {}  # noqa: RUF012  (never changed)
    severity: Severity | None = None  # where it is milder or graver than the rule


Search = Callable[[Configuration, RuleContext | None], Iterable[Hit]]
SEARCHES: dict[str, tuple[str, Search]] = {}  # rule id: versions it holds for, and what finds its violations


def _never(_: RuleContext) -> bool:
    return False


def _silent(_: RuleContext) -> Any:
    raise AssertionError("a rule about files says nothing about strategies")


def configuration_rule(
    id: str,
    *,
    title: str,
    reason: str,
    fix: str,
    condition: str,
    source: str,
    where: str = "configuration",
    severity: Severity = "error",
    formats: Iterable[str] = (),
    versions: str = "",
) -> Callable[[Search], Search]:
    """Register the decorated function as what finds the violations of rule `id`; `versions` e.g. `>=0.17,<0.19`."""

    def register(search: Search) -> Search:
        if id in RULES:
            raise ValueError(f"rule {id} registered twice")
        RULES[id] = Rule(
            id, severity, "configuration", Text(title), Text(reason), Text(fix), condition, source, where,
            frozenset(formats), _never, _never, _silent,
        )  # fmt: skip
        SEARCHES[id] = (versions, search)
        return search

    return register


def hit(id: str, where: str, message: Text, fix: Text | None = None, *, severity: Severity | None = None,
        **data: Any) -> Finding:  # fmt: skip
    """A finding of rule `id`, for readers that meet a fault while reading."""
    return _finding(RULES[id], Hit(where, message, fix, data, severity))


def _finding(rule: Rule, found: Hit) -> Finding:
    return Finding(
        code=rule.id, severity=found.severity or rule.severity, message=found.message, where=found.where,
        fix=found.fix or rule.fix, data=found.data,
    )  # fmt: skip


def check_configuration(configuration: Configuration, context: RuleContext | None = None) -> Iterator[Finding]:
    """Every violation of a rule about files that concerns this format and version."""
    for id, (versions, search) in SEARCHES.items():
        rule = RULES[id]
        if rule.frameworks and configuration.format not in rule.frameworks:
            continue
        if covers(versions, configuration.version):
            yield from (_finding(rule, found) for found in search(configuration, context))


def settles(configuration: Configuration) -> frozenset[str]:
    """Rules about strategies that a setting of the file answers already."""
    return frozenset(code for code, answered in ANSWERS.items() if answered(configuration))


ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
# rule about strategies: whether the file does what the rule asks for
ANSWERS: dict[str, Callable[[Configuration], bool]] = {
    "MW-A114": lambda c: c.launch,  # MW-F201 looks at the value
    "MW-A115": lambda c: c.on("--manual-gc"),
    "MW-A118": lambda c: c.on("--overlap-moe-expert-parallel-comm"),
    "MW-A133": lambda c: any("expandable_segments:True" in c.environment.get(name, "") for name in ALLOCATOR),
    "MW-C101": lambda c: c.format == "torchtitan",  # MW-F301 says it in the file's names
    "MW-C106": lambda c: bool(c.values.get("--pipeline-model-parallel-layout")),
    "MW-C201": lambda c: c.format == "deepspeed" and c.data is not None,  # MW-F101 does the same sum in its names
    "MW-C308": lambda c: any(c.values.get(f"zero_optimization.leaf_module.{k}") for k in ("classes", "names")),
}
