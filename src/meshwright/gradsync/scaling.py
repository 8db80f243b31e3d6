"""Loss scales under which the averages of DDP and FSDP2 become the gradient of the mean over all tokens.

Let N be the tokens that count, over all ranks and micro-batches of one optimizer step. The gradient meant is that of
(sum of token losses) / N. DDP and FSDP2 divide by the number of ranks W, so each local loss must be
W · (local sum) / N. Dividing each micro-batch by its own tokens instead (a mean of means) weighs a token by how few
companions it has.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from meshwright.gradsync.group import Group, summed

IGNORED = -100  # the label that cross_entropy passes over


def token_count(labels: torch.Tensor | Iterable[torch.Tensor], ignore_index: int = IGNORED) -> int:
    """Labels that count, of one micro-batch or of a whole window of them, on this rank.

    >>> token_count(torch.tensor([[5, -100, 7]]))
    2
    """
    several = [labels] if isinstance(labels, torch.Tensor) else labels
    return int(sum((one != ignore_index).sum() for one in several))


def global_token_count(
    labels: torch.Tensor | Iterable[torch.Tensor], ignore_index: int = IGNORED, group: Group = None
) -> int:
    """Labels that count over the window of all ranks: known before the first backward, which needs it."""
    return int(summed([token_count(labels, ignore_index)], group)[0])


def scale_loss(loss_sum: Any, n_global: float, world: int) -> Any:
    """The local sum of token losses, scaled so that the mean over `world` ranks is the mean over all tokens.

    A step without any token that counts gives a loss of zero, not NaN.

    >>> scale_loss(3.0, n_global=16, world=2)
    0.375
    """
    return loss_sum * (world / max(n_global, 1))
