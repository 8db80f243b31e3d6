"""How far a predicted step may be off: from published runs that resemble it and that the constants never saw."""

from __future__ import annotations

import math

from meshwright.catalog.constants import constants
from meshwright.engine.kernels import LOW_PRECISION
from meshwright.engine.timing import Setting
from meshwright.messages import N_, Text
from meshwright.spec.model import ModelSpec
from meshwright.spec.strategy import Strategy

UNSEEN = 1.5  # how much wider, in logarithms, where a kind of parallelism was never measured on such devices (assumed)


def resemblance(framework: str, architecture: str, moe: bool, precision: str) -> tuple[str, ...]:
    """Groups of published runs that resemble a strategy, closest first."""
    kind = "moe" if moe else "dense"
    width = "low-precision" if precision in LOW_PRECISION else "16-bit"
    base = f"{framework}.{architecture}"
    return (f"{base}.{kind}.{width}", f"{base}.{kind}", base)


def features(strategy: Strategy, model: ModelSpec) -> tuple[str, ...]:
    """The parallelism a strategy uses, by the short names of the field, and whether it routes tokens to experts."""
    degrees = (("tp", strategy.tensor), ("pp", strategy.pipeline), ("vpp", strategy.virtual), ("cp", strategy.context),
               ("ep", strategy.expert))  # fmt: skip
    found = [name for name, degree in degrees if degree > 1]
    sharded = "unsharded" if strategy.sharding == "none" else strategy.sharding
    return (*(found or ["dp only"]), "moe" if model.is_moe else "dense", sharded)


def step_interval(s: Setting, strategy: Strategy, step: float) -> tuple[float, float, Text]:
    """90 % band of the step time and the reason for its width.

    Bands are ratios measured over predicted, by framework, accelerator generation, dense or mixture of experts, and
    precision, each run predicted by constants fitted without its source (data/accuracy, written by
    benchmarks/fit_step_time.py). A combination without measured runs gets the band of all runs; one that uses what was
    never measured on such devices a wider one.
    """
    bands = constants("accuracy", "step-time")
    architecture = s.cluster.accelerator.architecture
    keys = resemblance(strategy.framework, architecture, s.model.is_moe, strategy.precision)
    key = next((k for k in keys if k in bands), "any")
    low, high, runs, sources = bands[key]
    seen = constants("accuracy", "features").get(architecture, ())
    unseen = [name for name in features(strategy, s.model)[:-1] if seen and name not in seen]
    if unseen:
        low, high = math.exp(UNSEEN * math.log(low)), math.exp(UNSEEN * math.log(high))
    values = {"runs": int(runs), "sources": int(sources), "low": f"{low:.2f}", "high": f"{high:.2f}"}
    if unseen:
        text = Text(
            N_("no measured run with {features} on {architecture}: a wider band, {low} to {high} of the prediction"),
            features=", ".join(name.upper() for name in unseen), architecture=architecture,
            low=values["low"], high=values["high"],
        )  # fmt: skip
    elif key == "any":
        text = Text(
            N_(
                "too few published runs of {framework} on {architecture}: the band of all {runs} runs holds, {low} to"
                " {high} of the prediction"
            ),
            framework=strategy.framework, architecture=architecture, runs=values["runs"], low=values["low"],
            high=values["high"],
        )  # fmt: skip
    elif not low <= 1.0 <= high:
        # The model is known to be off for such runs: say so instead of widening the band to hide it.
        text = Text(
            N_(
                "{runs} published runs like this ({group}) took {low} to {high} of the prediction: expect that, not"
                " the figure"
            ),
            group=key.replace(".", " "), runs=values["runs"], low=values["low"], high=values["high"],
        )  # fmt: skip
    else:
        text = Text(
            N_(
                "{runs} published runs like this ({group}), from {sources} sources, predicted without their own: 90 %"
                " lie between {low} and {high} of the prediction"
            ),
            group=key.replace(".", " "), **values,
        )  # fmt: skip
    return step * low, step * high, text
