"""PKG014, PKG015, PKG016: compiled packages by the names of real wheels."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from zdoctor.checks import binaries as rules
from zdoctor.doctor.model.environment import Environment, Installed, Metadata
from zdoctor.doctor.rules import NotApplicable
from zdoctor.tests.changes import changed
from zdoctor.tests.environments import put, wheel
from zdoctor.tests.models import run_of

# As the wheels of manylinux_2_24_x86_64 hold them (unzip -l), 2026-11-22.
BITSANDBYTES = {
    "0.45.5": ("117", "118", "120", "121", "122", "123", "124", "125", "126", "128"),
    "0.48.2": ("118", "120", "121", "122", "123", "124", "125", "126", "128", "129", "130"),
    "0.50.2": ("118", "121", "124", "126", "128", "130", "132"),
}


def installed(*packages: Metadata) -> Installed:
    return Installed(metadata={one.name: one for one in packages})


@pytest.mark.parametrize(
    ("version", "torch", "silent"),
    [
        ("0.45.5", "2.9.1+cu128", True),
        ("0.45.5", "2.13.0+cu130", False),
        ("0.45.5", "2.9.0+cu129", False),
        ("0.48.2", "2.13.0+cu130", True),
        ("0.48.2", "2.14.0+cu132", False),
        ("0.50.2", "2.9.0+cu129", True),  # takes that for 12.8
        ("0.50.2", "2.4.0+cu121", True),
        ("0.50.2", "2.4.0+cu118", True),
    ],
)
def test_the_cuda_that_bitsandbytes_was_built_for(version: str, torch: str, silent: bool) -> None:
    names = tuple(f"libbitsandbytes_cuda{cuda}.so" for cuda in BITSANDBYTES[version])
    known = installed(Metadata("bitsandbytes", version, "", libraries=names))
    environment = Environment("python", {"torch": torch, "bitsandbytes": version})
    found = list(rules.bitsandbytes_without_this_cuda(run_of("m"), environment, known))
    assert (found == []) is silent
    for finding in found:
        assert f"bitsandbytes {version}, which holds no library for CUDA" in finding.text()


def test_an_optimizer_of_bitsandbytes_makes_it_an_error() -> None:
    known = installed(Metadata("bitsandbytes", "0.45.5", "", libraries=("libbitsandbytes_cuda128.dll",)))
    environment = Environment("python", {"torch": "2.13.0+cu130"})
    for optimizer, severity in (("adamw8bit", "error"), ("adamw", None)):
        run = changed(run_of("m"), optimizer={"name": optimizer})
        [finding] = rules.bitsandbytes_without_this_cuda(run, environment, known)
        assert finding.severity == severity


@pytest.mark.parametrize("torch", ["2.13.0", "2.13.0+cpu", "2.9.1+rocm6.4"])
def test_a_torch_that_names_no_cuda_is_not_judged(torch: str) -> None:
    known = installed(Metadata("bitsandbytes", "0.45.5", "", libraries=("libbitsandbytes_cuda128.so",)))
    with pytest.raises(NotApplicable):
        list(rules.bitsandbytes_without_this_cuda(run_of("m"), Environment("p", {"torch": torch}), known))


ADDRESS = (
    "https://github.com/x/releases/download/v2.8.3/flash_attn-2.8.3%2Bcu12torch2.8cxx11abiTRUE-cp312-cp312-x.whl"
)


@pytest.mark.parametrize(
    ("version", "url", "torch", "told"),
    [
        ("2.8.3+cu12torch2.8cxx11abitrue", "", "2.8.0+cu128", ""),
        ("2.8.3+cu12torch2.8cxx11abitrue", "", "2.9.1+cu128", "built for torch 2.8 and CUDA 12, and torch 2.9.1"),
        ("2.8.3+cu12torch2.8cxx11abitrue", "", "2.8.0+cu130", "built for torch 2.8 and CUDA 12"),
        ("2.8.3", ADDRESS, "2.8.0+cu128", ""),
        ("2.8.3", ADDRESS, "2.10.0+cu128", "built for torch 2.8"),
        ("0.21.0+torch270cu128", "", "2.7.1+cu128", ""),
        ("0.21.1+torch2100cu130", "", "2.10.0+cu130", ""),
        ("0.21.0+torch270cu128", "", "2.10.0+cu128", "built for torch 2.7"),
        ("2.1.2+pt26cu124", "", "2.6.0+cu124", ""),
        ("2.1.2+pt26cu124", "", "2.13.0", "built for torch 2.6"),
        ("2.2.0+cu128torch2.9.0andhigher.post4", "", "2.10.0+cu128", ""),
        ("2.2.0+cu128torch2.9.0andhigher.post4", "", "2.8.0+cu128", "built for torch 2.9"),
        ("2.2.0+cu128torch2.9.0andhigher.post4", "", "2.10.0+cu130", "and CUDA 12"),
        ("2.8.3", "", "2.9.1", ""),
        ("0.24.1+cu128", "", "2.9.1", ""),
        ("0.0.30+4cf69f09.d20250606", "", "2.9.1", ""),
        ("3.7.1", "https://github.com/x/torch2.6/archive/main.zip", "2.9.1", ""),
    ],
)
def test_the_torch_that_a_build_names(version: str, url: str, torch: str, told: str) -> None:
    known = installed(Metadata("flash_attn", version, "", url=url))
    found = list(rules.built_for_another_torch(Environment("python", {"torch": torch}), known))
    assert [told in finding.text() for finding in found] == [True] * bool(told)


@pytest.mark.parametrize(
    ("peft", "torchao", "silent"),
    [("0.18.1", "0.10.0", True), ("0.19.0", "0.10.0", False), ("0.21.2", "0.16.0", True), ("0.21.2", "", True)],
)
def test_torchao_beside_peft(peft: str, torchao: str, silent: bool) -> None:
    environment = Environment("python", {"peft": peft} | ({"torchao": torchao} if torchao else {}))
    if not torchao:
        with pytest.raises(NotApplicable):
            list(rules.torchao_that_peft_refuses(environment))
        return
    assert (not list(rules.torchao_that_peft_refuses(environment))) is silent


def test_peft_does_refuse_it(tmp_path: Path) -> None:
    """The real one, with a torchao that is there by its name and its metadata alone."""
    put(tmp_path, wheel(tmp_path / "w", "torchao", "0.16.0"))
    script = "import sys\nfrom peft.import_utils import is_torchao_available as a\nsys.path.insert(0, sys.argv[1])\n"
    script += "import importlib.metadata as m; real = m.version\nfor v in ('0.16.0', '0.10.0'):\n"
    script += "    m.version = lambda n, v=v: v if n == 'torchao' else real(n)\n    a.cache_clear(); print(a())\n"
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.stdout == "True\n" and "Found an incompatible version of torchao" in done.stderr
