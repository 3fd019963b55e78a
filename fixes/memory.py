"""Repairs of a memory budget: the settings that bring the peak down, the harmless first."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import ceil

from ..doctor.model import Finding, Fix, Host, Memory, Run, System, WriteText
from ..doctor.model.plans import TRAINING_EFFECTS
from ..doctor.model.said import joined, listed
from ..doctor.model.shell import setting
from ..doctor.rules import repair
from .edits import value_of

_WRITTEN = re.compile(r"^[ \t]*memory[ \t]*=[^\r\n#]*", re.M | re.I)


@repair("MEM001")
def choose_another_card(finding: Finding, memory: Memory, system: System) -> Iterator[Fix]:
    """The environment variables that choose a card with room."""
    if (other := memory.elsewhere) is not None:
        names = listed("=".join(pair) for pair in other.variables)
        title = f"train on {other.device}: set {names} in the terminal that starts the trainer"
        yield Fix(title, (), "show", command=setting(other.variables, system.shell))


@repair("MEM001")
def lower_the_peak(finding: Finding, run: Run, memory: Memory) -> Iterator[Fix]:
    """The shortest part of the ladder that makes the high end of the estimate fit."""
    chosen: dict[str, object] = {}
    worst = 0
    lowest, high = memory.peak.total, memory.peak.total + memory.margin
    for step in memory.alternatives:
        chosen.update(step.settings)  # a resolution may be lowered twice: the last word counts
        worst = max(worst, TRAINING_EFFECTS.index(step.effect))
        lowest, high = step.peak, step.high
        if high <= memory.free:
            shown = {key: str(value).lower() if isinstance(value, bool) else value for key, value in chosen.items()}
            settings = joined(", ", (f"set {key} to {value}" for key, value in shown.items()))
            steps = tuple(value_of(run, key, value) for key, value in chosen.items())
            title = joined(" ", (settings, f"(peak {lowest / 2**30:.1f} GiB, computed)"))
            yield Fix(title, steps, "safe", TRAINING_EFFECTS[worst])
            return
    if lowest > memory.free:
        why = f"no setting brings the peak below {lowest / 2**30:.1f} GiB (computed)"
    else:
        sizes = [f"{size / 2**30:.1f} GiB" for size in (lowest, high, memory.free)]
        peak, perhaps, free = sizes
        why = f"with all settings the peak is {peak}, perhaps {perhaps} (computed), and {free} are free"
    on_card = f"free memory on {memory.device}, or use one with more"
    do = "close other programs, or use a machine with more memory" if memory.is_host else on_card
    yield Fix(joined(": ", (do, why)), (), "show")


@repair("MEM002")
def give_the_wsl_more(finding: Finding, memory: Memory, system: System, host: Host) -> Iterator[Fix]:
    """The line of .wslconfig that says how much memory Windows gives a WSL, for what is held now and is needed."""
    needed = memory.host_peak + system.memory_total - system.memory_available
    size = f"memory={ceil(needed / 2**30) + 1}GB"
    if system.is_wsl and host.wsl_config and "\ufffd" not in host.wsl_text:
        step = WriteText(host.wsl_config, _with_memory(host.wsl_text, size), host.wsl_text)
        title = f"write {size} into Windows' .wslconfig, if the computer has more; then type wsl --shutdown there"
        yield Fix(title, (step,), "ask")


def _with_memory(text: str, line: str) -> str:
    """A .wslconfig with `line` for its size of memory."""
    ends = "\r\n" if "\r\n" in text else "\n"
    text += ends * (text not in ("", "\ufeff") and not text.endswith("\n"))
    header = re.search(r"^\ufeff?[ \t]*\[wsl2\][^\n]*\n", text, re.M | re.I)
    if header is None:
        return f"{text}[wsl2]{ends}{line}{ends}"
    head, rest = text[: header.end()], text[header.end() :]
    section = re.split(r"^[ \t]*\[", rest, maxsplit=1, flags=re.M)[0]
    ours, count = _WRITTEN.subn(line, section, count=1)
    return head + (ours if count else f"{line}{ends}{section}") + rest[len(section) :]
