"""Python source as facts: a user's training script, a trainer's checkout. Parsed, never run."""
