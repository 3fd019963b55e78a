"""For which Pythons there are wheels: the table by what it says, and against PyPI's own names in small."""

from __future__ import annotations

import pytest

from zdoctor.doctor.model.environment import Requirement
from zdoctor.doctor.packages.requirements import of_texts
from zdoctor.doctor.packages.wheels import nearest, without_wheel
from zdoctor.doctor.schema.tables import shipped


def asked(*lines: str) -> tuple[Requirement, ...]:
    return of_texts(lines, "", "").requirements


@pytest.mark.parametrize(
    ("lines", "release", "system", "lacking", "best"),
    [
        (("scipy==1.12.0", "oyaml"), "3.12", "linux", [], "3.12"),
        (("scipy==1.12.0", "oyaml"), "3.13.1", "linux", ["scipy"], "3.12"),
        (("scipy==1.12.0", "matplotlib==3.10.1"), "3.9", "linux", ["matplotlib"], "3.10"),
        (("scipy>=1.12.0",), "3.14", "linux", [], "3.14"),  # a newer one will do
        (("torch==2.6.0",), "3.14", "linux", ["torch"], "3.13"),
        (("torch>=2.11.0",), "3.15", "linux", [], "3.15"),
        (("torch>=2.5.1,<2.9",), "3.14", "linux", ["torch"], "3.13"),
        (("torch==2.99",), "3.14", "linux", [], "3.14"),  # nobody knows
        (("safetensors==0.4.5",), "3.13", "linux", [], "3.13"),
        (("safetensors==0.4.5",), "3.13", "windows", ["safetensors"], "3.12"),
        (("python>=3.10,<3.13", "torch==2.6.0"), "3.14", "linux", ["torch"], "3.12"),
        (("scipy==1.12.0",), "", "linux", [], ""),
        (("scipy==1.12.0",), "2.7", "linux", [], ""),
        (("scipy==1.12.0", "scipy==1.16.0"), "3.13", "linux", ["scipy"], "3.12"),
    ],
)
def test_what_has_no_wheel(lines: tuple[str, ...], release: str, system: str, lacking: list[str], best: str) -> None:
    assert [one.name for one in without_wheel(asked(*lines), release, system)] == lacking
    assert nearest(asked(*lines), release, system) == best


@pytest.mark.parametrize(
    ("trainer", "pythons"),
    [
        ("ai-toolkit", ("3.10", "3.11", "3.12")),
        ("SimpleTuner", ("3.12", "3.13")),
        ("sd-scripts", ("3.10", "3.11", "3.12")),
        ("musubi-tuner", ("3.10", "3.11", "3.12")),
    ],
)
def test_every_python_that_a_readme_names_has_wheels_of_all(trainer: str, pythons: tuple[str, ...]) -> None:
    """The sets that were resolved for these (benchmarks/pinned.py)."""
    schema = shipped(trainer)
    assert schema is not None
    for lines in schema.requirements[:1]:
        assert [without_wheel(asked(*lines), python, "linux") for python in pythons] == [()] * len(pythons)
