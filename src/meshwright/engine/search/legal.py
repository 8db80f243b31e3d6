"""Why a search found nothing legal."""

from __future__ import annotations

from collections.abc import Mapping

from meshwright.messages import N_, Text
from meshwright.rules.base import RULES

BATCH = "global_batch"  # the batch cannot be split over so many devices
SPACE = "devices"  # no mesh of the space, or no cluster of this size


def nothing_legal(rejected: Mapping[str, int], candidates: int, devices: int, batch: int) -> tuple[str, Text]:
    """The rule that removed most of what the divisibility of the model had left, and the one that removed most."""
    if not candidates:
        return SPACE, Text(N_("no mesh of the space that is searched fills {devices} devices"), devices=f"{devices:,}")
    last = {code: n for code, n in rejected.items() if RULES[code].stage != "mesh"} or dict(rejected)
    code = max(last, key=lambda c: (last[c], c))
    if RULES[code].stage != "batch":
        return code, Text(N_("no legal strategy; {code} rejects most: {title}"), code=code, title=RULES[code].title)
    most = max(rejected, key=lambda c: (rejected[c], c))
    values = {"batch": f"{batch:,}", "devices": f"{devices:,}", "code": code}
    if RULES[most].stage == "batch":
        text = N_("a global batch of {batch} sequences cannot be split over {devices} devices ({code})")
        return BATCH, Text(text, **values)
    text = N_(
        "a global batch of {batch} sequences cannot be split over {devices} devices ({code}) by the few meshes that"
        " {other} leaves: {title}"
    )
    return BATCH, Text(text, other=most, title=RULES[most].title, **values)


def odd_part(count: int) -> int:
    """What is left of a count once every factor of two is taken out.

    >>> odd_part(2016), odd_part(512)
    (63, 1)
    """
    return count // (count & -count)
