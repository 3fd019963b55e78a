"""Classes of other trainers than ai-toolkit, which a step of theirs is rehearsed with: "TRAINER/CLASS"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from zdoctor.doctor.train.rehearsal.step import Own
from zdoctor.maintenance.kohya_classes import OfTrainer, own_of_kohya
from zdoctor.maintenance.musubi_classes import OF_MUSUBI
from zdoctor.maintenance.sd_scripts_classes import OF_SD_SCRIPTS
from zdoctor.maintenance.simpletuner_classes import OF_SIMPLETUNER, own_of_simpletuner

OF_TRAINERS: Mapping[str, OfTrainer] = {**OF_MUSUBI, **OF_SD_SCRIPTS, **OF_SIMPLETUNER}


def own_of_trainer(name: str, way: str) -> Own | None:
    """How one of these classes is rehearsed; None for another."""
    of = OF_TRAINERS.get(name)
    return None if of is None else (own_of_simpletuner if name in OF_SIMPLETUNER else own_of_kohya)(of, way)


def shapes_of_trainer(name: str, config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Name -> shape of what such a class builds."""
    own = own_of_trainer(name, "autocast")
    assert own is not None
    with torch.device("meta"):
        return {key: tuple(tensor.shape) for key, tensor in own.build(config).state_dict().items()}
