"""The base model and what is merged into it: which tensors are there, of which kind, and where they are opened."""
