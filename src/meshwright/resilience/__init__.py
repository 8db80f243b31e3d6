"""How a run survives: failures, checkpoints, goodput, spares, elastic re-planning."""
