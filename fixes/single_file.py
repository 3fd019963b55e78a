"""Repairs of a single-file checkpoint: diffusers knows more layouts than the trainer does, and can write a folder."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..doctor.model import Finding, Fix
from ..doctor.rules import repair


@repair("MDL002")
def convert_to_a_folder(finding: Finding) -> Iterator[Fix]:
    """The command that makes a diffusers folder of the file, with the other parts where they must lie beside it."""
    file, class_name, repo = (finding.evidence.get(key) for key in ("file", "convert", "config"))
    if not (isinstance(file, str) and isinstance(class_name, str) and isinstance(repo, str)):
        return
    source = file.replace("\\", "/")
    if re.search(r"[\"'`$!]", source):
        return  # no one command suits every shell then
    folder = re.sub(r"\.\w+$", "", source) + "-diffusers"
    command = (
        f'python -c "import torch, diffusers; diffusers.{class_name}.from_single_file({source!r}, config={repo!r}, '
        f"subfolder='transformer', torch_dtype=torch.bfloat16).save_pretrained({folder + '/transformer'!r})\""
    )
    if finding.evidence.get("alone") is False:
        parts = " ".join(f'--include "{part}/*"' for part in ("text_encoder*", "tokenizer*", "vae", "scheduler"))
        command = f'hf download {repo} {parts} --local-dir "{folder}" && {command}'
    yield Fix(
        f"let diffusers convert the file into the folder {folder}, then name that folder in the config",
        (),
        "show",
        command=command,
    )
