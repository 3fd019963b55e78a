"""What bounds a program: control groups, page files as the registry names them, the .wslconfig around a WSL."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from zdoctor.doctor.model import Host, Unknown
from zdoctor.doctor.probe.host import memory, probe_host
from zdoctor.doctor.probe.recorded import RecordedWorld
from zdoctor.doctor.probe.windows import grows, synced
from zdoctor.tests.machines import load

LIMIT = 1 << 30
GROUPS = Path("/sys/fs/cgroup/memory")
INSIDE = """
import os, sys
open(sys.argv[1] + "/cgroup.procs", "w").write(str(os.getpid()))
from zdoctor.doctor.probe.host import memory
open(sys.argv[2], "rb").read()  # its pages are memory that is used, and that gives way
print(memory().total, memory().available, memory().contained)
"""


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group inside another one, which bounds its memory."""
    outer = next((one for one in (GROUPS, Path("/sys/fs/cgroup")) if one.is_dir()), GROUPS)
    outer = outer / f"zdoctor-test-{os.getpid()}"
    inner = outer / "inner"
    limit = "memory.limit_in_bytes" if outer.is_relative_to(GROUPS) else "memory.max"
    try:
        inner.mkdir(parents=True)
        (outer / limit).write_text(str(LIMIT))
    except OSError as error:
        for folder in filter(Path.is_dir, (inner, outer)):
            folder.rmdir()
        pytest.skip(f"the kernel does not let this user make a control group: {error}")
    yield inner
    inner.rmdir()
    outer.rmdir()


def test_the_bound_of_a_group_holds_for_those_inside_and_cached_files_do_not_count(
    tmp_path: Path, group: Path
) -> None:
    file = tmp_path / "read"
    file.write_bytes(bytes(400 << 20))
    done = subprocess.run(
        [sys.executable, "-c", INSIDE, str(group), str(file)], capture_output=True, text=True, check=True
    )
    total, available, contained = done.stdout.split()
    assert (int(total), contained) == (LIMIT, "True")
    assert int(available) > LIMIT - (200 << 20)
    assert memory().total > LIMIT


@pytest.mark.parametrize(
    ("written", "says"),
    [
        (None, True),
        (["?:\\pagefile.sys"], True),
        (["C:\\pagefile.sys 0 0"], True),
        (["C:\\pagefile.sys 4096 16384"], True),
        (["C:\\pagefile.sys 4096 4096"], False),
        (["C:\\pagefile.sys 4096 4096", "D:\\pagefile.sys 0 0"], True),
        ([], False),
        ([""], False),
    ],
)
def test_a_page_file_grows_unless_both_of_its_sizes_are_the_same(written: object, says: bool) -> None:
    assert grows(written) is says


def test_onedrive_names_its_own_folders() -> None:
    named = {"OneDrive": "C:\\Users\\m\\OneDrive", "OneDriveConsumer": "C:\\Users\\m\\OneDrive", "PATH": "x"}
    assert synced(named) == ("C:\\Users\\m\\OneDrive",)


def wsl(people: tuple[str, ...], **texts: str) -> RecordedWorld:
    record: dict[str, Any] = load("wsl_laptop")
    record["files"] |= {f"/mnt/c/Users/{name}": {"folder": True} for name in people}
    record["files"] |= {f"/mnt/c/Users/{name}/.wslconfig": {"text": text} for name, text in texts.items()}
    return RecordedWorld(record)


@pytest.mark.parametrize(
    ("world", "path", "text"),
    [
        (wsl(("tran", "Public", "Default")), "tran", ""),
        (wsl(("tran", "anna", "Public"), tran="[wsl2]\nmemory=8GB\n"), "tran", "[wsl2]\nmemory=8GB\n"),
        (wsl(("tran", "anna"), tran="a", anna="b"), "", ""),
    ],
)
def test_the_config_of_windows_around_a_wsl(world: RecordedWorld, path: str, text: str) -> None:
    host = probe_host(world)
    assert isinstance(host, Host)
    assert (host.wsl_config, host.wsl_text) == (f"/mnt/c/Users/{path}/.wslconfig" if path else "", text)


def test_what_is_not_recorded_is_not_known() -> None:
    record = load("healthy")
    del record["host"]
    assert isinstance(probe_host(RecordedWorld(record)), Unknown)
    assert probe_host(RecordedWorld(load("healthy"))) == Host(shared_memory=8 << 30, open_files=1024)
