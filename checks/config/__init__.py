"""Rules about the config itself: can it be read, are its keys real, do they act, are their values taken."""
