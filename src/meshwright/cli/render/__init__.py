"""Results as text for a person: one module per kind of result."""
