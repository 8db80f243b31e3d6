"""torchtitan: the TOML file of 0.2 (and the names of 2024, before it had a section for parallelism)."""
