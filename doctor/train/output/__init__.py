"""What a run leaves behind: LoRA files, its state, the loss log, its record and report."""
