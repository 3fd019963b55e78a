"""The file of datasets: how kohya's trainers want it laid out."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...doctor.model import Finding, Run, Schema, Severity, found
from ...doctor.rules import prevents, rule
from . import TRAINERS

# what a key of a dataset file begins with, and what is wrong with the one that it stands in
_SHAPES = {
    "datasets": (r"datasets/\D", "{name} stands in a table. The datasets are a list: write [[datasets]] above each."),
    "subsets": (
        r"datasets/\d+/subsets/\D",
        "{name} stands in a table. The subsets are a list: write [[datasets.subsets]] above each.",
    ),
    "general": (r"general/\d", "general is a list here. It is one table: write [general], with single brackets."),
    "others": (
        r"dataset_config/[^/]+$",
        "{name} stands outside of [general] and [[datasets]], and nothing else is taken in this file.",
    ),
}
_UNLESS_OTHERS = "The trainer stops at the start, before it loads anything, unless this is another program's file."


@rule("KOH019", "error", "dataset-file-of-another-shape", trainers=TRAINERS)
@prevents("voluptuous.error.MultipleInvalid", r"expected a (list|dictionary) for dictionary value")
@prevents("voluptuous.error.MultipleInvalid", r"extra keys not allowed")
def dataset_file_of_another_shape(run: Run, schema: Schema) -> Iterator[Finding]:
    """A dataset file is laid out in another way than the trainer takes.

    What: A file of datasets with [datasets] or [datasets.name] where [[datasets]] belongs, the same for subsets, with
    [[general]], or with keys beside these sections.
    Why: The trainer compares the file with its schema before it looks for a picture: datasets and subsets are lists,
    which TOML writes with two brackets, general is one table, and there is nothing else.
    Repair: Two brackets around datasets and subsets, one around general; other keys into one of them.
    Upstream: sd-scripts library/config_util.py (48d368fa), musubi-tuner dataset/config_utils.py (30c658c4)
    Signature: MultipleInvalid: expected a list for dictionary value @ data['datasets']; extra keys not allowed @
    data['resolution']
    """
    told: set[str] = set()
    known = {
        name
        for section in ("general", "datasets/*", "datasets/*/subsets/*")
        for name in schema.section(section) or ()
    }
    for key, written in run.settings.items():
        for section, (pattern, message) in _SHAPES.items():
            if section not in told and re.match(pattern, key):
                told |= {section} - {"others"}
                name = key.rpartition("/")[2]
                otherwise = "The trainer stops at the start, before it loads anything."
                # a fork may read it by code of its own, in which the word then stands
                doubtful = section == "others" and name not in known and name in schema.words
                otherwise = _UNLESS_OTHERS if doubtful else otherwise
                severity: Severity | None = "warning" if doubtful else None
                evidence = {"key": key}
                yield found(
                    written.where, message, otherwise=otherwise, evidence=evidence, severity=severity, name=name
                )
