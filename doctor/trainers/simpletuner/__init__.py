"""SimpleTuner."""
