"""Repairs of models whose parts are files of their own: which published file is meant, and the command for it."""

from __future__ import annotations

from collections.abc import Iterator

from ..doctor.families import family_of
from ..doctor.families.part_files import part_files
from ..doctor.model import Finding, Fix, Run
from ..doctor.rules import repair


@repair("KOH001", "MDL001", "MDL002", "MDL004")
def fetch_the_published_file(finding: Finding, run: Run) -> Iterator[Fix]:
    """The command that fetches the file which was published for this part; its path is for the config."""
    named = (finding.evidence.get("component"), finding.evidence.get("option"))
    part = next((part for part in part_files(run) if part.name in named or part.option in named), None)
    if part is None:
        return
    text = str(run.setting(part.option, "")).lower()
    published = family_of(run.recipe.architecture).files.get(part.class_name, ())
    file = next((file for word, file in published if word in text), "")
    if file:
        title = f"download the file that was published for --{part.option}, then put the path it prints there"
        yield Fix(title, (), "show", command=f"hf download {file}")
