"""How far a predicted step may be off: from the residuals of published runs that resemble it."""

from __future__ import annotations

from meshwright.catalog.constants import constants
from meshwright.engine.timing import Setting
from meshwright.messages import N_, Text
from meshwright.spec.strategy import Strategy


def step_interval(s: Setting, strategy: Strategy, step: float) -> tuple[float, float, Text]:
    """90 % band of the step time and the reason for its width.

    Bands are ratios measured over predicted, by framework and accelerator generation (data/accuracy, made by
    benchmarks/measured_runs.py). A combination without measured runs gets the widest band known.
    """
    bands = constants("accuracy", "step-time")
    key = f"{strategy.framework}.{s.cluster.accelerator.architecture}"
    if key in bands:
        low, high, runs = bands[key]
        text = Text(
            N_("{runs} published runs of {framework} on {architecture}: 90 % lie between {low} and {high} of the prediction"),
            runs=int(runs),
            framework=strategy.framework,
            architecture=s.cluster.accelerator.architecture,
            low=f"{low:.2f}",
            high=f"{high:.2f}",
        )
    else:
        low, high, runs = bands["any"]
        text = Text(
            N_("no published run of {framework} on {architecture} was compared: the band of all {runs} runs holds"),
            framework=strategy.framework,
            architecture=s.cluster.accelerator.architecture,
            runs=int(runs),
        )
    return step * low, step * high, text
