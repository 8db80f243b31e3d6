"""Meshwright: the architect of a distributed training run."""

__version__ = "0.1.0"
