"""The cards of this machine: of NVIDIA through NVML, of AMD by what its driver says in sysfs. No context is made."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..model import Gpu, Unknown
from . import host

NVML_DEADLINE = 3.0
SMALLEST = 2 << 30  # bytes of a card's own memory; less is what a processor sets aside for its GPU
_MODELS = {0: "WDDM", 1: "TCC", 2: "MCDM"}  # nvmlDriverModel_t


def cards() -> tuple[Gpu, ...] | Unknown:
    """Every NVIDIA card, else every AMD card; an empty tuple is a proof that there is none, Unknown is not.

    A Mac has none; what its GPU can hold is the computer's memory.
    """
    if sys.platform == "darwin":
        return ()
    if sys.platform == "linux" and not any(Path(p).exists() for p in ("/dev/nvidiactl", "/dev/dxg")):
        return amd_cards() if Path("/dev/kfd").exists() else ()
    answer: list[tuple[Gpu, ...] | Unknown] = []
    # A hung driver must not hang us, and a thread inside NVML cannot be stopped: it is left behind as a daemon.
    worker = threading.Thread(target=lambda: answer.append(_nvml()), daemon=True)
    worker.start()
    worker.join(NVML_DEADLINE)
    return answer[0] if answer else Unknown(f"the GPU driver did not answer within {NVML_DEADLINE:.0f} s")


def _nvml() -> tuple[Gpu, ...] | Unknown:
    try:
        import pynvml
    except Exception as error:
        return Unknown(f"pynvml cannot be imported ({type(error).__name__})")
    nvml: Any = pynvml
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return () if type(error).__name__ == "NVMLError_LibraryNotFound" else Unknown(f"NVML: {error}")
    try:
        driver = _text(nvml.nvmlSystemGetDriverVersion())
        return tuple(_card(nvml, index, driver) for index in range(nvml.nvmlDeviceGetCount()))
    except nvml.NVMLError as error:
        return Unknown(f"NVML: {error}")
    finally:
        nvml.nvmlShutdown()


def _card(nvml: Any, index: int, driver: str) -> Gpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    told = _told(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
    total, free = (0, 0) if told is None else (int(told.total), int(told.free))
    unified = not total  # GB10, Jetson: NVML knows of no memory of theirs
    if unified:
        shared = host.memory()
        total, free = shared.total, shared.available
    capability = _told(nvml, nvml.nvmlDeviceGetCudaComputeCapability, handle)
    model = _told(nvml, nvml.nvmlDeviceGetDriverModel, handle) if sys.platform == "win32" else None
    return Gpu(
        index,
        _text(nvml.nvmlDeviceGetName(handle)),
        total,
        free,
        None if capability is None else (int(capability[0]), int(capability[1])),
        driver,
        "measured: it shares the computer's memory" if unified else "measured: NVML",
        _text(_told(nvml, nvml.nvmlDeviceGetUUID, handle) or ""),
        unified,
        "" if model is None else _MODELS.get(int(model[0]), ""),
    )


def _told(nvml: Any, ask: Callable[[Any], Any], handle: Any) -> Any:
    """What NVML says of a card, None where it does not support the question; other refusals are raised."""
    try:
        return ask(handle)
    except (nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound):
        return None


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def amd_cards(sysfs: Path = Path("/sys/class")) -> tuple[Gpu, ...] | Unknown:
    """The cards that ROCm computes on (Documentation/gpu/amdgpu, driver-misc; kfd's topology)."""
    found: list[Gpu] = []
    for node in sorted((sysfs / "kfd/kfd/topology/nodes").glob("*"), key=lambda node: int(node.name)):
        told = dict(host.numbers(str(node / "properties")))
        if not told.get("simd_count"):
            continue  # a processor
        device = sysfs / f"drm/renderD{told.get('drm_render_minor')}/device"
        try:
            total, used = (int((device / f"mem_info_vram_{what}").read_bytes()) for what in ("total", "used"))
        except (OSError, ValueError):
            return Unknown("an AMD card whose memory its driver does not tell")
        if told.get("cpu_cores_count") or total < SMALLEST:
            return Unknown("an AMD GPU that shares the computer's memory, which is not read yet")
        version = told.get("gfx_target_version", 0)
        gfx = f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"
        name = _line(device / "product_name") or "AMD GPU"
        found.append(
            Gpu(
                len(found), f"{name} ({gfx})", total, total - used, None, "", "measured: amdgpu", maker="amd", gfx=gfx
            )
        )
    return tuple(found)


def _line(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
