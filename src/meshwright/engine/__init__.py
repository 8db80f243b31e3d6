"""The questions: what does a strategy cost, which is best, why."""
