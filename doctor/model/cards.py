"""Which of a machine's cards a run trains on, by CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER. Pure.

Sources: CUDA Programming Guide, "CUDA Environment Variables"; what it leaves open (blanks, what follows a number,
entries given twice) as torch.cuda reads it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from .facts import Gpu
from .run import Run
from .unknown import Unknown

# The cards that one of CUDA's numbers may stand for; one, where that is known.
Candidates = tuple[Gpu, ...]
VISIBLE, ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"
BY_BUS = "PCI_BUS_ID"
_COMPUTED = "$%`!"  # begins what a shell puts in place of a word
CHOSEN = "accelerate/gpu_ids"  # the setting of a run whose script sets CUDA_VISIBLE_DEVICES, by accelerate or itself
ALL = "all"  # its value where the script takes the variable away


def taken(run: Run, gpus: Sequence[Gpu], environment: Mapping[str, str]) -> Candidates | Unknown:
    """The cards of which a single process of this run takes one; none, where it trains on the processor.

    Only zdoctor's own runner follows the run's `device`; the others take the first card that accelerate gives them.
    """
    device, number, written = run.device, 0, listed(run, environment)
    if written is not None:
        if any(character in written for character in _COMPUTED):
            return Unknown(f"nothing here sets {written}, which chooses the cards")
        environment = {**environment, VISIBLE: written}
    else:
        environment = {name: value for name, value in environment.items() if name != VISIBLE}
    if run.by_runner:
        found = re.fullmatch(r"cuda(?::(\d{1,9}))?", device)
        if found is None:
            return () if device.startswith(("cpu", "mps")) else Unknown(f"there is no device {device}")
        rank = environment.get("LOCAL_RANK") or "0"
        if not rank.isdecimal():
            return Unknown(f"LOCAL_RANK is {rank}, which is no number")
        number = int(found.group(1) or rank[:9])
    seen = visible(gpus, environment)
    if isinstance(seen, Unknown):
        return seen
    if seen and number >= len(seen):
        return Unknown(f"there is no cuda:{number}: the last card that CUDA shows is cuda:{len(seen) - 1}")
    return seen[number] if seen else ()


def listed(run: Run, environment: Mapping[str, str]) -> str | None:
    """CUDA_VISIBLE_DEVICES as the run's trainer gets it. A script around a trainer is none around zdoctor's own."""
    written = run.setting(CHOSEN) if not run.by_runner else None
    if not isinstance(written, str):
        return environment.get(VISIBLE)
    return None if written == ALL else written


def visible(gpus: Sequence[Gpu], environment: Mapping[str, str]) -> tuple[Candidates, ...] | Unknown:
    """The cards that CUDA shows a program, by its own numbers. `gpus` are as NVML lists them, by PCI bus."""
    written = environment.get(VISIBLE)
    if written is None:
        return tuple(_at(number, gpus, environment) for number in range(len(gpus)))
    if written.startswith("MIG-"):
        return Unknown(f"{VISIBLE} names a slice of a card (MIG), whose memory is not read")
    by_name = written.startswith("GPU-")
    seen: dict[object, Candidates] = {}
    for word in written.split(","):
        candidates = _named(word, gpus) if by_name else _at(_number(word), gpus, environment)
        key = (candidates if len(candidates) == 1 else word) if by_name else _number(word)
        if not candidates:
            break  # CUDA ends the list at the first entry that names no card
        if key in seen:
            return ()  # a card that is named twice: CUDA shows none
        seen[key] = candidates
    return tuple(seen.values())


def known_order(gpus: Iterable[Gpu], environment: Mapping[str, str]) -> bool:
    """Whether CUDA numbers the cards as NVML does; else the fastest is its first, by a measure that nobody tells."""
    return environment.get(ORDER) == BY_BUS or _kinds(gpus) <= 1


def sharing(seen: Sequence[Candidates]) -> int:
    """How many of the visible cards can share a run: all, when they are of one kind."""
    return len(seen) if _kinds(gpu for candidates in seen for gpu in candidates) == 1 else 1


def _kinds(gpus: Iterable[Gpu]) -> int:
    return len({(gpu.name, gpu.capability) for gpu in gpus})


def _number(word: str) -> int:
    found = re.match(r"[+-]?\d{1,9}", word.strip())
    return int(found.group()) if found else -1


def _at(number: int, gpus: Sequence[Gpu], environment: Mapping[str, str]) -> Candidates:
    if not 0 <= number < len(gpus):
        return ()
    return (gpus[number],) if known_order(gpus, environment) else tuple(gpus)


def _named(word: str, gpus: Sequence[Gpu]) -> Candidates:
    """The one card whose UUID begins so; all that may be meant where a UUID is not known."""
    if not word.startswith("GPU-"):
        return ()
    fitting = tuple(gpu for gpu in gpus if not gpu.uuid or gpu.uuid.startswith(word))
    return fitting if len(fitting) == 1 or not all(gpu.uuid for gpu in fitting) else ()
