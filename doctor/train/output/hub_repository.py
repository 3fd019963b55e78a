"""The finished LoRA goes to the Hugging Face Hub, into a repository that is asked for before the run."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ...model.recipe import Checkpoints
from ..runtime.train_error import TrainError, first_line


def claim_repository(save: Checkpoints, note: Callable[[str], None]) -> str:
    """Makes the repository that the config names, or finds it; returns its name with its owner's.

    Raises TrainError where it may not be made.
    """
    kind = "private" if save.push_private else "public"
    try:
        repository: str = _hub().create_repo(save.push_to, private=save.push_private, exist_ok=True).repo_id
    except Exception as error:  # no login, no network, no such name: each with a type of its own
        raise TrainError(
            f"The LoRA could not be pushed to {save.push_to} on the Hugging Face Hub ({first_line(error)}). Type: "
            "hf auth login, or set HF_TOKEN, or take the push out of the config."
        ) from error
    note(f"After the last step LoRA and samples go to {repository} on the Hugging Face Hub ({kind} if new).")
    return repository


def push(repository: str, lora: Path, samples: Sequence[Path], note: Callable[[str], None]) -> None:
    """Uploads the LoRA and its samples; what fails is said, since all of it is on the disk."""
    from huggingface_hub import CommitOperationAdd

    files = {lora.name: lora, **{f"samples/{file.name}": file for file in samples if file.is_file()}}
    try:
        operations = [
            CommitOperationAdd(path_in_repo=name, path_or_fileobj=str(file)) for name, file in files.items()
        ]
        told = _hub().create_commit(repository, operations, commit_message=lora.stem)
        note(f"Pushed {lora.name} to {told.commit_url}.")
    except Exception as error:
        note(
            f"{lora.name} could not be pushed to {repository} ({first_line(error)}). "
            f"Type: hf upload {repository} {lora}"
        )


def _hub() -> Any:
    from huggingface_hub import HfApi

    return HfApi(endpoint=os.environ.get("HF_ENDPOINT"))
