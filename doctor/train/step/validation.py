"""The validation loss can be compared between steps: the same images, noise and noise levels every time.

The pictures are held out: no step trains on them in any crop, mirroring or repetition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from ..dataset.training_items import TrainingItem
from .flow_matching import mixed_seed
from .trainer import Trainer

# Shares of noise, in the middle of five equal parts.
TIMES = (0.1, 0.3, 0.5, 0.7, 0.9)


@torch.no_grad()
def validation_loss(trainer: Trainer, items: Sequence[TrainingItem], stop: Callable[[], bool]) -> float | None:
    """Returns the mean unweighted loss on `items` of the weights that would be saved; None when `stop` said so."""
    total = 0.0
    with trainer.averaged():
        for item in items:
            clean = trainer.objective.latents.get(item).unsqueeze(0)
            for time in TIMES:
                if stop():
                    return None
                generator = torch.Generator().manual_seed(mixed_seed(item.picture.digest, time))
                noise = torch.randn(clean.shape, generator=generator)
                total += trainer.objective.unweighted_losses(clean, noise, torch.tensor([time]), [item]).item()
    return total / (len(items) * len(TIMES))
