"""Logins that a trainer asks for when nobody sits before it."""

from __future__ import annotations

from collections.abc import Iterator

from ...doctor.model import Finding, Run, found
from ...doctor.rules import prevents, rule


@rule("TRN011", "warning", "login-asked-for", trainers=("ai-toolkit",))
@prevents("TypeError", r"interpreter_login\(\) got an unexpected keyword argument")
@prevents("UsageError", r"api_key not configured \(no-tty\)|No API key configured")
def login_asked_for(run: Run, logins: tuple[str, ...]) -> Iterator[Finding]:
    """A login that the trainer will ask for, long after its start.

    What: push_to_hub is on and HF_TOKEN is not set, or use_wandb is on and no key for Weights & Biases is found:
    it is not set where zdoctor runs, no .env file lies in ai-toolkit's folder or above it, and no login was saved.
    Why: After the training ai-toolkit asks for a token on the terminal; a job without one hangs. Since version 1.0
    huggingface_hub refuses the way in which ai-toolkit asks (TypeError), even of somebody who is logged in. wandb
    asks when it is started, after the dataset was encoded.
    Repair: Set the variable where the run is started, or write it into .env. The LoRA is on the disk either way.
    Upstream: jobs/process/BaseSDTrainProcess.py (27a03a91), https://github.com/huggingface/huggingface_hub/pull/3345
    Signature: TypeError: interpreter_login() got an unexpected keyword argument 'new_session'
    """
    for key in logins:
        push = key == "save/push_to_hub"
        yield found(
            run.where(key),
            "{key} is on, and {variable} is neither set here nor is there a .env file that may hold it.",
            otherwise="After the training it asks for a login or ends in a TypeError; the LoRA is saved, not pushed."
            if push
            else "The run waits for a login, or ends, after the model was loaded and the dataset encoded.",
            evidence={"key": key},
            key=key.rpartition("/")[2],
            variable="HF_TOKEN" if push else "WANDB_API_KEY",
        )
