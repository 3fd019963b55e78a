"""The hub cache, and how a run uses it."""
