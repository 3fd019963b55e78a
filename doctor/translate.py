"""A run of any trainer in the words of zdoctor's own runner, which are ai-toolkit's."""

from __future__ import annotations

from dataclasses import replace

from .errors import UserError
from .model import Run, Schema, Unknown
from .model.families import OWN


def for_runner(run: Run, schema: Schema | Unknown) -> Run:
    """The run as the runner takes it. Raises UserError with every setting that it would not obey."""
    if run.trainer == "ai-toolkit":
        return replace(run, trainer=OWN)
    if run.trainer != "SimpleTuner":
        raise UserError(
            f"zdoctor train takes configs of ai-toolkit and SimpleTuner; this one is for {run.trainer}.",
            f"Start {run.trainer} itself; zdoctor run -- COMMAND checks first and explains a crash.",
        )
    from .configs.simpletuner.trained import as_trained, refusals

    if isinstance(schema, Unknown):
        raise UserError(f"the settings of {run.trainer} are not known: {schema.reason}.")
    reasons = refusals(run, schema)
    if reasons:
        raise UserError("zdoctor train would not obey all of this config:\n  " + "\n  ".join(reasons))
    return replace(as_trained(run), trainer=OWN)


def obeyed(run: Run) -> bool:
    """Whether the runner refuses nothing of a run that `for_runner` made."""
    from .train.refuse import refuse
    from .train.trackers import refused

    return not refuse(run) and not refused(run)


def differences(run: Run) -> list[str]:
    """What the runner does in another way than the run's own trainer, none of it written in the config."""
    if run.trainer != "SimpleTuner":
        return []
    from .configs.simpletuner.trained import differences as of_simpletuner

    return of_simpletuner(run)
