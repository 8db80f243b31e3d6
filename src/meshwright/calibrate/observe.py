"""Measured runs as a fit sees them: what was run, and the logarithm of its measured step time."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from meshwright.spec.plan import Problem
from meshwright.spec.strategy import Strategy
from meshwright.validate.compare import Compared

WEIGHTS = {"A": 1.0, "A-": 1.0, "B": 0.5}  # by tier; other tiers miss too much to learn from
SHARED = 0.25  # part of the squared error that runs of one set-up have in common
_NOT_PRETRAINING = re.compile(r"\bSFT\b|fine-?tun", re.IGNORECASE)
_UNFIT = re.compile(r"do not use for peak-rate calibration|deterministic mode", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One measured run. Its settings, where the source does not state them, are those the comparison took."""

    id: str
    source: str
    publisher: str
    model: str
    problem: Problem
    strategy: Strategy
    log_seconds: float  # natural logarithm of the measured step time [s]
    weight: float


def observations(compared: Iterable[Compared]) -> tuple[Observation, ...]:
    """The runs of a comparison whose rate was measured; weight 0 for those that no constant may learn from."""
    timed = [c for c in compared if c.problem and c.estimate and c.measured and c.predicted]
    alike = Counter(_setup(c) for c in timed)
    out = []
    for c in timed:
        assert c.problem is not None and c.estimate is not None and c.measured is not None
        seconds = c.problem.job.tokens_per_step / c.measured / c.problem.cluster.devices
        out.append(
            Observation(
                id=c.run.id,
                source=c.run.source,
                publisher=publisher(c.run.source),
                model=family(c.run.model),
                problem=c.problem,
                strategy=c.estimate.strategy,
                log_seconds=math.log(seconds),
                weight=_weight(c) / math.sqrt(1.0 + (alike[_setup(c)] - 1) * SHARED),
            )
        )
    return tuple(out)


def _setup(c: Compared) -> tuple[str, ...]:
    """What runs of one set-up share, and with it whatever a prediction misses of them."""
    return publisher(c.run.source), family(c.run.model), c.accelerator, c.run.precision


def _weight(c: Compared) -> float:
    return 0.0 if _UNFIT.search(c.run.notes) or not is_pretraining(c) else WEIGHTS.get(c.run.tier, 0.0)


def is_pretraining(c: Compared) -> bool:
    """Whether a run trains from scratch at full length: fine-tuning pads its sequences, and how much is not said."""
    return _NOT_PRETRAINING.search(c.run.notes) is None


def publisher(source: str) -> str:
    """Who measured, whatever the release of the page: the first words, without versions, dates and files.

    >>> publisher("Megatron-Bridge performance summary 26.04.01 NeMo Container")
    'Megatron-Bridge performance'
    >>> publisher("DGX Cloud Benchmarking v25.04 (llama3.1/README.md)")
    'DGX Cloud'
    """
    words = re.split(r"[\s(:]+", source.strip())
    words = [w for w in words if w and not re.search(r"\d{2}\.\d|^v\d|\d{4}", w)]
    return " ".join(words[:2]) or source


def family(model: str) -> str:
    """A model without its size and cuts: Llama-3.1 405B (21-layer proxy) is a Llama-3.1.

    >>> family("Llama3.1-405B (21-layer proxy)"), family("GPT 200.0B (BLOOM tuning)"), family("MPT 30B")
    ('llama3.1', 'gpt', 'mpt')
    """
    name = re.sub(r"\(.*?\)", "", model).strip().lower()
    return re.split(r"[\s-]*\d+(?:\.\d+)?[bm]\b", name)[0].strip(" -") or name
