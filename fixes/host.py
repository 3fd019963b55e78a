"""Repairs of what the system bounds: settings that ask less of it, and commands for whoever may widen it."""

from __future__ import annotations

from collections.abc import Iterator

from ..doctor.model import Finding, Fix, Run, System
from ..doctor.model.shell import setting
from ..doctor.rules import repair
from .edits import value_of


@repair("HST001")
def load_in_the_training_itself(finding: Finding, run: Run) -> Iterator[Fix]:
    """No workers, where the config has a setting for them; else more room, which takes root."""
    if finding.where is not None:
        key = str(finding.evidence["key"])
        step = value_of(run, key, 0)
        yield Fix(f"set {key.rpartition('/')[2]} to 0", (step,), training_effect="equivalent")
    title = "make /dev/shm larger, as root; a container is better started again with --shm-size=8g"
    yield Fix(title, (), safety="show", command="mount -o remount,size=8g /dev/shm")


@repair("HST002", "HST003")
def lift_the_limit_of_address_space(finding: Finding) -> Iterator[Fix]:
    """In the shell that starts the trainer."""
    yield Fix("lift the limit in the shell that starts the trainer", (), safety="show", command="ulimit -v unlimited")


@repair("HST004")
def lift_the_limit_of_open_files(finding: Finding) -> Iterator[Fix]:
    """In the shell that starts the trainer."""
    yield Fix("lift the limit in the shell that starts the trainer", (), safety="show", command="ulimit -n 4096")


@repair("HST005")
def promise_more(finding: Finding, system: System) -> Iterator[Fix]:
    """The system's own setting, which takes its administrator."""
    if system.os == "linux":
        title, command = "let the system promise more than it has, as root", "sysctl vm.overcommit_memory=0"
        yield Fix(title, (), safety="show", command=command)
    else:
        title = "let Windows manage its page file: the window of this command, Advanced, Virtual memory"
        yield Fix(title, (), safety="show", command="SystemPropertiesPerformance.exe")


@repair("SIM012")
def read_texts_as_utf8(finding: Finding, system: System) -> Iterator[Fix]:
    """Python's own switch, in the shell that starts the trainer."""
    command = setting((("PYTHONUTF8", "1"),), system.shell)
    yield Fix("set PYTHONUTF8 to 1 in the shell that starts the trainer", (), safety="show", command=command)


@repair("HST006")
def pin_nothing(finding: Finding, run: Run) -> Iterator[Fix]:
    """The setting off: the same weights, moved a little slower."""
    key = str(finding.evidence["key"])
    yield Fix(f"set {key} to false", (value_of(run, key, False),), "ask", "equivalent")


@repair("HST007")
def keep_the_cache_elsewhere(finding: Finding, system: System) -> Iterator[Fix]:
    """HF_HOME at the root of the disk; what is downloaded stays where it is."""
    if finding.where is None:
        place = "C:\\huggingface" if system.os == "windows" else system.join(system.home, "huggingface")
        title = f"set HF_HOME to a folder outside of it, such as {place}, and move the cache there"
        yield Fix(title, (), safety="show", command=setting((("HF_HOME", place),), system.shell))


@repair("HST008")
def allow_long_paths(finding: Finding) -> Iterator[Fix]:
    """The switch in the registry, by its administrator."""
    key = r"HKLM\SYSTEM\CurrentControlSet\Control\FileSystem"
    command = f"reg add {key} /v LongPathsEnabled /t REG_DWORD /d 1 /f"
    yield Fix("allow long paths, as administrator", (), safety="show", command=command)


@repair("HST009")
def set_the_clock(finding: Finding, system: System) -> Iterator[Fix]:
    """By the network's time."""
    commands = {"linux": "timedatectl set-ntp true", "windows": "w32tm /resync", "darwin": "sntp -sS time.apple.com"}
    yield Fix("set the clock by the network's time", (), safety="show", command=commands[system.os])
