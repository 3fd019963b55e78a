"""What NVML says of cards, by its own Python module; the answers of a driver that is not here stand in for it."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from zdoctor.doctor.model import Gpu, Unknown
from zdoctor.doctor.probe import cards, host
from zdoctor.doctor.probe.host import Ram

GIB = 1 << 30
RAM = Ram(120 * GIB, 90 * GIB)


def refused(*_: object) -> Any:
    raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A driver with one card of 24 GiB."""
    answers: dict[str, Any] = {
        "nvmlInit": None,
        "nvmlShutdown": None,
        "nvmlSystemGetDriverVersion": "580.95",
        "nvmlDeviceGetCount": 1,
        "nvmlDeviceGetHandleByIndex": "handle",
        "nvmlDeviceGetName": "a card",
        "nvmlDeviceGetUUID": "GPU-1",
        "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=24 * GIB, free=22 * GIB),
        "nvmlDeviceGetCudaComputeCapability": (8, 9),
    }
    for name, answer in answers.items():
        monkeypatch.setattr(pynvml, name, lambda *_, answer=answer: answer)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetDriverModel", refused)
    monkeypatch.setattr(host, "memory", lambda: RAM)
    return monkeypatch


def card() -> Gpu:
    seen = cards._nvml()
    assert isinstance(seen, tuple)
    return seen[0]


def test_a_card_with_memory_of_its_own(driver: pytest.MonkeyPatch) -> None:
    assert card() == Gpu(0, "a card", 24 * GIB, 22 * GIB, (8, 9), "580.95", "measured: NVML", "GPU-1")


@pytest.mark.parametrize("told", [refused, lambda *_: SimpleNamespace(total=0, free=0)])
def test_a_gb10_shares_the_memory_of_the_computer(driver: pytest.MonkeyPatch, told: Any) -> None:
    driver.setattr(pynvml, "nvmlDeviceGetMemoryInfo", told)
    seen = card()
    assert (seen.unified, seen.memory_total, seen.memory_free) == (True, RAM.total, RAM.available)
    assert "shares" in seen.source


def test_what_a_card_does_not_support_is_not_known(driver: pytest.MonkeyPatch) -> None:
    driver.setattr(pynvml, "nvmlDeviceGetCudaComputeCapability", refused)
    driver.setattr(pynvml, "nvmlDeviceGetUUID", refused)
    assert (card().capability, card().uuid) == (None, "")


@pytest.mark.parametrize(("number", "model"), [(0, "WDDM"), (1, "TCC"), (2, "MCDM"), (7, "")])
def test_how_windows_drives_a_card(driver: pytest.MonkeyPatch, number: int, model: str) -> None:
    driver.setattr(sys, "platform", "win32")
    driver.setattr(pynvml, "nvmlDeviceGetDriverModel", lambda *_: [number, number])
    assert card().driver_model == model


def test_the_memory_of_this_computer() -> None:
    seen = host.memory()
    assert 0 < seen.available <= seen.total
    assert seen.swap is not None or not Path("/proc/meminfo").exists()


def amd(root: Path, **changes: int) -> Path:
    """What sysfs says of a processor and a Radeon RX 7900 XTX."""
    card = {"cpu_cores_count": 0, "simd_count": 192, "gfx_target_version": 110000, "drm_render_minor": 128}
    nodes = {"0": {"cpu_cores_count": 16, "simd_count": 0}, "1": {**card, **changes}}
    for number, properties in nodes.items():
        node = root / "kfd/kfd/topology/nodes" / number
        node.mkdir(parents=True)
        (node / "properties").write_text("".join(f"{name} {value}\n" for name, value in properties.items()))
    device = root / "drm/renderD128/device"
    device.mkdir(parents=True)
    (device / "mem_info_vram_total").write_text(f"{changes.get('total', 24 * GIB)}\n")
    (device / "mem_info_vram_used").write_text(f"{GIB}\n")
    return root


def test_a_card_of_amd(tmp_path: Path) -> None:
    assert cards.amd_cards(amd(tmp_path)) == (
        Gpu(0, "AMD GPU (gfx1100)", 24 * GIB, 23 * GIB, None, "", "measured: amdgpu", maker="amd", gfx="gfx1100"),
    )


def test_the_architecture_of_a_card_of_amd(tmp_path: Path) -> None:
    seen = cards.amd_cards(amd(tmp_path, gfx_target_version=90010))
    assert isinstance(seen, tuple) and seen[0].name == "AMD GPU (gfx90a)"


@pytest.mark.parametrize("changes", [{"cpu_cores_count": 16}, {"total": GIB // 2}, {"drm_render_minor": 129}])
def test_what_shares_the_computers_memory_is_not_known(tmp_path: Path, changes: dict[str, int]) -> None:
    assert isinstance(cards.amd_cards(amd(tmp_path, **changes)), Unknown)


def test_a_machine_without_a_card_of_amd(tmp_path: Path) -> None:
    assert cards.amd_cards(amd(tmp_path, simd_count=0)) == ()
