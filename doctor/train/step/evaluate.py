"""A loss that can be compared between steps: the same pictures, noise and noise levels every time.

The pictures are held out: no step trains on them in any crop, mirroring or repetition.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import torch

from ..data.items import Item
from ..errors import TrainError
from .trainer import Trainer

# Shares of noise, in the middle of five equal parts.
TIMES = (0.1, 0.3, 0.5, 0.7, 0.9)


def hold_out(items: Sequence[Item], count: int, before: Sequence[str] = ()) -> tuple[list[Item], list[Item]]:
    """(what is trained on, one item of each of the `count` pictures that are held out).

    Which pictures follows from their contents alone. Of a run that goes on they are those of `before`, by the sha256
    of their bytes, as far as they are still there: any other was trained on. Raises TrainError when none would be
    left to train on.
    """
    digests = sorted({item.picture.digest for item in items if not item.regular})
    if count >= len(digests):
        raise TrainError(
            f"--eval {count} would hold out every picture: the datasets have {len(digests)} different ones. "
            f"Hold out at most {len(digests) - 1}."
        )
    chosen = [digest for digest in before if digest in digests] if before else digests[:count]
    kept = [item for item in items if item.picture.digest not in chosen]
    held = {item.picture.digest: item for item in reversed(items)}
    return kept, [held[digest] for digest in chosen]


@torch.no_grad()
def evaluate(trainer: Trainer, items: Sequence[Item], stop: Callable[[], bool]) -> float | None:
    """The mean unweighted loss of the weights that would be saved on `items`; None when `stop` said so on the way."""
    total = 0.0
    with trainer.averaged():
        for item in items:
            clean = trainer.objective.latents.get(item).unsqueeze(0)
            for time in TIMES:
                if stop():
                    return None
                seed = hashlib.sha256(f"{item.picture.digest} {time}".encode()).digest()[:8]
                generator = torch.Generator().manual_seed(int.from_bytes(seed, "little") >> 1)
                noise = torch.randn(clean.shape, generator=generator)
                total += trainer.objective.misses(clean, noise, torch.tensor([time]), [item]).item()
    return total / (len(items) * len(TIMES))
