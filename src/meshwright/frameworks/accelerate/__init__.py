"""Hugging Face Accelerate: the YAML file of `accelerate launch` (FSDP 1 and 2, DeepSpeed, Megatron-LM, plain DDP)."""
