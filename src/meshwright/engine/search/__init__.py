"""Exhaustive search over the stated space: enumerate, prune by rules and memory, rank."""
