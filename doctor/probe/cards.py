"""The NVIDIA cards of this machine, through NVML; no CUDA context is made."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

from ..model import Gpu, Unknown

NVML_DEADLINE = 3.0


def cards() -> tuple[Gpu, ...] | Unknown:
    """Every NVIDIA card; an empty tuple is a proof that there is none, Unknown is not."""
    if sys.platform == "darwin":
        return Unknown("Apple GPUs are not read")
    if sys.platform == "linux" and not any(Path(p).exists() for p in ("/dev/nvidiactl", "/dev/dxg")):
        if Path("/dev/kfd").exists():
            return Unknown("an AMD card, which is not read yet")
        return ()
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
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    try:
        major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
        capability: tuple[int, int] | None = (int(major), int(minor))
    except nvml.NVMLError:
        capability = None
    try:
        uuid = _text(nvml.nvmlDeviceGetUUID(handle))
    except nvml.NVMLError:
        uuid = ""
    name = _text(nvml.nvmlDeviceGetName(handle))
    return Gpu(index, name, int(memory.total), int(memory.free), capability, driver, "measured: NVML", uuid)


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
