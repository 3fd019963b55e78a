"""A trainer's own source in, its Schema out: by syntax trees alone, nothing of it is imported or run."""
