"""Hardware by name: accelerators, nodes, links, prices, and whole clusters. The door to the hardware catalogue."""

from __future__ import annotations

from meshwright.catalog.clusters import MAX_DEVICES, OVERRIDES, cluster, resize
from meshwright.catalog.records import Price, accelerator, link, node, price

__all__ = ["MAX_DEVICES", "OVERRIDES", "Price", "accelerator", "cluster", "link", "node", "price", "resize"]
