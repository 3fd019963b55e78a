"""What is installed for a run, held against what its trainer and the packages themselves ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..model import Run, Schema, Unknown
from ..model.environment import Environment, Installed, Requirement, Unmet
from ..model.record import replace
from ..packages.names import REFUSES, modules_of, provided
from ..packages.requirements import Asked, of_lines, of_project
from ..packages.unmet import between, unmet
from ..packages.versions import variables
from ..trainers import trainer_of
from .packages import left_over_in
from .source.imports import first_imports
from .world import World

# What every trainer of diffusion models leans on: conflicts among these are told even where no file asks for them.
CORE = (
    *("torch", "torchvision", "torchaudio", "diffusers", "transformers", "accelerate", "peft", "safetensors"),
    *("huggingface_hub", "tokenizers", "bitsandbytes", "numpy", "torchao", "xformers", "flash_attn"),
)
DEEPEST = 5  # files of requirements that name each other


def probe_installed(
    world: World, run: Run, environment: Environment, schema: Schema | Unknown
) -> Installed | Unknown:
    metadata = world.metadata(environment.folders)
    if not metadata:
        return Unknown(f"what the packages of {environment.python} say of themselves is not known")
    trainer = trainer_of(run.trainer)
    marks = variables(world.system.os, world.system.machine, environment.release)
    root = schema.source if isinstance(schema, Schema) and not run.by_runner else ""

    def held(asked: Sequence[Requirement]) -> tuple[tuple[Unmet, ...], tuple[str, ...]]:
        """What the environment does not meet, and what of it nobody can tell."""
        answers = list(unmet(asked, environment, metadata, marks))
        lacking = tuple(one for one in answers if isinstance(one, Unmet))
        return (
            tuple(one for one in lacking if one.kind != "missing" or not provided(one.requirement.name, metadata)),
            tuple(one.text for one in answers if isinstance(one, Requirement)),
        )

    # A checkout has a file for each kind of machine; the one that was installed from is the one that fits best.
    sets = [asked for asked in _of_checkout(world, root, trainer.requirements) if asked.requirements] if root else []
    asked = min(sets, key=lambda one: len(held(one.requirements)[0]), default=Asked(()))
    own, unclear = held(asked.requirements)
    names = dict.fromkeys((*CORE, *trainer.packages, *(one.name for one in asked.requirements)))
    needs = held(tuple(between(metadata, names)))[0]
    return Installed(
        own=_with_imports(world, root, trainer.entries, {one: one.requirement.name for one in own}, _is_missing),
        asked=len(asked.requirements),
        between=_with_imports(world, root, trainer.entries, {one: one.requirement.by for one in needs}, _is_refused),
        unread=(*asked.unread, *unclear),
        broken=tuple(one for one in metadata.values() if one.absent),
        left_over=left_over_in(world, environment.folders),
        metadata=metadata,
    )


def _of_checkout(world: World, root: str, files: Sequence[str]) -> Iterator[Asked]:
    """What each of its files asks for; and what a program asks for that brings the checkout along in a folder."""
    around = world.join(world.parent(root), "requirements.txt")
    if f"-e ./{world.name(root)}" in _text(world, around):
        yield _of_file(world, around, 0)
        return
    for name in files:
        path = world.below(root, name)
        if name.endswith(".toml"):
            yield from _of_project(world, path)
        else:
            yield _of_file(world, path, 0)


def _text(world: World, path: str) -> str:
    data = world.read(path, 0, 1 << 20)
    return data.decode("utf-8", "replace") if isinstance(data, bytes) else ""


def _of_project(world: World, path: str) -> list[Asked]:
    """What a pyproject.toml asks for; where it leaves that to setup.py, what that does."""
    text = _text(world, path)
    table = _toml(text).get("project")
    if isinstance(table, Mapping) and "dependencies" in table.get("dynamic", ()):
        from ..packages.setup_script import declared

        path = world.join(world.parent(path), "setup.py")
        text = _text(world, path)
        table = declared(text)
    return of_project(table, path, text) if isinstance(table, Mapping) else []


def _of_file(world: World, path: str, depth: int) -> Asked:
    """What a file asks for, with the files that it names; those that only bound versions are taken as bounds."""
    asked = of_lines(_text(world, path), path)
    whole = list(asked.requirements)
    unread = list(asked.unread)
    for name, bounds in asked.others if depth < DEEPEST else ():
        other = _of_file(world, world.join(world.parent(path), name), depth + 1)
        known = {one.name for one in whole}
        whole += [one for one in other.requirements if not bounds or one.name in known]
        unread += other.unread
    return Asked(tuple(whole), unread=tuple(unread))


def _toml(text: str) -> Mapping[str, Any]:
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        return tomlkit.parse(text).unwrap()
    except TOMLKitError:
        return {}


def _is_missing(one: Unmet) -> bool:
    return one.kind == "missing"


def _is_refused(one: Unmet) -> bool:
    return one.kind == "version" and one.requirement.name in REFUSES.get(one.requirement.by, ())


def _with_imports(
    world: World,
    root: str,
    entries: Sequence[str],
    unmet: Mapping[Unmet, str],
    ends: Callable[[Unmet], bool],
) -> tuple[Unmet, ...]:
    """These, each with the package whose import `ends` by it; that gets the place that imports it at the start."""
    wanted = {module: name for one, name in unmet.items() if ends(one) for module in modules_of(name)}
    places = first_imports(world, root, entries, wanted) if wanted and root else {}
    return tuple(replace(one, imported=places.get(name)) if ends(one) else one for one, name in unmet.items())
