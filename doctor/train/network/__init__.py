"""What is trained: LoRA and LoKr, and the files to begin with."""
