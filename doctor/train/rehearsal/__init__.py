"""A training step on tensors without data: what it holds, and when."""
