"""What exists: accelerators, links, nodes, models. One TOML file per thing, a source per value."""
