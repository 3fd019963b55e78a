"""Requirement files of every syntax that pip knows, held against what pip itself makes of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from zdoctor.doctor.packages.requirements import of_lines, of_project, requirement
from zdoctor.tests.environments import offline, wheel

COMMIT = "c943837899b16cbae2f619b8dd4f7bb6f07dd81a"


@pytest.mark.parametrize(
    ("line", "name", "versions", "marker", "commit"),
    [
        ("torch", "torch", "", "", ""),
        ("Lycoris-LoRA==1.8.3", "lycoris_lora", "==1.8.3", "", ""),
        ("diffusers[torch]==0.32.1", "diffusers", "==0.32.1", "", ""),
        ("numpy >= 1.26.0 , < 2", "numpy", ">=1.26.0,<2", "", ""),
        ("numpy (>=1.26)", "numpy", ">=1.26", "", ""),
        ("triton>=3.1.0; sys_platform == 'linux'", "triton", ">=3.1.0", "sys_platform == 'linux'", ""),
        ("torch===2.6.0+cu124", "torch", "===2.6.0+cu124", "", ""),
        ("a~=1.4.2,!=1.4.5", "a", "~=1.4.2,!=1.4.5", "", ""),
        ("a==1.*", "a", "==1.*", "", ""),
        (f"git+https://github.com/huggingface/diffusers.git@{COMMIT}", "diffusers", "", "", COMMIT),
        (f"git+https://github.com/h/diffusers@{COMMIT}#egg=other_name&subdirectory=x", "other_name", "", "", COMMIT),
        ("git+https://github.com/huggingface/diffusers.git", "diffusers", "", "", ""),
        ("git+https://github.com/huggingface/diffusers.git@main", "diffusers", "", "", ""),
        ("git+ssh://git@github.com/a/b.git", "b", "", "", ""),
        (f"diffusers @ git+https://github.com/huggingface/diffusers@{COMMIT}", "diffusers", "", "", COMMIT),
        ("pip @ https://example.com/pip-1.3.1.zip ; python_version > '3.8'", "pip", "", "python_version > '3.8'", ""),
        ("https://example.com/flash_attn-2.8.3+cu12torch2.8-cp312-cp312-linux_x86_64.whl", "flash_attn",
         "==2.8.3+cu12torch2.8", "", ""),
    ],
)  # fmt: skip
def test_a_requirement(line: str, name: str, versions: str, marker: str, commit: str) -> None:
    found = requirement(line)
    assert found is not None
    assert (found.name, found.versions, found.marker, found.commit) == (name, versions, marker, commit)


@pytest.mark.parametrize("line", ["", "==1.0", "a b", "a==", "???", "a=1"])
def test_what_is_no_requirement(line: str) -> None:
    assert requirement(line) is None


TEXT = """\ufeff# a comment
alpha==1.0  # behind it
--index-url https://example.com/simple
-r more.txt
--requirement=further.txt
-c bounds.txt
beta>=2,\\
  <3
gamma==1.0 --hash=sha256:00 --hash=sha256:11
-e .
-e ./sd-scripts
-e git+https://example.com/delta.git#egg=delta
./local/package
https://example.com/some/archive.zip
  epsilon ; python_version < "3"
url#fragment==1
"""


def test_a_file_of_every_syntax() -> None:
    asked = of_lines(TEXT, "r.txt")
    found = [(one.name, one.versions, one.where.line if one.where else 0) for one in asked.requirements]
    assert found == [("alpha", "==1.0", 2), ("beta", ">=2,<3", 7), ("gamma", "==1.0", 9), ("delta", "", 12),
                     ("epsilon", "", 15)]  # fmt: skip
    assert asked.others == (("more.txt", False), ("further.txt", False), ("bounds.txt", True))
    assert asked.unread == ("r.txt:16: url#fragment==1",)


def test_pip_reads_the_same_file_the_same_way(tmp_path: Path) -> None:
    """What pip would install of such a file, by its own report."""
    for name in ("alpha", "gamma"):
        wheel(tmp_path / "wheels", name, "1.0")
    wheel(tmp_path / "wheels", "beta", "2.5")
    wheel(tmp_path / "wheels", "beta", "3.0")
    lines = [line for line in TEXT.splitlines() if not line.startswith(("-", "gamma", "./", "https", "url"))]
    file = tmp_path / "r.txt"
    file.write_text("\n".join([*lines, "-r more.txt"]), "utf-8")
    (tmp_path / "more.txt").write_text("gamma==1.0\r\n")
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet", "--report", "-"]
    run = subprocess.run(
        [*command, "-r", str(file)], env=offline(tmp_path / "wheels"), capture_output=True, check=True
    )
    told = {one["metadata"]["name"]: one["metadata"]["version"] for one in json.loads(run.stdout)["install"]}
    assert told == {"alpha": "1.0", "beta": "2.5", "gamma": "1.0"}
    ours = of_lines(file.read_text("utf-8"), str(file))
    assert [one.name for one in ours.requirements] == ["alpha", "beta", "epsilon"]


def test_a_project_with_its_python() -> None:
    text = '[project]\nrequires-python = ">=3.10, <3.13"\ndependencies = [\n  "av==14.0.1",\n  "pillow>=11.3.0",\n]\n'
    project = {"requires-python": ">=3.10, <3.13", "dependencies": ["av==14.0.1", "pillow>=11.3.0"]}
    [asked] = of_project(project, "p", text)
    found = [(one.text, one.where.line if one.where else 0) for one in asked.requirements]
    assert found == [("python>=3.10,<3.13", 2), ("av==14.0.1", 4), ("pillow>=11.3.0", 5)]


@pytest.mark.parametrize("project", [{}, {"dependencies": 3}, {"optional-dependencies": {"cuda": 3}}])
def test_a_project_that_says_nothing(project: dict[str, object]) -> None:
    [asked] = of_project(project, "p", "")
    assert asked.requirements == ()
