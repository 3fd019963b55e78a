"""What a run leaves behind: LoRA, state, records, previews."""
