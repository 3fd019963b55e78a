"""Packages of a virtual environment, changed by a real pip from tiny wheels, and taken back file by file."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from zdoctor.doctor.apply import ApplyError, UndoRefused, apply, undo
from zdoctor.doctor.apply.steps import diff, install_packages
from zdoctor.doctor.model import Fix, InstallPackages, Plan
from zdoctor.tests.environments import offline, put, venv, wheel

NAMESPACE = {"shared/alpha/__init__.py": "x = 1\n"}
# Of what is alike after either the quicker one is tried each time.
SELDOM_PIP = [pytest.param("pip", marks=pytest.mark.thorough), "uv"]
OTHER = {"shared/other/__init__.py": "x = 1\n"}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    wheel(folder, "alpha", "1.0", files={"alpha.py": "v = 1\n", "alpha_more/old.py": "v = 1\n", **NAMESPACE})
    wheel(folder, "alpha", "2.0", ["beta>=2"], {"alpha.py": "v = 2\n", "alpha_more/new.py": "v = 2\n", **NAMESPACE})
    wheel(folder, "beta", "1.0")
    wheel(folder, "beta", "2.0")
    wheel(folder, "other", "1.0", files=OTHER)
    wheel(folder, "gamma", "1.0")
    wheel(folder, "broken", "1.0", files={"broken.py": "raise ImportError('made so')\n"})
    return folder


@pytest.fixture(scope="module")
def made(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("made") / "venv"
    venv(root)
    put(site(root), *(wheels / f"{name}-1.0-py3-none-any.whl" for name in ("alpha", "beta", "other")))
    return root


@pytest.fixture(params=["pip", "uv"])
def root(
    request: pytest.FixtureRequest, made: Path, wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """An environment that pip installs into, and one that says that uv made it."""
    for name, value in offline(wheels).items():
        monkeypatch.setenv(name, value)
    subprocess.run(["cp", "-a", str(made), str(tmp_path / "venv")], check=True)
    if request.param == "uv":
        if shutil.which("uv") is None:
            pytest.skip("uv is not here")
        with (tmp_path / "venv" / "pyvenv.cfg").open("a") as settings:
            settings.write("uv = 0.9.0\n")
    return tmp_path / "venv"


def site(root: Path) -> Path:
    return next((root / "lib").glob("python3.*")) / "site-packages"


def plan(root: Path, *wanted: str) -> Plan:
    steps = tuple(InstallPackages(str(root), str(root / "bin" / "python"), text) for text in wanted)
    return Plan("", tuple(Fix(step.wanted, (step,), safety="ask") for step in steps))


def tree(root: Path) -> dict[str, bytes]:
    """All files but what Python compiles, and what zdoctor moved aside."""
    found = (path for path in root.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(root)): path.read_bytes() for path in found if ".zdoctor" not in str(path)}


def said(root: Path, code: str) -> str:
    done = subprocess.run([root / "bin" / "python", "-c", code], capture_output=True, text=True)
    return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


def test_a_package_with_what_it_needs_comes_and_goes(root: Path, tmp_path: Path) -> None:
    before = tree(root)
    done = apply(plan(root, "alpha==2.0", "gamma"), state=tmp_path / "state")
    assert said(root, "import alpha, beta, gamma, alpha_more.new; print(alpha.v, beta.__version__)") == "2 2.0"
    names = {path.name for path in site(root).iterdir()}
    assert {"alpha-2.0.dist-info", "beta-2.0.dist-info", "gamma-1.0.dist-info"} < names
    assert not {"alpha-1.0.dist-info", "beta-1.0.dist-info"} & names
    assert not (site(root) / "alpha_more" / "old.py").exists()
    assert said(root, "import shared.other, shared.alpha; print(shared.other.x)") == "1"
    assert not list(root.glob(".zdoctor-new*"))
    undo(done.id, state=tmp_path / "state")
    assert tree(root) == before
    assert said(root, "import alpha; print(alpha.v)") == "1"
    assert said(root, "import gamma") == "ModuleNotFoundError: No module named 'gamma'"


def test_what_would_change_is_told_before(root: Path) -> None:
    before = tree(root)
    told = diff(plan(root, "alpha==2.0", "gamma"), online=True).splitlines()
    assert sorted(told[2:8]) == ["+alpha 2.0", "+beta 2.0", "+gamma 1.0", "-alpha 1.0", "-beta 1.0", *told[7:8]]
    sizes = re.compile(r"\d[\d.]* \w+ to fetch \(told by the index; less where pip has kept it\)")
    assert len(told[7:]) == ("uv =" not in (root / "pyvenv.cfg").read_text())
    assert all(sizes.fullmatch(line) for line in told[7:])
    [reason] = [line for line in diff(plan(root, "nowhere==1"), online=True).splitlines() if "cannot" in line]
    assert "nowhere==1" in reason and "+" not in diff(plan(root, "alpha==2.0"))
    assert tree(root) == before


@pytest.mark.parametrize("root", SELDOM_PIP, indirect=True)
def test_two_passes_over_one_package_are_taken_back_together(root: Path, tmp_path: Path) -> None:
    before = tree(root)
    first = apply(plan(root, "alpha==2.0"), state=tmp_path / "state")
    apply(plan(root, "alpha==1.0", "beta==1.0"), state=tmp_path / "state", group=first.id)
    assert said(root, "import alpha, alpha_more.old; print(alpha.v)") == "1"
    undo(first.id, state=tmp_path / "state")
    assert tree(root) == before


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        ("nowhere==1.0", "No matching distribution found for nowhere==1.0|nowhere was not found"),
        ("broken", "cannot import broken after it: ImportError: made so"),
        ("alpha==2.0,<2", "No matching distribution found|are incompatible|unsatisfiable"),
    ],
)
def test_what_cannot_be_had_leaves_everything_as_it_was(wanted: str, reason: str, root: Path, tmp_path: Path) -> None:
    before = tree(root)
    with pytest.raises(ApplyError, match="Everything is as before") as caught:
        apply(plan(root, wanted), state=tmp_path / "state")
    assert re.search(reason, str(caught.value))
    assert tree(root) == before


def test_an_index_that_is_not_reached_is_named(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pip itself says last that it found no version."""
    nowhere = {"PIP_NO_INDEX": "0", "PIP_FIND_LINKS": "", "PIP_INDEX_URL": "http://127.0.0.1:9/simple"}
    nowhere |= {"PIP_RETRIES": "1", "UV_CONFIG_FILE": os.devnull, "UV_DEFAULT_INDEX": "http://127.0.0.1:9/simple"}
    for name, value in {**nowhere, "UV_HTTP_RETRIES": "0"}.items():
        monkeypatch.setenv(name, value)
    before = tree(root)
    with pytest.raises(ApplyError, match=r"Connection refused.*Everything is as before"):
        apply(plan(root, "gamma"), state=tmp_path / "state")
    assert tree(root) == before


@pytest.mark.parametrize("root", SELDOM_PIP, indirect=True)
def test_a_stop_in_the_middle_leaves_everything_as_it_was(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, moves = tree(root), []

    def stopped(journal: object, new: Path, old: Path, kept: Path) -> None:
        moves.append(new)
        raise KeyboardInterrupt

    monkeypatch.setattr(install_packages, "_merge", stopped)
    with pytest.raises(KeyboardInterrupt):
        apply(plan(root, "alpha==2.0"), state=tmp_path / "state")
    assert moves and tree(root) == before


def test_a_package_that_pip_takes_for_installed_is_installed_once_more(root: Path, tmp_path: Path) -> None:
    before = tree(root)
    (site(root) / "beta" / "__init__.py").unlink()
    done = apply(plan(root, "beta==1.0"), state=tmp_path / "state")
    changed = {name for name, _ in tree(root).items() ^ before.items()}
    assert all("beta-1.0.dist-info" in name for name in changed)  # who installed it, and how
    assert said(root, "import beta; print(beta.__version__)") == "1.0"
    undo(done.id, state=tmp_path / "state")
    assert not (site(root) / "beta" / "__init__.py").exists()


def test_one_that_counts_as_installed_comes_once_more_beside_another(root: Path, tmp_path: Path) -> None:
    """The installer names only what it takes for missing."""
    before = tree(root)
    (site(root) / "beta" / "__init__.py").unlink()
    done = apply(plan(root, "beta==1.0", "gamma"), state=tmp_path / "state")
    assert said(root, "import beta, gamma; print(beta.__version__, gamma.__version__)") == "1.0 1.0"
    undo(done.id, state=tmp_path / "state")
    assert set(before) - set(tree(root)) == {str((site(root) / "beta" / "__init__.py").relative_to(root))}


@pytest.mark.parametrize("root", SELDOM_PIP, indirect=True)
def test_what_the_user_changed_since_is_not_lost(root: Path, tmp_path: Path) -> None:
    done = apply(plan(root, "gamma"), state=tmp_path / "state")
    (site(root) / "gamma" / "__init__.py").write_text("patched = True\n")
    with pytest.raises(UndoRefused, match="was changed since"):
        undo(done.id, state=tmp_path / "state")
    assert said(root, "import gamma; print(gamma.patched)") == "True"


def test_what_is_no_virtual_environment_is_left_alone(root: Path, tmp_path: Path) -> None:
    (root / "pyvenv.cfg").unlink()
    with pytest.raises(ApplyError, match="is no virtual environment"):
        apply(plan(root, "gamma"), state=tmp_path / "state")


def test_fix_repairs_the_environment_alone(root: Path, wheels: Path, tmp_path: Path) -> None:
    """From the command line, in a folder without a config, for the active environment."""
    own = {**os.environ, **offline(wheels), "ZDOCTOR_STATE": str(tmp_path / "state"), "VIRTUAL_ENV": str(root)}
    (site(root) / "beta" / "__init__.py").unlink()
    before = tree(root)

    def typed(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "zdoctor", *words], cwd=tmp_path, env=own, capture_output=True, text=True
        )

    assert "PKG010" in typed("check").stdout
    assert tree(root) == before
    done = typed("fix", "--allow", "asked", "--select", "PKG010", "--apply")
    assert done.returncode == 0, done.stderr
    assert said(root, "import beta; print(beta.__version__)") == "1.0"
    assert typed("undo").returncode == 0 and tree(root) == before
