"""The LoRA that a run begins with, by its header; for zdoctor's own runner beside the network that it must fit."""

from __future__ import annotations

from ..families.network import network_shapes, shape_of, sources, target_linears
from ..model import ModelFolder, Run, Unknown, WeightFile
from ..model.remains import own_state
from ..model.start import Start
from .world import World
from .world.safetensors import read_weight_file


def probe_starting_lora(world: World, run: Run) -> WeightFile | Unknown | None:
    """The file as the trainer would open it, by a path in every case; None when the run names none."""
    written = run.recipe.network.initial_weights
    if not written:
        return None
    if "\0" in written:
        return Unknown("the path of the LoRA to start from holds a null character")
    return read_weight_file(world, world.absolute(written))


def probe_start(
    world: World, run: Run, starting_lora: WeightFile | None, model: ModelFolder | Unknown
) -> Start | Unknown | None:
    """None where the run begins at zero, or goes on from its own state and opens no such file."""
    if starting_lora is None:
        return None
    state = world.stat(world.join(world.absolute(run.output_folder or "output"), own_state(run.name)))
    if state is not None:
        return state if isinstance(state, Unknown) else None
    if isinstance(model, Unknown):
        return model
    network, part = run.recipe.network, model.components.get("transformer")
    linears = None
    if part is not None and part.config is not None:
        linears = target_linears(part.class_name, part.config, network.excluded, refiners=network.refiners)
    if part is None or linears is None:
        return Unknown("which layers the transformer has is not known")
    held = {
        name: shape_of(starting_lora.tensors[key].shape, rows)
        for name, (key, rows) in sources(starting_lora.tensors, linears, part.class_name or "").items()
    }
    return Start(starting_lora, held, network_shapes(network, linears))
