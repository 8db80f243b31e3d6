"""How far a predicted step may be off: from the residuals of published runs that resemble it."""

from __future__ import annotations

from meshwright.catalog.constants import constants
from meshwright.engine.kernels import LOW_PRECISION
from meshwright.engine.timing import Setting
from meshwright.messages import N_, Text
from meshwright.spec.strategy import Strategy


def resemblance(framework: str, architecture: str, moe: bool, precision: str) -> tuple[str, ...]:
    """Groups of published runs that resemble a strategy, closest first."""
    kind = "moe" if moe else "dense"
    width = "low-precision" if precision in LOW_PRECISION else "16-bit"
    base = f"{framework}.{architecture}"
    return (f"{base}.{kind}.{width}", f"{base}.{kind}", base)


def step_interval(s: Setting, strategy: Strategy, step: float) -> tuple[float, float, Text]:
    """90 % band of the step time and the reason for its width.

    Bands are ratios measured over predicted, by framework, accelerator generation, dense or mixture of experts, and
    precision (data/accuracy, made by benchmarks/measured_runs.py). A combination without measured runs gets
    the band of all runs.
    """
    bands = constants("accuracy", "step-time")
    architecture = s.cluster.accelerator.architecture
    keys = resemblance(strategy.framework, architecture, s.model.is_moe, strategy.precision)
    key = next((k for k in keys if k in bands), None)
    if key is not None and not bands[key][0] <= 1.0 <= bands[key][1]:
        # The model is known to be off for such runs: say so instead of widening the band to hide it.
        low, high, runs = bands[key]
        text = Text(
            N_(
                "{runs} published runs like this ({group}) took {low} to {high} of the prediction: expect that, not"
                " the figure"
            ),
            runs=int(runs),
            group=key.replace(".", " "),
            low=f"{low:.2f}",
            high=f"{high:.2f}",
        )
    elif key is not None:
        low, high, runs = bands[key]
        text = Text(
            N_("{runs} published runs like this ({group}): 90 % lie between {low} and {high} of the prediction"),
            runs=int(runs),
            group=key.replace(".", " "),
            low=f"{low:.2f}",
            high=f"{high:.2f}",
        )
    else:
        low, high, runs = bands["any"]
        text = Text(
            N_("no published run of {framework} on {architecture} was compared: the band of all {runs} runs holds"),
            framework=strategy.framework,
            architecture=architecture,
            runs=int(runs),
        )
    return step * low, step * high, text
