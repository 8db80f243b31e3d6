"""Any number of ranks for algorithms that want a power of two: the surplus folds into a neighbour first.

Thakur, Rabenseifner and Gropp 2005, section 4.4: of the first 2r ranks (r = p - 2^floor(log2 p)) the even ones hand
their tensor to the odd neighbour, sit out, and are sent the result last. Two more steps and up to two more payloads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from meshwright.gradsync.peers import Peers


def folded(peers: Peers, flat: torch.Tensor, combine: Any, core: Callable[[Peers], None]) -> None:
    """Run `core` on a power of two of the peers, with the surplus folded in before and told after."""
    power = 1 << (peers.size.bit_length() - 1)
    surplus = peers.size - power
    active = [r for r in range(peers.size) if r >= 2 * surplus or r % 2]
    if peers.rank not in active:
        partner = peers.rank + 1
        peers.exchange_combine((flat, partner), None, combine)
        peers.exchange((), [(flat, partner)])
        return
    folds = peers.rank < 2 * surplus
    if folds:
        peers.exchange_combine(None, (flat, peers.rank - 1), combine)
    core(peers.sub(active) if surplus else peers)
    if folds:
        peers.exchange([(flat, peers.rank - 1)], ())
