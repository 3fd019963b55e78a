"""Versions and markers: as `packaging` has them, whether it is asked or not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet

from zdoctor.doctor.packages.versions import holds, meets, variables

RELEASES = st.lists(st.integers(0, 12), min_size=1, max_size=4).map(lambda parts: ".".join(map(str, parts)))
VERSIONS = st.one_of(
    RELEASES, st.builds("{}{}".format, RELEASES, st.sampled_from(["+cu128", "rc1", ".dev0", ".post2"]))
)
CLAUSES = st.builds("{}{}".format, st.sampled_from([">=", "<=", "==", "!=", "<", ">", "~="]), RELEASES)


@given(
    VERSIONS, st.lists(CLAUSES, max_size=3).filter(lambda all: not any("~=" in one and "." not in one for one in all))
)
def test_plain_versions_are_compared_as_packaging_does(version: str, clauses: list[str]) -> None:
    asked = ",".join(clauses)
    assert meets(version, asked) == SpecifierSet(asked).contains(version, prereleases=True)


@pytest.mark.parametrize(("version", "asked"), [("2.6.0a0+df5bbc09d1.nv24.12", "oops"), ("not-a-version", ">=1")])
def test_what_nobody_can_compare(version: str, asked: str) -> None:
    assert meets(version, asked) is None


@pytest.mark.parametrize(
    ("marker", "system", "machine", "python", "expected"),
    [
        ("", "linux", "x86_64", "3.12", True),
        ("sys_platform == 'win32'", "windows", "AMD64", "3.12", True),
        ("sys_platform == 'win32'", "linux", "x86_64", "3.12", False),
        ("python_version < '3.13'", "linux", "x86_64", "3.9", True),
        ("python_full_version >= '3.12.1'", "linux", "x86_64", "3.12.4", True),
        ("platform_machine == 'aarch64' and platform_system == 'Linux'", "linux", "aarch64", "3.12", True),
        ("extra == 'gui'", "linux", "x86_64", "3.12", False),
        ("no_such_thing == 1", "linux", "x86_64", "3.12", None),
    ],
)
def test_markers(marker: str, system: str, machine: str, python: str, expected: bool | None) -> None:
    assert holds(marker, variables(system, machine, python)) is expected
