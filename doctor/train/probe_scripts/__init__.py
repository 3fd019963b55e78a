"""Programs that probes start in a process of their own, because they import torch."""
