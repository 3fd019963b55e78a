"""A new virtual environment beside another one: made by uv and by venv, and taken back; nothing stays of a half."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from zdoctor.doctor.apply import ApplyError, UndoRefused, apply, recover, undo
from zdoctor.doctor.apply.steps import diff, make_environment
from zdoctor.doctor.model import Fix, MakeEnvironment, Plan
from zdoctor.tests.environments import offline, wheel

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    wheel(folder, "alpha", "1.0", ["beta"])
    wheel(folder, "beta", "1.0")
    wheel(folder, "broken", "1.0", files={"broken.py": "raise ImportError('made so')\n"})
    return folder


BOTH = pytest.mark.parametrize("root", ["uv", "venv"], indirect=True)


@pytest.fixture
def root(request: pytest.FixtureRequest, wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the new one goes. Without uv a Python without ensurepip makes it, which is quicker, and Debian's."""
    for name, value in offline(wheels).items():
        monkeypatch.setenv(name, value)
    maker = getattr(request, "param", "uv")
    if maker == "uv" and shutil.which("uv") is None:
        pytest.skip("uv is not here")
    if maker == "venv":
        real = shutil.which
        monkeypatch.setattr(shutil, "which", lambda name: None if name == "uv" else real(name))
        monkeypatch.setattr(make_environment, "_ASK", "import sys; print('%d.%d' % sys.version_info[:2], False)")
    return tmp_path / "venv-new"


def plan(root: Path, *wanted: str, modules: tuple[str, ...] = (), exact: bool = False, release: str = HERE) -> Plan:
    step = MakeEnvironment(str(root), release, wanted, exact=exact, modules=modules)
    return Plan("", (Fix("make it", (step,), safety="ask"),))


def said(root: Path, code: str) -> str:
    done = subprocess.run([root / "bin" / "python", "-c", code], capture_output=True, text=True)
    return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


@BOTH
def test_it_comes_with_what_is_needed_and_goes(root: Path, tmp_path: Path) -> None:
    done = apply(plan(root, "alpha", modules=("alpha",)), state=tmp_path / "state")
    assert said(root, "import alpha, beta; print(beta.__version__)") == "1.0"
    assert said(root, "import sys; print('%d.%d' % sys.version_info[:2])") == HERE
    undo(done.id, state=tmp_path / "state")
    assert {path.name for path in tmp_path.iterdir()} == {"state"}


def test_exactly_what_is_named(root: Path, tmp_path: Path) -> None:
    apply(plan(root, "alpha", modules=("alpha",), exact=True), state=tmp_path / "state")
    assert said(root, "import beta") == "ModuleNotFoundError: No module named 'beta'"


@pytest.mark.parametrize(
    ("wanted", "modules", "reason"),
    [("nowhere==1", (), "nowhere"), ("broken", ("broken",), "cannot import broken after it: ImportError: made so")],
)
def test_what_cannot_be_had_leaves_nothing(
    wanted: str, modules: tuple[str, ...], reason: str, root: Path, tmp_path: Path
) -> None:
    with pytest.raises(ApplyError, match=f"{reason}.*Everything is as before"):
        apply(plan(root, wanted, modules=modules), state=tmp_path / "state")
    assert {path.name for path in tmp_path.iterdir()} == {"state"}


def test_what_was_installed_into_it_since_is_not_lost(root: Path, tmp_path: Path) -> None:
    done = apply(plan(root, "beta"), state=tmp_path / "state")
    (root / "notes.txt").write_text("mine")
    with pytest.raises(UndoRefused, match=r"notes\.txt is new"):
        undo(done.id, state=tmp_path / "state")
    assert said(root, "import beta; print(beta.__version__)") == "1.0"


def test_what_lies_there_is_left_alone(root: Path, tmp_path: Path) -> None:
    root.mkdir()
    with pytest.raises(ApplyError, match="already exists; it was left alone"):
        apply(plan(root, "beta"), state=tmp_path / "state")


def test_what_would_come_is_told_before(root: Path) -> None:
    told = diff(plan(root, "alpha"), online=True).splitlines()
    assert told[0] == f"make the virtual environment {root} of Python {HERE} and install 1 packages into it"
    assert sorted(told[1:3]) == ["+alpha 1.0", "+beta 1.0"] and "to fetch (told by the index" in told[3]
    assert not root.exists()


def test_a_python_that_is_not_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(ApplyError, match=r"no Python 3\.99 was found here; install it, or uv"):
        apply(plan(tmp_path / "venv-new", "alpha", release="3.99"), state=tmp_path / "state")


def test_a_kill_in_the_middle_leaves_nothing(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that dies while it installs: the next command takes away what had grown."""
    script = "import os, sys; from pathlib import Path; from zdoctor.doctor.apply import apply\n"
    script += "from zdoctor.doctor.apply.steps import install_packages\n"
    script += "from zdoctor.doctor.model import Fix, MakeEnvironment, Plan\n"
    script += "install_packages.run = lambda *_: os._exit(9)\n"
    script += "step = MakeEnvironment(sys.argv[1], sys.argv[2], ('alpha',))\n"
    script += "apply(Plan('', (Fix('make it', (step,), 'ask'),)), state=Path(sys.argv[3]))\n"
    state = tmp_path / "state"
    done = subprocess.run([sys.executable, "-c", script, str(root), HERE, str(state)], env=dict(os.environ))
    assert done.returncode == 9 and root.exists()
    assert "was taken back" in recover(state)[0]
    assert {path.name for path in tmp_path.iterdir()} == {"state"}
