"""What the runner makes of SimpleTuner configs, part by part."""
