"""What SimpleTuner refuses, loses on the way, or reads and does not use: its source at bc8e6ab7."""
