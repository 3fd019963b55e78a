"""PKG017, PKG020, PKG021 (PKG018 beside the environments): what wheels were built for, and where they do not load."""

from __future__ import annotations

import importlib.machinery
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import distribution
from pathlib import Path

import packaging.tags
import pytest

from zdoctor.checks import wheels as rules
from zdoctor.doctor.model import Gpu, System
from zdoctor.doctor.model.environment import Environment, Installed, Metadata
from zdoctor.doctor.packages.tags import misfit
from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.doctor.probe.packages import metadata_in
from zdoctor.doctor.rules import NotApplicable
from zdoctor.tests.checks.config_cases import LINUX
from zdoctor.tests.environments import wheel
from zdoctor.tests.models import run_of

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
INTEL = replace(LINUX, machine="x86_64", libc="glibc 2.35")
ALPINE, ARM = replace(INTEL, libc="musl"), replace(INTEL, machine="aarch64")
WINDOWS, MAC = replace(INTEL, os="windows", machine="AMD64", libc=""), replace(INTEL, os="darwin", libc="")


def installed(*packages: Metadata) -> Installed:
    return Installed(metadata={one.name: one for one in packages})


def named(tag: str) -> str:
    """An extension module as this Python names its own, for the release of Python that is named."""
    own = f"3{sys.version_info.minor}"
    suffix = next(one for one in importlib.machinery.EXTENSION_SUFFIXES if own in one)
    return f"_C{suffix.replace(own, tag)}"


@pytest.mark.parametrize(
    ("libraries", "release", "built"),
    [
        ((named("310"), "libx.so"), "3.10", ""),
        ((named("310"),), "3.12", "3.10"),
        (("_C.cp312-win_amd64.pyd",), "3.12.4", ""),
        (("_C.cp312-win_amd64.pyd",), "3.11", "3.12"),
        (("_C.cpython-313t-x86_64-linux-gnu.so",), "3.13", ""),
        (("_rust.abi3.so",), "3.12", ""),
        ((named("39"), named("312")), "3.12", ""),
    ],
)
def test_the_python_that_a_package_was_built_for(libraries: tuple[str, ...], release: str, built: str) -> None:
    known = installed(Metadata("numpy", "2.2.6", "", libraries=libraries))
    found = list(rules.package_for_another_python(Environment("python", {}, release), known, LINUX))
    assert [finding.args["built"] for finding in found] == ([built] if built else [])


def test_libraries_are_read_from_the_list_of_files(tmp_path: Path) -> None:
    """And this Python finds no extension module that is named for another one."""
    files = {"numpy/__init__.py": "", f"numpy/{named('399')}": "x", "numpy/libopenblas.so": "x"}
    archive = wheel(tmp_path / "w", "numpy", "2.2.6", files=files)
    site = tmp_path / "site"
    subprocess.run([sys.executable, "-m", "zipfile", "-e", str(archive), str(site)], check=True)
    [known] = metadata_in(LiveWorld({}, cwd=str(tmp_path)), [str(site)]).values()
    assert known.libraries == (named("399"),) and known.absent == ()
    script = "import sys; sys.path.insert(0, sys.argv[1]); import numpy._C"
    done = subprocess.run([sys.executable, "-c", script, str(site)], capture_output=True, text=True, check=False)
    assert "No module named 'numpy._C'" in done.stderr


@pytest.mark.parametrize(
    ("tags", "system", "told"),
    [
        ("cp312-cp312-manylinux_2_28_x86_64", INTEL, ""),
        ("cp312-cp312-manylinux_2_17_x86_64 cp312-cp312-manylinux2014_x86_64", INTEL, ""),
        ("cp312-cp312-manylinux_2_39_x86_64", INTEL, "libc"),
        ("cp312-cp312-manylinux_2_39_x86_64", replace(INTEL, libc=""), ""),
        ("cp312-cp312-manylinux_2_39_x86_64 cp312-cp312-manylinux_2_28_x86_64", INTEL, ""),
        ("cp312-cp312-manylinux2014_x86_64", ALPINE, "libc"),
        ("cp312-cp312-musllinux_1_2_x86_64", INTEL, "libc"),
        ("cp312-cp312-musllinux_1_2_x86_64", ALPINE, ""),
        ("cp312-cp312-manylinux_2_28_aarch64", INTEL, "platform"),
        ("cp312-cp312-manylinux_2_28_x86_64", ARM, "platform"),
        ("cp312-cp312-linux_x86_64", INTEL, ""),
        ("cp312-cp312-linux_armv7l", ARM, ""),  # a processor that runs both
        ("cp312-cp312-win_amd64", INTEL, "platform"),
        ("cp312-cp312-win_amd64", WINDOWS, ""),
        ("cp312-cp312-win_arm64", WINDOWS, "platform"),
        ("cp312-cp312-manylinux_2_28_x86_64", WINDOWS, "platform"),
        ("cp312-cp312-macosx_11_0_arm64", INTEL, "platform"),
        ("cp312-cp312-macosx_10_9_universal2", MAC, ""),
        ("cp312-cp312-macosx_11_0_arm64", MAC, ""),  # whether Rosetta runs this Python is not known
        ("cp310-cp310-manylinux_2_28_x86_64", INTEL, "python"),
        ("cp313-cp313t-manylinux_2_28_x86_64", INTEL, "python"),
        ("cp39-abi3-manylinux_2_28_x86_64", INTEL, ""),
        ("cp313-abi3-manylinux_2_28_x86_64", INTEL, "python"),
        ("py3-none-manylinux_2_28_x86_64", INTEL, ""),
        ("py2.py3-none-manylinux1_x86_64.manylinux2010_x86_64", INTEL, ""),
        ("py3-none-win32.win_amd64", INTEL, "platform"),
        ("cp312-cp312-plan9_x86_64", INTEL, ""),
        ("nonsense", INTEL, ""),
    ],
)
def test_a_tag_against_a_system(tags: str, system: System, told: str) -> None:
    other = misfit(tags.split(), "3.12", system)
    assert (other.kind if other is not None else "") == told


def test_what_packaging_allows_here_is_no_misfit() -> None:
    """And none of what it does not allow of another system, processor or later glibc is passed."""
    system = LiveWorld().system
    allowed = [str(tag) for tag in packaging.tags.sys_tags()]
    assert len(allowed) > 100 and not [tag for tag in allowed if misfit([tag], HERE, system)]
    foreign = {"x86_64": "aarch64", "aarch64": "x86_64"}
    for tag in (tag for tag in allowed if "linux_" in tag and "abi3" not in tag):
        for other in (re.sub(r"x86_64|aarch64", lambda found: foreign[found[0]], tag), f"{tag[:12]}win_amd64"):
            assert other not in allowed and (misfit([other], HERE, system) or "-none-" in other), other


def copied(site: Path, tag: str, damage: Callable[[bytes], bytes]) -> Path:
    """The safetensors of these tests as it lies in another machine's environment."""
    real = distribution("safetensors")
    site.mkdir()
    for name in ("safetensors", Path(str(real.locate_file(""))) / f"safetensors-{real.version}.dist-info"):
        source = Path(str(real.locate_file(str(name))))
        shutil.copytree(source, site / source.name, ignore=shutil.ignore_patterns("__pycache__"))
    [library] = (site / "safetensors").glob("*.so")
    library.write_bytes(damage(library.read_bytes()))
    [made] = site.glob("*.dist-info/WHEEL")
    made.write_text(re.sub(r"(?m)^Tag: .*$", f"Tag: {tag}", made.read_text()))
    return site


def for_arm(library: bytes) -> bytes:
    """e_machine of its ELF header says EM_AARCH64."""
    return library[:18] + struct.pack("<H", 183) + library[20:]


def of_newer_glibc(library: bytes) -> bytes:
    """It asks for a version of glibc that is not made yet: by its name, and by the hash that the loader compares."""

    def hashed(name: bytes) -> bytes:
        value = 0
        for byte in name:
            value = (value << 4) + byte
            value = (value ^ ((value & 0xF0000000) >> 24)) & 0x0FFFFFFF
        return struct.pack("<I", value)

    old = max(re.findall(rb"GLIBC_2\.\d\d", library))
    new = b"GLIBC_9" + old[7:]
    return library.replace(old + b"\0", new + b"\0").replace(hashed(old), hashed(new))


def same(library: bytes) -> bytes:
    return library


@pytest.mark.skipif(sys.platform != "linux" or LiveWorld().system.machine != "x86_64", reason="its own libraries")
@pytest.mark.parametrize(
    ("tag", "damage", "severity", "says"),
    [
        ("cp38-abi3-manylinux_2_17_x86_64", same, "silent", ""),
        ("cp38-abi3-manylinux_2_17_aarch64", for_arm, None, "cannot open shared object file"),
        ("cp38-abi3-manylinux_9_34_x86_64", of_newer_glibc, "warning", "version `GLIBC_9."),
    ],
)
def test_libraries_that_do_not_load_here(
    tag: str, damage: Callable[[bytes], bytes], severity: str | None, says: str, tmp_path: Path
) -> None:
    site = copied(tmp_path / "site", tag, damage)
    script = "import sys; sys.path.insert(0, sys.argv[1]); import safetensors; print(safetensors.__file__)"
    done = subprocess.run(
        [sys.executable, "-B", "-c", script, str(site)], capture_output=True, text=True, check=False
    )
    assert says in done.stderr and bool(done.returncode) is bool(says), done.stderr
    world = LiveWorld({}, cwd=str(tmp_path))
    known = Installed(metadata=metadata_in(world, [str(site)]))
    found = list(rules.package_for_another_system(Environment("python", {}, HERE), known, world.system))
    assert [finding.severity for finding in found] == ([] if severity == "silent" else [severity])
    assert not list(rules.package_for_another_python(Environment("python", {}, HERE), known, world.system))
    assert all(f"a wheel for {tag[10:]}; here is" in finding.text() for finding in found)


def test_what_conda_built_is_taken_as_it_is(tmp_path: Path) -> None:
    """It may carry the tag of the system that it was built on."""
    info = tmp_path / "numpy-2.2.6.dist-info"
    info.mkdir()
    (info / "WHEEL").write_text("Wheel-Version: 1.0\nTag: cp312-cp312-linux_aarch64\n")
    for installer, tags in (("pip\n", ("cp312-cp312-linux_aarch64",)), ("conda", ()), (None, ())):
        if installer is None:
            (tmp_path / "dist-packages").mkdir()
            shutil.move(info, tmp_path / "dist-packages" / info.name)
        else:
            (info / "INSTALLER").write_text(installer)
        folder = tmp_path if installer is not None else tmp_path / "dist-packages"
        [known] = metadata_in(LiveWorld({}, cwd=str(tmp_path)), [str(folder)]).values()
        assert known.tags == tags


def test_a_wheel_of_another_python_whose_libraries_are_not_read() -> None:
    known = installed(Metadata("sentencepiece", "0.2.1", "", tags=("cp310-cp310-manylinux_2_28_x86_64",)))
    [finding] = rules.package_for_another_python(Environment("python", {}, "3.12.4"), known, INTEL)
    assert (finding.args["built"], finding.severity) == ("3.10", "warning")
    assert not list(rules.package_for_another_python(Environment("python", {}, "3.10.14"), known, INTEL))
    assert not list(rules.package_for_another_system(Environment("python", {}, "3.12.4"), known, INTEL))


# The list of files of a nightly of torch 2.12 for ROCm 7.2, as rocBLAS told it (pytorch issue 179865).
ROCM = (
    *("gfx908", "gfx1030", "gfx90a", "gfx1100", "gfx1201", "gfx1101", "gfx1151", "gfx942", "gfx950", "gfx1200"),
    *("gfx1150", "gfx1102"),
)


def radeon(gfx: str) -> Gpu:
    return Gpu(0, f"AMD Radeon ({gfx})", 16 << 30, 15 << 30, None, "", "recorded", maker="amd", gfx=gfx)


@pytest.mark.parametrize(
    ("cards", "told"),
    [
        (("gfx1100",), False),
        (("gfx900",), True),
        (("gfx1031",), True),
        (("gfx1031", "gfx1100"), False),
        (("gfx900", "gfx1031"), True),
        (("",), False),
    ],
)
def test_the_cards_of_amd_that_a_build_serves(cards: tuple[str, ...], told: bool, tmp_path: Path) -> None:
    files = {"torch/__init__.py": "", "torch/version.py": "__version__ = '2.12.0+rocm7.2'\n"}
    files |= {f"torch/lib/rocblas/library/TensileLibrary_lazy_{gfx}.dat": "" for gfx in ROCM}
    archive, site = wheel(tmp_path / "w", "torch", "2.12.0", files=files), tmp_path / "site"
    subprocess.run([sys.executable, "-m", "zipfile", "-e", str(archive), str(site)], check=True)
    known = Installed(metadata=metadata_in(LiveWorld({}, cwd=str(tmp_path)), [str(site)]))
    environment, gpus = Environment("python", {"torch": "2.12.0+rocm7.2"}), tuple(map(radeon, cards))
    found = list(rules.torch_without_this_amd_card(run_of("m"), environment, known, gpus, LINUX))
    assert len(found) == told
    for finding in found:
        assert f"holds no code for the AMD Radeon ({cards[0]}): only for gfx908, gfx90a, gfx942" in finding.text()
    passing = replace(LINUX, environment={"HSA_OVERRIDE_GFX_VERSION": "10.3.0"})
    with pytest.raises(NotApplicable):
        list(rules.torch_without_this_amd_card(run_of("m"), environment, known, gpus, passing))
