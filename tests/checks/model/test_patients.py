"""Every family whose files are judged: its healthy model is silent, and no damage to it is called well."""

from __future__ import annotations

import shutil
from itertools import islice
from pathlib import Path

import pytest

from zdoctor.doctor.families import families
from zdoctor.doctor.families.record import Family
from zdoctor.doctor.rules import NotApplicable, Unestablished
from zdoctor.tests.models import probed, run_of
from zdoctor.tests.patients import Patient, damages, patient, write

from .folders import RULES

JUDGED = [family for family in families() if family.loader is not None]
NAMES = [family.name for family in JUDGED]


def seen(family: Family, of: Patient) -> tuple[set[str], str]:
    """The rules that say something, and what is not known."""
    run = run_of(of.source, family.name, **of.settings)
    model, told, unknown = probed(run, of.hub), set(), ""
    for id, rule in RULES.items():
        try:
            told |= {id for finding in rule(run, model) if finding.text() and finding.consequence()}
        except (Unestablished, NotApplicable) as error:
            unknown += f"{id}: {error}; "
    return told, unknown


def judge(family: Family, folder: Path, first: int, one_in: int) -> None:
    """The healthy model is silent, and so many of the damages to it are found."""
    assert family.loader is not None
    healthy = patient(family, folder)
    assert seen(family, healthy) == (set(), "")
    found = 0
    for name, part, change in islice(damages(healthy, family.loader), first, None, one_in):
        if str(part.file) == healthy.source and name.endswith("no file"):
            continue  # that what a config names is not there is another rule's
        kept = {file: file.read_bytes() for file in part.folder.glob("*.json")}
        change(part)
        told, unknown = seen(family, healthy)
        # a file of another repository that is damaged is the hub rules' to say; what is in it is not
        assert told or (unknown and not part.folder.is_relative_to(folder / "model")), name
        found += bool(told)
        write(part.file, part.shapes)
        for file, text in kept.items():
            file.write_bytes(text)
    assert found >= 20 // one_in
    shutil.rmtree(folder)


@pytest.mark.parametrize(("at", "family"), list(enumerate(JUDGED)), ids=NAMES)
def test_a_healthy_model_is_silent_and_damages_are_found(at: int, family: Family, tmp_path: Path) -> None:
    """Every third damage, of each family other ones."""
    judge(family, tmp_path / "m", at % 3, 3)


@pytest.mark.thorough
@pytest.mark.parametrize("family", JUDGED, ids=NAMES)
def test_every_damage_is_found(family: Family, tmp_path: Path) -> None:
    judge(family, tmp_path / "m", 0, 1)
