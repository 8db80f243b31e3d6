"""The verbs, by group, with their one-line help: all that `meshwright --help` needs to know."""

from __future__ import annotations

from typing import NamedTuple

from meshwright.messages import N_


class Verb(NamedTuple):
    """Where a verb lives and what it is for; `module` is empty for a verb that waits for a later release."""

    module: str
    help: str
    group: str


PLANNING = N_("Plan a run")
CONFIGURATIONS = N_("Configurations of frameworks")
KNOWLEDGE = N_("Understand and look up")
LATER = N_("In a later release")

VERBS: dict[str, Verb] = {
    "plan": Verb("plan", N_("the best strategies for a model, a cluster and a goal"), PLANNING),
    "estimate": Verb("estimate", N_("one strategy: does it fit, how fast is it, what binds it"), PLANNING),
    "size": Verb("size", N_("the fewest devices, or the least cost, for a deadline or a budget"), PLANNING),
    "scale": Verb("scale", N_("what more devices buy, and where communication takes over"), PLANNING),
    "compare": Verb("compare", N_("strategies or result files side by side"), PLANNING),
    "resilience": Verb("resilience", N_("checkpoints, failures, spares, and going on with fewer nodes"), PLANNING),
    "recommend-hook": Verb(
        "recommend_hook", N_("whether gradients hide behind the backward pass, and which hook helps"), PLANNING
    ),
    "import": Verb(
        "import_", N_("read the configuration of a framework: what each setting means for the plan"), CONFIGURATIONS
    ),
    "check": Verb("check", N_("check the configuration of a framework: rules, memory, speed"), CONFIGURATIONS),
    "export": Verb("export", N_("write a strategy as the configuration of a framework"), CONFIGURATIONS),
    "convert": Verb("convert", N_("turn the configuration of one framework into that of another"), CONFIGURATIONS),
    "explain": Verb("explain", N_("a term of a result, a rule code or a concept"), KNOWLEDGE),
    "catalog": Verb("catalog", N_("models, accelerators, nodes and links, with sources"), KNOWLEDGE),
    "validate": Verb("validate", N_("predictions against measured runs, with the error by group"), KNOWLEDGE),
    "bench": Verb("bench", N_("measure the machine at hand"), KNOWLEDGE),
    "launch": Verb("", N_("write launch files"), LATER),
    "simulate": Verb("", N_("a timeline of one step"), LATER),
    "diagnose": Verb("", N_("read logs and traces"), LATER),
    "calibrate": Verb("", N_("fit constants to measurements"), LATER),
    "verify": Verb("", N_("dry runs on real frameworks"), LATER),
    "report": Verb("", N_("a result as HTML, Markdown or PDF"), LATER),
    "serve": Verb("", N_("the web application"), LATER),
    "mcp": Verb("", N_("a server for assistants"), LATER),
    "ask": Verb("", N_("questions in plain language"), LATER),
}
