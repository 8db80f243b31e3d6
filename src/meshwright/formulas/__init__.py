"""Published physics: one formula, one small function, beside its source. Imports numpy and annotations only."""
