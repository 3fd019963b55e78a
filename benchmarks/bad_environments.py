"""Environments and machines on which a repair must not get through: what is said, how it ends, and what is left.

python benchmarks/bad_environments.py      as root of Linux, for the full disk and the other user; a minute
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from environments import made, tree
from sick_environments import REQUIREMENTS

from zdoctor.tests.environments import offline

ZDOCTOR = (sys.executable, "-m", "zdoctor")
FIX = ("fix", "--allow", "asked", "--select", "PKG006", "--apply")
NOWHERE = {"PIP_NO_INDEX": "0", "PIP_FIND_LINKS": "", "PIP_INDEX_URL": "http://127.0.0.1:9/simple"}
# root without the right to write what belongs to others
HARMLESS = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search,-fowner,-chown")
EVERY = """\ufeff-r base.txt
-e .
./local
https://x.invalid/a.zip
name @ https://x.invalid/b.whl
a[b]>=1 ; python_version<"3" and extra == "x"
c==1 ; python_version<"3" \\
  --hash=sha256:00
--pre
#
;;;
-c none.txt
"""
Ended = tuple[int, str, float]
"""Exit code, what was said, seconds."""


def typed(root: Path, *words: str, by: Sequence[str] = (), **variables: str) -> Ended:
    """A zdoctor that is started in a checkout."""
    own = {**os.environ, "ZDOCTOR_STATE": str(root.parent / f"{root.name} state"), **variables}
    started = time.perf_counter()
    done = subprocess.run([*by, *ZDOCTOR, *words], cwd=root, env=own, capture_output=True, text=True)
    ends = re.findall(r"^zdoctor: (.*)|^(\S+ was taken back.*)", done.stderr + done.stdout, re.M)
    shown = json.loads(done.stdout) if "json" in words else {}
    told = [f"{found['rule']}: {found['message']}" for found in shown.get("findings", ())]
    said = [*(first or second for first, second in ends), *told, str(shown.get("python", ""))]
    return done.returncode, "; ".join(filter(None, said)), time.perf_counter() - started


def sick(healthy: Path, place: Path) -> Path:
    """A copy without oyaml, which the start imports."""
    root = place / "c"
    subprocess.run(["cp", "-a", str(healthy), str(root)], check=True)
    for name in ("oyaml", "oyaml-1.0.dist-info"):
        shutil.rmtree(site(root) / name)
    return root


def site(root: Path) -> Path:
    [found] = (root / "venv" / "lib").glob("python3.*/site-packages")
    return found


@contextmanager
def full_disk(folder: Path, megabytes: int) -> Iterator[Path]:
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def row(what: str, root: Path, before: Mapping[str, bytes | str], ended: Ended) -> None:
    code, said, seconds = ended
    same = "as before" if tree(root) == before else "changed"
    said = said.replace(str(root), "…").replace("|", "/")
    print(f"| {what} | {code} | {said[:420]} | {same} | {seconds:.1f} |", flush=True)


def killed(root: Path) -> Ended:
    """A repair that is killed as soon as something of it lies in the environment; then the next command."""
    own = {**os.environ, "ZDOCTOR_STATE": str(root.parent / f"{root.name} state")}
    process = subprocess.Popen([*ZDOCTOR, *FIX], cwd=root, env=own, stdout=subprocess.DEVNULL)
    while process.poll() is None and not list((root / "venv").glob(".zdoctor-new*/lib")):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    return typed(root, "undo")


def main() -> None:
    print("| | exit code | what is said | the environment | seconds |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        healthy, wheels = made(Path(folder))
        os.environ.update(offline(wheels))

        def case(name: str) -> Path:
            place = Path(folder) / name
            place.mkdir()
            return sick(healthy, place)

        root = case("network")
        row("no network", root, tree(root), typed(root, *FIX, **NOWHERE))
        root = case("nothing")
        row("a resolver that finds nothing", root, tree(root), typed(root, *FIX, PIP_FIND_LINKS="/nowhere"))
        root = case("killed")
        row("killed in the middle, then `zdoctor undo`", root, tree(root), killed(root))
        root = case("other")
        subprocess.run(["chown", "-R", "nobody", str(root / "venv")], check=True)
        row("another user's environment", root, tree(root), typed(root, *FIX, by=HARMLESS))
        size = sum(file.stat().st_size for file in healthy.rglob("*") if file.is_file() and not file.is_symlink())
        with full_disk(Path(folder) / "full", (size >> 20) + 3) as disk:
            root = sick(healthy, disk)
            subprocess.run(["dd", "if=/dev/zero", f"of={disk}/rest", "bs=4k"], stderr=subprocess.DEVNULL)
            row("a full disk", root, tree(root), typed(root, *FIX, ZDOCTOR_STATE=f"{folder}/state"))
        root = case("metadata")
        (site(root) / "einops-0.8.1.dist-info" / "METADATA").write_bytes(os.urandom(5000))
        (site(root) / "scipy-1.12.0.dist-info" / "RECORD").write_bytes(b"\xff\xfe" + os.urandom(500))
        row("METADATA and RECORD of random bytes", root, tree(root), typed(root, "check", "--format", "json"))
        root = case("syntax")
        own = REQUIREMENTS.replace("-r base.txt\n", "")
        (root / "requirements.txt").write_text(EVERY + own, encoding="utf-8")
        row("requirements of every syntax, with a BOM", root, tree(root), typed(root, "check", "--format", "json"))
        root = case("two")
        shutil.copytree(root / "venv", root / ".venv", symlinks=True)
        row("two environments", root, tree(root), typed(root, "check", "--format", "json"))


if __name__ == "__main__":
    main()
