"""Which torch PyTorch's indexes have for a card: what is advised is there for that Python, and no rule minds it."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from zdoctor.checks.packages import driver_older_than_torch, torch_without_kernels
from zdoctor.doctor.model import Finding, Gpu, System
from zdoctor.doctor.model.environment import Environment, release
from zdoctor.doctor.packages.indexes import VERSIONS, builds, nearest, torchvision_for
from zdoctor.doctor.packages.wheels import minors_of_torch
from zdoctor.fixes.packages import install_what_is_asked_for
from zdoctor.tests.checks.config_cases import LINUX
from zdoctor.tests.models import run_of

INTEL = replace(LINUX, machine="x86_64")
ARM, WINDOWS = replace(INTEL, machine="aarch64"), replace(INTEL, os="windows", machine="AMD64")
MAC = replace(INTEL, os="darwin", machine="arm64")


def card(capability: tuple[int, int], driver: str) -> Gpu:
    return Gpu(0, "a card", 24 << 30, 23 << 30, capability, driver, "recorded")


@pytest.mark.parametrize("system", [INTEL, ARM, WINDOWS], ids=lambda system: system.machine)
def test_no_rule_minds_what_is_advised(system: System) -> None:
    seen = 0
    capabilities = ((5, 0), (6, 1), (7, 0), (7, 5), (8, 6), (8, 9), (9, 0), (12, 0), (12, 1))
    for capability, driver, python in product(capabilities, ("450.80", "535.1", "572.16", "595"), ("3.10", "3.13")):
        gpu = card(capability, driver)
        for build in builds(gpu, python, system):
            environment = Environment("python", {"torch": f"{build.version}+{build.index}"}, python)
            assert not list(torch_without_kernels(run_of("m"), environment, (gpu,), system)), (build, gpu)
            assert not list(driver_older_than_torch(run_of("m"), environment, (gpu,), system)), (build, gpu)
            first, last = minors_of_torch(build.version)
            assert first <= release(python)[1] <= last
            seen += 1
    assert seen > 100


@pytest.mark.parametrize(
    ("capability", "driver", "python", "system", "asked", "expected"),
    [
        ((8, 9), "580.65", "3.12", INTEL, "", "2.15.0+cu132"),
        ((8, 9), "560.35", "3.12", INTEL, "", "2.14.1+cu126"),
        ((8, 9), "560.35", "3.12", WINDOWS, "==2.9.1", "2.9.1+cu128"),
        ((12, 0), "572.16", "3.12", INTEL, "", "2.13.0+cu129"),
        ((12, 0), "572.16", "3.12", WINDOWS, "", "2.11.0+cu128"),  # cu129 is for Linux
        ((12, 1), "580.95", "3.12", ARM, ">=2.8", "2.15.0+cu132"),  # a GB10
        ((6, 1), "580.65", "3.12", INTEL, ">=2.1", "2.14.1+cu126"),
        ((6, 1), "580.65", "3.12", INTEL, ">=2.15", ""),
        ((8, 9), "580.65", "3.15", INTEL, "", "2.15.0+cu132"),
        ((8, 9), "580.65", "3.9", INTEL, "", "2.8.0+cu128"),
        ((8, 9), "450.80", "3.10", INTEL, "", "2.7.1+cu118"),
        ((8, 9), "580.65", "3.12", MAC, "", ""),
    ],
)
def test_the_newest_for_a_card(
    capability: tuple[int, int], driver: str, python: str, system: System, asked: str, expected: str
) -> None:
    best = next(builds(card(capability, driver), python, system, asked), None)
    assert (f"{best.version}+{best.index}" if best is not None else "") == expected


def test_torch_that_is_missing_comes_from_the_index_for_the_card() -> None:
    """Not from PyPI, whose torch is for one CUDA on Linux and has none on Windows."""
    finding = Finding("x", evidence={"python": "python", "requirement": "torch>=2.1", "wanted": "torch>=2.1"})
    environment, gpu = Environment("python", {}, "3.12"), card((8, 9), "560.35")
    [fix] = install_what_is_asked_for(finding, environment, (gpu,), WINDOWS)
    assert fix.command.endswith("torch==2.14.1+cu126 --index-url https://download.pytorch.org/whl/cu126")
    for gpus, system in (((), WINDOWS), ((gpu,), MAC)):
        [fix] = install_what_is_asked_for(finding, environment, gpus, system)
        assert fix.command.endswith('install "torch>=2.1"')


def test_the_nearest_is_the_next_newer_one_or_an_older() -> None:
    for torch, expected in (("2.6.0", "2.7.0"), ("2.9.1", "2.9.1"), ("2.15.0", "2.11.0")):
        build = nearest(card((12, 0), "572.16"), "3.12", WINDOWS, torch)
        assert build is not None and build.version == expected


def test_every_torchvision_belongs_to_its_torch() -> None:
    """As the names of their releases on PyPI pair them (2026-11-23)."""
    assert [torchvision_for(release(one)) for one in VERSIONS[1:6]] == [
        f"torchvision==0.{version}" for version in ("15.2", "16.0", "16.1", "16.2", "17.0")
    ]
    assert torchvision_for((2, 13, 0)) == "torchvision==0.28.0"
    assert torchvision_for((2, 15, 0)) == "torchvision>=0.29"
