"""A byte-order mark and commas after last entries, in a config and in files that it names: put right, and undone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from zdoctor.tests.pairs.judge import Ward
from zdoctor.tests.pairs.patient import Fault, Patient
from zdoctor.tests.pairs.setups import SETUPS

SETUP = {setup.name: setup for setup in SETUPS}
MARK = "\ufeff"


def _commas(text: str) -> str:
    return text.replace("\n  }", ",\n  }").replace("\n]", ",\n]").replace("\n}", ",\n}")


def _marked(text: str) -> str:
    return MARK + text


def _marked_key(text: str) -> str:
    return MARK + "general.keep_tokens = 0\n" + text.partition("\n\n")[2]


@pytest.mark.parametrize(
    ("setup", "file", "spoilt", "says"),
    [
        ("simpletuner-zimage", "config/config.json", _marked, "BOM"),
        ("simpletuner-zimage", "config/config.json", _commas, "Expecting property name"),
        ("simpletuner-zimage", "config/data.json", _marked, "BOM"),
        ("simpletuner-zimage", "config/data.json", _commas, "Expecting property name"),
        ("sd-scripts-flux", "data.toml", _marked, "which is no TOML"),
        ("sd-scripts-flux", "data.toml", _marked_key, "so general is lost"),
        ("musubi-zimage", "data.toml", _marked, "which is no TOML"),
    ],
)
def test_a_file_is_put_right_in_one_go(
    setup: str, file: str, spoilt: Callable[[str], str], says: str, tmp_path: Path
) -> None:
    def plant(patient: Patient) -> None:
        path = patient.root / "job" / file
        path.write_text(spoilt(path.read_text(encoding="utf-8")), encoding="utf-8")

    story = Ward(SETUP[setup], tmp_path).story((Fault("spoilt", (), "", plant),))
    (error,) = story.reports[0].errors
    assert says in error.text()
    assert len(story.reports) == 2 and not story.objections
    assert not story.reports[1].errors
