"""The file that a run of zdoctor's own runner begins with, by its header, beside the network that it must fit."""

from __future__ import annotations

from ..families.start import network_shapes, shape_of, sources, target_linears
from ..model import ModelFolder, Run, Unknown
from ..model.remains import own_state
from ..model.start import Start
from .world import Paths, World
from .world.safetensors import read_weight_file


def probe_start(world: World, run: Run, model: ModelFolder | Unknown) -> Start | Unknown | None:
    """None where the run begins at zero, or goes on from its own state and opens no such file."""
    network = run.recipe.network
    written = network.initial_weights
    if not written:
        return None
    if "\0" in written:
        return Unknown("the path of the LoRA to start from holds a null character")
    paths = Paths(world.system)
    state = world.stat(paths.join(paths.absolute(run.output_folder or "output"), own_state(run.name)))
    if state is not None:
        return state if isinstance(state, Unknown) else None
    if isinstance(model, Unknown):
        return model
    place = paths.absolute(written)
    file = read_weight_file(world, place, paths.name(place))
    part = model.components.get("transformer")
    linears = None
    if part is not None and part.config is not None:
        linears = target_linears(part.class_name, part.config, network.excluded, refiners=network.refiners)
    if part is None or linears is None:
        return Unknown("which layers the transformer has is not known")
    held = {
        name: shape_of(file.tensors[key].shape, rows)
        for name, (key, rows) in sources(file.tensors, linears, part.class_name or "").items()
    }
    return Start(file, held, network_shapes(network, linears))
