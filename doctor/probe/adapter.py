"""The adapter that a run merges, as the trainer would open it."""

from __future__ import annotations

from ..model import Hub, Run, Unknown, WeightFile
from .other_components import REPO, REPO_FILE
from .world import World
from .world.safetensors import read_weight_file


def probe_adapter(world: World, run: Run, hub: Hub | Unknown) -> WeightFile | Unknown | None:
    """The header of the adapter file the run merges; None when it names none."""
    written = run.recipe.adapter
    if not written:
        return None
    if "\0" in written:
        return Unknown("the adapter path holds a null character")
    place = world.absolute(written)
    _, stat = world.resolve(place)
    if isinstance(stat, Unknown):
        return stat
    if stat is not None:
        if stat.kind != "file":
            return Unknown("the adapter path is no file")
        return read_weight_file(world, place)
    hosted = REPO_FILE.fullmatch(written)
    repo_id, name = (hosted.group(1), hosted.group(2)) if hosted else (written, "pytorch_lora_weights.safetensors")
    if not REPO.fullmatch(repo_id):
        return Unknown("the adapter file does not exist")
    if isinstance(hub, Unknown):
        return hub
    repo = hub.repo(repo_id)
    if repo is None or repo.snapshot is None:
        return Unknown(f"the adapter {repo_id} is not on this machine yet")
    weight = read_weight_file(world, world.below(repo.snapshot, name), name)
    return Unknown(f"the adapter file {name} is not on this machine yet") if weight.problem == "missing" else weight
