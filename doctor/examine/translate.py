"""A run of any trainer as zdoctor's own runner takes it."""

from __future__ import annotations

from ..errors import UserError
from ..families import family_of, in_diffusers
from ..model import Run, Schema, Unknown
from ..model.record import replace
from ..model.trainer import RUNNER, Folders
from ..trainers import loaded, trainer_of, trainers


def for_runner(run: Run, schema: Schema | Unknown, folders: Folders = lambda _: None) -> Run:
    """The run as the runner takes it. Raises UserError with every setting that it would not obey.

    `folders` gives the names of the folders in a folder of sd-scripts' numbered ones.
    """
    room = trainer_of(run.trainer).recipe
    if not room:
        known = [trainer.name for trainer in trainers() if trainer.recipe]
        raise UserError(
            f"zdoctor train takes configs of {', '.join(known[:-1])} and {known[-1]}; this one is for {run.trainer}.",
            f"Start {run.trainer} itself; zdoctor run -- COMMAND checks first and explains a crash.",
        )
    made: Run = loaded(room).for_runner(run, schema, folders)
    family = family_of(made.recipe.architecture)
    own = in_diffusers(family)
    same = own is family or own.own is None
    trained = made.recipe if same else replace(made.recipe, architecture=own.name)
    return replace(made, trainer=RUNNER, recipe=trained)


def obeyed(run: Run) -> bool:
    """Whether the runner refuses nothing of a run that `for_runner` made."""
    from ..train.output.trackers import tracker_refusal
    from ..train.settings.refuse import refuse

    return not refuse(run) and not tracker_refusal(run)
