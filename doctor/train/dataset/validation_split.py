"""Validation images are held out of the dataset: no step trains on them in any crop or repetition."""

from __future__ import annotations

from collections.abc import Sequence

from ..runtime.train_error import TrainError
from .training_items import TrainingItem


def hold_out(
    items: Sequence[TrainingItem], count: int, before: Sequence[str] = ()
) -> tuple[list[TrainingItem], list[TrainingItem]]:
    """Returns what is trained on, and one item of each of the `count` images that are held out.

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
