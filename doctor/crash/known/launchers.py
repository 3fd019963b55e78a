"""Words of launchers and web pages about a process that failed: none of them is the cause. The last of the table."""

from __future__ import annotations

from ...model.crashes import Known

_ABOVE = (
    "Look above this place for the first traceback or the first line with an error, and explain that part: the whole "
    "output, into a file, is best (… 2>&1 | tee train.log)."
)
_ONLY = (
    "This is only a launcher's word that the process it started has failed; the cause stands above, in its output."
)

KNOWN = (
    Known(
        "OneTrainer could not load the model; this error came while it cleaned up afterwards.",
        "Look at the traceback above it, which ends with 'could not load model' and says why: most often a gated "
        "model "
        "without a token, or a file of another model.",
        avoid="Nothing is wrong with OneTrainer's code at this place.",
        error="AttributeError",
        text=r"'NoneType' object has no attribute 'to'",
        where=r"GenericTrainer\.py end\b",
        messenger=True,
        source="https://github.com/Nerogar/OneTrainer/issues/895",
    ),
    Known(
        "The trainer's process was ended by a compiled library (0xC0000409); this is only the launcher's word of it.",
        "Look at the last lines before this place. Set PYTHONFAULTHANDLER=1 and start again: the log then shows the "
        "line of Python at which it happens.",
        words=("failed with code 3221226505", "failed with return code 3221226505"),
        messenger=True,
        source="https://learn.microsoft.com/openspecs/windows_protocols/ms-erref/596a1078-e883-4972-9bbc-49e60bebca55",
    ),
    Known(
        _ONLY,
        _ABOVE,
        avoid="There is nothing to repair in accelerate, torchrun or DeepSpeed.",
        error="ChildFailedError",
        messenger=True,
        source="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/distributed/elastic/multiprocessing/errors/",
    ),
    Known(
        _ONLY,
        _ABOVE,
        avoid="There is nothing to repair in accelerate, torchrun or DeepSpeed.",
        error="CalledProcessError",
        text=r"returned non-zero exit status",
        messenger=True,
        source="https://github.com/huggingface/accelerate/blob/v1.15.0/src/accelerate/commands/launch.py",
    ),
    Known(
        _ONLY,
        _ABOVE,
        avoid="There is nothing to repair in accelerate, torchrun or DeepSpeed.",
        text=r"returned non-zero exit|failed \(exitcode: [1-9]\d*\) local_rank|exits with return code = 1\b"
        r"|[Tt]raining (?:subprocess )?failed with (?:return )?code 1\b",
        words=(
            "returned non-zero exit",
            "failed (exitcode: ",
            "exits with return code = 1",
            "raining failed with code 1",
            "raining subprocess failed with return code 1",
        ),
        messenger=True,
        source="https://github.com/shootthesound/comfyUI-Realtime-Lora/issues/8",
    ),
    Known(
        "OneTrainer could not load the model; the traceback above this one says why.",
        _ABOVE + " Most often the model is gated and no token was sent, or a file is of another model.",
        words=("could not load model:",),
        error="Exception",
        messenger=True,
        source="https://github.com/Nerogar/OneTrainer/issues/917",
    ),
)
