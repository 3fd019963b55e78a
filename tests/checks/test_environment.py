"""PKG006, PKG007, PKG008, PKG009, PKG010, PKG011, PKG012, PKG013 in environments of tiny wheels.

They fail for real, and pip cures them as it is shown.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from zdoctor.checks import environment as rules
from zdoctor.checks import interpreter
from zdoctor.checks.packages import cpu_build_of_torch
from zdoctor.checks.wheels import no_wheel_for_this_python
from zdoctor.doctor.apply import ApplyError, apply, undo
from zdoctor.doctor.model import Finding, Fix, Gpu, Host, InstallPackages, Plan, Schema, Unknown, Where
from zdoctor.doctor.model.environment import Environment, Installed
from zdoctor.doctor.model.facts import NOT_ASKED
from zdoctor.doctor.packages.names import REFUSES
from zdoctor.doctor.probe.environment import of_folder, probe_environment
from zdoctor.doctor.probe.installed import probe_installed
from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.doctor.rules import NotApplicable, Rule, Unestablished, all_repairs, all_rules
from zdoctor.fixes.packages import install_torch_for_this_card
from zdoctor.tests.environments import drop, offline, pip, put, venv, wheel
from zdoctor.tests.models import run_of

REQUIREMENTS = """-r base.txt
scipy==1.12.0 ; python_version < "4"
numpy
"""
BASE = "oyaml\nlycoris-lora==1.8.3\nnot-for-here ; sys_platform == 'nowhere'\ntoml>=0.10  # comment\nlate\n"
RUN = "import os\nfrom toolkit.job import run\n"
JOB = '"""import toml"""\nimport oyaml as yaml\nfrom .more import thing\ndef run():\n    import late\n'
MORE = "try:\n    import maybe\nexcept ImportError:\n    pass\nfrom scipy import __version__ as thing\n"
HEALTHY = {
    "oyaml": "1.0",
    "lycoris-lora": "1.8.3",
    "toml": "0.10.2",
    "scipy": "1.12.0",
    "numpy": "1.26.4",
    "late": "1",
}


TORCHES = {"2.9.1": True, "2.8.0": True, "2.9.1+cpu": True, "2.9.1+cu128": True, "2.9.1+cu126": False}


def torch_that(computes: bool, version: str) -> dict[str, str]:
    """The least of torch that a repair asks: a card on which something is computed, or not."""
    told = "x" if computes else "raise RuntimeError('no kernel image is available')"
    text = "class cuda:\n  device_count = staticmethod(lambda: 1)\nclass _Answer:\n  item = sum = lambda s: s\n"
    text += f"def ones(*_, **__):\n  x = _Answer()\n  {told}\n  return x\n"
    return {"torch/__init__.py": text, "torch/version.py": f"__version__ = '{version}'\n"}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    for name, version in HEALTHY.items():
        wheel(folder, name, version)
    wheel(folder, "lycoris-lora", "2.0", ["toml<0.10", "numpy>=1", 'kept-out ; extra == "x"'])
    wheel(folder, "toml", "0.9")
    for version, computes in TORCHES.items():
        wheel(folder, "torch", version, files=torch_that(computes, version))
    wheel(folder, "torchvision", "0.24.1+cu128", ["torch==2.9.1"])
    wheel(folder, "torchvision", "0.24.1+cpu", ["torch==2.9.1"])
    wheel(folder, "torchvision", "0.24.1", ["torch==2.9.1", "numpy"])
    wheel(folder, "torchvision", "0.23.0", ["torch==2.8.0", "numpy"])
    wheel(folder, "diffusers", "0.36.0")
    return folder


@pytest.fixture(scope="module")
def healthy(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small checkout of ai-toolkit's shape, with all that it asks for in its venv."""
    root = tmp_path_factory.mktemp("checkout")
    for name, text in {
        "requirements.txt": REQUIREMENTS,
        "base.txt": BASE,
        "run.py": RUN,
        "toolkit/__init__.py": "",
        "toolkit/job.py": JOB,
        "toolkit/more.py": MORE,
    }.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    pip(venv(root / "venv"), wheels, *(f"{name}=={version}" for name, version in HEALTHY.items()))
    return root


@pytest.fixture
def checkout(healthy: Path, tmp_path: Path) -> Path:
    shutil.copytree(healthy, tmp_path / "c", symlinks=True)
    return tmp_path / "c"


def python_of(root: Path) -> Path:
    return root / "venv" / "bin" / "python"


def site(root: Path) -> Path:
    return next((root / "venv" / "lib").glob("python3.*")) / "site-packages"


def install(root: Path, wheels: Path, *names: str) -> None:
    put(site(root), *(next(wheels.glob(f"{name}-*.whl")) for name in names))


def looked_at(root: Path, variables: Mapping[str, str] | None = None) -> tuple[Environment, Installed]:
    world, schema = LiveWorld(variables or {}, cwd=str(root)), Schema("ai-toolkit", "", "", {}, source=str(root))
    environment = probe_environment(world, run_of("m"), schema)
    assert isinstance(environment, Environment)
    installed = probe_installed(world, run_of("m"), environment, schema)
    assert isinstance(installed, Installed)
    return environment, installed


def of_environment() -> Iterator[Rule]:
    yield from (rule for rule in all_rules() if rule.check.__module__ in (rules.__name__, interpreter.__name__))


def found_in(root: Path, variables: Mapping[str, str] | None = None) -> list[Finding]:
    environment, installed = looked_at(root, variables)
    facts = {"environment": environment, "installed": installed, "host": Host(), "system": LiveWorld().system}
    found: list[Finding] = []
    for one in of_environment():
        try:
            found += [replace(f, rule=one.id) for f in one.check(**{name: facts[name] for name in one.needs})]
        except NotApplicable:
            continue
    return found


def started(root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([python_of(root), "run.py"], cwd=root, capture_output=True, text=True, check=False)


def fixes_of(finding: Finding) -> list[Fix]:
    """Where nothing else is known."""
    cures = all_repairs()[finding.rule]
    return [fix for one in cures for fix in one.cure(finding, *(NOT_ASKED for _ in one.needs))]


def cured(finding: Finding, wheels: Path, root: Path) -> None:
    """The fix carried out; and what is shown where the environment is no venv leads to the same packages."""
    [fix] = fixes_of(finding)
    with mock.patch.dict(os.environ, offline(wheels)):
        apply(Plan("", (fix,)), state=root / "state")
    after = frozen(root)
    [shown] = fixes_of(replace(finding, evidence={**finding.evidence, "root": ""}))
    assert not shown.steps
    python, dash, pip_, *words = shlex.split(shown.command)
    assert (dash, pip_) == ("-m", "pip")
    command = [sys.executable, "-m", "pip", "--python", python, *words]
    subprocess.run(command, env=offline(wheels), check=True, capture_output=True)
    assert frozen(root) == after


def test_a_healthy_environment_is_silent(healthy: Path) -> None:
    assert found_in(healthy) == []
    assert started(healthy).returncode == 0
    _, installed = looked_at(healthy)
    assert installed.asked == 7 and installed.unread == ()


def test_a_package_that_the_start_imports_is_missing(checkout: Path, wheels: Path) -> None:
    drop(site(checkout), "scipy")
    [finding] = found_in(checkout)
    assert finding.rule == "PKG006" and finding.where is not None
    assert (Path(finding.where.path).name, finding.where.line) == ("requirements.txt", 2)
    assert finding.args["file"] == f"{checkout}/toolkit/more.py:5"
    assert "No module named 'scipy'" in started(checkout).stderr
    cured(finding, wheels, checkout)
    assert found_in(checkout) == [] and started(checkout).returncode == 0


def test_what_is_imported_later_or_perhaps_is_a_warning(checkout: Path, wheels: Path) -> None:
    drop(site(checkout), "late")
    drop(site(checkout), "toml")
    assert [(f.rule, f.args["package"]) for f in found_in(checkout)] == [("PKG007", "toml"), ("PKG007", "late")]
    assert started(checkout).returncode == 0


def test_another_version_than_is_asked_for(checkout: Path, wheels: Path) -> None:
    install(checkout, wheels, "lycoris_lora-2.0")
    by_rule = {finding.rule: finding for finding in found_in(checkout)}
    assert by_rule.keys() == {"PKG007", "PKG008"}
    assert "has lycoris_lora 2.0; the trainer asks for lycoris_lora==1.8.3" in by_rule["PKG007"].text()
    assert "lycoris_lora 2.0 asks for toml<0.10" in by_rule["PKG008"].text()
    check = [sys.executable, "-m", "pip", "--python", str(python_of(checkout)), "check"]
    assert (
        "lycoris-lora 2.0 has requirement toml<0.10" in subprocess.run(check, capture_output=True, text=True).stdout
    )
    install(checkout, wheels, "lycoris_lora-1.8.3")
    assert found_in(checkout) == []


def test_a_version_that_an_import_at_the_start_refuses(checkout: Path, wheels: Path) -> None:
    """transformers compares versions itself: an error where the trainer imports it, told once, cured by the pin."""
    wheel(wheels, "transformers", "5.5.3", ["huggingface-hub<2,>=1.5"])
    (checkout / "base.txt").write_text(BASE + "huggingface_hub==1.23.0\n")
    for version in ("1.23.0", "2.4.0"):
        wheel(wheels, "huggingface-hub", version)
    install(checkout, wheels, "huggingface_hub-2.4.0")
    assert [(f.rule, f.severity) for f in found_in(checkout)] == [("PKG007", None)]
    install(checkout, wheels, "transformers")
    assert [(f.rule, f.severity) for f in found_in(checkout)] == [("PKG007", None)]  # nothing imports it
    (checkout / "toolkit" / "more.py").write_text(MORE + "from transformers import CLIPModel\n")
    [finding] = found_in(checkout)
    assert (finding.rule, finding.severity) == ("PKG008", "error")
    assert finding.evidence["wanted"] == "huggingface-hub==1.23.0"
    assert f"{checkout}/toolkit/more.py:6 imports transformers" in finding.consequence()
    (checkout / "toolkit" / "more.py").write_text(MORE + "import transformers\n")
    cured(finding, wheels, checkout)
    assert found_in(checkout) == []


@pytest.mark.parametrize(("package", "version"), [("huggingface-hub", "0.1"), ("numpy", "1.1"), ("numpy", "")])
def test_transformers_refuses_what_it_does_not_ask_for(package: str, version: str) -> None:
    """The real one, told another version of a package than it has."""
    told = f"m.version = lambda name: {version!r} if name == {package!r} and {version!r} else real(name)"
    script = f"import importlib.metadata as m\nreal = m.version\n{told}\nimport transformers"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode != 0) is bool(version), done.stderr
    assert ("is required for a normal functioning of this module" in done.stderr) is bool(version)
    assert package.replace("-", "_") in REFUSES["transformers"]


def test_a_commit_that_is_asked_for(checkout: Path, wheels: Path) -> None:
    commit = "c943837899b16cbae2f619b8dd4f7bb6f07dd81a"
    (checkout / "base.txt").write_text(BASE + f"git+https://github.com/huggingface/diffusers.git@{commit}\n")
    install(checkout, wheels, "diffusers-0.36.0")
    [finding] = found_in(checkout)
    assert "has diffusers 0.36.0; the trainer asks for diffusers at commit c943837899" in finding.text()
    shown = replace(finding, evidence={**finding.evidence, "root": ""})
    [fix] = fixes_of(shown)
    assert fix.command.endswith(f'"git+https://github.com/huggingface/diffusers.git@{commit}"')
    for version, silent in ((commit, True), ("0" * 40, False)):
        told = (
            '{"url": "https://github.com/huggingface/diffusers.git", "vcs_info": {"vcs": "git", "commit_id": "%s"}}'
        )
        (site(checkout) / "diffusers-0.36.0.dist-info" / "direct_url.json").write_text(told % version)
        assert (found_in(checkout) == []) is silent


def test_what_nobody_understands_is_not_known(checkout: Path) -> None:
    (checkout / "base.txt").write_text(BASE + "toml==not,a,version\n")
    environment, installed = looked_at(checkout)
    with pytest.raises(Unestablished, match="toml==not"):
        list(rules.requirement_not_met(installed, environment))


def test_a_program_that_brings_the_checkout_along_asks_in_its_place(checkout: Path) -> None:
    """As kohya's GUI does with sd-scripts, whose pins are others."""
    around = checkout.parent / "requirements.txt"
    around.write_text("toml==0.9\n-e ./c\n")
    assert [finding.args["asked"] for finding in found_in(checkout)] == ["toml==0.9"]
    around.write_text("toml==0.9\n")
    assert found_in(checkout) == []


def test_a_project_whose_setup_script_has_a_list_for_each_kind_of_machine(tmp_path: Path, wheels: Path) -> None:
    """As SimpleTuner's: of its extras the one counts that fits best, and nothing of the others is missed."""
    root, script = tmp_path / "c", "from setuptools import setup\nTORCH = ['torch>=2.8', 'torchvision']\n"
    script += "extras = {'cuda': [*TORCH, 'late'], 'cpu': [*TORCH, 'gone']}\n"
    script += "setup(install_requires=['oyaml'], extras_require=extras)\n"
    texts = {"pyproject.toml": "[project]\nname = 'x'\ndynamic = ['dependencies']\n", "setup.py": script}
    texts["simpletuner/train.py"] = "import os\nfrom simpletuner.more import late\n"
    texts["simpletuner/more.py"] = "import late\n"
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    wheel(wheels, "simpletuner", "4.0")
    pip(venv(root / "venv"), wheels, "simpletuner", "oyaml", "late", "torch==2.9.1", "torchvision==0.24.1")

    def told() -> list[str]:
        run = replace(run_of("m"), trainer="SimpleTuner")
        world, schema = LiveWorld({}, cwd=str(root)), Schema("SimpleTuner", "", "", {}, source=str(root))
        environment = probe_environment(world, run, schema)
        assert isinstance(environment, Environment)
        installed = probe_installed(world, run, environment, schema)
        assert isinstance(installed, Installed)
        return [f"{one.kind} {one.requirement.text}, {one.imported}" for one in installed.own]

    assert told() == []
    drop(site(root), "late")
    assert told() == [f"missing late, {Where(str(root / 'simpletuner' / 'more.py'), 1)}"]


@pytest.mark.parametrize(("release", "told"), [("3.12", []), ("3.13", ["3.12"])])
def test_a_python_without_a_wheel_of_what_is_missing(release: str, told: list[str], checkout: Path) -> None:
    """PKG018: told only of what is not there."""
    world, schema = LiveWorld({}, cwd=str(checkout)), Schema("ai-toolkit", "", "", {}, source=str(checkout))
    for removed, expected in ((False, []), (True, told)):  # what is there was built by somebody
        if removed:
            drop(site(checkout), "scipy")
        environment = probe_environment(world, run_of("m"), schema)
        assert isinstance(environment, Environment)
        environment = replace(environment, release=release)
        installed = probe_installed(world, run_of("m"), environment, schema)
        assert isinstance(installed, Installed)
        found = list(no_wheel_for_this_python(installed, environment))
        assert [one.args["nearest"] for one in found] == expected
        assert all("no wheel of scipy==1.12.0" in one.text() for one in found)


def test_the_python_that_a_project_asks_for(checkout: Path) -> None:
    (checkout / "requirements.txt").write_text("python-dateutil-is-no-python ; python_version < '3'\n")
    (checkout / "dgx_requirements.txt").write_text("")
    assert found_in(checkout) == []


def test_torchvision_of_another_torch(checkout: Path, wheels: Path) -> None:
    install(checkout, wheels, "torch-2.9.1", "torchvision-0.24.1")
    assert found_in(checkout) == []
    install(checkout, wheels, "torch-2.8.0")
    [finding] = found_in(checkout)
    assert (
        finding.rule == "PKG009"
        and "torchvision 0.24.1, which belongs to torch 2.9.1, and torch 2.8.0" in finding.text()
    )
    cured(finding, wheels, checkout)
    assert found_in(checkout) == []


# As torch 2.13.0 and torchvision 0.28.0 of PyPI and of the indexes of PyTorch were tried (docs/measurements.md).
@pytest.mark.parametrize(
    ("torch", "torchvision", "told", "index"),
    [
        ("2.9.1+cu128", "0.24.1+cu128", "", ""),
        ("2.9.1+cu128", "0.24.1+cu126", "", ""),
        ("2.9.1+cpu", "0.24.1+cpu", "", ""),
        ("2.9.1+cu128", "0.24.1+cpu", "", ""),  # its own check lets it pass
        ("2.9.1", "0.24.1+cu128", "", ""),
        ("2.9.1+cpu", "0.24.1+cu128", "built for CUDA, and torch 2.9.1+cpu, which was not", "whl/cpu"),
        ("2.9.1+cu130", "0.24.1+cu128", "they were built for different CUDA versions", "whl/cu130"),
    ],
)
def test_builds_of_torch_and_torchvision(
    torch: str, torchvision: str, told: str, index: str, checkout: Path, wheels: Path
) -> None:
    install(checkout, wheels, "torch-2.9.1", "torchvision-0.24.1")
    (site(checkout) / "torch" / "version.py").write_text(f"__version__ = '{torch}'\n")
    (site(checkout) / "torchvision" / "version.py").write_text(f"__version__ = '{torchvision}'\n")
    found = found_in(checkout)
    assert [finding.rule for finding in found] == ["PKG009"] * bool(told)
    for finding in found:
        assert told in finding.text()
        [fix] = fixes_of(finding)
        [step] = fix.steps
        assert isinstance(step, InstallPackages)
        assert step.wanted == "torchvision==0.24.1" and step.index.endswith(index)


@pytest.mark.parametrize("kind", ["module", "metadata", "left over"])
def test_a_package_in_part(kind: str, checkout: Path, wheels: Path) -> None:
    if kind == "left over":
        (site(checkout) / "~cipy").mkdir()
    elif kind == "module":
        (site(checkout) / "scipy" / "__init__.py").unlink()
    else:
        (site(checkout) / "scipy-1.12.0.dist-info" / "METADATA").write_text("")
    [finding] = found_in(checkout)
    assert finding.rule == "PKG010" and finding.severity == ("note" if kind == "left over" else None)
    if kind == "module":
        assert started(checkout).returncode != 0
        cured(finding, wheels, checkout)
        assert found_in(checkout) == [] and started(checkout).returncode == 0


def test_a_module_that_was_edited_is_whole(checkout: Path) -> None:
    (site(checkout) / "scipy" / "__init__.py").write_text("__version__ = 1")
    assert found_in(checkout) == []


def test_built_for_numpy_1() -> None:
    def told(**versions: str) -> list[str]:
        environment = Environment("python", versions)
        return [str(finding.evidence["package"]) for finding in rules.built_for_numpy_1(environment)]

    assert told(numpy="2.1.0", torch="2.2.2+cu121", scipy="1.12.0", pandas="2.2.3") == ["scipy", "torch"]
    assert told(numpy="1.26.4", torch="2.2.2", scipy="1.12.0") == []
    assert told(numpy="2.1.0", torch="2.3.0", opencv_python="4.10.0.84", scipy="1.13.0") == []
    with pytest.raises(NotApplicable):
        told(torch="2.2.2")


@pytest.mark.parametrize(
    ("versions", "module"),
    [
        ({"opencv_python": "4.10.0.84", "opencv_python_headless": "4.11.0.86"}, "cv2"),
        ({"opencv_python": "4.11.0.86", "opencv_python_headless": "4.11.0.84"}, ""),
        ({"onnxruntime": "1.19", "onnxruntime_gpu": "1.19"}, "onnxruntime"),
        ({"pynvml": "11.5", "nvidia_ml_py": "12.5"}, "pynvml"),
        ({"pynvml": "12.0", "nvidia_ml_py": "12.5"}, ""),
        ({"opencv_python": "4.10.0.84"}, ""),
    ],
)
def test_two_packages_with_one_module(versions: Mapping[str, str], module: str) -> None:
    found = list(rules.two_packages_with_one_module(Environment("python", versions)))
    assert [finding.args["module"] for finding in found] == ([module] if module else [])


def test_an_environment_whose_python_is_gone(checkout: Path, tmp_path: Path) -> None:
    base = tmp_path / "python3.11"
    base.symlink_to(sys.executable)
    python = python_of(checkout)
    python.unlink()
    python.symlink_to(base)
    assert found_in(checkout) == []
    base.unlink()
    [finding] = found_in(checkout)
    assert finding.rule == "PKG013" and finding.args["base"] == str(base)
    with pytest.raises(FileNotFoundError):
        started(checkout)


def test_an_environment_of_windows_whose_python_is_gone(tmp_path: Path) -> None:
    folder = tmp_path / "venv"
    (folder / "Lib" / "site-packages" / "torch-2.6.0.dist-info").mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text(f"home = {tmp_path}{os.sep}Python312\nversion_info = 3.12.4.final.0\n")

    class Windows(LiveWorld):
        """This machine, which says that it is another."""

    world = Windows({}, cwd=str(tmp_path))
    world.system = replace(world.system, os="windows")
    world.flavour = os.path
    found = of_folder(world, str(folder))
    assert found is not None and found.release == "3.12.4" and found.versions == {"torch": "2.6.0"}
    assert found.base_gone.endswith("python.exe")


def test_packages_from_outside_of_the_environment(checkout: Path, wheels: Path, tmp_path: Path) -> None:
    """What PYTHONPATH brings is imported, whatever pip installs; then nothing is installed in vain."""
    outside = tmp_path / "outside"
    put(outside, wheels / "toml-0.9-py3-none-any.whl", wheels / "numpy-1.26.4-py3-none-any.whl")
    assert found_in(checkout) == []
    around = {"PYTHONPATH": str(outside)}
    imported = subprocess.run(
        [python_of(checkout), "-c", "import toml; print(toml.__version__)"],
        env=around,
        capture_output=True,
        text=True,
    )
    assert imported.stdout == "0.9\n"
    found = {one.rule: one for one in found_in(checkout, around)}
    assert set(found) == {"PKG007", "PKG019"} and found["PKG007"].evidence["installed"] == "0.9"
    assert found["PKG019"].evidence["packages"] == "toml 0.9 (its own: 0.10.2)"
    assert not fixes_of(found["PKG007"])
    system = LiveWorld(around, cwd=str(checkout)).system
    [fix] = [fix for cure in all_repairs()["PKG019"] for fix in cure.cure(found["PKG019"], system)]
    cured = subprocess.run(
        [*("sh", "-c"), f"{fix.command}; {python_of(checkout)} -c 'import toml; print(toml.__version__)'"],
        env=around,
        capture_output=True,
        text=True,
    )
    assert cured.stdout == "0.10.2\n" and "nothing" in fix.title
    (outside / "toml" / "__init__.py").unlink()
    [finding] = [one for one in found_in(checkout, around) if one.rule == "PKG010"]
    assert finding.evidence["outside"].startswith(str(outside)) and fixes_of(finding) == []
    shutil.rmtree(outside / "toml-0.9.dist-info")
    assert found_in(checkout, around) == []


def test_what_pip_installed_for_the_user_is_before_condas(tmp_path: Path, wheels: Path) -> None:
    """conda heeds the folder of the user, a virtual environment does not."""
    python = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    root, users = tmp_path / "c", tmp_path / "user"
    put(root / "env" / "lib" / python / "site-packages", wheels / "toml-0.10.2-py3-none-any.whl")
    put(users / "lib" / python / "site-packages", wheels / "toml-0.9-py3-none-any.whl")
    (root / "requirements.txt").write_text("toml\n")
    assert [one.rule for one in found_in(root, {"PYTHONUSERBASE": str(users)})] == ["PKG019"]
    assert found_in(root, {"PYTHONUSERBASE": str(users), "PYTHONNOUSERSITE": "1"}) == []
    (root / "env" / "pyvenv.cfg").write_text("home = /nowhere\n")
    assert "PKG019" not in [one.rule for one in found_in(root, {"PYTHONUSERBASE": str(users)})]


@pytest.mark.parametrize(("index", "refused"), [("cu128", ""), ("cu126", "no kernel image is available")])
def test_torch_without_cuda_is_replaced_with_its_torchvision(
    index: str, refused: str, checkout: Path, wheels: Path, tmp_path: Path
) -> None:
    """One transaction; a torch that does not compute on the card leaves the former set in place."""
    install(checkout, wheels, "torch-2.9.1+cpu", "torchvision-0.24.1+cpu")
    environment, _ = looked_at(checkout)
    card = Gpu(0, "a card", 24 << 30, 23 << 30, (8, 9), "570.65", "recorded")
    [finding] = cpu_build_of_torch(run_of("m"), environment, (card,), LiveWorld({}, cwd="/").system)
    assert finding.evidence["wanted"] == ["torch==2.9.1+cu128", "torchvision==0.24.1+cu128"]
    seen = {**finding.evidence, "index": index}
    seen["wanted"] = [text.replace("cu128", index) for text in seen["wanted"]][: 1 if refused else 2]
    [fix] = install_torch_for_this_card(replace(finding, evidence=seen))
    before = frozen(checkout)
    with mock.patch.dict(os.environ, offline(wheels)):
        if refused:
            with pytest.raises(ApplyError, match=refused):
                apply(Plan("", (fix,)), state=tmp_path / "state")
            assert frozen(checkout) == before
            return
        done = apply(Plan("", (fix,)), state=tmp_path / "state")
    after, _ = looked_at(checkout)
    assert (after.versions["torch"], after.versions["torchvision"]) == ("2.9.1+cu128", "0.24.1+cu128")
    assert not list(cpu_build_of_torch(run_of("m"), after, (card,), LiveWorld({}, cwd="/").system))
    undo(done.id, state=tmp_path / "state")
    assert frozen(checkout) == before


def frozen(root: Path) -> str:
    freeze = [sys.executable, "-m", "pip", "--python", str(python_of(root)), "freeze"]
    return subprocess.run(freeze, capture_output=True, check=True, text=True).stdout


def test_what_comes_from_two_indexes_comes_in_one_transaction(checkout: Path, wheels: Path, tmp_path: Path) -> None:
    root, python = str(checkout / "venv"), str(python_of(checkout))
    step = InstallPackages(root, python, "torch==2.9.1+cu128", "https://x.invalid/cu128")
    before = frozen(checkout)
    with mock.patch.dict(os.environ, offline(wheels)):
        plan = Plan("", (Fix("a", (step, InstallPackages(root, python, "toml==0.9"))),))
        done = apply(plan, state=tmp_path / "state")
    assert {"torch==2.9.1+cu128", "toml==0.9"} < set(frozen(checkout).split())
    undo(done.id, state=tmp_path / "state")
    assert frozen(checkout) == before


def of_table(root: Path, *requirements: tuple[str, ...]) -> Installed:
    schema = Schema("ai-toolkit", "", "27a03a91f2" * 4, {}, date="2026-08-21", requirements=requirements)
    world = LiveWorld({"VIRTUAL_ENV": str(root / "venv")}, cwd=str(root))
    environment = probe_environment(world, run_of("m"), schema)
    assert isinstance(environment, Environment)
    installed = probe_installed(world, run_of("m"), environment, schema)
    assert isinstance(installed, Installed)
    return installed


def test_without_a_checkout_the_commit_that_ships_counts_as_a_note(checkout: Path) -> None:
    told = ("oyaml", "lycoris_lora==1.8.3", "scipy==1.13.0", "toml<0.10 ; python_version >= '3'", "never==1")
    for lines, asked in ((told, "scipy==1.13.0 (has 1.12.0), toml<0.10 (has 0.10.2)"), (("oyaml",), "")):
        installed = of_table(checkout, lines)
        found = list(rules.requirement_not_met(installed, Environment("python", {})))
        assert [(one.severity, one.evidence["asked"]) for one in found] == ([("note", asked)] if asked else [])
        assert all("commit 27a03a91f2 of 2026-08-21" in one.text() for one in found)
        assert list(rules.required_package_missing(installed, Environment("python", {}))) == []
        assert not [fix for one in found for fix in fixes_of(replace(one, rule="PKG007"))]


def test_the_kind_of_machine_that_fits_counts_there_too(checkout: Path) -> None:
    installed = of_table(checkout, ("scipy==1.13.0",), ("scipy==1.12.0", "numpy<2"))
    assert list(rules.requirement_not_met(installed, Environment("python", {}))) == []


def test_packages_that_say_nothing_are_unknown(tmp_path: Path) -> None:
    world = LiveWorld({}, cwd=str(tmp_path))
    assert isinstance(probe_installed(world, run_of("m"), Environment("p", {}), Unknown("none")), Unknown)
