"""PKG001, PKG002, PKG003, PKG004, PKG005: environments made of *.dist-info folders, found, read and judged.

Nothing in them is imported.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import diffusers
import pytest
import torch
import transformers

from zdoctor.checks import packages
from zdoctor.doctor.model import Finding, Gpu, Run, Schema, Unknown, Value, Where
from zdoctor.doctor.model.environment import Environment, release
from zdoctor.doctor.probe.environment import probe_environment
from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.doctor.probe.packages import versions_in
from zdoctor.doctor.rules import Unestablished
from zdoctor.fixes.packages import install_the_package, install_torch_for_this_card, update_the_package
from zdoctor.tests.changes import changed
from zdoctor.tests.checks.config_cases import LINUX
from zdoctor.tests.models import run_of

VERSIONS = {
    "oyaml": "1.0",
    "lycoris-lora": "1.8.3",
    "torch": "2.13.0",
    "diffusers": "0.40.0",
    "transformers": "5.5.3",
    "bitsandbytes": "0.50.2",
    "prodigyopt": "1.1.2",
}


def venv(root: Path, build_of_torch: str = "2.13.0+cu130", folder: str = "venv", **versions: str | None) -> Path:
    """A checkout with a virtual environment in it."""
    place = root / folder / "lib" / "python3.12" / "site-packages"
    (place / "torch").mkdir(parents=True)
    (place / "torch" / "version.py").write_text(f"__all__ = []\n__version__ = '{build_of_torch}'\ncuda = None\n")
    for name, version in (VERSIONS | {key.replace("_", "-"): value for key, value in versions.items()}).items():
        if version is not None:
            (place / f"{name.replace('-', '_')}-{version}.dist-info").mkdir()
    return root


def environment(root: Path, run: Run | None = None) -> Environment | Unknown:
    schema = Schema("ai-toolkit", "ostris/ai-toolkit", "", {}, source=str(root))
    return probe_environment(LiveWorld(cwd=str(root)), run or run_of("m"), schema)


def at(root: Path, **versions: str | None) -> Environment:
    found = environment(venv(root, **versions))  # type: ignore[arg-type]
    assert isinstance(found, Environment)
    return found


def card(capability: tuple[int, int] | None, driver: str = "580.65.06", name: str = "a card") -> Gpu:
    return Gpu(0, name, 24 << 30, 23 << 30, capability, driver, "recorded")


def test_the_venv_of_the_checkout_is_read_when_this_python_is_another(tmp_path: Path) -> None:
    found = at(tmp_path)
    assert found.python == str(tmp_path / "venv" / "bin" / "python")
    assert found.versions["torch"] == "2.13.0+cu130" and found.cuda == (13, 0)
    assert found.versions["lycoris_lora"] == "1.8.3"


def test_an_environment_without_the_trainers_own_packages_is_none_of_its(tmp_path: Path) -> None:
    found = environment(tmp_path / "nowhere")
    assert isinstance(found, Unknown) and "-m zdoctor check" in found.reason
    of_another = LiveWorld({"VIRTUAL_ENV": str(venv(tmp_path, oyaml=None) / "venv")}, cwd=str(tmp_path))
    assert isinstance(probe_environment(of_another, run_of("m"), Unknown("no checkout")), Unknown)


def test_an_active_environment_with_the_trainers_own_packages_is_its(tmp_path: Path) -> None:
    world = LiveWorld({"VIRTUAL_ENV": str(venv(tmp_path) / "venv")}, cwd=str(tmp_path))
    found = probe_environment(world, run_of("m"), Unknown("no checkout"))
    assert isinstance(found, Environment) and found.python == str(tmp_path / "venv" / "bin" / "python")


def test_the_environment_in_the_checkout_is_its_own_whatever_it_lacks(tmp_path: Path) -> None:
    found = environment(venv(tmp_path, oyaml=None))
    assert isinstance(found, Environment) and found.release == "3.12" and not found.has("oyaml")


def test_zdoctors_own_runner_uses_the_python_that_asks() -> None:
    found = environment(Path("nowhere"), replace(run_of("m"), trainer="zdoctor"))
    assert isinstance(found, Environment)
    assert found.versions["torch"] == torch.__version__  # as the real one has it, its build included
    assert found.versions["diffusers"] == diffusers.__version__
    assert release(found.versions["transformers"]) == release(transformers.__version__)


@pytest.mark.parametrize(
    ("entry", "version"),
    [
        ("torch-2.6.0+cu124.dist-info", "2.6.0+cu124"),
        ("Torch-2.5.1-py3.12.egg-info", "2.5.1"),
        ("torch_geometric-2.6.0.dist-info", None),
        ("torch.egg-info", None),
        ("torch", None),
    ],
)
def test_names_of_metadata(entry: str, version: str | None, tmp_path: Path) -> None:
    (tmp_path / entry).mkdir()
    assert versions_in(LiveWorld(), str(tmp_path)).get("torch") == version


@pytest.mark.parametrize(
    ("source", "version"), [("cuda = None", "2.5.1"), ("__version__ = '2.5.1+cpu'\n", "2.5.1+cpu")]
)
def test_a_build_is_named_where_torch_says_it(source: str, version: str, tmp_path: Path) -> None:
    (tmp_path / "torch-2.5.1.dist-info").mkdir()
    assert versions_in(LiveWorld(), str(tmp_path)) == {"torch": "2.5.1"}
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "version.py").write_text(source)
    assert versions_in(LiveWorld(), str(tmp_path)) == {"torch": version}


BLACKWELL, TURING, VOLTA, PASCAL, ADA = (12, 0), (7, 5), (7, 0), (6, 1), (8, 9)


@pytest.mark.parametrize(
    ("build_of_torch", "capability", "driver", "rules", "index"),
    [
        ("2.13.0+cu130", ADA, "580.65", "", None),
        ("2.13.0+cu130", BLACKWELL, "581.80", "", None),
        ("2.13.0+cu130", TURING, "595", "", None),
        ("2.8.0+cu128", VOLTA, "570", "", None),  # said of by the release notes in two ways
        ("2.6.0+cu124", PASCAL, "560.35", "", None),
        ("2.7.1", ADA, "450", "", None),  # conda's, or one's own
        ("2.6.0a0+df5bbc09d1.nv24.12", PASCAL, "450", "", None),  # NVIDIA's containers
        ("2.13.0+rocm7.1", ADA, "450", "", None),
        ("2.13.0+cpu", ADA, "580.65", "PKG001", "cu130"),
        ("2.13.0+cpu", ADA, "560.35", "PKG001", "cu126"),
        ("2.8.0+cpu", BLACKWELL, "572.16", "PKG001", "cu128"),
        ("2.13.0+cu126", BLACKWELL, "580.65", "PKG002", "cu130"),
        ("2.6.0+cu124", BLACKWELL, "572.16", "PKG002", "2.7.0+cu128"),
        ("2.0.1+cu117", (9, 0), "535", "PKG002", "2.2.0+cu121"),  # the first with Python 3.12
        ("2.13.0+cu130", VOLTA, "580.65", "PKG002", "cu126"),
        ("2.8.0+cu128", PASCAL, "570", "PKG002", "cu126"),
        ("2.11.0+cu128", VOLTA, "570", "PKG002", "cu126"),
        ("2.13.0+cu130", TURING, "570.133.20", "PKG003", "cu126"),
        ("2.6.0+cu124", TURING, "470.82", "PKG003", "cu118"),
        ("2.13.0+cu130", TURING, "470.82", "PKG003", None),
        ("2.15.0+cpu", PASCAL, "580.65", "PKG001", "2.14.1+cu126"),
        ("2.13.0+cu130", PASCAL, "535", "PKG002 PKG003", "cu126"),
    ],
)
def test_wheels_cards_and_drivers(
    build_of_torch: str, capability: tuple[int, int], driver: str, rules: str, index: str | None, tmp_path: Path
) -> None:
    seen, gpus, run = at(tmp_path, build_of_torch=build_of_torch), (card(capability, driver),), run_of("m")
    found = {"PKG001": list(packages.cpu_build_of_torch(run, seen, gpus, LINUX))}
    others = {
        "PKG002": packages.torch_without_kernels(run, seen, gpus, LINUX),
        "PKG003": packages.driver_older_than_torch(run, seen, gpus, LINUX),
    }
    for name, asked in others.items():
        if found["PKG001"]:
            with pytest.raises(Unestablished, match="built without CUDA"):
                list(asked)
        else:
            found[name] = list(asked)
    assert " ".join(name for name, findings in found.items() if findings) == rules
    for finding in (finding for findings in found.values() for finding in findings):
        assert str(tmp_path / "venv") in finding.text() and build_of_torch in finding.text()
        commands = [fix.command for fix in install_torch_for_this_card(finding)]
        whole = index if index is None or "+" in index else f"{build_of_torch.partition('+')[0]}+{index}"
        address = f"https://download.pytorch.org/whl/{str(whole).partition('+')[2]}"
        assert commands == (
            [] if whole is None else [f"{seen.python} -m pip install torch=={whole} --index-url {address}"]
        )


@pytest.mark.parametrize(
    ("build_of_torch", "said"),
    [
        ("2.13.0+rocm7.1", ""),
        ("2.13.0", ""),
        ("2.13.0+cu130", "built for NVIDIA's cards"),
        ("2.13.0+cpu", "built without CUDA"),
    ],
)
def test_wheels_and_cards_of_amd(build_of_torch: str, said: str, tmp_path: Path) -> None:
    radeon = replace(card(ADA, ""), capability=None, maker="amd")
    seen, run = at(tmp_path, build_of_torch=build_of_torch), run_of("m")
    found = list(packages.cpu_build_of_torch(run, seen, (radeon,), LINUX))
    assert len(found) == bool(said) and all(said in finding.text() for finding in found)
    assert not [fix for finding in found for fix in install_torch_for_this_card(finding)]
    for known, index in (("gfx1100", "rocm7.2"), ("gfx1151", "rocm7.2"), ("gfx1031", "")):
        for finding in packages.cpu_build_of_torch(run, seen, (replace(radeon, gfx=known),), LINUX):
            commands = [fix.command for fix in install_torch_for_this_card(finding)]
            assert [f"torch==2.13.0+{index} --index-url" in command for command in commands] == [True] * bool(index)
    if build_of_torch != "2.13.0+cpu":
        assert not list(packages.torch_without_kernels(run, seen, (radeon,), LINUX))
        assert not list(packages.driver_older_than_torch(run, seen, (radeon,), LINUX))


@pytest.mark.parametrize(
    ("python", "command"),
    [
        ("this Python", 'python -m pip install "diffusers>=0.36"'),
        ("/home/a b/bin/python", '"/home/a b/bin/python" -m pip install "diffusers>=0.36"'),
        ("C:\\venv\\python.exe", 'C:\\venv\\python.exe -m pip install "diffusers>=0.36"'),
        (
            "C:\\Al O'Neil\\python.exe",
            "powershell -Command \"& 'C:\\Al O''Neil\\python.exe' -m pip install 'diffusers>=0.36'\"",
        ),
    ],
)
def test_a_python_in_a_folder_with_a_space(python: str, command: str) -> None:
    seen = {"python": python, "package": "diffusers", "minimum": "0.36"}
    (fix,) = update_the_package(Finding("x", evidence=seen))
    assert fix.command == command


def test_cards_of_which_one_is_served_or_unknown_are_no_finding(tmp_path: Path) -> None:
    seen = at(tmp_path, build_of_torch="2.13.0+cu130")
    assert not list(packages.torch_without_kernels(run_of("m"), seen, (card(PASCAL), card(ADA)), LINUX))
    assert not list(packages.torch_without_kernels(run_of("m"), seen, (card(PASCAL), card(None)), LINUX))
    assert not list(packages.torch_without_kernels(run_of("m"), seen, (), LINUX))
    assert len(list(packages.torch_without_kernels(run_of("m"), seen, (card(PASCAL), card(VOLTA)), LINUX))) == 1


@pytest.mark.parametrize(("visible", "found"), [("0", 1), ("1", 0), ("1,0", 0), ("0,1", 1), ("", 0)])
def test_the_card_that_the_run_takes_is_judged(visible: str, found: int, tmp_path: Path) -> None:
    """A P100 beside an RTX 4090: this build of PyTorch serves the second alone."""
    seen, run = at(tmp_path, build_of_torch="2.13.0+cu130"), run_of("m")
    by_bus = replace(LINUX, environment={"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": visible})
    findings = list(packages.torch_without_kernels(run, seen, (card(PASCAL, name="P100"), card(ADA)), by_bus))
    assert [finding.args["card"] for finding in findings] == ["P100"] * found
    on_cpu = at(tmp_path / "cpu", build_of_torch="2.13.0+cpu")
    assert bool(list(packages.cpu_build_of_torch(run, on_cpu, (card(ADA), card(ADA)), by_bus))) is (visible != "")


def test_a_cpu_build_really_says_what_the_rule_says() -> None:
    """The torch of these tests: where it is built without CUDA, its first use of a card fails as predicted."""
    seen = environment(Path("nowhere"), replace(run_of("m"), trainer="zdoctor"))
    assert isinstance(seen, Environment)
    findings = list(packages.cpu_build_of_torch(run_of("m"), seen, (card(ADA),), LINUX))
    assert bool(findings) is (torch.version.cuda is None)
    if torch.version.cuda is None:
        with pytest.raises(AssertionError, match="Torch not compiled with CUDA enabled"):
            torch.zeros(1).to("cuda")
    elsewhere = replace(run_of("m"), trainer="zdoctor", device="xpu")
    assert not list(packages.cpu_build_of_torch(elsewhere, seen, (), LINUX))
    on_purpose = replace(run_of("m"), device="cpu")
    assert not list(packages.cpu_build_of_torch(on_purpose, seen, (card(ADA),), LINUX))


@pytest.mark.parametrize(
    ("architecture", "trainer", "versions", "old"),
    [
        ("zimage", "ai-toolkit", {}, []),
        ("zimage", "ai-toolkit", {"diffusers": "0.36.0.dev0"}, []),  # a commit that has it, or one that has not
        ("zimage", "ai-toolkit", {"diffusers": "0.35.2"}, ["diffusers"]),
        ("zimage", "ai-toolkit", {"diffusers": "0.35.2", "transformers": "4.48.0"}, ["diffusers", "transformers"]),
        ("zimage", "musubi-tuner", {"diffusers": "0.32.1", "transformers": "4.57.6"}, []),
        ("flux", "ai-toolkit", {"diffusers": "0.30.0"}, []),
        ("flux_kontext", "ai-toolkit", {"diffusers": "0.34.0"}, ["diffusers"]),
        ("zimage", "ai-toolkit", {"diffusers": None}, []),
    ],
)
def test_packages_older_than_the_model(
    architecture: str, trainer: str, versions: dict[str, str | None], old: list[str], tmp_path: Path
) -> None:
    run = changed(run_of("m"), architecture=architecture, trainer=trainer)
    found = list(packages.package_too_old(run, at(tmp_path, **versions)))
    assert [finding.evidence["package"] for finding in found] == old
    for finding in found:
        (fix,) = update_the_package(finding)
        assert fix.safety == "show" and f"{finding.evidence['package']}>=" in fix.command


@pytest.mark.parametrize("name", sorted({name for needed in packages._SINCE.values() for _, _, name in needed}))
def test_the_classes_are_in_the_installed_versions(name: str) -> None:
    library = transformers if name.startswith("Qwen3") else diffusers
    assert hasattr(library, name)


@pytest.mark.parametrize(
    ("optimizer", "trainer", "package"),
    [
        ("adamw8bit", "ai-toolkit", "bitsandbytes"),
        ("lion", "ai-toolkit", "lion_pytorch"),
        ("prodigy", "ai-toolkit", "prodigyopt"),
        ("prodigy8bit", "ai-toolkit", None),
        ("dadaptationadam", "ai-toolkit", "dadaptation"),
        ("adam8", "ai-toolkit", None),
        ("adamw", "ai-toolkit", None),
        ("PagedAdamW8bit", "sd-scripts", "bitsandbytes"),
        ("prodigyplus.ProdigyPlusScheduleFree", "sd-scripts", None),
        ("DAdaptLion", "sd-scripts", "dadaptation"),
        ("lion", "musubi-tuner", None),
    ],
)
def test_an_optimizer_and_its_package(optimizer: str, trainer: str, package: str | None, tmp_path: Path) -> None:
    run = changed(run_of("m"), optimizer={"name": optimizer}, trainer=trainer)
    bare = at(tmp_path / "bare", bitsandbytes=None, prodigyopt=None)
    found = list(packages.package_not_installed(run, bare))
    assert [finding.evidence["package"] for finding in found] == ([package] if package else [])
    if package is not None:
        (fix,) = install_the_package(found[0])
        assert fix.command.endswith(f"pip install {package.replace('_', '-')}")
        with_it = at(tmp_path / "cured", **{package: "1.0"})
        assert not list(packages.package_not_installed(run, with_it))


@pytest.mark.parametrize(
    ("without", "said"),
    [
        (("torch", "diffusers", "transformers"), "does not have torch, diffusers and transformers, which"),
        (("transformers",), "does not have transformers, which"),
        (("bitsandbytes",), ""),
    ],
)
def test_what_zdoctors_own_runner_needs(without: tuple[str, ...], said: str, tmp_path: Path) -> None:
    versions = {name: version for name, version in VERSIONS.items() if name not in without}
    own = changed(run_of("m"), optimizer={"name": "adamw8bit"}, trainer="zdoctor")
    found = list(packages.package_not_installed(own, Environment("/usr/bin/python3", versions)))
    assert bool(found) is bool(said)
    for finding in found:
        assert re.search(said, finding.text())
        (fix,) = install_the_package(finding)
        assert fix.command == '/usr/bin/python3 -m pip install "zdoctor[train]"'


def test_without_torch_the_runner_says_what_the_rule_says() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from zdoctor.doctor.train.runtime.heavy_imports import explained_imports\n"
        "with explained_imports():\n    import torch"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "TrainError: Training needs packages that are not here" in done.stderr and "zdoctor[train]" in done.stderr


def test_wandb_is_asked_for_only_where_it_is_used(tmp_path: Path) -> None:
    def said(value: bool) -> list[Finding]:
        run = run_of("m")
        settings = {**run.settings, "logging/use_wandb": Value(value, Where("c"), 0, 0)}
        return list(packages.package_not_installed(changed(run, settings=settings), seen))

    seen = at(tmp_path)
    assert not said(False)
    (found,) = said(True)
    assert "wandb" in found.text() and "before the first step" in found.consequence()
