"""CPU seconds per GiB of a verified `zdoctor extract` against `cp` and `sha256sum`; its time where blocks are shared.

    python benchmarks/extraction.py [ROUNDS [FOLDER ...]]

1 GiB in four random safetensors files of a hub cache, in the page cache. Every round runs each contender once, in
turn, on the file system of the temporary folder; CPU is user plus system of the whole process and its children.
Bar: at most 1.15 CPU-s per GiB for zdoctor where cp and sha256sum cost more than 3.

Then the same cache on file systems that share blocks: a btrfs and an xfs image on a loop device (as root, where
mkfs is installed) and every FOLDER that is named: the whole command, and the copying alone, first without and then
with receipts of an earlier reading.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deep_check import FILES, REPO, build, cost

from zdoctor.doctor.apply.actions.copy import Meter, copy_file
from zdoctor.doctor.state.receipts import Receipts

COMMIT = "ab" * 20
GIB = 1 << 30


def environment_of(root: Path) -> dict[str, str]:
    """That of an installed zdoctor: its bytecode is cached."""
    path = os.pathsep.join(p for p in sys.path if p)
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {
        **inherited,
        "HF_HUB_CACHE": str(root / "hub"),
        "ZDOCTOR_STATE": str(root / "state"),
        "PYTHONPATH": path,
    }


def prepare(root: Path) -> Path:
    """A cache of 1 GiB; returns its snapshot."""
    build(root / "hub", COMMIT, GIB // FILES >> 20)
    return root / "hub" / ("models--" + REPO.replace("/", "--")) / "snapshots" / COMMIT


def compare(root: Path, rounds: int) -> None:
    snapshot, target = prepare(root), root / "out"
    sums = f'cp -rL "{snapshot}" "{target}" && find "{target}" -type f -print0 | xargs -0 sha256sum'
    contenders = {
        "zdoctor extract": [sys.executable, "-m", "zdoctor", "extract", REPO, str(target)],
        "cp + sha256sum": ["sh", "-c", sums],
    }
    measured: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
    for turn in range(rounds + 1):
        for name, command in contenders.items():
            shutil.rmtree(target, ignore_errors=True)
            shutil.rmtree(root / "state", ignore_errors=True)
            cpu, wall, said = cost(command, environment_of(root))
            assert name != "zdoctor extract" or "every file verified" in said, said
            if turn:  # the first round fills the page cache and the bytecode cache
                measured[name].append((cpu, wall))
    for name, runs in measured.items():
        cpus = [cpu for cpu, _ in runs]
        middle, wall = statistics.median(cpus), statistics.median(wall for _, wall in runs)
        print(f"{name:16} CPU {middle:.3f} s/GiB (min {min(cpus):.3f}, max {max(cpus):.3f})  wall {wall:.2f} s")
    pairs = zip(measured["cp + sha256sum"], measured["zdoctor extract"], strict=True)
    print(
        f"cp + sha256sum costs {statistics.median(a[0] / b[0] for a, b in pairs):.2f} times as much (median of pairs)"
    )


def shared(root: Path, rounds: int) -> None:
    snapshot, target = prepare(root), root / "out"
    command = [sys.executable, "-m", "zdoctor", "extract", REPO, str(target)]
    for what in ("nothing known", "with receipts"):
        walls: list[float] = []
        cpus: list[float] = []
        for _ in range(rounds):
            shutil.rmtree(target, ignore_errors=True)
            if what == "nothing known":
                shutil.rmtree(root / "state", ignore_errors=True)
            cpu, wall, _ = cost(command, environment_of(root))
            cpus.append(cpu)
            walls.append(wall)
        print(f"  the command, {what}: {statistics.median(walls):.3f} s, CPU {statistics.median(cpus):.3f} s")
    receipts = Receipts(root / "state")
    for what, known in (("nothing known", None), ("with receipts", receipts)):
        times: list[float] = []
        for turn in range(rounds):
            folder = root / f"copies {what} {turn}"
            folder.mkdir()
            started = time.perf_counter()
            for file in sorted(snapshot.rglob("*.safetensors")):
                digest = "sha256:" + file.resolve().name
                copy_file(file, folder / file.name, file.stat().st_size, digest, Meter(0, None), receipts=known)
            times.append(time.perf_counter() - started)
        print(f"  the four copies alone, {what}: {1000 * statistics.median(times):.2f} ms")


@contextmanager
def loop(kind: str, folder: Path) -> Iterator[Path]:
    """A fresh file system of that kind. Raises OSError with the reason where there can be none."""
    if os.geteuid() != 0 or shutil.which(f"mkfs.{kind}") is None:
        raise OSError("this takes root" if os.geteuid() else f"mkfs.{kind} is not installed")
    image, point = folder / f"{kind}.img", folder / kind
    point.mkdir()
    with image.open("wb") as file:
        file.truncate(6 * GIB)
    subprocess.run([f"mkfs.{kind}", "-q", str(image)], check=True, capture_output=True)
    done = subprocess.run(["mount", "-o", "loop", str(image), str(point)], capture_output=True, text=True)
    if done.returncode:
        raise OSError(done.stderr.strip())
    try:
        yield point
    finally:
        subprocess.run(["umount", str(point)], check=True)
        image.unlink()


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory() as name:
        print(f"in {name}, {rounds} rounds")
        compare(Path(name) / "plain", rounds)
    for kind in ("btrfs", "xfs"):
        with tempfile.TemporaryDirectory() as name:
            print(f"{kind} on a loop device")
            try:
                with loop(kind, Path(name)) as point:
                    shared(point / "work", rounds)
            except (OSError, subprocess.CalledProcessError) as error:
                print(f"  skipped: {error}")
    for folder in sys.argv[2:]:
        with tempfile.TemporaryDirectory(dir=folder) as name:
            print(f"in {name}")
            shared(Path(name), rounds)


if __name__ == "__main__":
    main()
