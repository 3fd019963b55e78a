"""Repairs of what the system bounds: settings that ask less of it, and commands for whoever may widen it."""

from __future__ import annotations

from collections.abc import Iterator

from ..doctor.model import Finding, Fix, Run, System
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


@repair("HST006")
def pin_nothing(finding: Finding, run: Run) -> Iterator[Fix]:
    """The setting off: the same weights, moved a little slower."""
    key = str(finding.evidence["key"])
    yield Fix(f"set {key} to false", (value_of(run, key, False),), "ask", "equivalent")
