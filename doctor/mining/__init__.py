"""A trainer's own source read by syntax trees alone: nothing of it is imported or run."""
