"""The names of the trainers."""

from __future__ import annotations

OWN = "zdoctor"  # the trainer of a run that zdoctor's own runner is to train
BY_FILES = ("sd-scripts", "musubi-tuner")  # each component of a model is a file that an option names
OTHERS = ("ai-toolkit", "SimpleTuner", *BY_FILES)
