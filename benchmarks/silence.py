"""The longest time in which a command of zdoctor that takes long says nothing, in a terminal and in a pipe.

    python benchmarks/silence.py [MIB_PER_FILE]
    python benchmarks/silence.py -- COMMAND …       any other command, in the folder and environment of now

`demo`, `train` of what the demo leaves, `fix --apply` of its config, `cache --deep` and `extract` of four random
files. Each runs in a terminal of its own (80 columns), then with a pipe in place of it; measured are the gaps between
what it writes, from its start to its end. In the terminal nothing should be silent for more than a second; a log gets
a line every few seconds.
"""

from __future__ import annotations

import os
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ

from deep_check import REPO, build

ZDOCTOR = (sys.executable, "-m", "zdoctor")


@dataclass(frozen=True)
class Heard:
    """`gaps` are seconds of silence, each with the last line that was said before it."""

    code: int
    seconds: float
    size: int
    gaps: list[tuple[float, str]]


def listen(command: Sequence[str], folder: Path, environment: Mapping[str, str], *, terminal: bool) -> Heard:
    """Run a command and note when it writes."""
    if terminal:
        ours, theirs = os.openpty()
        ioctl(theirs, TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    else:
        ours, theirs = os.pipe()
    began = last = time.monotonic()
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs
    ) as child:
        os.close(theirs)
        gaps: list[tuple[float, str]] = []
        size, line = 0, "(its start)"
        while True:
            select.select([ours], [], [])
            try:
                data = os.read(ours, 1 << 16)
            except OSError:  # Linux: nobody holds the terminal any more
                data = b""
            now = time.monotonic()
            gaps.append((now - last, line))
            last = now
            if not data:
                break
            size += len(data)
            line = next(
                (part.strip() for part in reversed(data.decode(errors="replace").split("\n")) if part.strip()), line
            )
    os.close(ours)
    return Heard(child.returncode, last - began, size, sorted(gaps, reverse=True))


def tell(name: str, command: Sequence[str], folder: Path, environment: Mapping[str, str], *, terminal: bool) -> None:
    heard = listen(command, folder, environment, terminal=terminal)
    where = "terminal" if terminal else "pipe"
    print(f"{name:<14} {where:<8} {heard.seconds:6.1f} s  code {heard.code}  {heard.size:>8,} bytes")
    for gap, line in heard.gaps[:3]:
        print(f"{'':<24}silent for {gap:5.2f} s after: {line[-90:]}", flush=True)


def all_of_them(root: Path, environment: Mapping[str, str], *, terminal: bool) -> None:
    """The commands, with what they leave in `root`, where the hub cache is."""

    def run(name: str, *words: str, at: Path = root, **variables: str) -> None:
        tell(name, (*ZDOCTOR, *words), at, {**environment, **variables}, terminal=terminal)

    run("cache --deep", "cache", REPO, "--deep")
    run("extract", "extract", REPO, "copy")
    shutil.rmtree(root / "copy")
    demo = root / "demo"
    run("demo", "demo", str(demo))
    shutil.rmtree(demo / "output")
    own = {"HF_HOME": str(demo / "hub"), "ZDOCTOR_STATE": str(demo / "state"), "ZDOCTOR_CACHE": str(demo / "cache")}
    run("train", "train", "config_cpu.yaml", at=demo, **own)
    run("undo", "undo", at=demo, **own)
    run(
        "fix --apply",
        "fix",
        "config.yaml",
        "--apply",
        "--allow",
        "result",
        "--machine",
        "machine.json",
        at=demo,
        **own,
    )


def main() -> None:
    mib = int(sys.argv[1]) if sys.argv[1:2] not in ([], ["--"]) else 512
    path = os.pathsep.join(p for p in sys.path if p)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"PYTHONPATH": path, "TERM": "xterm-256color"}
    for terminal in (True, False):
        if "--" in sys.argv:
            command = sys.argv[sys.argv.index("--") + 1 :]
            tell(Path(command[0]).name, command, Path.cwd(), environment, terminal=terminal)
            continue
        root = Path(tempfile.mkdtemp(prefix="zdoctor-silence-"))
        own = {
            "ZDOCTOR_STATE": str(root / "state"),
            "ZDOCTOR_CACHE": str(root / "kept"),
            "HF_HOME": str(root / "hub"),
        }
        try:
            build(root / "hub" / "hub", "ab" * 20, mib)
            all_of_them(root, {**environment, **own}, terminal=terminal)
        finally:
            shutil.rmtree(root)


if __name__ == "__main__":
    main()
