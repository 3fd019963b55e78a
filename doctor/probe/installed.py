"""What is installed for a run, held against what its trainer and the packages themselves ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from ..model import Run, Schema, Unknown, Where
from ..model.environment import Environment, Hidden, Installed, Requirement, Unmet
from ..model.record import replace
from ..packages.checkout import sets_of
from ..packages.names import CORE, REFUSES, modules_of, provided
from ..packages.requirements import Asked, of_texts
from ..packages.unmet import between, unmet
from ..packages.versions import holds, variables
from ..packages.wheels import nearest, without_wheel
from ..trainers import trainer_of
from .packages import folders_of, left_over_in
from .source.imports import first_imports
from .world import World


def probe_installed(
    world: World, run: Run, environment: Environment, schema: Schema | Unknown
) -> Installed | Unknown:
    metadata = world.metadata(environment.folders)
    if not metadata:
        return Unknown(f"what the packages of {environment.python} say of themselves is not known")
    trainer = trainer_of(run.trainer)
    marks = variables(world.system.os, world.system.machine, environment.release)
    known = schema if isinstance(schema, Schema) and not run.by_runner else None
    root = known.source if known else ""

    def held(asked: Sequence[Requirement]) -> tuple[tuple[Unmet, ...], tuple[str, ...]]:
        """What the environment does not meet, and what of it nobody can tell."""
        answers = list(unmet(asked, environment, metadata, marks))
        lacking = tuple(one for one in answers if isinstance(one, Unmet))
        return (
            tuple(one for one in lacking if one.kind != "missing" or not provided(one.requirement.name, metadata)),
            tuple(one.text for one in answers if isinstance(one, Requirement)),
        )

    # A checkout has a file for each kind of machine; the one that was installed from is the one that fits best.
    # Without a checkout the table that ships has those of one commit.
    sets = list(_of_checkout(world, root, trainer.requirements)) if root else []
    sets = sets if root or not known else [of_texts(lines, known.trainer, "") for lines in known.requirements]
    sets = [one for one in sets if one.requirements]
    asked = min(sets, key=lambda one: len(held(one.requirements)[0]), default=Asked(()))
    own, unclear = held(asked.requirements)
    names = dict.fromkeys((*CORE, *trainer.packages, *(one.name for one in asked.requirements)))
    applying = [one for one in asked.requirements if holds(one.marker, marks)]
    lacking = {one.requirement for one in own}
    leading = tuple(between(metadata, names))
    needs = held(leading)[0]
    return Installed(
        own=_with_imports(world, root, trainer.entries, {one: one.requirement.name for one in own}, _is_missing),
        asked=len(asked.requirements),
        shipped=f"commit {known.commit[:10]} of {known.date}" if known and not root else "",
        between=_with_imports(world, root, trainer.entries, {one: one.requirement.by for one in needs}, _is_refused),
        unread=(*asked.unread, *unclear),
        broken=tuple(one for one in metadata.values() if one.absent),
        left_over=left_over_in(world, environment.folders),
        hidden=tuple(
            one for one in _hidden(world, environment) if one.name in names or one.name in {o.name for o in leading}
        ),
        without_wheel=tuple(
            one for one in without_wheel(applying, environment.release, world.system.os) if one in lacking
        ),
        nearest=nearest(applying, environment.release, world.system.os),
        requirements=tuple(applying) if root else (),
        metadata=metadata,
    )


def _of_checkout(world: World, root: str, files: Sequence[str]) -> Iterator[Asked]:
    """What each of its files asks for; and what a program asks for that brings the checkout along in a folder."""
    around = world.parent(root)
    if f"-e ./{world.name(root)}" in _text(world, world.join(around, "requirements.txt")):
        root, files = around, ("requirements.txt",)
    for asked in sets_of(lambda name: _text(world, world.below(root, name)), files):
        placed = (
            replace(one, by=world.below(root, one.by), where=Where(world.below(root, one.by), one.where.line))
            for one in asked.requirements
            if one.where is not None
        )
        yield replace(asked, requirements=tuple(placed))


def _text(world: World, path: str) -> str:
    data = world.read(path, 0, 1 << 20)
    return data.decode("utf-8", "replace") if isinstance(data, bytes) else ""


def _hidden(world: World, environment: Environment) -> Iterator[Hidden]:
    """The packages of an environment in whose place others are imported, of other versions and from outside of it."""
    if environment.own not in environment.folders:
        return
    own = folders_of(world, environment.own)
    for folder in environment.folders[: environment.folders.index(environment.own)]:
        for name, (version, _) in folders_of(world, folder).items():
            if name in own and own[name][0] != version:
                yield Hidden(name, own[name][0], version, folder)


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
