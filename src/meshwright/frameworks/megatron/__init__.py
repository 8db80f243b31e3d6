"""Megatron-LM: arguments of a command line, in a launch script, a dump of a run, or a YAML file."""
