"""The demo patient: a tiny Z-Image pipeline, broken in seven ways, and the walk that heals it."""
