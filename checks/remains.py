"""What lies in the output folder already, and keeps zdoctor's own runner from starting there."""

from __future__ import annotations

from collections.abc import Iterator

from ..doctor.model import Finding, Run, found
from ..doctor.model.remains import Remains, of_another_run, taken
from ..doctor.model.trainer import RUNNER
from ..doctor.rules import rule

_NOTHING = "zdoctor train does not start, and nothing is changed."


@rule("TRN012", "error", "lora-of-another-program", trainers=(RUNNER,))
def lora_of_another_program(run: Run, remains: Remains) -> Iterator[Finding]:
    """A LoRA of the run's name was written by another program, or cannot be opened.

    What: In the output folder lies name.safetensors or name_000000500.safetensors, and its metadata does not name
    zdoctor as the program that wrote it: mostly ai-toolkit's own earlier run of the same config.
    Why: The run would overwrite the file, or remove it as one of its own older saves.
    Repair: Another name. With the newest of these files as network.pretrained_lora_path beside it, the run begins
    with what they have learnt, its optimizer and its steps from zero. Or move the files away.
    """
    reason = taken(run, remains.saves)
    if reason is not None and run.kind == "lora":
        template, values = reason
        yield found(run.where("name"), template, otherwise=_NOTHING, evidence={"folder": remains.folder}, **values)


@rule("TRN013", "error", "state-of-another-run", trainers=(RUNNER,))
def state_of_another_run(run: Run, remains: Remains) -> Iterator[Finding]:
    """The state in the output folder is of another rank or quantization, or its end is missing.

    What: A run of zdoctor goes on from the state that it finds, exactly, and this one was saved for another rank,
    network, quantization, or for a run without a training adapter. Another model or adapter is seen by the runner
    alone, which reads their contents.
    Why: Weights of another shape do not fit, and with another quantization the base that they were trained beside is
    another.
    Repair: Another name for the new run, or the rank that the state has; to begin anew, move the state away.
    """
    if run.kind != "lora" or not remains.state:
        return
    if remains.cut:
        yield found(
            run.where("output_folder"),
            "{path}, the state that the run goes on from, is cut off: its end is missing. Move it away to start from "
            "step 0.",
            otherwise=_NOTHING,
            evidence={"path": remains.state},
        )
    elif reason := of_another_run(remains.state, remains.theirs, remains.ours):
        template, values = reason
        field = {"adapter": "adapter", "quantization": "quantization"}.get(values["key"], "rank")
        yield found(run.where(field), template, otherwise=_NOTHING, evidence={"path": remains.state}, **values)


@rule("TRN014", "error", "run-in-progress", trainers=(RUNNER,))
def run_in_progress(run: Run, remains: Remains) -> Iterator[Finding]:
    """Another process trains this run right now.

    What: A process has the lock of this run open, as far as this user may see that (on Linux).
    Why: Two runners in one folder would each undo what the other saved.
    Repair: Wait for it, stop it, or give this run another name.
    """
    if remains.running:
        yield found(
            run.where("name"),
            "Another zdoctor train is writing to {folder}. Wait for it, or stop it.",
            otherwise=_NOTHING,
            evidence={"folder": remains.folder},
        )
