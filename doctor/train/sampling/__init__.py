"""Preview images are sampled from the model while it trains."""
