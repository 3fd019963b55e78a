"""The LoRA that a training starts from, as the trainer would open it."""

from __future__ import annotations

from ..model import Run, Unknown, WeightFile
from .world import World
from .world.safetensors import read_weight_file


def probe_starting_lora(world: World, run: Run) -> WeightFile | Unknown | None:
    """The header of the file behind `pretrained_lora_path`, a path in every case; None when the run names none."""
    written = run.recipe.network.initial_weights
    if not written:
        return None
    if "\0" in written:
        return Unknown("the path of the LoRA holds a null character")
    place = world.absolute(written)
    return read_weight_file(world, place, world.name(place))
