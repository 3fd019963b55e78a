"""Which versions of torch PyTorch's own indexes have (download.pytorch.org/whl/cu126 …), and which cards they serve.

Read on 2026-11-23. Up to torch 2.11: the table that replicate/cog made of these indexes on 2026-05-07
(pkg/config/torch_compatibility.json). 2.12 and 2.13: data.pyg.org/whl, which builds for each of them, and for cu129
pytorch issues 185269 and 187834. 2.14 and 2.15: pytorch issues 190355 and 190385, and what torch of PyPI requires.
Cards and aarch64: RELEASE.md of 2.9 to 2.14 (pull requests 164471, 182849, issue 172663), release notes before.
Indexes of ROCm: installs that were published, a version each; their cards: PYTORCH_ROCM_ARCH in
.ci/docker/manywheel/build.sh of the release branches. The indexes themselves were not in reach.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ..model import Gpu, System
from ..model.environment import Version, release
from ..model.record import dataclass
from .versions import meets
from .wheels import minors_of_torch

Capability = tuple[int, int]
Reach = tuple[Version, Version]  # the first version of torch that an index has, and the first after the last

VERSIONS = (
    *("2.0.0", "2.0.1", "2.1.0", "2.1.1", "2.1.2", "2.2.0", "2.2.1", "2.2.2", "2.3.0", "2.3.1", "2.4.0", "2.4.1"),
    *("2.5.0", "2.5.1", "2.6.0", "2.7.0", "2.7.1", "2.8.0", "2.9.0", "2.9.1", "2.10.0", "2.11.0", "2.12.0", "2.12.1"),
    *("2.13.0", "2.14.0", "2.14.1", "2.15.0"),
)
TORCHES = ("torch", "torchvision", "torchaudio")  # what comes from these indexes together
DRIVERS: Mapping[int, int] = {13: 580, 12: 525, 11: 450}  # NVIDIA: CUDA compatibility, minor version compatibility
# Those that serve a card best first; cu129 is on Linux alone.
_CUDA: Mapping[str, Sequence[Reach]] = {
    "cu130": [((2, 9), (2, 15))],
    "cu132": [((2, 12), (2, 16))],
    "cu128": [((2, 7), (2, 12))],
    "cu126": [((2, 6), (2, 15))],
    "cu129": [((2, 8), (2, 9)), ((2, 11), (2, 12)), ((2, 12, 1), (2, 14))],
    "cu124": [((2, 4), (2, 7))],
    "cu121": [((2, 1), (2, 6))],
    "cu118": [((2, 0), (2, 8))],
}
_SINCE_ON_ARM = {"cu126": (2, 9), "cu128": (2, 9), "cu129": (2, 8), "cu130": (2, 9), "cu132": (2, 12)}
_ROCM: Mapping[str, Reach] = {
    "rocm7.2": ((2, 11), (2, 15)),
    "rocm7.1": ((2, 10), (2, 11)),
    "rocm6.4": ((2, 8), (2, 10)),
    "rocm6.3": ((2, 7), (2, 8)),
    "rocm6.2.4": ((2, 6), (2, 7)),
    "rocm6.1": ((2, 4), (2, 6)),
    "rocm6.0": ((2, 3), (2, 4)),
}
_CARDS_OF_AMD: Mapping[str, Version] = {  # since which version of torch
    **dict.fromkeys(("gfx908", "gfx90a", "gfx942", "gfx1030", "gfx1100"), (2, 3)),
    "gfx1101": (2, 6),
    **dict.fromkeys(("gfx1102", "gfx1200", "gfx1201"), (2, 8)),
    **dict.fromkeys(("gfx950", "gfx1150", "gfx1151"), (2, 11)),
}


@dataclass(frozen=True)
class Build:
    """A torch of one of PyTorch's indexes: its version there ("2.9.1+cu128"), and the torchvision beside it."""

    version: str
    index: str

    @property
    def torch(self) -> str:
        return f"torch=={self.version}+{self.index}"

    @property
    def torchvision(self) -> str:
        wanted = torchvision_for(release(self.version))
        return f"{wanted}+{self.index}" if "==" in wanted else wanted


def builds(card: Gpu, python: str, system: System, asked: str = "") -> Iterator[Build]:
    """Those that a card, its driver, a Python ("3.12") and a system can use, the newest first."""
    for version in reversed(VERSIONS):
        first, last = minors_of_torch(version)
        here = release(python)[1:2]
        if (here and not first <= here[0] <= last) or meets(version, asked) is not True:
            continue
        index = _of_amd(card, release(version), system) if card.maker == "amd" else _of_nvidia(card, version, system)
        if index:
            yield Build(version, index)


def nearest(card: Gpu, python: str, system: System, torch: str) -> Build | None:
    """The build for a card that differs least from a version: the same, else the next newer one, else an older."""
    there = list(builds(card, python, system))
    newer = [one for one in there if release(one.version) >= release(torch)]
    return newer[-1] if newer else there[0] if there else None


def _of_nvidia(card: Gpu, version: str, system: System) -> str:
    driver, torch = release(card.driver), release(version)
    is_arm = system.machine == "aarch64"
    if card.capability is None or not driver or system.os == "darwin" or system.machine.upper() == "ARM64":
        return ""
    for index, reaches in _CUDA.items():
        cuda = (int(index[2:4]), int(index[4:]))
        lowest, highest = served(cuda, torch, is_arm)
        # whether the wheels for CUDA 12.8 hold code for Volta is told in two ways; those for 12.6 do
        fits = max(lowest, (7, 5) if cuda >= (12, 8) else lowest) <= card.capability <= highest
        fits = fits and driver[0] >= DRIVERS[cuda[0]]
        there = any(first <= torch < last for first, last in reaches) and (index != "cu129" or system.os == "linux")
        if fits and there and (not is_arm or torch >= _SINCE_ON_ARM.get(index, (99,))):
            return index
    return ""


def _of_amd(card: Gpu, torch: Version, system: System) -> str:
    known = _CARDS_OF_AMD.get(card.gfx)
    if known is None or torch < known or system.os != "linux" or system.machine == "aarch64":
        return ""
    return next((index for index, (first, last) in _ROCM.items() if first <= torch < last), "")


def served(cuda: Version, torch: Version, is_arm: bool = False) -> tuple[Capability, Capability]:
    """The lowest and highest compute capability that the official wheels for a CUDA version serve."""
    lowest = (8, 0) if is_arm else (7, 5)
    if cuda >= (13, 0):
        return lowest, (99, 0)
    if cuda >= (12, 8):
        return (lowest if torch[:2] == (2, 7) or torch >= (2, 11) or is_arm else (7, 0)), (99, 0)
    return (lowest if is_arm else (3, 7) if cuda < (12, 0) else (5, 0)), ((9, 0) if cuda >= (11, 8) else (8, 9))


def torchvision_for(torch: Version) -> str:
    """The torchvision of a torch: 0.28.0 of 2.13.0 (its README); of 2.14 and newer any that asks for 2.14."""
    whole = (*torch, 0, 0)[:3]
    if whole[0] != 2 or whole == (2, 0, 0):
        return ""
    fixes = whole[2] + 1 if whole[:2] == (2, 0) else whole[2]
    return f"torchvision==0.{whole[1] + 15}.{fixes}" if whole < (2, 14) else "torchvision>=0.29"
