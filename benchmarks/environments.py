"""Make sick environments and healthy twins with pip; say what is found, repair it, take it back; beside pip and uv.

    python benchmarks/environments.py [NAME …]     about ten minutes; uv is asked where it is installed

    pip install --target PEERS mlenvdoctor env-doctor; PEERS=PEERS python benchmarks/environments.py

Each begins as a copy of one healthy virtual environment in a small checkout of ai-toolkit's shape, and gets other
wheels, tiny ones with the real names, versions and requirements, or damage. After `fix --allow asked --apply` the
trainer's start must work, and after `undo` the environment must be what it was, file for file.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from sick_environments import BASE, HEALTHY, MORE, OTHERS, OUTSIDE, REQUIREMENTS, RUN, SICK, TWINS, Case, files_of

from zdoctor.doctor.apply import undo
from zdoctor.doctor.commands.examined import ENVIRONMENT, examined
from zdoctor.doctor.commands.fix import fix
from zdoctor.doctor.errors import UserError
from zdoctor.tests.doctor.schema.checkouts import AI_TOOLKIT, checkout
from zdoctor.tests.environments import offline, pip, venv, wheel


def made(folder: Path) -> tuple[Path, Path]:
    """The healthy checkout, and the wheels of all."""
    wheels, root = folder / "wheels", folder / "healthy"
    for name, (version, requires) in HEALTHY.items():
        wheel(wheels, name, version, requires, files_of(name))
    for name, version, *needs in OTHERS:
        requires = [str(line) for needed in needs for line in needed]
        wheel(wheels, str(name), str(version), requires, files_of(str(name)))
    root.mkdir()
    checkout(root, AI_TOOLKIT)
    for name, content in {"requirements.txt": REQUIREMENTS, "base.txt": BASE, "bounds.txt": "late<9\n"}.items():
        (root / name).write_text(content)
    (root / "run.py").write_text(RUN)
    (root / "toolkit" / "more.py").write_text(MORE)
    pip(venv(root / "venv"), wheels, *(f"{name}=={version}" for name, (version, _) in HEALTHY.items()))
    return root, wheels


def spoiled(case: Case, healthy: Path, wheels: Path, root: Path) -> None:
    shutil.copytree(healthy, root, symlinks=True)
    python = root / "venv" / "bin" / "python"
    if case.install:
        pip(python, wheels, "--no-deps", *case.install)
    if case.remove:
        uninstall = [sys.executable, "-m", "pip", "--python", str(python), "uninstall", "--yes", "--quiet"]
        subprocess.run([*uninstall, *case.remove], check=True)
    own = REQUIREMENTS if "scipy" not in case.asked else REQUIREMENTS.replace("scipy==1.12.0\n", "")
    (root / "requirements.txt").write_text(own + case.asked)
    case.damage(root, next((root / "venv" / "lib").glob("python3.*")) / "site-packages")


def tree(root: Path) -> dict[str, bytes | str]:
    """All of an environment but what Python compiles, and what zdoctor moved aside."""
    found: dict[str, bytes | str] = {}
    for path in (root / "venv").rglob("*"):
        if "__pycache__" not in path.parts and ".zdoctor" not in str(path):
            if path.is_symlink():
                found[str(path)] = os.readlink(path)
            elif path.is_file():
                found[str(path)] = path.read_bytes()
    return found


def rules() -> set[str]:
    return {finding.rule for finding in examined(ENVIRONMENT).report.findings}


def complains(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    return "yes" if done.returncode else "-"


PEERS = {  # each run by the Python of the environment, its own packages behind those of the environment
    "mlenvdoctor": "sys.argv = ['mlenvdoctor', 'diagnose']; from mlenvdoctor.cli import app; app()",
    "env-doctor": "sys.argv = ['env-doctor', 'check', '--json']; from env_doctor.cli import main; main()",
}
HEALTHY_SAID: dict[str, set[str]] = {}


def told(peer: str, python: str, root: Path) -> str:
    """Whether a peer says what it does not say of the healthy environment; "ends" where it does not start."""
    place = os.environ.get("PEERS", "")
    if not place:
        return "not there"
    code = f"import sys; sys.path.append({place!r}); {PEERS[peer]}"
    try:
        done = subprocess.run([python, "-B", "-c", code], capture_output=True, text=True, cwd=root.parent)
    except OSError:
        return "ends"
    lines = {line.strip() for line in done.stdout.replace(str(root), "").splitlines()}
    lines = {line for line in lines if not re.search(r"\d\d:\d\d:\d\d|timestamp|free|[Gg]enerated", line)}
    if "Traceback" in done.stderr or not lines:
        return "ends"
    known = HEALTHY_SAID.setdefault(peer, lines)
    return "yes" if lines - known else "-"


def tried(case: Case, healthy: Path, wheels: Path, root: Path) -> tuple[str, ...]:
    """One row: what was found, what pip and uv say, and how the repair and its undoing ended."""
    spoiled(case, healthy, wheels, root)
    os.chdir(root)
    os.environ.pop("PYTHONPATH", None)
    if (root / OUTSIDE).is_dir():
        os.environ["PYTHONPATH"] = str(root / OUTSIDE)
    python = str(root / "venv" / "bin" / "python")
    found = rules()
    row = [" ".join(sorted(found)) or "-", "as expected" if found == set(case.expected.split()) else "OTHERWISE"]
    row.append(complains(sys.executable, "-m", "pip", "--python", python, "check"))
    row.append(complains("uv", "pip", "check", "--python", python) if shutil.which("uv") else "not there")
    row += [told(peer, python, root) for peer in PEERS]
    before, state = tree(root), root.parent / f"{root.name} state"
    os.environ["ZDOCTOR_STATE"] = str(state)
    if not found:
        return (*row, "", "")
    try:
        done = fix(ENVIRONMENT, apply=True, asked=True, selected=sorted(found))
    except UserError as error:
        same = "as before" if tree(root) == before else "NOT AS BEFORE"
        return (*row, f"refused ({str(error)[:70]}…), {same}", "")
    if not done.applied:
        return (*row, "nothing to carry out", "")
    left = " ".join(sorted({finding.rule for finding in done.after.findings} if done.after else ())) or "nothing left"
    new = next(root.glob("venv-py3.*/bin/python"), python)
    start = subprocess.run([new, "run.py"], capture_output=True, text=True)
    repaired = f"{left}; {'starts' if 'started' in start.stdout else 'DOES NOT START'}"
    undo(done.applied[0], state=state)
    same = tree(root) == before and not list(root.glob("venv-py3.*"))
    return (*row, repaired, "the same" if same else "NOT THE SAME")


def main(names: Sequence[str]) -> None:
    columns = ("environment", "found", "", "pip check", "uv pip check", *PEERS, "after the repair", "after undo")
    print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
    with tempfile.TemporaryDirectory() as folder:
        os.environ.pop("VIRTUAL_ENV", None)
        healthy, wheels = made(Path(folder))
        os.environ.update(offline(wheels))
        for peer in PEERS:
            told(peer, str(healthy / "venv" / "bin" / "python"), healthy)
        for number, case in enumerate((*SICK, *TWINS)):
            if not names or case.name in names:
                row = tried(case, healthy, wheels, Path(folder) / f"case{number}")
                print("| " + " | ".join((case.name, *row)) + " |", flush=True)
        os.chdir("/")


if __name__ == "__main__":
    main(sys.argv[1:])
