"""Driver of test_kill: applies a plan in child processes that die, or fail, at every point where they write.

    python killed.py FOLDER MODE STRIDE

An audit hook sees every open for writing, rename, link, mkdir, remove, chmod and utime before it happens; fsync is
not audited, so it is wrapped. At the n-th of these the child is killed (MODE kill), or the call fails once with "no
space left" (MODE full) or Ctrl-C (MODE interrupt). MODE undo kills in the undo instead, MODE recover kills in the
recovery of a killed child. MODE second kills a second repair and lets undo take it back. Every STRIDE-th point is
tried. What was not applied is then applied again, once for each set of names that is left: the next run finishes it.
Prints the number of points, then the laws that broke.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from zdoctor.doctor.apply import ApplyError, apply, history, recover, steps, undo
from zdoctor.doctor.apply.steps import fetch_file as fetch
from zdoctor.doctor.model import (
    CopyItem,
    ExtractFiles,
    FetchFile,
    Fix,
    MakeLink,
    MirrorFolder,
    PlaceCopy,
    Plan,
    Quarantine,
    SetValue,
    WriteText,
)
from zdoctor.tests.doctor.trees import Tree, snapshot, without_parts

WRITES = {"os.rename", "os.link", "os.symlink", "os.mkdir", "os.rmdir", "os.remove", "os.chmod", "os.utime"}


def build(folder: Path) -> tuple[Path, Path, Plan]:
    """A small world, its state folder and a plan with every kind of step."""
    home, state = folder / "home", folder / "state"
    shutil.rmtree(folder, ignore_errors=True)
    repo = home / "hub" / "models--o--n"
    for name, data in {
        "c.yaml": b"model:\n  path: 'a' # which\n",
        "hard.yaml": b"path: a long value that becomes short # here\n",
        "data/a.png": b"png",
        "data/sub/a.txt": b"caption",
        "data/.aitk_size.json": b"{}",
        "hub/models--o--n/blobs/aa": b"damaged",
        "hub/models--o--n/refs/main": b"gone\n",
        "good": b"good",
        "hub/models--o--n/snapshots/a/plain": b"good",
        "hub/models--o--n/blobs/cc.0.incomplete": b"go",
        "stray.incomplete": b"half",
    }.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_bytes(data)
        os.utime(home / name, ns=(10**18, 10**18 + len(name)))
    (home / "hard2.yaml").hardlink_to(home / "hard.yaml")
    (repo / "snapshots" / "c").mkdir(parents=True)
    (repo / "snapshots" / "c" / "wrong").symlink_to("../../blobs/none")
    (home / "c.yaml").chmod(0o640)
    digest = "sha256:" + hashlib.sha256(b"good").hexdigest()
    steps = (
        PlaceCopy(str(repo / "blobs" / "aa"), str(home / "good"), 4, digest),
        MakeLink(str(repo / "snapshots" / "c" / "wrong"), "../../blobs/aa"),
        MakeLink(str(repo / "snapshots" / "c" / "sub" / "new"), "../../../blobs/aa"),
        WriteText(str(repo / "refs" / "main"), "c"),
        WriteText(str(repo / "refs" / "pr" / "1"), "c"),
        FetchFile("o/n", "c", "b", str(repo / "blobs" / "bb"), 4, digest),
        FetchFile("o/n", "c", "c", str(repo / "blobs" / "cc"), 4, digest, str(repo / "blobs" / "cc.0.incomplete"), 2),
        Quarantine(str(repo / "blobs" / "cc.0.incomplete")),
        PlaceCopy(str(repo / "snapshots" / "c" / "p"), str(repo / "snapshots" / "a" / "plain"), 4, digest, link=True),
        Quarantine(str(home / "stray.incomplete")),
        ExtractFiles(
            str(home / "models" / "m"),
            tuple(CopyItem(str(repo / "blobs" / "aa"), name, 4, digest) for name in ("a", "vae/a", "vae/b")),
        ),
        MirrorFolder(str(home / "data"), str(home / "mirror")),
        SetValue(str(home / "c.yaml"), "/model/path", "b"),
        SetValue(str(home / "hard.yaml"), "/path", "b"),
    )
    return home, state, Plan("c.yaml", (Fix("all", steps),))


def download(step: FetchFile, folder: Path) -> Path:
    """Stands for the network, which a killed process cannot have two of."""
    (folder / "file").mkdir()
    (folder / "file" / step.filename).write_bytes(b"good")
    return folder / "file" / step.filename


def append(step: FetchFile, target: Path, meter: object) -> None:
    """Stands for the network too."""
    with target.open("ab") as file:
        file.write(b"good"[step.prefix_size :])


def at_point(n: int, strike: Callable[[], None], watched: Path) -> Callable[[], int]:
    """Strike at the n-th write below `watched` from now on. Returns how many were counted."""
    count = 0
    armed = True

    def tick() -> None:
        nonlocal count, armed
        if not armed:
            return
        count += 1
        if count == n:
            armed = False
            strike()

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = args
            if isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR) and str(watched) in str(path):
                tick()
        elif event in WRITES and any(str(watched) in str(arg) for arg in args[:2]):
            tick()

    sys.addaudithook(hook)
    really = os.fsync

    def fsync(descriptor: Any) -> None:
        tick()
        really(descriptor)

    os.fsync = fsync  # type: ignore[assignment]
    return lambda: count


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def full() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "some file")


def interrupt() -> None:
    raise KeyboardInterrupt


def child(work: Callable[[], object], n: int, strike: Callable[[], None], watched: Path) -> int:
    """Run `work` in a forked process. 0: it ended before point n, 1: failed, 2: bore the failure, < 0: killed."""
    pid = os.fork()
    if pid:
        _, status = os.waitpid(pid, 0)
        return os.waitstatus_to_exitcode(status)
    code = 3
    try:
        counted = at_point(n, strike, watched)
        work()
        code = 0 if counted() < n else 2
    except (ApplyError, KeyboardInterrupt):
        code = 1
    finally:
        os._exit(code)


def second(folder: Path, stride: int) -> None:
    """An undo after a kill takes back exactly the repair that was cut short, and the next undo the one before it."""
    points, broken = 0, []
    for n in range(1, 5000, stride):
        home, state, plan = build(folder)
        first = snapshot(home)
        edits = SetValue(str(home / "c.yaml"), "/model/path", "z"), Quarantine(str(home / "stray.incomplete"))
        done = apply(Plan("c.yaml", (Fix("earlier", edits),)), state=state)
        (home / "stray.incomplete").write_bytes(b"half again")
        between = snapshot(home)
        code = child(partial(apply, plan, state=state), n, kill, folder)
        if code == 0:
            break
        points += 1
        begun = len([path for path in (state / "journal").iterdir() if path.is_dir()]) > 1
        if begun:
            undo(state=state)
        now = without_parts(home)
        states = {entry.id: entry.state for entry in history(state)}
        if now != between:
            broken.append(f"{n}: the earlier repair is not as it was: {differences(between, now)}")
        if states[done.id] != "applied" or list(states.values()).count("applied") > 1:
            broken.append(f"{n}: the history says {states}")
        (home / "stray.incomplete").unlink()
        undo(state=state)
        if without_parts(home) != first:
            broken.append(f"{n}: not as at first: {differences(first, without_parts(home))}")
    print(points)
    print(*broken, sep="\n")


def main(folder: Path, mode: str, stride: int) -> None:
    fetch._download = download
    fetch._append = append
    fetch._is_plain = lambda step: False
    setattr(steps, "require_hub", lambda mirror: None)  # noqa: B010
    if mode == "second":
        second(folder, stride)
        return
    points = 0
    broken: list[str] = []
    home, state, plan = build(folder)
    before = snapshot(home)
    apply(plan, state=state)
    shapes = shape(snapshot(home))
    undo(state=state)
    if snapshot(home) != before:
        broken.append("undo is not exact")

    def law(n: int, holds: bool, text: str) -> None:
        if not holds:
            broken.append(f"{n}: {text}")

    strike = {"full": full, "interrupt": interrupt}.get(mode, kill)
    strikes = 0
    finished: list[list[tuple[str, int]]] = []
    for n in range(1, 5000, stride):
        home, state, plan = build(folder)
        before = snapshot(home)
        if mode == "undo":
            apply(plan, state=state)
            code = child(partial(undo, state=state), n, strike, folder)
        else:
            code = child(partial(apply, plan, state=state), n, strike, folder)
        if code == 0:
            break
        law(n, code in (1, 2, -signal.SIGKILL), f"ended with {code}")
        points += 1
        if mode in ("full", "interrupt"):
            now = without_parts(home)
            law(n, code == 2 or now == before, f"not rolled back: {differences(before, now)}")
        if mode == "recover":
            strikes = strikes % 61 + 1
            child(partial(recover, state), strikes, strike, folder)
        lines = recover(state)
        law(n, not any("left" in line for line in lines), f"left something: {lines}")
        law(n, recover(state) == (), "recovered twice")
        law(n, all(p.read_bytes() == b"good" for p in files_below(home)), "half a file was kept")
        now = without_parts(home)
        applied = any(entry.state == "applied" for entry in history(state))
        if applied:
            law(n, shape(now) == shapes, f"neither before nor after: {differences(before, now)}")
            undo(state=state)
            now = snapshot(home)
        law(n, now == before, f"not as before: {differences(before, now)}")
        if not applied and (left := outline(snapshot(home))) not in finished:
            finished.append(left)
            apply(plan, state=state)
            law(n, shape(snapshot(home)) == shapes, "the next run did not finish it")
            undo(state=state)
            law(n, snapshot(home) == before, f"not undone: {differences(before, snapshot(home))}")
    print(points)
    print(*broken, sep="\n")


def files_below(home: Path) -> list[Path]:
    """What the extraction kept to go on from."""
    return [path for path in home.glob("**/*.zdoctor-part/files/**/*") if path.is_file()]


def shape(tree: Tree) -> list[tuple[str, ...]]:
    """A tree without its times, the ids of transactions and empty folders of ours."""
    return sorted(
        (name.split("zdoctor-quarantine")[0], *map(str, what[: 3 if what[0] == "file" else 2]))
        for name, what in tree.items()
        if what[0] != "folder" or "zdoctor-quarantine" not in name
    )


def outline(tree: Tree) -> list[tuple[str, int]]:
    """Which names are there, each with the length of its content."""
    return [(name, len(str(what[-2]))) for name, what in tree.items()]


def differences(one: Tree, other: Tree) -> list[str]:
    return [name for name in sorted({*one, *other}) if one.get(name) != other.get(name)]


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
