"""A run of any trainer as zdoctor's own runner takes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import UserError
from ..families.part_files import BY_FILES, with_parts
from ..model import Run, Schema, Unknown
from ..model.record import replace
from ..model.trainer import RUNNER

if TYPE_CHECKING:
    from ..trainers.kohya.datasets import Folders


def _nowhere(folder: str) -> None:
    """No folder is there."""


def for_runner(run: Run, schema: Schema | Unknown, folders: Folders = _nowhere) -> Run:
    """The run as the runner takes it. Raises UserError with every setting that it would not obey.

    `folders` gives the names of the folders in a folder of sd-scripts' numbered ones.
    """
    if run.trainer == "ai-toolkit":
        from ..trainers.ai_toolkit.refusals import refusals

        return replace(run, trainer=RUNNER, refused=refusals(run))
    if run.trainer != "SimpleTuner" and run.trainer not in BY_FILES:
        raise UserError(
            f"zdoctor train takes configs of ai-toolkit, SimpleTuner, {' and '.join(BY_FILES)}; this one is for "
            f"{run.trainer}.",
            f"Start {run.trainer} itself; zdoctor run -- COMMAND checks first and explains a crash.",
        )
    if isinstance(schema, Unknown):
        raise UserError(f"the settings of {run.trainer} are not known: {schema.reason}.")
    if run.trainer in BY_FILES:
        from ..trainers.kohya import recipe as kohya

        reasons = kohya.refusals(run, schema)
        made = run if reasons else kohya.as_trained(run, folders)
        if not made.recipe.datasets and any(dataset.key.endswith("_data_dir") for dataset in run.recipe.datasets):
            reasons = [f"{run.recipe.datasets[0].folder} holds no folders such as 10_name, with pictures in them."]
    else:
        from ..trainers.simpletuner import recipe as simpletuner

        reasons = simpletuner.refusals(run, schema)
        made = run if reasons else simpletuner.as_trained(run)
    if reasons:
        raise UserError("zdoctor train would not obey all of this config:\n  " + "\n  ".join(reasons))
    return with_parts(replace(made, trainer=RUNNER), run)


def obeyed(run: Run) -> bool:
    """Whether the runner refuses nothing of a run that `for_runner` made."""
    from ..train.output.trackers import tracker_refusal
    from ..train.settings.refuse import refuse

    return not refuse(run) and not tracker_refusal(run)


def differences(run: Run) -> list[str]:
    """What the runner does in another way than the run's own trainer, none of it written in the config."""
    if run.trainer in BY_FILES:
        from ..trainers.kohya.recipe import differences as of_kohya

        return of_kohya(run)
    if run.trainer == "SimpleTuner":
        from ..trainers.simpletuner.recipe import differences as of_simpletuner

        return of_simpletuner(run)
    return []
