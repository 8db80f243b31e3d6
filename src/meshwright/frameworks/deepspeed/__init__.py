"""DeepSpeed: a JSON file, alone or filled in by the Hugging Face Trainer."""
